"""Output: how commands print for people and for programs.

Above: every command. Below: the terminal. Names, titles and bodies are other people's words, often a model's: they
are printed as text, with everything neutralised that a terminal would obey or that would let a body look like part of
our own output. Every line of a body is indented and nothing in it can begin another line, so a body cannot forge a
header. JSON carries the same text unharmed, because JSON can escape it.
"""

import re
import sys
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tieline.client import Item, Message, ReceiptView

_UNSAFE = re.compile(
    "["
    "\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and line feed
    "\u2028\u2029"  # line and paragraph separators
    "\u202a-\u202e\u2066-\u2069"  # bidirectional overrides, which reorder what a reader sees
    "\U000e0000-\U000e007f"  # tags: invisible to people, legible to models
    "\ud800-\udfff"  # halves of pairs, which no terminal can show
    "]"
)
_BEYOND_BMP = 0xFFFF


def neutral(text: str) -> str:
    """Text of several lines that a terminal prints and does not obey."""
    return _UNSAFE.sub(_visible, text.replace("\r\n", "\n"))


def neutral_line(text: str) -> str:
    """The same on one line."""
    return neutral(text).replace("\n", "\\n").replace("\t", "\\t")


def _visible(match: re.Match[str]) -> str:
    return ascii(match[0])[1:-1]


# Programs read this.


def print_json(value: Any) -> None:
    """One JSON document on one line, or indented for a person's terminal."""
    import msgspec

    encoded = msgspec.json.encode(value)
    if sys.stdout.isatty():
        encoded = msgspec.json.format(encoded)
    print(_UNSAFE_IN_JSON.sub(_escaped, encoded.decode()), flush=True)


# JSON escapes the first 32 by itself; the line feeds left are those of its own layout.
_UNSAFE_IN_JSON = re.compile(_UNSAFE.pattern.replace("\x00-\x08\x0b-\x1f", ""))


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number <= _BEYOND_BMP:
        return f"\\u{number:04x}"
    units = match[0].encode("utf-16-be").hex()
    return f"\\u{units[:4]}\\u{units[4:]}"


def without_framing(value: Any) -> Any:
    """A frame of the hub's protocol as a document: without its type and its number, which mean nothing here."""
    import msgspec

    plain = msgspec.to_builtins(value)
    return {name: field for name, field in plain.items() if name not in ("t", "n")}


# People read this.


def say(text: str, *, style: str = "") -> None:
    """A line on stdout; styled on a terminal."""
    _write(text, style, sys.stdout)


def warn(text: str) -> None:
    """A line on stderr."""
    _write(text, "yellow", sys.stderr)


def complain(message: str, hint: str = "") -> None:
    """Say on stderr why a command ends, and what to do."""
    _write(f"tieline: {neutral_line(message)}", "red", sys.stderr)
    if hint:
        _write(f"  hint: {neutral_line(hint)}", "", sys.stderr)


def _write(text: str, style: str, file: Any) -> None:
    if style and file.isatty():
        from rich.console import Console
        from rich.text import Text

        Console(file=file, soft_wrap=True, highlight=False).print(Text(text, style=style))
    else:
        print(text, file=file, flush=True)


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Rows under column names: a table on a terminal, aligned columns in a pipe."""
    if not rows:
        say(empty)
        return
    cells = [[neutral_line(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _print_rich(columns, cells)
        return
    widths = [max(len(row[index]) for row in [list(columns), *cells]) for index in range(len(columns))]
    for row in [[column.upper() for column in columns], *cells]:
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _print_rich(columns: Sequence[str], cells: Sequence[Sequence[str]]) -> None:
    from rich import box
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for column in columns:
        table.add_column(column, overflow="fold")
    for row in cells:
        table.add_row(*(Text(cell) for cell in row))
    Console(highlight=False).print(table)


def local_time(at_ms: int, *, exact: bool = False) -> str:
    """A moment as the reader's clock shows it; the day is left out when it is today."""
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    clock = f"{moment:%H:%M:%S}" + (f".{at_ms % 1000:03}" if exact else "")
    today = datetime.now(UTC).astimezone().date()
    return clock if moment.date() == today else f"{moment:%Y-%m-%d} {clock}"


def print_message(message: "Message", state: str | None = None) -> None:
    """A message: one line of ours, then what was said, indented."""
    head = f"{message.id}  {message.sender} → {message.target}  {local_time(message.sent_at_ms)}"
    marks = "".join(f"  [{mark}]" for mark in _marks(message, state))
    say(neutral_line(head + marks), style="bold")
    if message.title:
        say(f"  {neutral_line(message.title)}", style="bold")
    for line in neutral(message.body).split("\n"):
        say(f"  {line}")
    for label, text in _particulars(message):
        say(f"  {label}: {neutral_line(text)}", style="dim")


def _marks(message: "Message", state: str | None) -> list[str]:
    marks = [state] if state is not None else []
    if message.priority != "normal":
        marks.append(message.priority.value)
    if message.level != "info":
        marks.append(message.level.value)
    if message.kind != "chat":
        marks.append(message.kind.value)
    if not message.verified:
        marks.append("unverified sender")
    marks.extend(
        f"{label} {value}"
        for label, value in (
            ("scope", message.scope),
            ("thread", message.thread),
            ("topic", message.topic),
            ("reply to", message.reply_to),
        )
        if value
    )
    return marks


def _particulars(message: "Message") -> list[tuple[str, str]]:
    import msgspec

    found = []
    if message.data is not None:
        found.append(("data", msgspec.json.encode(message.data).decode()))
    found.extend(("ref", ref) for ref in message.refs)
    found.extend(("attachment", attachment.path) for attachment in message.attachments)
    found.extend(("note", note) for note in message.notes)
    return found


def print_items(items: Sequence["Item"], *, with_state: bool = False) -> None:
    """Deliveries, one after the other."""
    for item in items:
        print_message(item.message, item.state if with_state else None)


def print_ladders(receipts: Sequence["ReceiptView"]) -> None:
    """How far a message came for each recipient, step by step."""
    rows = [
        (
            receipt.member if index == 0 else "",
            step.state,
            local_time(step.at_ms, exact=True),
            step.protocol,
            step.evidence,
        )
        for receipt in receipts
        for index, step in enumerate(receipt.steps)
    ]
    print_table(("recipient", "state", "at", "protocol", "evidence"), rows, empty="nobody received it")

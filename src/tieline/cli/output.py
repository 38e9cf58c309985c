"""Output of commands, for people and for programs.

Used by: every command. Uses: the terminal. Names, titles and bodies come from other people or models, so they are not
trusted. Control characters are neutralised, so that a terminal does not obey them and a body does not look like output
of Tieline. Every line of a body is indented, so a body cannot forge a header line. JSON carries the text unchanged,
because JSON can escape it.

People read, type and copy ids. So text has short ids (`short_ids`), and JSON has the hub's own ids.
"""

import re
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from tieline.cli.short_ids import short_id, short_message, short_target
from tieline.contract.text import UNSAFE, neutral

if TYPE_CHECKING:
    from tieline.client import Inbox, Item, Message, ReceiptView

_BEYOND_BMP = 0xFFFF


def neutral_line(text: str) -> str:
    """Return text on one line, without control characters that a terminal would obey."""
    return neutral(text).replace("\n", "\\n").replace("\t", "\\t")


# Programs read this.


def print_json(value: Any, file: Any = None) -> None:
    """Print a JSON document on one line, or indented on a terminal. The default file is stdout."""
    import msgspec

    file = file or sys.stdout
    encoded = msgspec.json.encode(value)
    if file.isatty():
        encoded = msgspec.json.format(encoded)
    print(_UNSAFE_IN_JSON.sub(_escaped, encoded.decode()), file=file, flush=True)


# JSON escapes the first 32 characters itself. The remaining line feeds belong to its layout.
_UNSAFE_IN_JSON = re.compile(UNSAFE.pattern.replace("\x00-\x08\x0b-\x1f", ""))


def _escaped(match: re.Match[str]) -> str:
    number = ord(match[0])
    if number <= _BEYOND_BMP:
        return f"\\u{number:04x}"
    units = match[0].encode("utf-16-be").hex()
    return f"\\u{units[:4]}\\u{units[4:]}"


# People read this.


def say(text: str, *, style: str = "") -> None:
    """Print a line on stdout. On a terminal, the line has the given style."""
    _write(text, style, sys.stdout)


def warn(text: str) -> None:
    """Print a line on stderr."""
    _write(text, "yellow", sys.stderr)


def complain(message: str, hint: str = "") -> None:
    """Print on stderr the reason why a command fails, and a hint for the user."""
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


def own_name() -> str:
    """Return the command with which a person can start this program in any terminal and folder.

    It is `tieline` if the shell finds this program by that name, else the program's absolute path.
    """
    import shutil
    from pathlib import Path

    here = Path(sys.argv[0])
    found = shutil.which("tieline")
    if not here.is_file() or (found is not None and Path(found).samefile(here)):
        return "tieline"
    return shlex.quote(str(here.absolute()))


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, empty: str) -> None:
    """Print rows under column names: a table on a terminal, aligned columns in a pipe.

    `empty` is printed if there are no rows.
    """
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


def local_time(at_ms: int, *, exact: bool = False, now: datetime | None = None) -> str:
    """Return a time as text in the reader's time zone. The date is left out if it is today's date.

    With `exact`, add milliseconds. `now` is the current time, for a test.
    """
    moment = datetime.fromtimestamp(at_ms / 1000, UTC).astimezone()
    clock = f"{moment:%H:%M:%S}" + (f".{at_ms % 1000:03}" if exact else "")
    today = (now or datetime.now(UTC)).astimezone()
    return clock if moment.date() == today.date() else f"{moment:%Y-%m-%d} {clock}"


def print_message(message: "Message", state: str | None = None, known: "Mapping[str, Message] | None" = None) -> None:
    """Print a message on several lines. `state` is the state of its delivery; `None` to leave it out.

    `known` has other messages by their ids. If the message refers to one of them, its number is printed instead of its
    id.
    """
    for line, style in message_lines(message, state, known):
        say(line, style=style)


_BRIEF_CHARS = 120


def print_messages(found: "Sequence[Message]", *, json: bool, none: str) -> None:
    """Print messages. As JSON they keep the order of `found`, newest first. As text they are printed oldest first.

    `none` is the text to print if there are no messages.
    """
    if json:
        print_json(found)
        return
    known = {message.id: message for message in found}
    for message in reversed(found):
        print_message(message, known=known)
    if not found:
        say(none)


def print_brief(message: "Message") -> None:
    """Print a message on one line, with the beginning of its body."""
    body = " ".join(message.body.split())
    excerpt = f"{body[:_BRIEF_CHARS]}…" if len(body) > _BRIEF_CHARS else body
    urgent = "" if message.priority == "normal" else f"  [{message.priority.value}]"
    say(neutral_line(f"{short_message(message)}  {message.sender} → {short_target(message.target)}{urgent}: {excerpt}"))


def message_lines(
    message: "Message", state: str | None = None, known: "Mapping[str, Message] | None" = None
) -> Iterator[tuple[str, str]]:
    """Yield a message as lines for printing: a header line, then the text, indented. Each line comes with its style.

    `state` is the state of the message's delivery, or `None` to leave it out. `known` has other messages by their ids:
    if the message refers to one of them, its number is printed instead of its id.
    """
    between = f"{message.sender} → {short_target(message.target)}"
    head = f"{short_message(message)}  {between}  {local_time(message.sent_at_ms)}"
    marks = "".join(f"  [{mark}]" for mark in _marks(message, state, known or {}))
    yield neutral_line(head + marks), "bold"
    if message.title:
        yield f"  {neutral_line(message.title)}", "bold"
    for line in neutral(message.body).split("\n"):
        yield f"  {line}", ""
    for label, text in _particulars(message):
        yield f"  {label}: {neutral_line(text)}", "dim"


def _marks(message: "Message", state: str | None, known: "Mapping[str, Message]") -> list[str]:
    marks = [state] if state is not None else []
    if message.priority != "normal":
        marks.append(message.priority.value)
    if message.level != "info":
        marks.append(message.level.value)
    if message.kind != "chat":
        marks.append(message.kind.value)
    if not message.verified:
        marks.append("unverified sender")
    if message.signature not in ("", "verified"):
        marks.append(f"signature {message.signature}")
    marks.extend(
        f"{label} {value}"
        for label, value in (
            ("scope", message.scope),
            ("thread", short_id(message.thread or "")),
            ("topic", message.topic),
            ("reply to", _reference(message.reply_to, known)),
            ("supersedes", _reference(message.supersedes, known)),
        )
        if value
    )
    return marks


def _reference(message_id: str | None, known: "Mapping[str, Message]") -> str:
    """Return the number of another message if it is known, else the beginning of its id; empty for `None`."""
    other = known.get(message_id or "")
    return short_id(message_id or "") if other is None else short_message(other)


def _particulars(message: "Message") -> list[tuple[str, str]]:
    import msgspec

    found = []
    # The body of a redacted message says all that its data say.
    if message.data is not None and message.data.get("event") != "redacted":
        found.append(("data", msgspec.json.encode(message.data).decode()))
    found.extend(("ref", ref) for ref in message.refs)
    found.extend(("attachment", attachment.path) for attachment in message.attachments)
    found.extend(("note", note) for note in message.notes)
    return found


def print_items(items: Sequence["Item"], known: "Mapping[str, Message]", *, with_state: bool = False) -> None:
    """Print the message of each delivery in `items`. With `with_state`, also print the state of the delivery.

    `known` has messages by their ids. They are printed by their number where a message refers to them.
    """
    for item in items:
        print_message(item.message, item.state if with_state else None, known)


def _evidence(receipt: "ReceiptView", index: int) -> str:
    """Return the evidence for state number `index` of a receipt, and the way (push, hook…) of the delivery, if any."""
    step = receipt.steps[index]
    way = step.way or (receipt.way if index == len(receipt.steps) - 1 else "")
    return "; ".join(part for part in (step.evidence, f"by {way} now" if way else "") if part)


def say_held(page: "Inbox", *, json: bool = False) -> None:
    """Print how many messages of an inbox are held (accepted, but not delivered yet), and how to release them.

    With `json`, print this to stderr. Print nothing if no message is held.
    """
    if not page.held:
        return
    many, them = ("1 message is", "it") if page.held == 1 else (f"{page.held} messages are", "them")
    if page.held_in:
        one = shlex.quote(page.held_in[0]) if len(page.held_in) == 1 else "CONVERSATION"
        text = (
            f"{many} held ({', '.join(page.held_in)}). `tieline receipts ID` says why; `tieline resume {one}` delivers"
        )
        text = f"{text} {them}."
    else:
        text = f"{many} slowed, because agents go on answering each other. Nothing is needed to deliver {them}."
    (warn if json else say)(neutral_line(text))


def print_ladders(receipts: Sequence["ReceiptView"]) -> None:
    """Print a table of the states that a message reached for each recipient, with time, protocol and evidence."""
    rows = [
        (
            receipt.member if index == 0 else "",
            step.state,
            local_time(step.at_ms, exact=True),
            step.protocol,
            _evidence(receipt, index),
        )
        for receipt in receipts
        for index, step in enumerate(receipt.steps)
    ]
    print_table(("recipient", "state", "at", "protocol", "evidence"), rows, empty="nobody received it")

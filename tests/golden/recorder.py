"""Recorder of a transcript: the text of a conversation, without random values.

An entry begins with `> ` for bytes of a client and with `< ` for bytes of the hub. Then follow the name of the
connection and the sent text. A long text is folded at the brackets and commas of its JSON, and a long string at the
ends of its lines and sentences. The folded lines without their indentation, joined, are the text again.

A placeholder replaces each value that differs from run to run. Placeholders are numbered by first appearance, so that
one value has the same placeholder everywhere. Times are not random here: the hub has a `Clock` that a test moves, by a
second before a client writes. The placeholder of a time contains the seconds since the start of the conversation, in
any format of the time.
"""

import re
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime

import pytest

from tieline.wire.prefix_ids import from_prefix_id

WIDTH = 118

_START_MS = 1_798_761_600_000
"""Start of the clock: the first of January 2027, 00:00 UTC."""
_STEP_MS = 1000

_PATTERNS = {
    "version": r'"version": ?"(\d+\.\d+\.\d+)"',
    "token": r"\btie_[A-Za-z0-9_-]{43}(?![A-Za-z0-9_-])",
    "uuid": r"\b[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}\b",
    "hash": r"\b[0-9a-f]{64}\b",
    "epoch": r'(?:"epoch":"|x-tieline-epoch: |the epoch )([0-9a-f]{32})\b',
    "session": r"\b(?!0{16})[0-9a-f]{32}\b",
    "invitation": r"""(?:"id":"|invitation ')([0-9a-f]{12})\b""",
    "objective": r"\bobj-[0-9a-z]{8}-\d+\b",
    "time": r"\b\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)",
    "date": r"\b\d\d/\d\d/\d\d \d\d:\d\d:\d\d UTC",
    "ms": r"(?<![\w.])1[78]\d{11}(?![\w.])",
    "ns": r"(?<![\w.])1[78]\d{17}(?![\w.])",
}
"""Patterns of random values that any protocol may send, by kind."""
_REPEATED = re.compile(r"(\w{1,8}?)\1{99,}")
"""A long text that repeats one to eight characters; the transcript shows only the number of repeats."""


class Clock:
    """Test double: the clock of all code in this process. It moves only when the test moves it."""

    def __init__(self) -> None:
        self.now_ms = _START_MS

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Replace the system's wall clocks and its monotonic clock."""
        monkeypatch.setattr(time, "time_ns", lambda: self.now_ms * 1_000_000)
        monkeypatch.setattr(time, "time", lambda: self.now_ms / 1000)
        monkeypatch.setattr(time, "clock_gettime_ns", lambda _: self.now_ms * 1_000_000)

    def step(self) -> None:
        """Move the clock forward by a second."""
        self.now_ms += _STEP_MS


class Recorder:
    """Recorder of the transcript of one conversation."""

    def __init__(self, clock: Clock) -> None:
        self.clock = clock
        self._lines: list[str] = []
        self._patterns = dict(_PATTERNS)
        self._names: dict[tuple[str, str], str] = {}
        self._counts: dict[str, int] = {}
        # Kinds of values that are not told apart.
        self._alike: set[str] = set()
        # Texts that are known beforehand, longest first, and what stands for them.
        self._known: dict[str, str] = {}

    @property
    def text(self) -> str:
        """Return the whole transcript."""
        return "\n".join((*self._lines, ""))

    def know(self, text: str, name: str) -> None:
        """Replace a known text, such as the path of a home, by `<name>` in all later entries."""
        known = {**self._known, text: f"<{name}>"}
        self._known = dict(sorted(known.items(), key=lambda one: -len(one[0])))

    def expect(self, kind: str, pattern: str, *, alike: bool = False) -> None:
        """Replace all values that match a pattern, or its group, by a placeholder of this kind.

        With `alike`, the placeholders have no numbers.
        """
        self._patterns = {kind: pattern, **self._patterns}
        if alike:
            self._alike.add(kind)

    def section(self, title: str) -> None:
        """Add a heading to the transcript."""
        self._lines += (["", f"# {title}"]) if self._lines else [f"# {title}"]

    def said(self, who: str, *texts: str | bytes) -> None:
        """Record texts that a client sent on the connection `who`. Each text begins a new line."""
        self._enter(">", who, texts)

    def heard(self, who: str, *texts: str | bytes) -> None:
        """Record texts that the hub sent on the connection `who`."""
        self._enter("<", who, texts)

    def settle(self, text: str) -> str:
        """Return a text with placeholders in place of the values that differ from run to run."""
        for known, name in self._known.items():
            text = text.replace(known, name)
        text = _REPEATED.sub(lambda found: f"<{found[1]!r}, {len(found[0]) // len(found[1])} times>", text)
        for kind, pattern in self._patterns.items():
            text = re.sub(pattern, self._replacement(kind), text)
        return text

    def _enter(self, sign: str, who: str, texts: tuple[str | bytes, ...]) -> None:
        read = [text if isinstance(text, str) else text.decode(errors="backslashreplace") for text in texts]
        lines = [line for text in read for line in self.settle(text).split("\n")]
        first, *rest = [piece for line in lines for piece in fold(line)]
        self._lines += [f"{sign} {self.settle(who)} {first}", *(f"  {piece}" if piece else "" for piece in rest)]

    def _replacement(self, kind: str) -> Callable[[re.Match[str]], str]:
        def replace(found: re.Match[str]) -> str:
            value = found[1] if found.re.groups else found[0]
            return found[0].replace(value, self._name(kind, value))

        return replace

    def _name(self, kind: str, value: str) -> str:
        if kind in self._alike:
            return f"<{kind}>"
        message_id = from_prefix_id(value)
        if kind == "uuid" and message_id != value:
            # The other spelling of a message's id has the number of that id.
            return f"<prefix-{self._number(kind, message_id)}>"
        moment = _moment(kind, value)
        if moment is None:
            return f"<{kind}-{self._number(kind, value)}>"
        # A moment that is none of this clock is part of the example, and stays.
        return f"<{kind}-{moment}>" if moment else value

    def _number(self, kind: str, value: str) -> str:
        if (kind, value) not in self._names:
            self._counts[kind] = self._counts.get(kind, 0) + 1
            self._names[kind, value] = str(self._counts[kind])
        return self._names[kind, value]


def _moment(kind: str, value: str) -> str | None:
    """Parse a time of this kind of format.

    Return its seconds since the start, and its format. Return `None` if it is no time.
    """
    match kind:
        case "ms":
            at_ms, form = int(value), ""
        case "ns":
            at_ms, form = int(value) // 1_000_000, ""
        case "date":
            read = datetime.strptime(value, "%m/%d/%y %H:%M:%S UTC").replace(tzinfo=UTC)
            at_ms, form = int(read.timestamp() * 1000), ""
        case "time":
            at_ms, form = int(datetime.fromisoformat(value).timestamp() * 1000), f" {value[19:]}"
        case _:
            return None
    return f"{(at_ms - _START_MS) / 1000:.15g}{form}" if at_ms >= _START_MS else ""


def fold(text: str) -> Iterator[str]:
    """Yield the lines of a long JSON text that is folded, one line for each member of an object or list."""
    return _fold(text, 0)


def _fold(text: str, depth: int) -> Iterator[str]:
    indent = "  " * depth
    too_long = len(text) + len(indent) > WIDTH
    parts = _parts(text) if too_long else None
    if parts is None:
        lines = re.findall(r".*?(?:\\n|[.;:](?= [A-Za-z]))|.+", text) if too_long else [text]
        yield indent + lines[0]
        yield from (f"{indent}  {line}" for line in lines[1:])
        return
    opening, members, closing = parts
    yield indent + opening
    for member in members:
        yield from _fold(member, depth + 1)
    yield indent + closing


def _parts(text: str) -> tuple[str, list[str], str] | None:
    """Split a text into the part before its first bracket, the members inside, and the rest.

    Return `None` for a text without brackets.
    """
    start = end = 0
    depth = 0
    members: list[str] = []
    for found in re.finditer(r'"(?:[^"\\]|\\.)*"|[\[{]|[\]}]|,', text):
        match found[0]:
            case "[" | "{":
                depth += 1
                if depth == 1:
                    start = end = found.end()
            case "]" | "}":
                depth -= 1
                if depth == 0:
                    last = text[end : found.start()]
                    return (text[:start], [*members, last] if last else members, text[found.start() :])
                if depth < 0:
                    return None
            case "," if depth == 1:
                members.append(text[end : found.end()])
                end = found.end()
            case _:
                pass
    return None

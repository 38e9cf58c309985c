"""An extractor: finds what a terminal program wants sent in the bytes that it prints.

Above: the wrapper that runs a program in a pty, and sends what is found. Below: nothing. A protocol that has a grammar
for this declares an extractor of its own; this one finds nothing. Bytes go in, and out come, in order, the bytes for
the screen (`Passed`) and what was found among them.
"""

from typing import Any, Literal

from msgspec import Struct

Kind = Literal["message", "action", "state", "thinking"]


class Instruction(Struct, frozen=True):
    """What a program wants sent."""

    to: str
    """A member's name, `*`, or a channel with its `#`."""

    body: str
    """Trimmed, without escape sequences; empty only where `data` is given."""

    kind: Kind = "message"
    """What sort of message it says it is."""

    project: str | None = None
    """The project of the target, where one was named."""

    thread: str | None = None
    """The thread it belongs to."""

    thread_project: str | None = None
    """The project of the thread, where one was named."""

    awaits: bool = False
    """Whether the program waits for the recipient's answer."""

    await_ms: int | None = None
    """How long it waits; None leaves that to the hub."""

    data: dict[str, Any] | None = None
    """The structured part, where the grammar has one."""


class Passed(Struct, frozen=True):
    """Bytes for the terminal."""

    data: bytes


class Extracted(Struct, frozen=True):
    """An instruction, found after the bytes passed before it."""

    instruction: Instruction

    redrawn: bool = False
    """Found before, with the screen redrawn since: the same words again on the screen, not said again."""


class Declined(Struct, frozen=True):
    """A line that asks for what is not offered, found at its end. It is output, too."""

    word: str
    """What it asks for, in the grammar's own word."""


Output = Passed | Extracted | Declined


class Extractor:
    """Reads the output of one program. Bytes to pass are in as few pieces as order allows."""

    @property
    def alternate_screen(self) -> bool:
        """Whether the program has the whole screen to itself, so that nothing else may print on it."""
        return False

    def receive_data(self, data: bytes) -> list[Output]:
        """Take the next bytes and give what they decide."""
        return [Passed(data)]

    def next_timeout(self) -> float | None:
        """Seconds of quiet after which to call `flush`; None while nothing is held."""
        return None

    def flush(self) -> list[Output]:
        """Show what is held: the program has gone quiet."""
        return []

    def receive_eof(self) -> list[Output]:
        """Take the end of the output, and give back everything held."""
        return []

    def disarm(self, text: str) -> str:
        """A text with its marks of instructions broken: a program that echoes it says nothing by that."""
        return text

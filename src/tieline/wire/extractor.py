"""Extractor: finds messages to send in the output of a terminal program.

Above: the wrapper that runs a program in a pty and sends the messages. Below: nothing. A protocol with a grammar for
such messages declares its own extractor; the base class here finds nothing. An extractor takes bytes. It returns, in
order, the bytes for the screen (`Passed`) and the instructions found among them.
"""

from typing import Any, Literal

from msgspec import Struct

Kind = Literal["message", "action", "state", "thinking"]


class Instruction(Struct, frozen=True):
    """A message that a program wants to send."""

    to: str
    """A member's name, `*`, or a channel with its `#`."""

    body: str
    """The text, trimmed and without escape sequences. Empty only if `data` is given."""

    kind: Kind = "message"
    """Kind of message, as the program says it."""

    project: str | None = None
    """Project of the target, if the program named one."""

    thread: str | None = None
    """Thread of the message."""

    thread_project: str | None = None
    """Project of the thread, if the program named one."""

    awaits: bool = False
    """True if the program waits for the recipient's answer."""

    await_ms: int | None = None
    """Timeout of the wait. None means that the hub chooses it."""

    data: dict[str, Any] | None = None
    """Structured data, if the grammar has a form for it."""


class Passed(Struct, frozen=True):
    """Bytes for the terminal."""

    data: bytes


class Extracted(Struct, frozen=True):
    """An instruction. It stands after the bytes of the `Passed` items before it."""

    instruction: Instruction

    redrawn: bool = False
    """True if the program only redrew the screen: the same instruction was found before and must not be sent again."""


class Declined(Struct, frozen=True):
    """A line that asks for something that is not supported. It comes at the end of the line, which is passed, too."""

    word: str
    """The requested feature, in the grammar's own word."""


Output = Passed | Extracted | Declined


class Extractor:
    """Reads the output of one program. It joins bytes for the terminal into as few pieces as the order allows."""

    @property
    def alternate_screen(self) -> bool:
        """True if the program uses the whole screen, so that nothing else may print on it."""
        return False

    def receive_data(self, data: bytes) -> list[Output]:
        """Take the next bytes and return the output that they complete."""
        return [Passed(data)]

    def next_timeout(self) -> float | None:
        """Return the seconds without output after which to call `flush`. None while no bytes are held back."""
        return None

    def flush(self) -> list[Output]:
        """Return the bytes that are held back. Call this when the program is quiet."""
        return []

    def receive_eof(self) -> list[Output]:
        """Take the end of the output, and return everything that is held back."""
        return []

    def disarm(self, text: str) -> str:
        """Return a text with its instruction marks broken, so that a program that echoes the text sends nothing."""
        return text

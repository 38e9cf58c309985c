"""Extractor: finds messages to send in the output of a terminal program.

Used by: the wrapper that runs a program in a pty and sends the messages. Uses: nothing. A protocol with a grammar for
such messages declares its own extractor; the base class here finds nothing. An extractor takes the program's output as
bytes. It returns, in order, the bytes for the screen (`Passed`) and the instructions that it found between these bytes.
"""

from typing import Any, Literal

from msgspec import Struct

Kind = Literal["message", "action", "state", "thinking"]


class Instruction(Struct, frozen=True):
    """Request of a terminal program, found in its output, to send a message: target, text, kind and thread."""

    to: str
    """Target of the message: a member's name, `*` (everybody), or a channel with its `#`."""

    body: str
    """The text, trimmed and without escape sequences. Empty only if `data` is given."""

    kind: Kind = "message"
    """Kind of the message, as the program named it."""

    project: str | None = None
    """Name of the project to which the target belongs, if the program named one."""

    thread: str | None = None
    """Name of the thread to which the message belongs, if the program named one."""

    thread_project: str | None = None
    """Name of the project to which the thread belongs, if the program named one."""

    awaits: bool = False
    """True if the program waits for the recipient's answer."""

    await_ms: int | None = None
    """Timeout of the wait for the answer, in milliseconds. None means that the hub chooses the timeout."""

    data: dict[str, Any] | None = None
    """Structured data of the message. None if the program gave no data."""


class Passed(Struct, frozen=True):
    """Part of a program's output that goes to the terminal unchanged, because it is no instruction."""

    data: bytes


class Extracted(Struct, frozen=True):
    """Result item: an instruction that was found in the output.

    The program printed the instruction after the bytes of all earlier `Passed` items.
    """

    instruction: Instruction

    redrawn: bool = False
    """True if the program only redrew the screen: the same instruction was found before and must not be sent again."""


class Declined(Struct, frozen=True):
    """Result item: a line of the output asks for an unsupported feature. An earlier `Passed` item contains the line."""

    request: str
    """The request as the program wrote it, but without the arguments."""


Output = Passed | Extracted | Declined


class Extractor:
    """Finds the instructions in the output of one program. This base class finds none and passes all bytes."""

    @property
    def alternate_screen(self) -> bool:
        """True if the program uses the whole screen of the terminal. Then nothing else may print on the screen."""
        return False

    def receive_data(self, data: bytes) -> list[Output]:
        """Take the next bytes of the program's output.

        Return the items that are complete now: bytes for the terminal, instructions, reports of unsupported features.
        """
        return [Passed(data)]

    def next_timeout(self) -> float | None:
        """Return the seconds without output after which the caller must call `flush`.

        Return None if no bytes are held back.
        """
        return None

    def flush(self) -> list[Output]:
        """Return the bytes that were held back until now.

        Call this when the program has printed nothing for a while.
        """
        return []

    def receive_eof(self) -> list[Output]:
        """Handle the end of the program's output: return all items that were held back."""
        return []

    def disarm(self, text: str) -> str:
        """Return a changed `text` in which no instruction can be found.

        A program that prints the changed text does not send a message by accident.
        """
        return text

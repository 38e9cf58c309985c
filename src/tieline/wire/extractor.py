"""Extractor: finds messages to send in the output of a terminal program.

Used by: the wrapper that runs a program in a pty and sends the messages. Uses: nothing. A protocol with a grammar for
such messages declares its own extractor; the base class here finds nothing. An extractor takes the program's output as
bytes. It returns, in order, the bytes for the screen (`Passed`) and the instructions that it found between these bytes.
"""

from typing import Any, Literal

from msgspec import Struct

Kind = Literal["message", "action", "state", "thinking"]


class Instruction(Struct, frozen=True):
    """A message that a terminal program asks, in its output, to send: target, text, kind and thread."""

    to: str
    """A member's name, `*`, or a channel with its `#`."""

    body: str
    """The text, trimmed and without escape sequences. Empty only if `data` is given."""

    kind: Kind = "message"
    """Kind of message that the program named."""

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
    """Output of the program that goes to the terminal unchanged, because it is no instruction."""

    data: bytes


class Extracted(Struct, frozen=True):
    """An instruction that was found in the output.

    The program printed it after the bytes of all earlier `Passed` items.
    """

    instruction: Instruction

    redrawn: bool = False
    """True if the program only redrew the screen: the same instruction was found before and must not be sent again."""


class Declined(Struct, frozen=True):
    """Report of a line that asks for an unsupported feature. A `Passed` item before this one contains the line."""

    request: str
    """The request as the program wrote it, without its arguments."""


Output = Passed | Extracted | Declined


class Extractor:
    """Finds the instructions in the output of one program. This base class finds none and passes all bytes."""

    @property
    def alternate_screen(self) -> bool:
        """True if the program uses the whole screen, so that nothing else may print on it."""
        return False

    def receive_data(self, data: bytes) -> list[Output]:
        """Take the program's next bytes.

        Return the items that are complete: bytes for the terminal, instructions, reports.
        """
        return [Passed(data)]

    def next_timeout(self) -> float | None:
        """Return the number of seconds without output after which to call `flush`. None if no bytes are held back."""
        return None

    def flush(self) -> list[Output]:
        """Return the bytes that are held back. Call this when the program is quiet."""
        return []

    def receive_eof(self) -> list[Output]:
        """Handle the end of the output: return everything that is held back."""
        return []

    def disarm(self, text: str) -> str:
        """Return the text with its instruction marks broken.

        A program that echoes this text does not send a message.
        """
        return text

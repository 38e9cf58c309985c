"""The greeting: takes a connection from its first frame to an open session, the same way for every wire.

Above: a protocol's connection, which knows the frames. Below: a `SessionPump`. It refuses to know what a frame is.

A client has `hello_ms` to identify itself. After that timeout the protocol closes the connection. From the hello until
the hub has opened the session, the wire is not read, or at most `early_bytes_max` are read. Frames that were read
already wait here, in order. Later frames that must wait for their turn wait here, too.
"""

import asyncio
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Generic, TypeVar

from tieline.contract.command import Attach
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached
from tieline.wire.session_pump import SessionPump

_Frame = TypeVar("_Frame")


class Phase(Enum):
    """Phase of a connection: before, during and after the opening of its session."""

    GREETING = "nothing said yet"
    OPENING = "the hub is attaching the session"
    ACTIVE = "the session is open"
    CLOSED = "no more"


class Greeting(Generic[_Frame]):
    """Greeting of one connection: the timeout for the client's hello, and the queue of frames that came too early.

    Belongs to one event loop.
    """

    __slots__ = ("_deadline", "_early_bytes", "_early_bytes_max", "_pump", "_waiting", "phase")

    def __init__(self, pump: SessionPump, *, early_bytes_max: int = 0) -> None:
        self._pump = pump
        # Bytes received while the session was being opened, and their limit. Beyond the limit, the wire is not read.
        self._early_bytes = 0
        self._early_bytes_max = early_bytes_max
        # Timer that closes the connection of a client that does not identify itself.
        self._deadline: asyncio.TimerHandle | None = None
        # Frames that were read and not handled yet. While there are any, the wire is not read.
        self._waiting: list[_Frame] = []
        self.phase = Phase.GREETING

    @property
    def waits(self) -> bool:
        """True if a new frame must wait behind other frames, or for the session."""
        return bool(self._waiting) or self.phase is Phase.OPENING

    def expect(self, late: Callable[[], None]) -> None:
        """Start the timeout for the client's hello: call `late` unless the client identifies itself in time."""
        seconds = self._pump.limits.hello_ms / 1000
        self._forget_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, late)

    def open(self, attach: Attach, opened: Callable[[Attached | Refusal], None]) -> None:
        """Open the session of a client that identified itself; `opened` gets the result. Stop reading until then."""
        self._forget_deadline()
        self.phase = Phase.OPENING
        if not self._early_bytes_max:
            self._pump.hold(True)
        self._pump.open(attach, opened)

    def early(self, size: int) -> None:
        """Count bytes that came while the session is being opened; stop reading at the limit. The caller keeps them."""
        self._early_bytes += size
        if self._early_bytes > self._early_bytes_max:
            self._pump.hold(True)

    def wait(self, frames: Sequence[_Frame]) -> None:
        """Queue frames behind those that wait already."""
        if frames:
            self._waiting.extend(frames)
            self._pump.hold(True)

    def take(self) -> list[_Frame]:
        """Return the waiting frames, and read the wire again."""
        waiting, self._waiting = self._waiting, []
        self._pump.hold(False)
        return waiting

    def activate(self) -> list[_Frame]:
        """Mark the session as open, after the client was told. Return the frames that waited, and read again."""
        return self._end_opening(Phase.ACTIVE)

    def again(self, late: Callable[[], None]) -> None:
        """Let the client identify itself again, because no session was opened. `late` is called after the timeout."""
        self._pump.leave()
        self.expect(late)
        self._end_opening(Phase.GREETING)

    def close(self) -> None:
        """Drop the waiting frames and cancel the timer, because the connection has ended."""
        self.phase = Phase.CLOSED
        self._forget_deadline()
        self._waiting.clear()

    def _end_opening(self, phase: Phase) -> list[_Frame]:
        self.phase = phase
        self._early_bytes = 0
        return self.take()

    def _forget_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

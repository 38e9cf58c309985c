"""The greeting: takes a connection from its first message to an open session, the same way for every protocol.

Used by: a protocol's connection, which knows the format of its messages (frames). Uses: a `SessionPump`. This module
does not know what a frame contains. A client has `hello_ms` to identify itself. After that timeout the protocol closes
the connection. While the hub opens the session, at most `early_bytes_max` bytes are read from the client (by default
none). The greeting queues the frames that were already read, in order. It also queues later frames that must wait for
earlier frames.
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
    """Phase of a client's connection: before, during or after the opening of its session."""

    GREETING = "nothing said yet"
    OPENING = "the hub is attaching the session"
    ACTIVE = "the session is open"
    CLOSED = "no more"


class Greeting(Generic[_Frame]):
    """Login phase of one connection: the timeout for the client's login, and the queue of messages that came too early.

    A frame is one message of the protocol. Not thread-safe: use it in one event loop only.
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
        """True if a new frame (message of the client) must wait in the queue.

        A frame must wait if other frames wait already, or while the session is being opened.
        """
        return bool(self._waiting) or self.phase is Phase.OPENING

    def expect(self, late: Callable[[], None]) -> None:
        """Start the timeout for the client's login.

        The callback `late` is called if the client does not log in in time.
        """
        seconds = self._pump.limits.hello_ms / 1000
        self._forget_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, late)

    def open(self, attach: Attach, opened: Callable[[Attached | Refusal], None]) -> None:
        """Open the session of a client that has identified itself. The callback `opened` gets the result.

        Until the session is open, nothing is read from the client, unless early bytes are allowed (`early_bytes_max`).
        """
        self._forget_deadline()
        self.phase = Phase.OPENING
        if not self._early_bytes_max:
            self._pump.suspend_reading(True)
        self._pump.open(attach, opened)

    def early(self, size: int) -> None:
        """Count `size` bytes that came while the session is being opened.

        Above `early_bytes_max`, stop reading from the client. The caller stores the bytes.
        """
        self._early_bytes += size
        if self._early_bytes > self._early_bytes_max:
            self._pump.suspend_reading(True)

    def wait(self, frames: Sequence[_Frame]) -> None:
        """Queue frames (messages of the client) behind the frames that wait already. Stop reading from the client."""
        if frames:
            self._waiting.extend(frames)
            self._pump.suspend_reading(True)

    def take(self) -> list[_Frame]:
        """Remove and return the waiting frames (messages of the client). Start to read from the client again."""
        waiting, self._waiting = self._waiting, []
        self._pump.suspend_reading(False)
        return waiting

    def activate(self) -> list[_Frame]:
        """Mark the session as open. Call this after the client was told that the session is open.

        Return the waiting frames (messages of the client), and read from the client again.
        """
        return self._end_opening(Phase.ACTIVE)

    def again(self, late: Callable[[], None]) -> None:
        """End the session, if one was opened, and let the client log in again.

        The callback `late` is called if the client does not log in in time.
        """
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

"""The greeting: a connection's way from its first words to an open session, the same for every wire.

Above: a protocol's connection, which knows the words. Below: a `SessionPump`. It refuses to know what a frame is.

A client has `hello_ms` to say who it is. Whoever does not is late, and the protocol hangs up. From its hello until the
hub has opened the session the wire is not read, or no further than `early_bytes_max`; frames that were read already
wait here, in order, and so do later ones that have to wait for their turn.
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
    """Where a connection stands."""

    GREETING = "nothing said yet"
    OPENING = "the hub is attaching the session"
    ACTIVE = "the session is open"
    CLOSED = "no more"


class Greeting(Generic[_Frame]):
    """One connection's. Belongs to one event loop."""

    __slots__ = ("_deadline", "_early_bytes", "_early_bytes_max", "_pump", "_waiting", "phase")

    def __init__(self, pump: SessionPump, *, early_bytes_max: int = 0) -> None:
        self._pump = pump
        # Bytes that came while the session was being opened, and how many may before the wire is not read any more.
        self._early_bytes = 0
        self._early_bytes_max = early_bytes_max
        # Hangs up on a client that does not say who it is.
        self._deadline: asyncio.TimerHandle | None = None
        # Frames that were read and not looked at; while there are any, the wire is not read.
        self._waiting: list[_Frame] = []
        self.phase = Phase.GREETING

    @property
    def waits(self) -> bool:
        """Whether a frame that comes now must wait behind others, or for the session."""
        return bool(self._waiting) or self.phase is Phase.OPENING

    def expect(self, late: Callable[[], None]) -> None:
        """The wire is open: call `late` unless the client says soon who it is."""
        seconds = self._pump.limits.hello_ms / 1000
        self._forget_deadline()
        self._deadline = asyncio.get_running_loop().call_later(seconds, late)

    def open(self, attach: Attach, opened: Callable[[Attached | Refusal], None]) -> None:
        """The client said who it is: attach its session, and read no further until it is there."""
        self._forget_deadline()
        self.phase = Phase.OPENING
        if not self._early_bytes_max:
            self._pump.hold(True)
        self._pump.open(attach, opened)

    def early(self, size: int) -> None:
        """Bytes came while the session was being opened, which the protocol keeps itself."""
        self._early_bytes += size
        if self._early_bytes > self._early_bytes_max:
            self._pump.hold(True)

    def wait(self, frames: Sequence[_Frame]) -> None:
        """Keep frames for later, behind those that wait already."""
        if frames:
            self._waiting.extend(frames)
            self._pump.hold(True)

    def take(self) -> list[_Frame]:
        """The frames that wait: their turn has come, and the wire is read again."""
        waiting, self._waiting = self._waiting, []
        self._pump.hold(False)
        return waiting

    def activate(self) -> list[_Frame]:
        """The session is open, and the client knows it: returns the frames that waited for it."""
        return self._end_opening(Phase.ACTIVE)

    def again(self, late: Callable[[], None]) -> None:
        """No session was opened, and the client may say anew who it is."""
        self._pump.leave()
        self.expect(late)
        self._end_opening(Phase.GREETING)

    def close(self) -> None:
        """The connection has ended: nothing waits any more, and nobody is late."""
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

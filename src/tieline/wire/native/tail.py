"""Telling a client of everything that it may see, as it is said: what a live view of the hub is made of.

Above: `server`. Below: the Hub port. It keeps no queue: that something was said only wakes it; then it reads what the
client may see after the last offset that it told, with the same command as everybody who asks for history. So who sees
what is decided in one place, and a client that comes back says where it was and misses nothing.
"""

import asyncio
from collections.abc import Callable, Sequence

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub, Interest, Notice
from tieline.contract.identifiers import SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.wire.native.frame import Frame, Number
from tieline.wire.pages import RETRY_SECONDS

_PAUSE_SECONDS = 0.05
"""What is said within this time is told together."""
_PAGE = 200


class FollowAll(Frame, frozen=True, omit_defaults=True, tag="tail"):
    """Hear of what is said, if one may see it. Answered by `done`, then `said` frames."""

    n: int
    after: Number = -1
    """Where the client was: the offset of the last message that it has. What came since then is told first."""
    everything: bool = False
    """What others say to each other, too; needs `log.read`."""


Tell = Callable[[int, Sequence[Message]], None]
"""Takes the number of the request, and messages, oldest first."""


class Tail:
    """One client's live view."""

    def __init__(
        self, hub: Hub, session: SessionId, asked: FollowAll, tell: Tell, refused: Callable[[Refusal], None]
    ) -> None:
        self._hub = hub
        self._session = session
        self._n = asked.n
        self._after = asked.after
        self._everything = asked.everything
        self._tell = tell
        # Hears that the client may see no more.
        self._refused = refused
        self._stop = hub.watch(Interest(said=True), self._said)
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        # Whether a page is on its way, and whether something was said since it was asked for.
        self._reading = False
        self._due = False
        self._paused = False
        self._read()

    def _said(self, notice: Notice) -> None:
        """Something was said; perhaps the client may see it."""
        del notice
        self._due = True
        if self._timer is None and not self._reading and not self._paused:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._read)

    # What the connection calls.

    def pause(self) -> None:
        """The client takes no more."""
        self._paused = True

    def resume(self) -> None:
        """It takes more again."""
        self._paused = self._closed
        if self._due and not self._reading and self._timer is None:
            self._read()

    def close(self) -> None:
        """The client is gone, or sees no more. Closing again does nothing."""
        self._closed = self._paused = True
        self._stop()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _read(self) -> None:
        self._timer = None
        if self._paused:
            self._due = True
            return
        self._reading, self._due = True, False
        command = c.ReadHistory(
            self._session, limit=_PAGE, after=self._after, forward=True, everything=self._everything
        )
        self._hub.submit((command,), self._answered)

    def _answered(self, replies: Sequence[r.Reply]) -> None:
        (reply,) = replies
        self._reading = False
        if self._closed:
            return
        if isinstance(reply, Refusal) and reply.code is Code.STORE_FAILED:
            self._due = True
            if not self._paused:
                self._timer = asyncio.get_running_loop().call_later(RETRY_SECONDS, self._read)
            return
        if isinstance(reply, Refusal):
            # The permission was taken away, or the session has ended.
            self.close()
            self._refused(reply)
            return
        assert isinstance(reply, r.History), "asked for"
        if reply.messages:
            self._after = reply.messages[-1].offset
            self._tell(self._n, reply.messages)
            # A page ends where it is large enough; only an empty one is the end.
            self._read()
        elif self._due and self._timer is None and not self._paused:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._read)

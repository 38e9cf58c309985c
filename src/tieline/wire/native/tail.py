"""Live view of the hub: sends a client every new message that the client may see.

Used by: `server`. Uses: the interface `contract.hub`. The live view has no queue. When a notice of a new message
comes, the live view reads all messages after its last offset. It uses the command that every reader of history uses, so
one place decides which messages a client may see. A client that reconnects gives its last offset and misses nothing.
"""

import asyncio
from collections.abc import Callable, Sequence

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub, Interest, MessageRedacted, Notice
from tieline.contract.identifiers import SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.wire.native.frame import Frame, Number
from tieline.wire.pages import RETRY_SECONDS

_PAUSE_SECONDS = 0.05
"""Seconds to wait before new messages are read. Messages that come within this time are sent together."""
_PAGE = 200


class FollowAll(Frame, frozen=True, omit_defaults=True, tag="tail"):
    """Follow all new messages that the client may see. Answered by `done`, then `said` frames."""

    n: int
    after: Number = -1
    """Offset of the last message that the client has. The hub sends newer messages that exist already, then new
    messages."""
    everything: bool = False
    """True to include messages between other members. Needs `log.read`."""


Tell = Callable[[int, Sequence[Message]], None]
"""Callback for new messages. It gets the number of the client's request, and the messages, oldest first."""


class Tail:
    """Live view of one client: passes every new message that the client may see to the callback `tell`.

    `asked` is the client's request. `refused` is called if the client may not see messages any more.
    """

    def __init__(
        self, hub: Hub, session: SessionId, asked: FollowAll, tell: Tell, refused: Callable[[Refusal], None]
    ) -> None:
        self._hub = hub
        self._session = session
        self._n = asked.n
        self._after = asked.after
        self._everything = asked.everything
        self._tell = tell
        # Callback for a refusal: the client may not see messages any more.
        self._refused = refused
        self._stop = hub.watch(Interest(said=True, redactions=True), self._said)
        self._closed = False
        self._timer: asyncio.TimerHandle | None = None
        # `_reading`: a page is being read. `_due`: there may be new messages since then.
        self._reading = False
        self._due = False
        self._paused = False
        self._read()

    def _said(self, notice: Notice) -> None:
        """Schedule a read of new messages, because the hub has accepted one that the client may be allowed to see.

        A message that was redacted is read again at once, because the client may have its old content.
        """
        if isinstance(notice, MessageRedacted):
            self._read_again(notice.message.offset)
            return
        self._due = True
        if self._timer is None and not self._reading and not self._paused:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._read)

    # Methods for the connection.

    def pause(self) -> None:
        """Stop reading messages for a while, because the client's buffer is full."""
        self._paused = True

    def resume(self) -> None:
        """Read messages again, because the client's buffer has drained."""
        self._paused = self._closed
        if self._due and not self._reading and self._timer is None:
            self._read()

    def close(self) -> None:
        """Stop the live view. A second call does nothing."""
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

    def _read_again(self, offset: int) -> None:
        if offset > self._after:
            return
        command = c.ReadHistory(
            self._session, limit=1, after=offset - 1, before=offset + 1, forward=True, everything=self._everything
        )

        def answered(replies: Sequence[r.Reply]) -> None:
            (reply,) = replies
            if isinstance(reply, r.History) and reply.messages and not self._closed:
                self._tell(self._n, reply.messages)

        self._hub.submit((command,), answered)

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
            # A page may end early because of its size. Only an empty page is the end.
            self._read()
        elif self._due and self._timer is None and not self._paused:
            self._timer = asyncio.get_running_loop().call_later(_PAUSE_SECONDS, self._read)

"""Live streams: the open message streams of members.

Above: the subscribe route. Below: the Hub port and a `Carrier` for each stream. A stream carries only messages that
arrive while it is open. Older messages are in the history. A stream shows its member's deliveries, and the messages
that the member sent from elsewhere, so that all devices of the member show the same. The hub gives both in the order
of the log, and each message once.

A stream is not a `SessionPump`, because a stream carries the log and not the inbox. The member's own messages appear
between its deliveries, but they are in no inbox. The answer to a sender contains the number of streams that its message
was written to, so the streams are counted before the answer leaves. A reader that does not keep up cannot continue from
its inbox. The reader is cut off with a reason, and everything it missed is in the history.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec

from tieline.contract import command as c
from tieline.contract.hub import Hub, Interest, Notice, Posted
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import ByToken, Unnamed
from tieline.contract.message import Content, Kind, Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Fetched, Progress, Reply
from tieline.contract.target import to_member
from tieline.protocols.ac7 import codec
from tieline.protocols.ac7.carriers import Carrier, Frame
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.wire.pages import Pages
from tieline.wire.route import Call, Query, Refused, Route, no, refused

PROTOCOL = "ac7"

TOO_SLOW = 1013
GOING_AWAY = 1001
ENDED = 1008
"""WebSocket close codes: try again later, the server shuts down, policy violation."""

SUBSCRIBE_PATH = "/subscribe"

_UNSENT_BYTES_MAX = 1024 * 1024
"""Unsent bytes allowed per reader before the reader is cut off. The history has all the messages."""
_encode = msgspec.json.Encoder().encode


class Stream:
    """The stream of one reader. Implements the Listener port, which the hub calls."""

    __slots__ = (
        "_closed",
        "_first",
        "_last",
        "_offset",
        "_pages",
        "_streams",
        "_waiting",
        "_waiting_bytes",
        "carrier",
        "member",
        "session",
        "unsent_bytes_max",
    )

    def __init__(self, streams: "Streams") -> None:
        self._streams = streams
        self.unsent_bytes_max = _UNSENT_BYTES_MAX
        self.carrier: Carrier | None = None
        self.member: MemberName | None = None
        self.session = SessionId("")
        # Range of delivery keys that were written but not yet reported as offered. 0 means none.
        self._first = self._last = 0
        # Offset of the last message on this stream. Offsets only grow.
        self._offset = -1
        # Queue, in order. A list holds keys of deliveries that are no longer held and must be fetched from the hub. A
        # tuple is a later message with its key; the key is 0 if the message is not a delivery. The first entry is a
        # list.
        self._waiting: deque[list[int] | tuple[Frame | None, int]] = deque()
        self._waiting_bytes = 0
        self._pages = Pages(streams.hub, self._fetch, lambda why: self._cut_off(why.message))
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if the stream is closed and nothing more is written to it."""
        return self._closed

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Write a delivery, if its message may reach this protocol."""
        del stream_seq
        if message.reaches(PROTOCOL):
            self._show(message, key)

    def released(self, keys: Sequence[int]) -> None:
        """Fetch deliveries that are no longer held. They are written before any later message."""
        self._waiting.append(list(keys))
        if len(self._waiting) == 1:
            self._fetch()

    def _fetch(self) -> None:
        keys = self._waiting[0]
        assert isinstance(keys, list), "nothing else waits for an answer"
        if not self._closed:
            self._pages.ask(c.Fetch(self.session, limit=len(keys), keys=tuple(keys)), self._fetched)

    def _fetched(self, reply: Fetched) -> None:
        for item in reply.deliveries:
            self._streams.count(item.message)
            self._write(self._streams.frame(item.message), item.key)
        keys = self._waiting[0]
        assert isinstance(keys, list), "they were asked for"
        del keys[: keys.index(reply.through) + 1]
        if not keys:
            self._waiting.popleft()
            self._write_waiting()
        if self._waiting:
            self._fetch()

    def _write_waiting(self) -> None:
        """Write the queued messages, up to the next keys that must be fetched from the hub."""
        while self._waiting and isinstance(first := self._waiting[0], tuple):
            self._waiting.popleft()
            frame, key = first
            self._waiting_bytes -= len(frame.payload) if frame is not None else 0
            self._write(frame, key)

    def _write(self, frame: Frame | None, key: int) -> None:
        if self._closed or self.carrier is None:
            return
        if frame is not None:
            self.carrier.write(frame)
        if key:
            self._written(key)

    def _written(self, key: int) -> None:
        if self._last and key == self._last + 1:
            self._last = key
            return
        self._note()
        self._first = self._last = key
        asyncio.get_running_loop().call_soon(self._note)

    def show(self, message: Message) -> None:
        """Write a message of the member itself, unless it was written before."""
        self._show(message, 0)

    def _show(self, message: Message, key: int) -> None:
        if self._closed or self.carrier is None:
            return
        frame = None
        if message.offset > self._offset:
            self._offset = message.offset
            self._streams.count(message)
            frame = self._streams.frame(message)
        if not self._waiting:
            self._write(frame, key)
            return
        self._waiting.append((frame, key))
        self._waiting_bytes += len(frame.payload) if frame is not None else 0
        if self._waiting_bytes > self.unsent_bytes_max:
            self._cut_off("too much waits for what was held")

    def _note(self) -> None:
        """Report the written deliveries to the hub as offered."""
        if self._last and not self._closed:
            self._streams.hub.submit((c.Offered(self.session, first=self._first, last=self._last),))
        self._first = self._last = 0

    def progress(self, step: Progress) -> None:
        """Do nothing: a stream follows no message."""

    def end(self, why: Refusal) -> None:
        """Close the stream: the hub ended the session."""
        self.close(ENDED, why.message)

    def stalled(self) -> None:
        """Cut off the reader: it does not keep up."""
        self._cut_off("too slow")

    def _cut_off(self, reason: str) -> None:
        assert self.carrier is not None, "it was written to"
        self._note()
        self._close()
        self.carrier.end(TOO_SLOW, f"{reason}: what you missed is in /history")
        # Remove the stream later: the hub may be iterating over the listeners of this member now.
        asyncio.get_running_loop().call_soon(self._streams.remove, self)

    def close(self, code: int, reason: str) -> None:
        """Stop writing and send the reader the reason."""
        if not self._closed and self.carrier is not None:
            self.leave()
            self.carrier.end(code, reason)

    def leave(self) -> None:
        """Close the stream and remove it."""
        if not self._closed:
            self._close()
            self._streams.remove(self)

    def _close(self) -> None:
        self._closed = True
        self._pages.close()


class Streams:
    """All streams. Watches the messages of members that have a stream or a pending send request."""

    def __init__(self, hub: Hub, channels: ChannelIds, *, announce: bool) -> None:
        self.hub = hub
        self._channels = channels
        self._announces = announce
        self._by_member: dict[str, list[Stream]] = {}
        # Cache of the last encoded message, by offset. All its streams get it before the next message comes.
        self._frame: tuple[int, Frame] = (-1, Frame(b""))
        # Session → number of its pending send requests; offset of a sent message → number of streams written to.
        self._expecting: dict[SessionId, int] = {}
        self._live: dict[int, int] = {}
        # Member → number of streams and requests that watch its messages, and the callback that ends the watch.
        self._watched: dict[str, tuple[int, Callable[[], None]]] = {}

    # Callbacks of the hub.

    def _posted(self, notice: Notice) -> None:
        """Show an accepted message on its sender's own streams first, because they may get no delivery of it."""
        assert isinstance(notice, Posted), "asked for"
        message = notice.message
        if notice.origin in self._expecting:
            self._live[message.offset] = 0
        if message.verified and message.reaches(PROTOCOL):
            for stream in tuple(self._by_member.get(message.sender, ())):
                stream.show(message)

    def _watch(self, member: MemberName) -> None:
        count, stop = self._watched.get(member) or (0, self.hub.watch(Interest(senders=(member,)), self._posted))
        self._watched[member] = (count + 1, stop)

    def _unwatch(self, member: MemberName) -> None:
        count, stop = self._watched.pop(member)
        if count > 1:
            self._watched[member] = (count - 1, stop)
        else:
            stop()

    # Methods that a request calls.

    def routes(self) -> list[Route]:
        """Return the routes for streams."""
        return [
            Route(
                "GET",
                SUBSCRIBE_PATH,
                self.subscribe,
                live=lambda: Stream(self),
                query=(Query("name", "The member itself.", required=True),),
            )
        ]

    async def subscribe(self, call: Call, stream: Stream) -> None:
        """Each new message of the member as it comes: server-sent events, or WebSocket on upgrade."""
        name = call.query.get("name")
        if not name:
            raise Refused(no(400, "name is required"))
        if name != call.member:
            raise Refused(no(403, "a member can only subscribe to its own stream"))
        refusal = await self.open(call.caller.token, stream, announce=not call.caller.by_cookie)
        if refusal is not None:
            raise Refused(refused(refusal))

    def expect(self, session: SessionId, member: MemberName) -> None:
        """Start to count streams for a message that a request of this session is about to send."""
        self._watch(member)
        self._expecting[session] = self._expecting.get(session, 0) + 1

    def take(self, session: SessionId, member: MemberName, offset: int | None) -> int:
        """End the count and return the number of streams that the message at this offset was written to."""
        self._unwatch(member)
        left = self._expecting[session] - 1
        if left:
            self._expecting[session] = left
        else:
            del self._expecting[session]
        return self._live.pop(offset, 0) if offset is not None else 0

    def live(self, member: str) -> int:
        """Return the number of streams of a member."""
        return len(self._by_member.get(member, ()))

    async def open(self, token: str, stream: Stream, *, announce: bool = True) -> Refusal | None:
        """Open a stream. It carries every message that the hub accepts from now on."""
        opened: asyncio.Future[Refusal | None] = asyncio.get_running_loop().create_future()

        def done(replies: Sequence[Reply]) -> None:
            (reply,) = replies
            assert isinstance(reply, Attached | Refusal), "an attach is answered by these"
            if isinstance(reply, Attached) and stream.closed:
                # The reader left before the session was open.
                self.hub.submit((c.Detach(reply.session),))
            elif isinstance(reply, Attached):
                assert reply.member is not None, "a token belongs to a member"
                stream.session, stream.member = reply.session, reply.member
                self._by_member.setdefault(reply.member, []).append(stream)
                self._watch(reply.member)
                self.hub.listen(reply.session, stream, reply.member)
            if not opened.done():
                opened.set_result(reply if isinstance(reply, Refusal) else None)

        attach = c.Attach(protocol=PROTOCOL, credential=ByToken(token), acknowledges=False)
        self.hub.submit((attach,), done)
        refusal = await opened
        if refusal is None and announce and self._announces and stream.member is not None:
            self._announce(stream.member)
        return refusal

    def _announce(self, member: MemberName) -> None:
        """Send a member the message that its session is online, in the hub's own name.

        A client that does not receive this message knows that its stream is broken. A refusal of this message is not
        reported: other senders get the same refusal.
        """
        content = Content(
            target=to_member(member),
            title="ac7 session online",
            body=f"{member} is connected. What is said to you and your team arrives here as it happens.",
            kind=Kind.STATUS,
        )

        def attached(replies: Sequence[Reply]) -> None:
            (reply,) = replies
            if isinstance(reply, Attached):
                self.hub.submit((c.Send(reply.session, content=content), c.Detach(reply.session)))

        label, _, place = codec.ANNOUNCER.partition("@")
        self.hub.submit((c.Attach(protocol=PROTOCOL, credential=Unnamed(label, place)),), attached)

    def close(self) -> None:
        """Close all streams, because the hub stops."""
        for streams in list(self._by_member.values()):
            for stream in tuple(streams):
                stream.close(GOING_AWAY, "server shutting down")

    # Methods that a stream calls.

    def frame(self, message: Message) -> Frame:
        """Encode a message as a frame."""
        offset, frame = self._frame
        if offset != message.offset:
            frame = Frame(_encode(codec.message(message, self._channels.ids)))
            self._frame = (message.offset, frame)
        return frame

    def count(self, message: Message) -> None:
        """Count a stream that a message was written to, if its sender waits for the count."""
        if message.offset in self._live:
            self._live[message.offset] += 1

    def remove(self, stream: Stream) -> None:
        """Remove a stream that is no longer live and end its session."""
        member, stream.member = stream.member, None
        if member is None:
            return
        streams = self._by_member[member]
        streams.remove(stream)
        if not streams:
            del self._by_member[member]
        self._unwatch(member)
        self.hub.forget(stream.session)
        self.hub.submit((c.Detach(stream.session),))

"""Live streams: the open message streams of members.

Used by: the subscribe route. Uses: the interface `contract.hub` and a `Carrier` for each stream. A stream carries the
messages that arrive while it is open. A reader that reconnects names the last message it got. The stream first carries
the messages that this reader missed. A reader that names no message can read older messages in the history. A stream
shows its member's deliveries, and the messages that the member itself sent, so that all devices of the member show the
same messages. All messages come in the order of the log, each message once.

A stream is not a `SessionPump`, because a stream carries the log and not the inbox. The member's own messages appear
between its deliveries, but they are in no inbox. The answer to a sender contains the number of streams that its message
was written to, so the streams are counted before the answer is sent. If a reader reads too slowly, the hub closes the
reader's connection with a reason. The reader can connect again and continue from its last message, or read the history.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence

import msgspec
from msgspec.structs import replace

from tieline.contract import command as c
from tieline.contract.hub import Hub, Interest, Notice, Posted
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.member import ByToken, Unnamed
from tieline.contract.message import Content, Kind, Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Fetched, History, Progress, Reply
from tieline.contract.target import to_member
from tieline.protocols.ac7 import briefing, codec
from tieline.protocols.ac7.carriers import Carrier, Frame
from tieline.protocols.ac7.channel_ids import ChannelIds
from tieline.wire.pages import Pages
from tieline.wire.route import Call, Query, Refused, Route, no, refused
from tieline.wire.sse import event

PROTOCOL = "ac7"

TOO_SLOW = 1013
GOING_AWAY = 1001
ENDED = 1008
"""WebSocket close codes. `TOO_SLOW` means: try again later. `GOING_AWAY` means: the server shuts down. `ENDED` means:
policy violation."""

SUBSCRIBE_PATH = "/subscribe"

_UNSENT_BYTES_MAX = 1024 * 1024
"""Largest number of unsent bytes for one reader. Above this limit, the hub closes the reader's connection. The history
has all the messages."""
_SINCE_CHARS_MAX = 64  # longer than the id of a message
_OPEN_COUNTED_MAX = 1000  # with more open objectives, the exact number does not matter
_MISSED_PAGE = 100
"""Number of missed messages that are read from the hub at once."""
_encode = msgspec.json.Encoder().encode

Waiting = list[int] | tuple[Frame | None, int] | None
"""An entry of a stream's queue. A list has keys of deliveries that are no longer held and must be fetched from the hub.
A tuple is a later message with its key. The message is `None` if it was already written. The key is 0 if the message is
not a delivery. The entry `None` stands for the missed messages, which are being read from the hub."""


class Stream:
    """The open message stream of one reader (a client of the member).

    The class implements the interface `Listener` (the callbacks of a session), so the hub calls its methods.
    """

    __slots__ = (
        "_closed",
        "_first",
        "_first_live",
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
        # Offset of the first message that came while the missed ones were being read.
        self._first_live: int | None = None
        # Queue, in order. The first entry is never a tuple. It stands for messages that are being read from the hub.
        self._waiting: deque[Waiting] = deque()
        self._waiting_bytes = 0
        self._pages = Pages(streams.hub, self._fetch, lambda why: self._cut_off(why.message))
        self._closed = False

    @property
    def closed(self) -> bool:
        """True if the stream is closed and nothing more is written to it."""
        return self._closed

    def wait_for_missed(self) -> None:
        """Queue all messages from now on, until the messages that the reader missed are written.

        The caller then calls `show_missed` for each missed message, and `end_missed` after the last one.
        """
        self._waiting.append(None)
        self._first_live = None

    def show_missed(self, message: Message) -> bool:
        """Write a message that the reader missed, and return true.

        If the message arrived after the stream opened, it is in the queue. Then write nothing, and return false.
        """
        if self._first_live is not None and message.offset >= self._first_live:
            return False
        self._offset = max(self._offset, message.offset)
        self._write(self._streams.frame(message), 0)
        return True

    def end_missed(self) -> None:
        """Write the messages that waited in the queue, because all missed messages are written now."""
        assert self._waiting[0] is None, "they were waited for"
        self._waiting.popleft()
        self._write_waiting()
        if self._waiting:
            self._fetch()

    def offer(self, message: Message, key: int, stream_seq: int = 0) -> None:
        """Write a message to the stream, unless the stream carried it before.

        `key` is the key of the member's delivery, or 0 if the member itself sent the message. The message is ignored if
        it has an invalid signature and was sent through another protocol.
        """
        del stream_seq
        if self._closed or self.carrier is None or (message.signature and not message.reaches(PROTOCOL)):
            return
        frame = None
        if message.offset > self._offset:
            self._offset = message.offset
            frame = self._streams.frame(message)
            self._streams.count(message, frame)
            if self._first_live is None:
                self._first_live = message.offset
        if not self._waiting:
            self._write(frame, key)
            return
        self._waiting.append((frame, key))
        self._waiting_bytes += len(frame.payload) if frame is not None else 0
        if self._waiting_bytes > self.unsent_bytes_max:
            self._cut_off("too much waits for what was held")

    def released(self, keys: Sequence[int]) -> None:
        """Fetch the deliveries with these keys from the hub and write them, because the hub holds them back no longer.

        Later messages wait in the queue until these deliveries are written.
        """
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
            frame = self._streams.frame(item.message)
            self._streams.count(item.message, frame)
            self._write(frame, item.key)
        keys = self._waiting[0]
        assert isinstance(keys, list), "they were asked for"
        del keys[: keys.index(reply.through) + 1]
        if not keys:
            self._waiting.popleft()
            self._write_waiting()
        if self._waiting:
            self._fetch()

    def _write_waiting(self) -> None:
        """Write the queued messages in order. Stop at an entry whose messages must first be read from the hub."""
        while self._waiting and isinstance(first := self._waiting[0], tuple):
            self._waiting.popleft()
            frame, key = first
            self._waiting_bytes -= len(frame.payload) if frame is not None else 0
            self._write(frame, key)

    def _write(self, frame: Frame | None, key: int) -> None:
        if self._closed or self.carrier is None:
            return
        if frame is not None:
            self.carrier.write(frame.event if self.carrier.takes_events else frame.payload)
        if key and self._last and key == self._last + 1:
            self._last = key
        elif key:
            self._note()
            self._first = self._last = key
            asyncio.get_running_loop().call_soon(self._note)

    def _note(self) -> None:
        """Report to the hub that deliveries were written to the reader. They get the state `offered`."""
        if self._last and not self._closed:
            self._streams.hub.submit((c.Offered(self.session, first=self._first, last=self._last),))
        self._first = self._last = 0

    def progress(self, step: Progress) -> None:
        """Do nothing: a stream's session sends no messages, so it needs no reports on their deliveries."""

    def end(self, why: Refusal) -> None:
        """Close the stream with the reason `why`, because the hub ended the session."""
        self.close(ENDED, why.message)

    def stalled(self) -> None:
        """Close the reader's connection, because the reader reads too slowly."""
        self._cut_off("too slow")

    def _cut_off(self, reason: str) -> None:
        assert self.carrier is not None, "it was written to"
        self._note()
        self._close()
        self.carrier.end(TOO_SLOW, f"{reason}: what you missed is in /history")
        # Remove the stream later: the hub may be iterating over the listeners of this member now.
        asyncio.get_running_loop().call_soon(self._streams.remove, self)

    def close(self, code: int, reason: str) -> None:
        """Stop writing, and close the connection with this close code and reason."""
        if not self._closed and self.carrier is not None:
            self.leave()
            self.carrier.end(code, reason)

    def leave(self) -> None:
        """Close the stream and remove it from the open streams."""
        if not self._closed:
            self._note()
            self._close()
            self._streams.remove(self)

    def _close(self) -> None:
        self._closed = True
        self._pages.close()


class Streams:
    """All open streams.

    The class watches the messages of each member that has a stream. Such a message is written to the sender's own
    streams. The class counts the streams that a message is written to, because the answer to the sender contains their
    number.
    """

    def __init__(self, hub: Hub, channels: ChannelIds, *, announce: bool) -> None:
        self.hub = hub
        self._channels = channels
        self._announces = announce
        self._by_member: dict[str, list[Stream]] = {}
        # Cache: the last encoded message and its frame. All its streams get it before the next message comes.
        self._frame: tuple[Message | None, Frame] = (None, Frame(b"", b""))
        # Offset of a sent message whose request is not answered yet → number of streams written to, and its frame.
        self._live: dict[int, tuple[int, Frame | None]] = {}
        # Member with a stream → the callback that ends the watch of its messages.
        self._watched: dict[str, Callable[[], None]] = {}

    # Callbacks of the hub.

    def _posted(self, notice: Notice) -> None:
        """Write an accepted message to the streams of its sender, so that all devices of the sender show it.

        A delivery would not be enough, because the sender may get no delivery of its own message.
        """
        assert isinstance(notice, Posted), "asked for"
        message = notice.message
        # spec, Self-echo suppression: the sender's own streams get the message, too, so that its devices stay in sync.
        if message.verified:
            for stream in tuple(self._by_member.get(message.sender, ())):
                stream.offer(message, 0)

    # Methods that a request calls.

    def routes(self) -> list[Route]:
        """Return the routes for streams."""
        return [
            Route(
                "GET",
                SUBSCRIBE_PATH,
                self.subscribe,
                live=lambda: Stream(self),
                query=(
                    Query("name", "The member itself.", required=True),
                    Query("since", "Id of the last message that the reader got, as the header Last-Event-ID."),
                ),
            )
        ]

    async def subscribe(self, call: Call, stream: Stream) -> None:
        """Follow the member's new messages live: server-sent events, or WebSocket frames on upgrade."""
        name = call.query.get("name")
        if not name:
            raise Refused(no(400, "name is required"))
        # spec, The lifecycle: a message goes to every live subscriber on `/subscribe?name=X`.
        if name != call.member:
            raise Refused(no(403, "a member can only subscribe to its own stream"))
        since = call.query.get("since") or call.header(b"last-event-id") or None
        refusal = await self.open(call.caller.token, stream, announce=not call.caller.by_cookie, since=since)
        if refusal is not None:
            raise Refused(refused(refusal))

    def expect(self, offset: int) -> None:
        """Start to count the streams that a message is written to. Call this before its streams get the message.

        `offset` is the log offset of the message. Call `take` afterwards.
        """
        self._live[offset] = (0, None)

    def take(self, offset: int) -> tuple[int, Frame | None]:
        """End the count that `expect` began.

        Return the number of streams that the message was written to, and its frame if there was a stream.
        """
        return self._live.pop(offset)

    def live(self, member: str) -> int:
        """Return the number of open streams of a member."""
        return len(self._by_member.get(member, ()))

    async def open(
        self, token: str, stream: Stream, *, announce: bool = True, since: str | None = None
    ) -> Refusal | None:
        """Open a stream for the member with this token. Return the refusal, if the hub refuses the token.

        The stream carries every message that the hub accepts from now on. With `since`, the stream first carries the
        messages after the message with that id. With `announce`, the member gets the notice that its stream is open.
        """
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
                if reply.member not in self._by_member:
                    mine = Interest(senders=(reply.member,))
                    self._watched[reply.member] = self.hub.watch(mine, self._posted)
                self._by_member.setdefault(reply.member, []).append(stream)
                if since is not None:
                    stream.wait_for_missed()
                self.hub.listen(reply.session, stream, reply.member)
            if not opened.done():
                opened.set_result(reply if isinstance(reply, Refusal) else None)

        attach = c.Attach(protocol=PROTOCOL, credential=ByToken(token), acknowledges=False)
        self.hub.submit((attach,), done)
        refusal = await opened
        if refusal is None and since is not None:
            await self._catch_up(stream, MessageId(since[:_SINCE_CHARS_MAX]))
        if refusal is None and announce and self._announces:
            await self._announce(stream)
        return refusal

    async def _catch_up(self, stream: Stream, since: MessageId) -> None:
        """Write to a stream the messages that its reader missed since the message with the id `since`.

        If the hub does not know that message, the stream carries only new messages.
        """
        asked = c.ReadHistory(stream.session, limit=_MISSED_PAGE, after_id=since, forward=True, offers=True)
        while not stream.closed:
            page = await self.hub.ask(asked)
            if isinstance(page, Refusal) and page.code is not Code.UNKNOWN_MESSAGE:
                # The reader comes back and asks again. Going on would lose messages silently.
                stream.close(TOO_SLOW, page.message)
                break
            messages = page.messages if isinstance(page, History) else ()
            if not all(stream.show_missed(message) for message in messages) or not messages:
                break
            asked = replace(asked, after_id=None, after=messages[-1].offset)
        if not stream.closed:
            stream.end_missed()

    async def _announce(self, stream: Stream) -> None:
        """Send a member the notice that its stream is open, in the hub's own name.

        A client that does not receive this notice knows that its stream is broken. If the hub refuses the notice, the
        refusal is ignored.
        """
        member, session = stream.member, stream.session
        if member is None:
            return
        roster = await self.hub.ask(c.ListMembers(session, name=member))
        mine = c.ListObjectives(session, statuses=briefing.OPEN, assignee=member, limit=_OPEN_COUNTED_MAX)
        objectives = await self.hub.ask(mine)
        if isinstance(roster, Refusal) or isinstance(objectives, Refusal):
            # The member or the session is gone.
            return
        missed = sum(presence.unoffered for presence in roster.members)
        content = Content(
            target=to_member(member),
            title=briefing.NOTICE_TITLE,
            body=briefing.notice(member, len(objectives.objectives), missed),
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
        """Return a message as a frame (JSON that is ready to be sent). The frame of the last message is cached."""
        known, frame = self._frame
        # Compares the message itself, not its offset: a redacted message keeps its offset.
        if known is not message:
            payload = _encode(codec.message(message, self._channels.ids))
            frame = Frame(payload, event(payload, message.id))
            self._frame = (message, frame)
        return frame

    def count(self, message: Message, frame: Frame) -> None:
        """Count one more stream that this message was written to, if the sender's request waits for the number."""
        known = self._live.get(message.offset)
        if known is not None:
            self._live[message.offset] = (known[0] + 1, frame)

    def remove(self, stream: Stream) -> None:
        """Forget a stream whose reader has disconnected, and end its session."""
        member, stream.member = stream.member, None
        if member is None:
            return
        streams = self._by_member[member]
        streams.remove(stream)
        if not streams:
            del self._by_member[member]
            self._watched.pop(member)()
        self.hub.forget(stream.session)
        self.hub.submit((c.Detach(stream.session),))

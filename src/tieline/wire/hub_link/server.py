"""The hub's side of links: accepts workers, passes their calls to the hub, and the hub's callbacks to the workers.

Used by: the hub's process. Uses: the local hub, through the interface `contract.hub`. A worker has the same rights as
the hub's own protocols. The broker refuses everything else.

**Order.** A worker's items are handled in their order, and the hub's callbacks become items in the order of the calls.
So each session sees the same order as in one process.

**Credit.** A worker has credit while its unsent bytes are few. Without credit, the hub reads nothing more from this
worker, and sends it no offers. The hub notes the keys of these offers, and sends the keys as `Released` when the worker
has credit again. So slow workers hold back only their own clients. Notices, progress and activity cannot be asked for
again, so they are sent even without credit, up to a limit. Above this limit the link ends, so that the worker's clients
read everything again.

**Loss.** A worker whose connection is lost has no credit. It has `GRACE_SECONDS` to connect again and to go on where
the link was. Then the link ends, and all that the worker had ends with it: its sessions, watches and external inboxes.
"""

import asyncio
import secrets
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import structlog
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import Hub, Notice, Question
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Progress, Reply
from tieline.wire import unix
from tieline.wire.frames import encode_frame
from tieline.wire.hub_link import codec
from tieline.wire.hub_link.codec import Packed, ToHub, ToWorker, decode_to_hub, pack, packed_bytes, unpack
from tieline.wire.hub_link.connection import Connection
from tieline.wire.hub_link.end import UNSENT_BYTES_MAX, LinkEnd
from tieline.wire.hub_link.greeting import Hello, Refused, Welcome, check_hello, encode_answer

GRACE_SECONDS = 10.0
"""Time for a worker to connect again: a busy or paused machine, or a network that is away for a moment."""

_UNANSWERED_MAX = 16_384
"""Commands of one worker without a reply. Beyond it, the hub reads nothing more from this worker. It is four times the
limit of one client, and much more than the commands of a batch."""

_REPLIES_BYTES = 1024 * 1024
"""Size of packed replies at which the rest goes into another item, so that a frame stays small."""

_BEHIND_BYTES_MAX = 64 * 1024 * 1024
"""Bytes of notices, progress and activity that are sent to a worker without credit: thousands of messages."""

_BEHIND_KEYS_MAX = 1_000_000
"""Keys of offers that are held back for a worker without credit. They take some tens of megabytes."""

_KEY_BYTES = 48
"""Estimated size of a key with its session in an item."""

log = structlog.get_logger(__name__)


class LinkServer:
    """Accepts links of workers. `key` is the secret that a worker must know."""

    def __init__(self, hub: Hub, key: str) -> None:
        self.hub = hub
        self.key = key
        # Links by their ids, also those without a connection. The ids are secrets of the workers.
        self.links: dict[str, Link] = {}
        # Connections whose greeting has not come yet.
        self.strangers: set[_Connection] = set()
        self._server: unix.UnixServer | None = None

    async def listen(self, path: Path) -> None:
        """Listen for workers at `path`."""
        self._server = await unix.listen(path, lambda: _Connection(self), mode=0o600)

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection that somebody else has accepted."""
        return _Connection(self)

    def end(self, link: str) -> None:
        """End a link and all its sessions at once, because its worker is gone. Do nothing if there is no such link."""
        if link in self.links:
            self.links[link].give_up()

    async def close(self) -> None:
        """Listen no more, and end all links. Their sessions end with them."""
        if self._server is not None:
            self._server.close()
        for link in list(self.links.values()):
            link.put(codec.Close())
            link.hang_up()
        for stranger in list(self.strangers):
            stranger.abort()
        if self._server is not None:
            await self._server.wait_closed()


class _Connection(Connection):
    """The hub's side of one connection of a worker. It checks the worker's greeting."""

    def __init__(self, server: LinkServer) -> None:
        super().__init__()
        self._server = server
        self._deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Wait for the greeting of a worker."""
        self._server.strangers.add(self)
        if not self.begin(transport, UNSENT_BYTES_MAX):
            self.fail("a process of another user connected")
            return
        seconds = self._server.hub.limits.hello_ms / 1000
        self._deadline = self._loop.call_later(seconds, self.fail, "a worker did not say who it is")

    def connection_lost(self, exc: Exception | None) -> None:
        """Stop the wait for the greeting."""
        self._met()
        super().connection_lost(exc)

    def _met(self) -> None:
        self._server.strangers.discard(self)
        if self._deadline is not None:
            self._deadline.cancel()

    def receive_greeting(self, payload: bytes) -> None:
        """Accept the worker if it knows the key and has the same contract, and find its link."""
        server = self._server
        hello = check_hello(payload, server.key)
        if isinstance(hello, Hello) and hello.link and hello.link not in server.links:
            hello = Refused("the hub does not know this link any more, and its sessions have ended")
        if isinstance(hello, Refused):
            log.warning("a worker was refused", reason=hello.why)
            self.write(encode_frame(encode_answer(hello)))
            self.hang_up()
            return
        self._met()
        link = server.links[hello.link] if hello.link else Link(server)
        self.write(encode_frame(encode_answer(Welcome(server.hub.limits, link.id, link.received))))
        self.serve(link, hello.received)


class _Session:
    """Listener of one session of a worker: turns the hub's calls into items."""

    __slots__ = ("_link", "id", "member")

    def __init__(self, link: "Link", session: SessionId) -> None:
        self._link = link
        self.id = session
        # The member whose deliveries the session wants, if any.
        self.member: MemberName | None = None

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        """Send an offer to the worker."""
        self._link.offer(self.id, message, key, stream_seq)

    def released(self, keys: Sequence[int]) -> None:
        """Send the keys of released deliveries to the worker."""
        self._link.release(self.id, keys)

    def progress(self, step: Progress) -> None:
        """Send a change of a followed delivery to the worker."""
        self._link.put_news(codec.Stepped(self.id, step))

    def end(self, why: Refusal) -> None:
        """Tell the worker that the session has ended."""
        self._link.end_session(self.id, why)


class _Inbox:
    """Stand-in for an external inbox that is in a worker: turns the hub's calls into items to the worker."""

    def __init__(self, link: "Link", member: MemberName) -> None:
        self._link = link
        self._member = member

    def asked(self, question: Question) -> None:
        """Send a question to the worker."""
        packed = [(key, pack(message)) for key, message in question.deliveries]
        size = sum(packed_bytes(message) for _, message in packed)
        self._link.put(codec.Asked(question.number, question.member, packed), size)

    def finish(self, keys: Sequence[int]) -> None:
        """Tell the worker which deliveries are settled."""
        self._link.put(codec.Finished(self._member, tuple(keys)))

    def give_back(self, keys: Sequence[int]) -> None:
        """Tell the worker which deliveries the hub does not settle."""
        self._link.put(codec.GivenBack(self._member, tuple(keys)))


class Link(LinkEnd[ToHub, ToWorker]):
    """The hub's end of the link to one worker."""

    def __init__(self, server: LinkServer) -> None:
        super().__init__(decode_to_hub)
        self._hub = server.hub
        self._links = server.links
        # Random, because who knows it can take the link over.
        self.id = secrets.token_hex(16)
        self._links[self.id] = self
        # Timer that ends the link if its worker does not connect again.
        self._grace: asyncio.TimerHandle | None = None
        self._sessions: dict[SessionId, _Session] = {}
        # Functions that stop the worker's watches and tails, by the worker's number of each.
        self._stops: dict[int, Callable[[], None]] = {}
        # Members whose external inbox is in the worker.
        self._inboxes: set[MemberName] = set()
        # Commands of calls that are not complete yet, by the number of the call.
        self._parts: dict[int, list[Packed]] = {}
        # Number of commands without a reply.
        self._unanswered = 0
        # The value of the last item, while that item may get more recipients.
        self._last: Struct | None = None
        # While the worker is slow: keys of offers that were not made, their number, and bytes that were sent anyway.
        self._held_back: dict[SessionId, list[int]] = {}
        self._held_back_count = 0
        self._forced_bytes = 0

    # The connection.

    def lost_connection(self) -> None:
        """Give the worker some time to connect again."""
        self._grace = self._loop.call_later(GRACE_SECONDS, self._end_grace)

    def _end_grace(self) -> None:
        log.warning("a worker did not connect again, and its sessions end", sessions=len(self._sessions))
        self.give_up()

    def ended(self) -> None:
        """End everything that the worker had: its sessions, its watches and its external inboxes."""
        del self._links[self.id]
        if self._grace is not None:
            self._grace.cancel()
        for member in self._inboxes:
            self._hub.set_external_inbox(member, SessionId(""), None)
        for stop in self._stops.values():
            stop()
        self._stops.clear()
        sessions, self._sessions = self._sessions, {}
        for session in sessions:
            self._hub.forget(session)
            self._hub.submit((c.Detach(session),))

    def slow_down(self) -> None:
        """Send no more offers and read nothing more, because the worker is slow or not connected."""
        super().slow_down()
        self._regulate()

    def speed_up(self) -> None:
        """Send the keys of the offers that were held back, and read from the worker again."""
        super().speed_up()
        if self._grace is not None:
            self._grace.cancel()
            self._grace = None
        held_back, self._held_back = self._held_back, {}
        self._held_back_count = self._forced_bytes = 0
        for session, keys in held_back.items():
            if session in self._sessions:
                self.put(codec.Released(session, keys), _KEY_BYTES * len(keys))
        self._regulate()

    # Items of the worker.

    def receive_item(self, item: ToHub) -> None:
        """Make the call that an item of the worker stands for."""
        hub = self._hub
        match item:
            case codec.Submit():
                self._submit(item)
            case codec.Listen(session, member):
                known = self._sessions.get(session) or self._add_session(session)
                known.member = member or known.member
                hub.listen(session, known, known.member)
            case codec.Forget(session):
                if session in self._sessions:
                    hub.forget(session)
                    # The link itself must still learn when the session ends.
                    self._sessions[session].member = None
                    hub.listen(session, self._sessions[session])
            case codec.Tail(number, session, member):
                self._stops[number] = hub.tail(session, member, partial(self._put_rows, number))
            case codec.Watch(number, interest):
                self._stops[number] = hub.watch(interest, partial(self._put_notice, number))
            case codec.Stop(number):
                if stop := self._stops.pop(number, None):
                    stop()
            case codec.SetInbox(member, session, present):
                (self._inboxes.add if present else self._inboxes.discard)(member)
                hub.set_external_inbox(member, session, _Inbox(self, member) if present else None)
            case codec.Resolve(question, reserved, taken):
                hub.resolve(question, reserved, taken)
            case codec.Leave():
                self.hang_up()

    def _submit(self, item: codec.Submit) -> None:
        packed = self._parts.pop(item.number, []) + item.commands
        if item.more:
            self._parts[item.number] = packed
            return
        values: list[Any] = [unpack(value, codec.COMMANDS_OR_REFUSAL) for value in packed]
        commands = [value for value in values if not isinstance(value, Refusal)]
        refused = [(index, value) for index, value in enumerate(values) if isinstance(value, Refusal)]
        self._unanswered += len(commands)
        self._regulate()
        self._hub.submit(commands, partial(self._answered, item.number, commands, refused))

    def _answered(
        self,
        number: int,
        commands: Sequence[c.Command],
        refused: Sequence[tuple[int, Refusal]],
        replies: Sequence[Reply],
    ) -> None:
        """Send the replies to commands of the worker, with the refusals of those that the worker could not send."""
        self._unanswered -= len(commands)
        for command, reply in zip(commands, replies, strict=True):
            if isinstance(reply, Attached):
                self._attached(reply.session)
            elif isinstance(command, c.Detach) and self._sessions.pop(command.session, None) is not None:
                self._hub.forget(command.session)
        if number:
            together = list(replies)
            for index, refusal in refused:
                together.insert(index, refusal)
            self._put_replies(number, together)
        self._regulate()

    def _attached(self, session: SessionId) -> None:
        if self.over:
            self._hub.submit((c.Detach(session),))
        else:
            self._hub.listen(session, self._add_session(session))

    def _add_session(self, session: SessionId) -> _Session:
        known = self._sessions[session] = _Session(self, session)
        return known

    def _regulate(self) -> None:
        """Read from the worker only if the worker itself reads, and the hub has few unanswered commands."""
        self.hold(self._slow or self._unanswered >= _UNANSWERED_MAX)

    # Items to the worker.

    def put(self, item: ToWorker, packed_bytes: int = 0) -> None:
        """Send an item at the end of this turn."""
        self._last = None
        super().put(item, packed_bytes)

    def put_news(self, item: ToWorker, packed_bytes: int = 0) -> None:
        """Send an item that cannot be asked for again, even if the worker is slow. Too many of them end the link."""
        self.put(item, packed_bytes)
        if self._slow:
            self._forced_bytes += packed_bytes + _KEY_BYTES
            if self._forced_bytes > _BEHIND_BYTES_MAX:
                self.fail("a worker does not read, and too much waits for it")

    def offer(self, session: SessionId, message: Message, key: int, stream_seq: int) -> None:
        """Send an offer, or note its key if the worker is slow."""
        if self._slow:
            self._hold_back(session, (key,))
            return
        to = (session, key, stream_seq)
        last = self.last_item
        if self._last is message and isinstance(last, codec.Offers):
            last.to.append(to)
            self.grow(_KEY_BYTES)
            return
        packed = pack(message)
        self.put(codec.Offers(packed, [to]), packed_bytes(packed))
        self._last = message

    def release(self, session: SessionId, keys: Sequence[int]) -> None:
        """Send the keys of released deliveries, or note them if the worker is slow."""
        if self._slow:
            self._hold_back(session, keys)
        else:
            self.put(codec.Released(session, list(keys)), _KEY_BYTES * len(keys))

    def _hold_back(self, session: SessionId, keys: Sequence[int]) -> None:
        self._held_back.setdefault(session, []).extend(keys)
        self._held_back_count += len(keys)
        if self._held_back_count > _BEHIND_KEYS_MAX:
            self.fail("a worker does not read, and too many deliveries wait for it")

    def end_session(self, session: SessionId, why: Refusal) -> None:
        """Tell the worker that a session has ended."""
        self._sessions.pop(session, None)
        self._held_back.pop(session, None)
        self.put_news(codec.Ended(session, why))

    def _put_notice(self, number: int, notice: Notice) -> None:
        last = self.last_item
        if self._last is notice and isinstance(last, codec.Noticed):
            last.watches.append(number)
            return
        packed = pack(notice)
        self.put_news(codec.Noticed([number], packed), packed_bytes(packed))
        self._last = notice

    def _put_rows(self, number: int, rows: Sequence[ActivityRow]) -> None:
        packed = [pack(row) for row in rows]
        self.put_news(codec.Rows(number, packed), sum(map(packed_bytes, packed)))

    def _put_replies(self, number: int, replies: Sequence[Reply]) -> None:
        """Send replies, in several items if they are large."""
        packed: list[Packed] = []
        size = 0
        for index, reply in enumerate(replies):
            packed.append(_pack_reply(reply))
            size += packed_bytes(packed[-1])
            if size >= _REPLIES_BYTES and index + 1 < len(replies):
                self.put(codec.Replies(number, packed, more=True), size)
                packed, size = [], 0
        self.put(codec.Replies(number, packed), size)


def _pack_reply(reply: Reply) -> Packed:
    try:
        return pack(reply)
    except (UnicodeEncodeError, RecursionError):
        log.exception("a reply cannot be sent to a worker")
        return pack(Refusal(Code.INTERNAL_ERROR, "the hub cannot send its reply to the process that serves you"))

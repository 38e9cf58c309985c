"""The remote hub: implements the interface `Hub` in a worker, over the link to the process that has the hub.

Used by: whatever uses a `Hub` in a worker: protocols, services and the console. Uses: the link. The replies and
the callbacks of a frame come in the order in which the hub made them, all in one turn of the event loop.

When the connection is lost, the worker connects again within `HOLD_SECONDS` and goes on where the link was: its clients
only wait, and each command is answered exactly once. If the hub does not come back, or was started anew, the link is
over. Then commands that wait for a reply are refused and all sessions end, as `Hub` demands.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

import structlog

from tieline.contract import command as c
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import ExternalInbox, Hub, Interest, Listener, Notice, Question
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Reply
from tieline.wire import unix
from tieline.wire.awaited_reply import ask
from tieline.wire.frames import encode_frame
from tieline.wire.hub_link import codec
from tieline.wire.hub_link.codec import BadFrame, Packed, ToHub, ToWorker, decode_to_worker, pack, packed_bytes, unpack
from tieline.wire.hub_link.connection import Connection
from tieline.wire.hub_link.end import UNSENT_BYTES_MAX, LinkEnd
from tieline.wire.hub_link.greeting import LinkRefused, Welcome, read_answer, say_hello

_COMMANDS_BYTES = 1024 * 1024
"""Size of packed commands at which the rest of a call goes into another item, so that a frame stays small."""

_LOST = Refusal(
    Code.SHUTTING_DOWN,
    "the connection to the hub was lost, and what had no answer may have been done; send again with the same id",
)

HOLD_SECONDS = 10.0
"""Time for which a worker holds its clients while the hub is away: as long as the hub keeps their sessions."""

_RETRY_SECONDS = 0.05
"""Pause between two attempts to connect again. A hub on the same machine refuses at once while it is away."""

_GREETING_SECONDS = 10.0
"""Timeout of the greeting: the time that a hub gives to any client."""

Dial = Callable[[Callable[[], asyncio.Protocol]], Awaitable[object]]
"""Opens a connection to the hub, and makes its protocol by the function that it gets."""

Done = Callable[[Sequence[Reply]], None]
Tail = Callable[[Sequence[ActivityRow]], None]

log = structlog.get_logger(__name__)

_R = TypeVar("_R")


class _Call:
    """A call of `submit` that waits for its replies."""

    __slots__ = ("count", "done", "replies")

    def __init__(self, count: int, done: Done) -> None:
        self.count = count
        self.done = done
        self.replies: list[Reply] = []


class _Connection(Connection):
    """The worker's side of one connection to the hub. It sends the greeting and takes the hub's answer."""

    def __init__(self, hello: bytes) -> None:
        super().__init__()
        self._hello = hello
        # Resolved with the hub's answer, or with the reason why the hub does not let this worker in.
        self.answer: asyncio.Future[Welcome] = self._loop.create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the first frame of this worker."""
        self.begin(transport, UNSENT_BYTES_MAX)
        self.write(encode_frame(self._hello))

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the link that the connection is lost."""
        super().connection_lost(exc)
        if not self.answer.done():
            self.answer.set_exception(exc or ConnectionResetError("the hub has closed the connection"))

    def receive_greeting(self, payload: bytes) -> None:
        """Take the hub's answer to the greeting. Frames wait until it has been read."""
        self.hold(True)
        try:
            self.answer.set_result(read_answer(payload))
        except ConnectionError as refused:
            self.answer.set_exception(refused)
            self.abort()


async def _greet(dial: Dial, hello: bytes) -> tuple[_Connection, Welcome]:
    """Connect to the hub, and return the connection and the hub's answer to `hello`."""
    connection = _Connection(hello)
    async with asyncio.timeout(_GREETING_SECONDS):
        await dial(lambda: connection)
        try:
            return connection, await connection.answer
        except BaseException:
            connection.abort()
            raise


async def connect(path: Path, key: str) -> "RemoteHub":
    """Connect to the hub that listens for workers at `path`. See `connect_by`."""
    return await connect_by(partial(unix.connect, path), key)


async def connect_by(dial: Dial, key: str) -> "RemoteHub":
    """Connect to a hub. `dial` opens a connection to it.

    Raises `LinkRefused` if the hub does not let this worker in, `TimeoutError` if it does not answer in time, and
    another `OSError` if it cannot be reached.
    """
    connection, welcome = await _greet(dial, say_hello(key))
    return RemoteHub(dial, key, connection, welcome)


class _Link(LinkEnd[ToWorker, ToHub]):
    """The worker's end of the link. It connects again when its connection is lost."""

    def __init__(self, hub: "RemoteHub", dial: Dial, key: str, link: str) -> None:
        super().__init__(decode_to_worker)
        self._hub = hub
        self._dial = dial
        self._key = key
        # Id of the link, by which the hub finds it again.
        self._id = link
        self._connecting: asyncio.Task[None] | None = None

    def receive_item(self, item: ToWorker) -> None:
        """Pass an item to the remote hub."""
        self._hub.receive(item)

    def lost_connection(self) -> None:
        """Connect again."""
        log.warning("the connection to the hub is lost; its clients wait")
        self._connecting = self._loop.create_task(self._connect())

    async def _connect(self) -> None:
        """Connect again and go on. Give the link up if the hub does not know it any more, or does not come back."""
        deadline = self._loop.time() + HOLD_SECONDS
        while not self.over:
            try:
                connection, welcome = await _greet(self._dial, say_hello(self._key, self._id, self.received))
            except LinkRefused as refused:
                log.warning("the hub does not take this worker back", reason=str(refused))
                break
            except OSError:
                if self._loop.time() + _RETRY_SECONDS > deadline:
                    log.warning("the hub did not come back", seconds=HOLD_SECONDS)
                    break
                await asyncio.sleep(_RETRY_SECONDS)
            else:
                self._connecting = None
                self.use(connection, welcome)
                return
        self._connecting = None
        self.give_up()

    def use(self, connection: _Connection, welcome: Welcome) -> None:
        """Continue the link over a new connection to the hub. `welcome` is the hub's answer to the greeting."""
        if self.over or connection.ended:
            # The connection was lost, or the link was given up, while the answer was on its way.
            connection.abort()
            if not self.over:
                self.lost_connection()
            return
        try:
            connection.serve(self, welcome.received)
        except BadFrame as error:
            connection.fail(str(error))
        else:
            connection.hold(False)

    def ended(self) -> None:
        """Tell the remote hub that the link is over."""
        if self._connecting is not None:
            self._connecting.cancel()
        self._hub.lose()


class RemoteHub(Hub):
    """Implementation of `Hub`, the interface that protocols use, for a hub in another process."""

    def __init__(self, dial: Dial, key: str, connection: _Connection, welcome: Welcome) -> None:
        self.limits = welcome.limits
        self._loop = asyncio.get_running_loop()
        # Number of the last call, watch or tail. 0 is a call without replies.
        self._number = 0
        self._calls: dict[int, _Call] = {}
        self._sessions: dict[SessionId, tuple[MemberName | None, Listener]] = {}
        self._watches: dict[int, Callable[[Notice], None]] = {}
        self._tails: dict[int, tuple[SessionId, Tail]] = {}
        self._inboxes: dict[MemberName, ExternalInbox] = {}
        # Resolved when the link is over.
        self.lost: asyncio.Future[None] = self._loop.create_future()
        # Id of the link, by which the hub knows this worker.
        self.link_id = welcome.link
        self._link = _Link(self, dial, key, welcome.link)
        self._link.use(connection, welcome)

    def close(self) -> None:
        """End the link. All sessions of this worker end with it."""
        self._link.put(codec.Leave())
        self._link.hang_up()

    # The Hub port.

    def submit(self, commands: Sequence[c.Command], done: Done | None = None) -> None:
        """Send commands to the hub. When their results are durable, `done` is called with the replies, in order."""
        if self.lost.done():
            if done is not None:
                self._loop.call_soon(done, [_LOST] * len(commands))
            return
        number = 0
        if done is not None:
            number = self._new_number()
            self._calls[number] = _Call(len(commands), done)
        packed: list[Packed] = []
        size = 0
        for command in commands:
            if size >= _COMMANDS_BYTES:
                if not number:
                    # Parts of a call need a number, and then there are replies.
                    number = self._new_number()
                    self._calls[number] = _Call(len(commands), _ignore)
                self._link.put(codec.Submit(number, packed, more=True), size)
                packed, size = [], 0
            packed.append(_pack_command(command))
            size += packed_bytes(packed[-1])
        self._link.put(codec.Submit(number, packed), size)

    async def ask(self, command: c.AnsweredBy[_R]) -> _R | Refusal:
        """Send one command to the hub, wait for its reply, and return the reply."""
        return await ask(self.submit, command)

    def listen(self, session: SessionId, listener: Listener, member: MemberName | None = None) -> None:
        """Call this listener for events of the session and, with `member`, for new deliveries of that member."""
        known = self._sessions.get(session)
        self._sessions[session] = (member, listener)
        if known is None or known[0] != member:
            self._link.put(codec.Listen(session, member))

    def forget(self, session: SessionId) -> None:
        """Call the listener of a session no more. A second call does nothing."""
        self._end_tails(session)
        if self._sessions.pop(session, None) is not None:
            self._link.put(codec.Forget(session))

    def tail(self, session: SessionId, member: MemberName, receiver: Tail) -> Callable[[], None]:
        """Pass a member's new activity to this receiver until the session ends or the returned function is called."""
        number = self._new_number()
        self._tails[number] = (session, receiver)
        self._link.put(codec.Tail(number, session, member))

        def stop() -> None:
            if self._tails.pop(number, None) is not None:
                self._link.put(codec.Stop(number))

        return stop

    def watch(self, interest: Interest, receiver: Callable[[Notice], None]) -> Callable[[], None]:
        """Pass the notices that match `interest` to `receiver`. Return a function that stops this."""
        number = self._new_number()
        self._watches[number] = receiver
        self._link.put(codec.Watch(number, interest))

        def stop() -> None:
            if self._watches.pop(number, None) is not None:
                self._link.put(codec.Stop(number))

        return stop

    def set_external_inbox(self, member: MemberName, session: SessionId, inbox: ExternalInbox | None) -> None:
        """Set the external inbox of a member, or remove it with `None`."""
        if inbox is not None:
            self._inboxes[member] = inbox
        else:
            self._inboxes.pop(member, None)
        self._link.put(codec.SetInbox(member, session, inbox is not None))

    def resolve(self, question: int, reserved: Sequence[int], taken: Sequence[int]) -> None:
        """Send the answer of an external inbox to the hub."""
        self._link.put(codec.Resolve(question, tuple(reserved), tuple(taken)))

    # Items of the hub.

    def receive(self, item: ToWorker) -> None:
        """Make the calls that an item of the hub stands for."""
        match item:
            case codec.Replies():
                self._take_replies(item)
            case codec.Offers(packed, to):
                self._offer(unpack(packed, codec.MESSAGE), to)
            case codec.Released(session, keys):
                if (known := self._sessions.get(session)) is not None:
                    _call(known[1].released, keys)
            case codec.Stepped(session, step):
                if (known := self._sessions.get(session)) is not None:
                    _call(known[1].progress, step)
            case codec.Ended(session, why):
                self._end(session, why)
            case codec.Noticed(watches, packed):
                notice = unpack(packed, codec.NOTICES)
                for number in watches:
                    if (receiver := self._watches.get(number)) is not None:
                        _call(receiver, notice)
            case codec.Rows(number, packed):
                if (tail := self._tails.get(number)) is not None:
                    _call(tail[1], [unpack(row, codec.ACTIVITY) for row in packed])
            case codec.Asked(number, member, packed):
                deliveries = tuple((key, unpack(each, codec.MESSAGE)) for key, each in packed)
                if not self._tell_inbox(member, lambda inbox: inbox.asked(Question(number, member, deliveries))):
                    self.resolve(number, (), ())
            case codec.Finished(member, keys):
                self._tell_inbox(member, lambda inbox: inbox.finish(keys))
            case codec.GivenBack(member, keys):
                self._tell_inbox(member, lambda inbox: inbox.give_back(keys))
            case codec.Close():
                self._link.give_up()

    def lose(self) -> None:
        """Refuse the commands that wait for a reply, and end all sessions, because the link is over."""
        if self.lost.done():
            return
        self.lost.set_result(None)
        calls, self._calls = self._calls, {}
        for call in calls.values():
            _call(call.done, [*call.replies, *[_LOST] * (call.count - len(call.replies))])
        for session in list(self._sessions):
            self._end(session, _LOST)

    def _new_number(self) -> int:
        self._number += 1
        return self._number

    def _take_replies(self, item: codec.Replies) -> None:
        call = self._calls.get(item.number)
        if call is None:
            raise BadFrame("a reply to a command that nobody gave")
        replies = [unpack(reply, codec.REPLIES) for reply in item.replies]
        count = len(call.replies) + len(replies)
        if count > call.count or (count < call.count and not item.more):
            raise BadFrame(f"{count} replies to {call.count} commands")
        call.replies += replies
        if item.more:
            return
        del self._calls[item.number]
        _call(call.done, call.replies)

    def _offer(self, message: Message, to: Sequence[tuple[SessionId, int, int]]) -> None:
        for session, key, stream_seq in to:
            known = self._sessions.get(session)
            if known is not None and known[0] is not None:
                _call(known[1].offer, message, key, stream_seq)

    def _tell_inbox(self, member: MemberName, tell: Callable[[ExternalInbox], None]) -> bool:
        """Call the external inbox of a member. Return false if it failed, or if there is none."""
        inbox = self._inboxes.get(member)
        if inbox is None:
            return False
        try:
            tell(inbox)
        except Exception:
            log.exception("an external inbox failed", member=member)
            return False
        return True

    def _end_tails(self, session: SessionId) -> None:
        for number in [number for number, (theirs, _) in self._tails.items() if theirs == session]:
            del self._tails[number]
            self._link.put(codec.Stop(number))

    def _end(self, session: SessionId, why: Refusal) -> None:
        self._end_tails(session)
        known = self._sessions.pop(session, None)
        if known is not None:
            _call(known[1].end, why)


def _pack_command(command: c.Command) -> Packed:
    """Return a command as bytes. If it cannot be encoded, return a refusal in its place, which becomes its reply."""
    try:
        return pack(command)
    except UnicodeEncodeError:
        return pack(Refusal(Code.INVALID_MESSAGE, "the text holds half a surrogate pair, which no wire can carry"))
    except RecursionError:
        return pack(Refusal(Code.INVALID_MESSAGE, "the data is nested too deep"))


def _ignore(replies: Sequence[Reply]) -> None:
    """Take the replies to commands whose caller does not want them."""


def _call(receiver: Callable[..., Any], *values: object) -> None:
    """Call a receiver. If it raises an exception, only log it, so that the others are called too."""
    try:
        receiver(*values)
    except Exception:
        log.exception("a receiver failed")

"""The hub's side of its own protocol: handles one client's connection, for a Unix socket and a WebSocket alike.

Used by: the `Transport` of the connection (Unix socket or WebSocket), which passes batches of frames in both
directions. Uses: a `SessionPump`.
"""

from collections.abc import Sequence
from functools import partial

import msgspec
from msgspec import structs

from tieline.contract import command as c
from tieline.contract import message as m
from tieline.contract import reply as r
from tieline.contract.activity import ActivityRow
from tieline.contract.hub import Hub
from tieline.contract.identifiers import parse_member_name
from tieline.contract.keys import split_ranges
from tieline.contract.member import ByHomeKey, ByToken, Credential
from tieline.contract.refusal import Code, Refusal
from tieline.wire.greeting import Greeting, Phase
from tieline.wire.native import activity, tail
from tieline.wire.native import frames as f
from tieline.wire.native.content import content_of, encode_message
from tieline.wire.native.derived import ANSWERS
from tieline.wire.session_pump import Parcel, SessionPump

PROTOCOL = "tieline"

_BATCH_BYTES = 4 * 1024 * 1024
"""Most bytes of deliveries in one batch. Only a single delivery may be larger. Clients accept much larger frames."""


class Transport:
    """Base class: one client's connection (a Unix socket or a WebSocket) that carries batches (JSON arrays of frames).

    All methods return at once.
    """

    __slots__ = ()

    def send(self, payload: bytes) -> None:
        """Send one batch to the client."""
        raise NotImplementedError

    def close(self) -> None:
        """Send the batches that are still in the buffer, and close the connection."""
        raise NotImplementedError

    def admit(self, owner: str) -> None:
        """Allow batches of full size, because the client has logged in as the member `owner`."""
        raise NotImplementedError

    def await_hello(self) -> None:
        """Allow the client one more small batch, because its last batch was empty and contained no login (`hello`)."""
        raise NotImplementedError

    def abort(self) -> None:
        """Read no more batches, and close the connection soon, even if the client does not close it."""
        raise NotImplementedError

    def pause_reading(self) -> None:
        """Stop reading batches from the client."""
        raise NotImplementedError

    def resume_reading(self) -> None:
        """Continue to read batches from the client."""
        raise NotImplementedError


class _Gone(Transport):
    """Replacement for the transport of a lost connection, so that the memory of the old transport can be freed.

    All its methods do nothing.
    """

    __slots__ = ()

    def send(self, payload: bytes) -> None:
        """Do nothing, because the client has disconnected and can receive nothing."""

    def close(self) -> None:
        """Do nothing, because the connection is already closed."""

    def admit(self, owner: str) -> None:
        """Do nothing, because the client has disconnected and sends no more batches."""

    await_hello = abort = pause_reading = resume_reading = close


_GONE = _Gone()


_ENCODED_BYTES_MAX = 8 * 1024 * 1024
"""Size limit in bytes of the cache of encoded messages. It is enough for the messages that go to all connections at one
moment."""
_ENTRY_BYTES = 1024
"""Assumed memory of a cache entry in addition to its encoded message, rounded up."""


class _Encoded:
    """Cache of encoded messages for all connections. Each recipient of a message gets the same bytes."""

    __slots__ = ("_by_offset", "_bytes")

    def __init__(self) -> None:
        self._by_offset: dict[int, tuple[m.Message, msgspec.Raw]] = {}
        self._bytes = 0

    def encode(self, message: m.Message) -> msgspec.Raw:
        # Compares the message itself, not only its offset: several hubs may run in one process.
        known = self._by_offset.get(message.offset)
        if known is not None and known[0] is message:
            return known[1]
        raw = encode_message(message)
        size = len(raw) + _ENTRY_BYTES
        if self._bytes + size > _ENCODED_BYTES_MAX:
            self._by_offset.clear()
            self._bytes = 0
        if size <= _ENCODED_BYTES_MAX:
            self._by_offset[message.offset] = (message, raw)
            self._bytes += size
        return raw


_encoded = _Encoded()


_CREDIT = 64
"""Limit for the sum of the weights of a connection's unanswered requests. The weight of a request is an estimate of the
size of its answer, because the answer waits in memory."""
_LARGE: dict[type, int] = {
    f.Claim: 1,
    **dict.fromkeys((f.Fetch, f.Follow, f.ReadReceipts, f.ReadHistory, f.Search, f.ReadLog, f.ListMembers), 32),
    **dict.fromkeys((f.ListObjectives, f.ViewObjective, f.ReadActivity), 32),
    **dict.fromkeys((f.ListChannels, f.ViewChannel, f.CreateChannel, f.ChangeChannel), 32),
    **dict.fromkeys((f.ListTokens, f.ReadTeam, f.UpdateTeam, f.UpdateMember, f.ListPauses, f.ReadStuck), 32),
    f.ListInvitations: 32,
}
"""Weight of each kind of request with a large answer: 32 for a page of results, 1 for a single message."""
_SETTLING = (f.Ack, f.Discard)
"""Requests that end deliveries. For each ended delivery, the hub may push a new delivery."""
_APART = frozenset(
    {c.RecordActivity, c.ReadActivity, c.FollowActivity, c.ReadLog, c.Search}
    | {c.ListReaders, c.AdvanceReader, c.ForgetReader}
)
"""Commands that may have to wait for the activity log or the search index. Each is submitted alone, so that it does not
delay other commands."""


class NativeConnection:
    """The hub's side of a connection to one client of the hub's own protocol.

    `local` is true for a socket of the user who runs the hub. `token` is a token that the transport found, for example
    in a cookie. `protocol` is the name of the protocol in the session. It differs from the default if another protocol
    uses this connection inside the hub. `page_bytes_max` makes pages of the inbox smaller than the hub's limit.
    """

    __slots__ = (
        "_greeting",
        "_hub",
        "_local",
        "_missed",
        "_page_bytes_max",
        "_protocol",
        "_pump",
        "_tail",
        "_token",
        "_transport",
        "_weight",
        "_writable",
    )

    def __init__(
        self,
        hub: Hub,
        transport: Transport,
        *,
        local: bool,
        token: str | None = None,
        protocol: str = PROTOCOL,
        page_bytes_max: int | None = None,
    ) -> None:
        self._hub = hub
        self._protocol = protocol
        self._page_bytes_max = page_bytes_max
        # The token from the carrier, for example from a browser's cookie. A token in `hello` takes precedence.
        self._token = token
        self._transport: Transport = transport
        # True if the carrier is a socket of the hub's own user. Only such a client may use the key of the home.
        self._local = local
        # Weight of all requests that are not answered yet.
        self._weight = 0
        # Number of activity rows of followed members that were skipped while the carrier's buffer was full.
        self._missed = 0
        self._writable = True
        # Live view, if the client asked for one.
        self._tail: tail.Tail | None = None
        self._pump = SessionPump(hub, self)
        # The greeting also queues frames that wait until large answers are sent.
        self._greeting: Greeting[f.ClientFrame] = Greeting(self._pump)

    # Methods for the carrier.

    def expect_hello(self) -> None:
        """Start the timeout for the client's login (`hello`). The transport calls this when the connection is open."""
        self._greeting.expect(self._too_late)

    def receive_batch(self, payload: bytes | str) -> None:
        """Handle a batch (a JSON array of frames) from the client: the login (`hello`), or requests.

        Requests wait until the session is open.
        """
        try:
            batch = f.decode_client_batch(payload)
        except f.BadBatch as error:
            self.end(Refusal(Code.INVALID_REQUEST, f"not a batch of frames: {error}"))
            return
        if self._greeting.waits:
            # The batch came after `hello`, or was read before reading stopped.
            self._greeting.wait(batch)
        elif self._greeting.phase is Phase.ACTIVE:
            self._handle(batch)
        elif self._greeting.phase is Phase.GREETING:
            self._greet(batch)

    def pause_writing(self) -> None:
        """Stop sending deliveries and messages of the live view, because the transport's buffer is full."""
        self._writable = False
        self._pump.pause_writing()
        if self._tail is not None:
            self._tail.pause()

    def resume_writing(self) -> None:
        """Send deliveries and messages of the live view again, because the transport's buffer has drained."""
        self._writable = True
        self._pump.resume_writing()
        if self._tail is not None:
            self._tail.resume()
        self._release()

    def pause_deliveries(self) -> None:
        """Stop sending deliveries, because too many deliveries are unread by the client.

        Requests are still answered.
        """
        self._pump.pause_writing()

    def resume_deliveries(self) -> None:
        """Send deliveries again, because the client has read enough of the earlier deliveries."""
        self._pump.resume_writing()

    def connection_lost(self) -> None:
        """End the session, because the connection is lost."""
        try:
            self._greeting.close()
            self._close_live_view()
        finally:
            # The session must end with its connection, even if the lines above fail.
            self._pump.close()
            self._transport = _GONE

    # The Wire port, which the session pump calls.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Send deliveries to the client, in the order of `parcels`.

        Return all parcels, because this protocol skips no delivery.
        """
        encode = _encoded.encode
        batch = [f.RawDeliver(key, seq, encode(message)) for message, key, seq in parcels]
        if sum([len(frame.message) for frame in batch]) <= _BATCH_BYTES:
            self._send(batch)
            return parcels
        start = size = 0
        for index, frame in enumerate(batch):
            size += len(frame.message)
            if size > _BATCH_BYTES and index > start:
                self._send(batch[start:index])
                start, size = index, len(frame.message)
        self._send(batch[start:])
        return parcels

    def write_progress(self, step: r.Progress) -> None:
        """Tell the client about `step`, the new state of a delivery.

        The delivery belongs to a message that the client follows.
        """
        self._send([f.Progress(step.message_id, step.member, step.state.word, step.at_ms, step.way)])

    def _write_activity(self, rows: Sequence[ActivityRow]) -> None:
        """Send new activity of members that the client follows.

        While the transport's buffer is full, only count the rows that the client misses.
        """
        if not self._writable:
            self._missed += len(rows)
            return
        for frame in activity.did_frames(rows, self._missed, _BATCH_BYTES):
            self._send([frame])
        self._missed = 0

    def _write_said(self, n: int, messages: Sequence[m.Message]) -> None:
        """Send new messages of the live view. `n` is the number of the client's `tail` request."""
        batch: list[msgspec.Raw] = []
        size = 0
        for message in messages:
            raw = _encoded.encode(message)
            size += len(raw)
            if size > _BATCH_BYTES and batch:
                self._send([f.RawSaid(n, tuple(batch))])
                batch, size = [], len(raw)
            batch.append(raw)
        self._send([f.RawSaid(n, tuple(batch))])

    def end(self, why: Refusal) -> None:
        """Send the reason `why` to the client, and close the connection."""
        try:
            self._send([f.Refused(why.code, why.message, None, why.near)])
            self._close_live_view()
        finally:
            self._greeting.close()
            self._pump.close()
            self._transport.close()

    def pause_reading(self) -> None:
        """Stop reading batches, because too many requests wait for their answers."""
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read batches, because enough requests were answered."""
        self._transport.resume_reading()

    # Internals.

    def _too_late(self) -> None:
        self.end(Refusal(Code.UNAUTHORIZED, "say hello first"))
        self._transport.abort()

    def _send(self, batch: Sequence[f.Frame]) -> None:
        self._transport.send(f.encode_batch(batch))

    def _greet(self, batch: list[f.ClientFrame]) -> None:
        if not batch:
            self._transport.await_hello()
            return
        hello, *rest = batch
        if not isinstance(hello, f.Hello):
            self.end(Refusal(Code.INVALID_REQUEST, "the first frame must be hello"))
            return
        if hello.v != f.VERSION:
            self.end(Refusal(Code.INVALID_REQUEST, f"this hub speaks version {f.VERSION} of its protocol"))
            return
        credential: Credential
        if hello.token is not None:
            credential = ByToken(hello.token)
        elif self._token is not None:
            credential = ByToken(self._token)
        elif hello.key is not None and self._local:
            credential = ByHomeKey(hello.key)
        else:
            self.end(Refusal(Code.UNAUTHORIZED, "hello needs a token, or the key of the hub's home"))
            return
        member = parse_member_name(hello.member) if hello.member is not None else None
        if isinstance(member, Refusal):
            self.end(member)
            return
        # The next frames may be large. They are not handled before the client is admitted.
        self._greeting.wait(rest)
        attach = c.Attach(protocol=self._protocol, credential=credential, member=member)
        self._greeting.open(attach, lambda reply: self._opened(hello, reply))

    def _opened(self, hello: f.Hello, reply: r.Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            self.end(reply)
            return
        if hello.receive and reply.member is None:
            self.end(Refusal(Code.INVALID_REQUEST, "only a member receives: say which one in hello"))
            return
        self._transport.admit(reply.speaker)
        window = max(1, min(hello.window, self._hub.limits.window_max))
        limits = self._hub.limits
        welcome = f.Welcome(f.VERSION, reply.session, reply.speaker, reply.member, window, limits.frame_bytes_max)
        self._send([welcome])
        waiting = self._greeting.activate()
        if hello.receive:
            self._pump.receive(window=window)
        self._handle(waiting)

    def _release(self) -> None:
        ready = self._greeting.phase is Phase.ACTIVE and self._has_credit() and self._pump.room > 0
        if ready and self._greeting.waits:
            self._handle(self._greeting.take())

    def _has_credit(self) -> bool:
        """Return true if another request with a large answer may be handled now.

        If not, the request waits, so that large answers do not fill the memory.
        """
        return self._writable and self._weight < _CREDIT

    def _handle(self, batch: list[f.ClientFrame]) -> None:
        commands: list[c.Command] = []
        # The request number of each command; `None` if the command has no answer.
        numbers: list[int | None] = []
        for index, frame in enumerate(batch):
            if self._pump.room <= len(commands) or (type(frame) in _LARGE and not self._has_credit()):
                # There is no room: the answers to earlier requests must be sent first.
                self._submit(commands, numbers)
                self._greeting.wait(batch[index:])
                return
            if isinstance(frame, tail.FollowAll):
                self._submit(commands, numbers)
                commands, numbers = [], []
                self._open_live_view(frame)
                continue
            number = getattr(frame, "n", None)
            command = self._command(frame)
            if isinstance(command, Refusal):
                # Answers keep the order of the requests, so a refusal waits for the answers to earlier requests.
                self._submit(commands, numbers)
                commands, numbers = [], []
                self._pump.after(partial(self._refuse, f.Refused(command.code, command.message, number)))
                if number is None:
                    self.end(command)
                    return
                continue
            weight = _LARGE.get(type(frame), 0)
            self._weight += weight
            if weight > 1 or type(command) in _APART:
                # In a batch of its own, so that other commands need not wait for it.
                self._submit(commands, numbers)
                commands, numbers = [], []
                self._submit([command], [number], weight)
                continue
            parts = _parts(command, self._hub.limits.ranges_max)
            commands += parts
            numbers += [*[None] * (len(parts) - 1), number]
        self._submit(commands, numbers)

    def _submit(self, commands: list[c.Command], numbers: list[int | None], weight: int = 0) -> None:
        if not commands:
            return
        claims = sum(type(command) is c.Claim for command in commands)
        weight = weight or claims

        def done(replies: Sequence[r.Reply]) -> None:
            answers = [
                _answer(number, reply) for number, reply in zip(numbers, replies, strict=True) if number is not None
            ]
            if claims:
                # An answered claim ends the delivery for this client, no matter which session got it.
                self._pump.acknowledged(sum(isinstance(reply, r.Claimed) for reply in replies))
            if isinstance(commands[0], c.FollowActivity) and isinstance(replies[0], r.Done):
                self._hub.tail(self._pump.session, commands[0].member, self._write_activity)
            if weight:
                # Each answer may have the size of a whole frame.
                for answer in answers:
                    self._send([answer])
                self._weight -= weight
            elif answers:
                self._send(answers)
            self._release()

        self._pump.submit(commands, done, quiet=not weight and numbers.count(None) == len(numbers))

    def _refuse(self, answer: f.Refused) -> None:
        self._send([answer])
        self._release()

    def _open_live_view(self, frame: tail.FollowAll) -> None:
        """Open the live view (all new messages that the client may see) that the client requested with `frame`.

        Refuse if the client has no permission to read the messages. Close an older live view first.
        """
        session = self._pump.session

        def done(replies: Sequence[r.Reply]) -> None:
            (reply,) = replies
            if isinstance(reply, Refusal):
                self._refuse(f.Refused(reply.code, reply.message, frame.n))
                return
            self._send([f.Done(frame.n)])
            self._close_live_view()
            self._tail = tail.Tail(self._hub, session, frame, self._write_said, self.end)
            self._release()

        nothing = c.ReadHistory(session, limit=1, before=0, everything=frame.everything)
        self._pump.submit((nothing,), done)

    def _close_live_view(self) -> None:
        looked, self._tail = self._tail, None
        if looked is not None:
            looked.close()

    def _command(self, frame: f.ClientFrame) -> c.Command | Refusal:
        session = self._pump.session
        if isinstance(frame, f.Send):
            said = content_of(frame)
            return said if isinstance(said, Refusal) else frame.command(session, said)
        if isinstance(frame, _SETTLING):
            self._pump.acknowledged(sum([last - first + 1 for first, last in frame.keys if last >= first]))
        if isinstance(frame, f.Hello):
            return Refusal(Code.INVALID_REQUEST, "hello comes once")
        assert not isinstance(frame, f.FollowAll), "looked at before"
        command = frame.command(session)
        if isinstance(command, c.Fetch):
            return structs.replace(command, bytes_max=self._page_bytes_max)
        return command


def _parts(command: c.Command, ranges_max: int) -> Sequence[c.Command]:
    """Return `command` as several commands if it has more than `ranges_max` ranges of delivery keys.

    `ranges_max` is the hub's limit for one command.
    """
    if not isinstance(command, c.Advance | c.Discard) or len(command.ranges) <= ranges_max:
        return (command,)
    return [structs.replace(command, ranges=part) for part in split_ranges(command.ranges, ranges_max)]


def _answer(n: int, reply: r.Reply) -> f.Answer | activity.RawActivityRows:
    make = ANSWERS.get(type(reply))
    if make is not None:
        return make(n, reply)
    if isinstance(reply, Refusal):
        return f.Refused(reply.code, reply.message, n, reply.near)
    assert isinstance(reply, r.Activity), "no frame of this protocol asks for it"
    return activity.answer_of(n, reply)

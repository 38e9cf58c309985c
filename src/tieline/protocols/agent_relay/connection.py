"""One client of the relay: from bytes to commands, and from deliveries to bytes.

Above: the event loop and `server`, which knows all connections. Below: a `SessionPump` with the hub, and this folder's
codec. A frame passes these steps: `data_received` → `_read` → `_receive` (is the frame allowed now?) → `_act` (which
kind is it?) → one method for each kind. A frame that needs several commands to the hub is served by a `Procedure`.

While the hub opens the session, and while a procedure runs, no frame is taken from the buffer. The buffer stays small:
beyond a small limit the socket is not read either.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import structlog

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import HELD, Replayed, State
from tieline.contract.identifiers import SessionId
from tieline.contract.keys import join_keys, one_key
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import channels, codec, opening
from tieline.protocols.agent_relay.codec import PROTOCOL, Envelope, EnvelopeBuffer, EnvelopeError, ErrorCode
from tieline.protocols.agent_relay.handshake import Terms
from tieline.protocols.agent_relay.procedure import Payload, Procedure
from tieline.protocols.agent_relay.pulse import Pulse, Verdict
from tieline.protocols.agent_relay.queries import QUERIES, Query
from tieline.protocols.agent_relay.sync import Pending
from tieline.wire.greeting import Greeting, Phase
from tieline.wire.local import same_user
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.unfinished import TOO_MUCH
from tieline.wire.unsent import bound

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.server import RelayServer

BUSY_BACKLOG = 1000
"""Backlog of a recipient above which its senders hear BUSY. BUSY is advice to slow down; nothing is lost without it."""
BUSY_RETRY_MS = 50  # about the time of a few commits
_BUSY_EVERY_SECONDS = 1.0  # rate limit: a client does not get BUSY with every message

_EARLY_BYTES = 64 * 1024
"""Bytes read on while the hub opens a session, to tell frames sent before the hub's answer from later ones."""

_PASSING = frozenset({ErrorCode.SHUTTING_DOWN, ErrorCode.INTERNAL})
"""Errors that are the hub's own and not fatal: clients take a fatal ERROR as advice never to reconnect."""

log = structlog.get_logger(__name__)


class RelayConnection(asyncio.Protocol):
    """The connection of one client."""

    __slots__ = (
        "_buffer",
        "_busy_at",
        "_confirmed",
        "_deaf",
        "_finished",
        "_greeting",
        "_heard_since",
        "_procedure",
        "_pulse",
        "_pump",
        "_share",
        "_terms",
        "_transport",
        "_unacknowledged",
        "_unsent",
        "_writable",
        "name",
        "server",
        "session_id",
    )

    def __init__(self, server: "RelayServer") -> None:
        self.server = server
        self._buffer = EnvelopeBuffer(server.frame_bytes_max)
        self._share = server.unfinished.share(self._too_much)
        self._transport: asyncio.Transport | None = None
        self._pump = SessionPump(server.hub, self)
        # Frames that arrive before the session is open stay in the buffer.
        self._greeting: Greeting[Envelope] = Greeting(self._pump, early_bytes_max=_EARLY_BYTES)
        # The client's HELLO or RESUME terms, the agent's name, and the session's id; set when the session is open.
        self._terms: Terms | None = None
        self.name = ""
        self.session_id = ""
        # `_heard_since`: bytes came since the answer with the new resume token. `_confirmed`: the hub was told.
        self._heard_since = False
        self._confirmed = False
        # The running procedure; the next frame waits until it ends.
        self._procedure: Procedure | None = None
        # True if the client sends no more, while its earlier frames still wait to be handled.
        self._finished = False
        # Keys that were delivered on this connection and are not acknowledged.
        self._unacknowledged: set[int] = set()
        self._pulse = Pulse(server.heartbeat_ms, server.loop.time())
        # `_deaf`: the hub has paused reading. `_writable`: the socket accepts bytes. `_unsent`: bytes not yet sent.
        self._deaf = False
        self._writable = True
        self._unsent = 0
        self._busy_at = 0.0

    @property
    def session(self) -> SessionId:
        """The hub's id of the open session."""
        return self._pump.session

    @property
    def closed(self) -> bool:
        """True if the connection has ended."""
        return self._greeting.phase is Phase.CLOSED

    @property
    def by_token(self) -> bool:
        """True if a member token opened the connection."""
        return self._terms is not None and self._terms.token is not None

    @property
    def about(self) -> dict[str, str]:
        """Details that the agent gave about itself."""
        return self._terms.about if self._terms is not None else {}

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No `isinstance` check: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        bound(self._transport, self.server.hub.limits.unsent_bytes_max)
        self.server.connections.add(self)
        self._greeting.expect(self._too_late)
        if not same_user(transport):
            self.record(Code.UNAUTHORIZED, "a connection of another user")
            self.fail(ErrorCode.UNAUTHORIZED, "this socket is for the user who runs the hub")

    def data_received(self, data: bytes) -> None:
        self._pulse.heard(self.server.loop.time())
        self._buffer.receive_data(data)
        if self._greeting.phase is Phase.OPENING:
            self._share.hold(self._buffer.held)
            self._greeting.early(len(data))
            return
        self._heard_since = True
        self._read()
        self._share.hold(self._buffer.held)

    def eof_received(self) -> bool:
        # A client that sends HELLO and SEND and hangs up is still handled to the end. An event loop that keeps reading
        # may call this twice.
        self._finished = self._finished or self._greeting.phase is Phase.OPENING
        return self._finished

    def pause_writing(self) -> None:
        self._writable = False
        self._pump.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        self._pump.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._greeting.close()
        self._buffer.reset()
        self._share.close()
        try:
            self.server.leave(self)
        finally:
            # Even if something else fails, the session ends with its connection.
            self._pump.close()

    def _too_late(self) -> None:
        self.fail(ErrorCode.UNAUTHORIZED, "say HELLO first")

    def _too_much(self) -> None:
        self._buffer.reset()
        self.fail(ErrorCode.BUSY, TOO_MUCH, fatal=False)

    # Callbacks of the session pump: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Push deliveries."""
        written: list[Parcel] = []
        given_up: list[int] = []
        frames: list[bytes] = []
        for parcel in parcels:
            message, key, seq = parcel
            in_channel = codec.channel_message(message, key)
            envelope = in_channel or codec.deliver(message, key, seq, recipient=self.name, session_id=self.session_id)
            frame = codec.encode(envelope)
            if codec.payload_bytes(frame) > self.server.frame_bytes_max:
                given_up.append(key)
                continue
            frames.append(frame)
            self.server.shadows.heard(self, envelope)
            if in_channel is None:
                written.append(parcel)
                if self._terms is not None and self._terms.acknowledges:
                    self._unacknowledged.add(key)
            else:
                # This frame has no acknowledgement, so the delivery is only marked as offered.
                self._pump.offered_ackless(key)
        if frames and self._transport is not None:
            self._transport.write(b"".join(frames))
        for message, _, _ in parcels:
            if message.content.reply_to is not None and message.protocol != codec.PROTOCOL:
                self.server.syncs.replied(message, self)
        if given_up:
            self.submit(c.Advance(self.session, ranges=join_keys(given_up), state=State.DEAD, evidence="too_large"))
        return written

    def write_progress(self, step: r.Progress) -> None:
        """Do nothing: this connection follows no progress."""

    def end(self, why: Refusal) -> None:
        """Close the connection: the hub ended the session."""
        code = codec.ERROR_CODES[why.code]
        self.fail(code, why.message, fatal=code not in _PASSING)

    def pause_reading(self) -> None:
        """Stop reading: the client sends more than the hub can record, or must wait for an answer."""
        self._deaf = True
        if self._transport is not None:
            self._transport.pause_reading()
        if self._greeting.phase is Phase.ACTIVE and self._procedure is None and self._writable:
            self._busy(self.server.hub.limits.inflight_max)

    def resume_reading(self) -> None:
        """Read from the client again."""
        self._deaf = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Calls of the server and its parts.

    def send(self, kind: str, payload: Payload, **fields: Any) -> bool:
        """Send one envelope. Returns false, and sends nothing, if the envelope fits no frame."""
        fields["id"] = fields.get("id") or self.server.next_id()
        frame = codec.encode(Envelope(kind, ts=self.server.now_ms(), payload=payload, **fields))
        fits = codec.payload_bytes(frame) <= self.server.frame_bytes_max
        if fits and self._transport is not None:
            self._transport.write(frame)
        return fits

    def tell(self, frame: bytes) -> None:
        """Send a frame that no client waits for: only to an open session, and only while the client keeps up."""
        fits = codec.payload_bytes(frame) <= self.server.frame_bytes_max
        if fits and self._writable and self._greeting.phase is Phase.ACTIVE and self._transport is not None:
            self._transport.write(frame)

    def error(self, code: ErrorCode, text: str, *, fatal: bool = False, **fields: Any) -> None:
        """Send an ERROR."""
        self.send("ERROR", {"code": code.value, "message": text, "fatal": fatal}, **fields)

    def fail(self, code: ErrorCode, text: str, *, fatal: bool = True) -> None:
        """Send an ERROR and a BYE, and hang up."""
        if self.closed:
            return
        self.error(code, text, fatal=fatal)
        self._goodbye(text)

    def submit(self, command: c.Command, done: Callable[[r.Reply], None] | None = None) -> None:
        """Hand a command to the hub."""
        self._pump.submit((command,), None if done is None else (lambda replies: done(replies[0])))

    def record(self, code: Code, what: str) -> None:
        """Log a refusal that never reaches the hub's own rules."""
        self.submit(c.RecordRefusal(protocol=PROTOCOL, code=code, what=what, session=self.session))

    def check_pulse(self, now: float) -> None:
        """Ask a silent client for a sign of life; close the connection of a dead one."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if self._deaf and not self.closed and (self._writable or unsent < self._unsent):
            # The hub itself has paused reading, and a client that accepts bytes is alive.
            self._pulse.heard(now)
        self._unsent = unsent
        match self._pulse.check(now):
            case Verdict.DEAD:
                log.info("a client is dead", name=self.name)
                self._greeting.close()
                if self._transport is not None:
                    self._transport.abort()
            case Verdict.SILENT if self._greeting.phase is Phase.ACTIVE:
                self.send("PING", {"nonce": self.server.next_id()})
            case _:
                pass

    # Reading.

    def _read(self) -> None:
        """Handle the frames in the buffer, until one of them must be waited for."""
        try:
            while self._greeting.phase in (Phase.GREETING, Phase.ACTIVE) and self._procedure is None:
                envelope = self._buffer.next_envelope()
                if envelope is None:
                    break
                self._receive(envelope)
        except EnvelopeError as error:
            self.fail(error.code, str(error))
        heard_all = self._finished and self._greeting.phase is not Phase.OPENING and self._procedure is None
        if heard_all and self._transport is not None:
            self._transport.close()

    def _receive(self, envelope: Envelope) -> None:
        match envelope.type:
            case "HELLO" | "RESUME" if self._greeting.phase is Phase.GREETING:
                opening.begin(self, envelope)
            case "HELLO" | "RESUME":
                self.record(Code.INVALID_REQUEST, f"{envelope.type} in an open session")
                self.error(ErrorCode.BAD_REQUEST, f"Unexpected {envelope.type}")
            case "PING":
                self.send("PONG", envelope.payload)
            case "PONG":
                self._confirm()
            case "BYE":
                self._goodbye("goodbye")
            case _ if self._greeting.phase is Phase.GREETING:
                self.record(Code.INVALID_REQUEST, "SEND before HELLO" if envelope.type == "SEND" else "before HELLO")
                self.error(ErrorCode.BAD_REQUEST, "Not in ACTIVE state")
            case _:
                self._confirm()
                if envelope.sender and envelope.sender != self.name:
                    # The hub stamps the true name on every message from this client.
                    self.record(Code.FORBIDDEN, "a frame with the name of another in `from`")
                self._act(envelope)

    def _act(self, envelope: Envelope) -> None:
        match envelope.type:
            case "SEND" | codec.CHANNEL_MESSAGE:
                self._say(envelope)
            case "ACK":
                self._acknowledged(envelope)
            case "NACK":
                # Declined for now: the delivery stays with the member and comes again in its next session.
                self._credit(codec.key_of(envelope.payload.get("ack_id") or envelope.payload.get("nack_id")))
            case "SUBSCRIBE" | "UNSUBSCRIBE":
                self._subscribe(envelope)
            case channels.JOIN:
                self._run(channels.join(self, envelope.payload), envelope)
            case channels.LEAVE:
                self._run(channels.leave(self, envelope.payload), envelope)
            case "SHADOW_BIND":
                self._run(self.server.shadows.bind(self, envelope.payload), envelope)
            case "SHADOW_UNBIND":
                self.server.shadows.unbind(self, envelope.payload.get("primaryAgent"))
            case kind if kind in QUERIES:
                self._run(QUERIES[kind].procedure(self, envelope.payload), envelope, QUERIES[kind])
            case "LOG":
                self._log(envelope)
            case "SPAWN" | "RELEASE":
                self._decline(envelope)
            case _:
                # Unknown types are ignored, as the protocol says.
                pass

    def _goodbye(self, reason: str) -> None:
        self.send("BYE", {"reason": reason})
        self._greeting.close()
        self._pump.close()
        # Forget the waits now. The connection is lost only after the client has read everything, and the client may
        # reconnect sooner.
        self.server.syncs.forget(self)
        if self._transport is not None:
            self._transport.close()

    # Opening a session.

    def open(self, attach: c.Attach, opened: Callable[[r.Attached | Refusal], None]) -> None:
        """Ask the hub for a session. Frames wait until the session is open."""
        self._greeting.open(attach, opened)

    def activate(self, terms: Terms, attached: r.Attached, replay: tuple[Replayed, ...] = ()) -> None:
        """Start the session: it is open, and the client knows."""
        assert attached.member is not None, "only members attach here"
        assert attached.resume_id is not None, "every session here is resumable"
        self._greeting.activate()
        self._terms, self.name, self.session_id = terms, attached.member, attached.resume_id
        self._share.admit(self.name)
        self.server.enter(self, ready=not attached.resumed)
        self._pump.receive(
            window=terms.window if terms.acknowledges else None,
            unoffered_only=not terms.acknowledges,
            once=codec.is_channel_message,
            replay=replay,
        )
        self._go_on()

    def stay(self, why: str) -> None:
        """Refuse to resume the session. The client may send HELLO on this connection."""
        self.send("NACK", {"code": ErrorCode.STALE.value, "message": why})
        self._greeting.again(self._too_late)
        self._go_on()

    def _go_on(self) -> None:
        """Read the frames that came while the hub was opening the session."""
        self._heard_since = False
        self._read()

    def _confirm(self) -> None:
        """Confirm the new resume token. A frame sent before the client could read the token proves nothing."""
        if self._greeting.phase is Phase.ACTIVE and self._heard_since and not self._confirmed:
            self._confirmed = True
            self.submit(c.Confirm(self.session))

    # Speaking.

    def _say(self, envelope: Envelope) -> None:
        content = codec.content_of(envelope, self.name)
        if isinstance(content, Refusal):
            self._audited(envelope, content)
            self._refuse_words(envelope, content)
            return
        frame_bytes_max = self.server.frame_bytes_max
        near = self._buffer.frame_bytes > frame_bytes_max - codec.DELIVERY_BYTES
        if near and codec.delivered_bytes(content, self.name) > frame_bytes_max:
            text = f"its delivery would exceed the maximum of {frame_bytes_max} bytes for a frame"
            self._refuse_words(envelope, Refusal(Code.MESSAGE_TOO_LARGE, text))
            return
        pending = self.server.syncs.prepare(envelope, content.target, self)
        if isinstance(pending, Refusal):
            self._refuse_words(envelope, pending)
            return
        # By the specification every envelope has an id. Without an id, a client has no protection against duplicates.
        in_channel = envelope.type == codec.CHANNEL_MESSAGE
        send = c.Send(
            self.session, content=content, wire_id=envelope.id or None, allow_empty=True, members_only=in_channel
        )
        self.submit(send, lambda reply: self._said(envelope, pending, reply))

    def _said(self, envelope: Envelope, pending: Pending | None, reply: r.Reply) -> None:
        if not isinstance(reply, r.Accepted):
            if pending is not None:
                self.server.syncs.drop(pending)
            if isinstance(reply, Refusal):
                self._refuse_words(envelope, reply)
            return
        if pending is not None and reply.held.startswith(HELD):
            self.server.syncs.give_up(pending, reply.held)
        elif pending is not None:
            # This includes a repeated SEND: its sender waits again, and the first answer may have gone to a lost
            # connection.
            self.server.syncs.start(pending, reply.message_id)
        if self._terms is not None and self._terms.tells:
            self.send("ACK", {"ack_id": envelope.id, "message_id": reply.message_id})
        if not reply.duplicate:
            self.server.shadows.said(self, envelope, reply.message_id)
        if reply.backlog > BUSY_BACKLOG:
            self._busy(reply.backlog)

    def _refuse_words(self, envelope: Envelope, refusal: Refusal) -> None:
        if self._terms is not None and self._terms.tells:
            code = codec.ERROR_CODES[refusal.code].value
            self.send("NACK", {"ack_id": envelope.id, "code": code, "message": refusal.message})
        else:
            self._refuse(envelope, refusal)

    def _refuse(self, envelope: Envelope, refusal: Refusal) -> None:
        self.error(codec.ERROR_CODES[refusal.code], refusal.message, id=envelope.id)

    def _busy(self, depth: int) -> None:
        now = self.server.loop.time()
        if now - self._busy_at >= _BUSY_EVERY_SECONDS:
            self._busy_at = now
            self.send("BUSY", {"retry_after_ms": BUSY_RETRY_MS, "queue_depth": depth})

    def _acknowledged(self, envelope: Envelope) -> None:
        payload = envelope.payload
        key = codec.key_of(payload.get("ack_id"))
        correlation = payload.get("correlationId")
        if isinstance(correlation, str):
            self.server.syncs.answer(correlation, self, envelope)
        if key is None:
            return
        self._credit(key)
        self.submit(c.Advance(self.session, ranges=one_key(key), state=State.ACKED, evidence="ACK"))

    def _credit(self, key: int | None) -> None:
        """Free the place of a delivery in the window: only once, and only if it was given to this client."""
        if key is not None and key in self._unacknowledged:
            self._unacknowledged.remove(key)
            self._pump.settled(1)

    # Topics, questions and the rest.

    def _subscribe(self, envelope: Envelope) -> None:
        channel = codec.channel_named(envelope.topic or envelope.payload.get("topic"))
        if isinstance(channel, Refusal):
            self._refuse(envelope, channel)
            return
        subscribing = envelope.type == "SUBSCRIBE"
        command = (
            c.Subscribe(self.session, channel=channel) if subscribing else c.Unsubscribe(self.session, channel=channel)
        )
        self.submit(command, lambda reply: self._done(envelope, reply))

    def _done(self, envelope: Envelope, reply: r.Reply) -> None:
        if isinstance(reply, Refusal):
            self._refuse(envelope, reply)

    def _run(self, procedure: Procedure, envelope: Envelope, query: Query | None = None) -> None:
        """Run a procedure to its first command; `_step` continues with the reply to each command."""
        try:
            command = next(procedure)
        except StopIteration as returned:
            self._answer(envelope, query, self._audited(envelope, returned.value))
            return
        self._procedure = procedure
        self._pump.hold(True)
        self.submit(command, lambda reply: self._step(procedure, envelope, query, reply))

    def _step(self, procedure: Procedure, envelope: Envelope, query: Query | None, reply: r.Reply) -> None:
        result: Payload | Refusal | None
        if isinstance(reply, Refusal):
            procedure.close()
            result = reply
        else:
            try:
                command = procedure.send(reply)
            except StopIteration as returned:
                result = self._audited(envelope, returned.value)
            else:
                self.submit(command, lambda following: self._step(procedure, envelope, query, following))
                return
        self._answer(envelope, query, result)
        self._procedure = None
        self._pump.hold(False)
        self._read()

    def _audited(self, envelope: Envelope, result: Payload | Refusal | None) -> Payload | Refusal | None:
        """Return the result of a frame. A forbidden frame is logged here, as the hub logs the commands it forbids."""
        if isinstance(result, Refusal) and result.code in (Code.FORBIDDEN, Code.RESERVED_NAME):
            self.record(result.code, envelope.type)
        return result

    def _answer(self, envelope: Envelope, query: Query | None, result: Payload | Refusal | None) -> None:
        if isinstance(result, Refusal):
            if query is not None and query.refused is not None:
                self.send(query.answer, query.refused(result), id=envelope.id)
            else:
                self._refuse(envelope, result)
        elif query is not None and result is not None:
            self.send(query.answer, result, id=envelope.id)

    def _log(self, envelope: Envelope) -> None:
        """Record an agent's printed output as activity of its member."""
        data, timestamp = envelope.payload.get("data"), envelope.payload.get("timestamp")
        if isinstance(data, str):
            event = {"kind": "log", "ts": timestamp if isinstance(timestamp, int) else int(envelope.ts), "data": data}
            self.submit(
                c.RecordActivity(self.session, events=(event,), size=len(data)),
                lambda reply: self._done(envelope, reply),
            )

    def _decline(self, envelope: Envelope) -> None:
        """Refuse SPAWN and RELEASE: the hub runs no agents. The existing client waits for a result beside an ERROR."""
        text = f"{envelope.type} is disabled: this hub starts and ends no agents"
        self.error(ErrorCode.INTERNAL, text, id=envelope.id)
        result = {"replyTo": envelope.id, "success": False, "name": envelope.payload.get("name"), "error": text}
        self.send(f"{envelope.type}_RESULT", result)

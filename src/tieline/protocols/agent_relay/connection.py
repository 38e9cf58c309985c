"""One client's connection to the hub: turns received bytes into commands, and deliveries into bytes.

Used by: the event loop and `server`, which knows all connections. Uses: a `SessionPump` with the hub, and this folder's
codec. A received frame passes `data_received`, `_read` (checks if the frame is allowed now) and one function for each
kind, from the table `_ACTS`; the module `speaking` handles SEND. If a frame needs several commands to the hub, a
`Procedure` handles it. If the client has no session, `one_shot` handles it.

While the hub opens the session, and while a procedure runs, frames wait in the buffer. When the buffer reaches a small
limit, the connection stops reading from the socket.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, cast

import structlog

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import Replayed, State
from tieline.contract.identifiers import SessionId
from tieline.contract.keys import join_keys, one_key
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import channels, codec, one_shot, opening, speaking
from tieline.protocols.agent_relay.codec import PROTOCOL, Envelope, EnvelopeError
from tieline.protocols.agent_relay.error_code import ERROR_CODES, ErrorCode
from tieline.protocols.agent_relay.handshake import Terms
from tieline.protocols.agent_relay.procedure import Payload, Procedure
from tieline.protocols.agent_relay.pulse import Pulse, Verdict
from tieline.protocols.agent_relay.queries import QUERIES, Query
from tieline.wire.frames import FrameBuffer, FrameError
from tieline.wire.greeting import Greeting, Phase
from tieline.wire.local import same_user
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.unfinished import TOO_MUCH
from tieline.wire.unsent import limit_buffer

if TYPE_CHECKING:
    from tieline.protocols.agent_relay.server import RelayServer

_SAYING = frozenset({"SEND", codec.CHANNEL_MESSAGE})
BUSY_RETRY_MS = 50  # about the time of a few commits
_BUSY_EVERY_SECONDS = 1.0  # rate limit: a client does not get BUSY with every message

_EARLY_BYTES = 64 * 1024
"""Most bytes that a client may send before its session is open. The hub reads and buffers these bytes."""

_PASSING = frozenset({ErrorCode.SHUTTING_DOWN, ErrorCode.INTERNAL})
"""Temporary errors. They are not sent as fatal, because clients never reconnect after a fatal ERROR."""

log = structlog.get_logger(__name__)


class RelayConnection(asyncio.Protocol):
    """The hub's side of a client's connection. Turns frames (protocol messages) into commands, and sends deliveries."""

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
        "_share",
        "_terms",
        "_transport",
        "_unacknowledged",
        "_unsent",
        "_writable",
        "frame_bytes",
        "name",
        "pump",
        "server",
        "session_id",
        "tool",
    )

    def __init__(self, server: "RelayServer") -> None:
        self.server = server
        self._buffer = FrameBuffer(server.frame_bytes_max)
        self.frame_bytes = 0  # size of the client's last frame
        self._share = server.unfinished.share(self._too_much)
        self._transport: asyncio.Transport | None = None
        self.pump = SessionPump(server.hub, self)
        # Frames that arrive before the session is open stay in the buffer.
        self._greeting: Greeting[Envelope] = Greeting(self.pump, early_bytes_max=_EARLY_BYTES)
        # The fields of the client's HELLO or RESUME, the agent's name, the session's id; set when the session opens.
        self._terms: Terms | None = None
        self.name = ""
        self.session_id = ""
        # The name that a tool gave in its HELLO; empty for members.
        self.tool = ""
        # `_heard_since`: bytes came after the client was sent its new resume token. `_confirmed`: the hub knows that.
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
        return self.pump.session

    @property
    def closed(self) -> bool:
        """True if the connection has ended."""
        return self._greeting.phase is Phase.CLOSED

    @property
    def by_token(self) -> bool:
        """True if the client gave a member token when it opened the session."""
        return self._terms is not None and self._terms.token is not None

    @property
    def wants_acceptance(self) -> bool:
        """True if the client wants an ACK or NACK for each message that it sends."""
        return self._terms is not None and self._terms.tells

    @property
    def about(self) -> dict[str, str]:
        """Details about the agent, such as its model, from the agent's HELLO."""
        return self._terms.about if self._terms is not None else {}

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No `isinstance` check: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        limit_buffer(self._transport, self.server.hub.limits.unsent_bytes_max)
        self.server.connections.add(self)
        self._greeting.expect(self._too_late)
        # gap 7: the protocol has no authentication, so only the hub's own user may connect.
        if not same_user(transport):
            self.record(Code.UNAUTHORIZED, "a connection of another user")
            self.fail(ErrorCode.UNAUTHORIZED, "this socket is for the user who runs the hub")

    def data_received(self, data: bytes) -> None:
        self._pulse.heard(self.server.loop.time())
        self._buffer.receive_data(data)
        if self._greeting.phase is Phase.OPENING:
            self._share.report(self._buffer.buffered_bytes)
            self._greeting.early(len(data))
            return
        self._heard_since = True
        self._read()
        self._share.report(self._buffer.buffered_bytes)

    def eof_received(self) -> bool:
        # A client that sends HELLO and SEND and hangs up is still handled to the end. An event loop that keeps reading
        # may call this twice.
        self._finished = self._finished or self._greeting.phase is Phase.OPENING
        return self._finished

    def pause_writing(self) -> None:
        self._writable = False
        self.pump.pause_writing()

    def resume_writing(self) -> None:
        self._writable = True
        self.pump.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._greeting.close()
        self._buffer.reset()
        self._share.close()
        try:
            self.server.leave(self)
        finally:
            # Even if something else fails, the session ends with its connection.
            self.pump.close()

    def _too_late(self) -> None:
        if self.server.syncs.awaits(self):
            # A client without HELLO waits for an answer, and has nothing to say meanwhile.
            self._greeting.expect(self._too_late)
        else:
            self.fail(ErrorCode.UNAUTHORIZED, "say HELLO first")

    def _too_much(self) -> None:
        self._buffer.reset()
        self.fail(ErrorCode.BUSY, TOO_MUCH, fatal=False)

    # Callbacks of the session pump: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Send deliveries to the client, in this order. Return the deliveries that were sent as DELIVER.

        Channel messages are sent as CHANNEL_MESSAGE, which has no ACK. Deliveries that are too large become `dead`.
        """
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
                self.pump.offered_ackless(key)
        if frames and self._transport is not None:
            self._transport.write(b"".join(frames))
        for message, _, _ in parcels:
            if message.content.reply_to is not None and message.protocol != codec.PROTOCOL:
                self.server.syncs.replied(message, self)
        if given_up:
            self.submit(c.Advance(self.session, ranges=join_keys(given_up), state=State.DEAD, evidence="too_large"))
        return written

    def write_progress(self, step: r.Progress) -> None:
        """Do nothing, because this connection does not ask the hub to report the progress of sent messages."""

    def end(self, why: Refusal) -> None:
        """Close the connection, because the hub ended the session. Send the client the reason `why` before."""
        code = ERROR_CODES[why.code]
        self.fail(code, why.message, fatal=code not in _PASSING)

    def pause_reading(self) -> None:
        """Stop reading from the socket. If the reason is that the client sends too fast, also send BUSY (slow down)."""
        self._deaf = True
        if self._transport is not None:
            self._transport.pause_reading()
        if self._greeting.phase is Phase.ACTIVE and self._procedure is None and self._writable:
            self.busy(self.server.hub.limits.inflight_max)

    def resume_reading(self) -> None:
        """Start to read from the socket again, after `pause_reading`."""
        self._deaf = False
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Calls of the server and its parts.

    def send(self, kind: str, payload: Payload, **fields: Any) -> bool:
        """Send an envelope. Return false, and send nothing, if it is too large. `fields` are its header fields."""
        fields["id"] = fields.get("id") or self.server.next_id()
        frame = codec.encode(Envelope(kind, ts=self.server.now_ms(), payload=payload, **fields))
        fits = codec.payload_bytes(frame) <= self.server.frame_bytes_max
        if fits and self._transport is not None:
            self._transport.write(frame)
        return fits

    def tell(self, frame: bytes) -> None:
        """Send an encoded envelope. Skip it if the session is not open or the client reads too slowly."""
        fits = codec.payload_bytes(frame) <= self.server.frame_bytes_max
        if fits and self._writable and self._greeting.phase is Phase.ACTIVE and self._transport is not None:
            self._transport.write(frame)

    def error(self, code: ErrorCode, text: str, *, fatal: bool = False, **fields: Any) -> None:
        """Send an ERROR. If it is `fatal`, the client will not reconnect. `fields` are its header fields."""
        self.send("ERROR", {"code": code.value, "message": text, "fatal": fatal}, **fields)

    def fail(self, code: ErrorCode, text: str, *, fatal: bool = True) -> None:
        """Send an ERROR and a BYE to the client, and close the connection."""
        if self.closed:
            return
        self.error(code, text, fatal=fatal)
        self._goodbye(text)

    def submit(self, command: c.Command, done: Callable[[r.Reply], None] | None = None) -> None:
        """Submit a command to the hub. If `done` is given, call it with the hub's reply."""
        self.pump.submit((command,), None if done is None else (lambda replies: done(replies[0])))

    def record(self, code: Code, what: str) -> None:
        """Write a refusal by this server into the hub's log. `what` is the refused action, `code` the reason."""
        self.submit(c.RecordRefusal(protocol=PROTOCOL, code=code, what=what, session=self.session))

    def check_pulse(self, now: float) -> None:
        """Send a PING if the client was silent for one heartbeat interval. Close the connection after two intervals."""
        unsent = self._transport.get_write_buffer_size() if self._transport is not None else 0
        if self._deaf and not self.closed and (self._writable or unsent < self._unsent):
            # The hub itself has paused reading, and a client that accepts bytes is alive.
            self._pulse.heard(now)
        elif self._greeting.phase is Phase.GREETING and self.server.syncs.awaits(self):
            # A client without HELLO knows no heartbeat.
            self._pulse.heard(now)
        self._unsent = unsent
        # spec 7: a PING when idle, and the end after two silent heartbeats.
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
        """Handle the frames (protocol messages) in the buffer, until none is left or the next one must wait."""
        try:
            while self._greeting.phase in (Phase.GREETING, Phase.ACTIVE) and self._procedure is None:
                payload = self._buffer.next_frame()
                if payload is None:
                    break
                self.frame_bytes = len(payload)
                envelope = codec.decode(payload)
                match envelope.type:
                    case "HELLO" | "RESUME" if self._greeting.phase is Phase.GREETING:
                        opening.begin(self, envelope)
                    case "HELLO" | "RESUME":
                        # spec 4 and 8: these open a session, and a connection has one.
                        self.record(Code.INVALID_REQUEST, f"{envelope.type} in an open session")
                        self.error(ErrorCode.BAD_REQUEST, f"Unexpected {envelope.type}")
                    case "PING":
                        # spec 7: the answer has the same nonce.
                        self.send("PONG", envelope.payload)
                    case "PONG":
                        self._confirm()
                    case "BYE":
                        self._goodbye("goodbye")
                    case _ if self._greeting.phase is Phase.GREETING or self.tool:
                        one_shot.serve(self, envelope)
                    case _:
                        self._confirm()
                        if envelope.sender and envelope.sender != self.name:
                            # spec 3, gap 7: the hub stamps the true name on every message from this client.
                            self.record(Code.FORBIDDEN, "a frame with the name of another in `from`")
                        act = _ACTS.get(envelope.type)
                        # Unknown types are ignored, as the protocol says.
                        if act is not None:
                            act(self, envelope)
        except EnvelopeError as error:
            self.fail(error.code, str(error))
        except FrameError as error:
            # spec 2: a frame beyond the limit closes the connection with an error.
            self.fail(ErrorCode.TOO_LARGE if error.size else ErrorCode.BAD_REQUEST, str(error))
        heard_all = self._finished and self._greeting.phase is not Phase.OPENING and self._procedure is None
        if heard_all and self._transport is not None:
            self._transport.close()

    def _goodbye(self, reason: str) -> None:
        self.send("BYE", {"reason": reason})
        self._greeting.close()
        self.pump.close()
        # Forget the waits now. The connection is lost only after the client has read everything, and the client may
        # reconnect sooner.
        self.server.syncs.forget(self)
        if self._transport is not None:
            self._transport.close()

    # Opening a session.

    def open(self, attach: c.Attach, opened: Callable[[r.Attached | Refusal], None]) -> None:
        """Ask the hub to open a session, and call `opened` with the reply. Meanwhile, the client's frames wait."""
        self._greeting.open(attach, opened)

    def activate(self, terms: Terms, attached: r.Attached, replay: tuple[Replayed, ...] = ()) -> None:
        """Start to serve an open session. The hub must have sent WELCOME or SYNC before.

        `terms` has the fields of HELLO or RESUME, `attached` is the hub's reply, `replay` has the missed deliveries.
        """
        assert attached.member is not None, "only members attach here"
        assert attached.resume_id is not None, "every session here is resumable"
        self._greeting.activate()
        self._terms, self.name, self.session_id = terms, attached.member, attached.resume_id
        self._share.admit(self.name)
        self.server.enter(self, ready=not attached.resumed)
        self.pump.receive(
            # gap 10: max_inflight is the number of deliveries without an ACK.
            window=terms.window if terms.acknowledges else None,
            unoffered_only=not terms.acknowledges,
            once=codec.is_channel_message,
            replay=replay,
        )
        self._go_on()

    def admit_tool(self, terms: Terms) -> None:
        """Let a tool (a client that is not a member) send queries. Each query gets its own session."""
        self._terms, self.name, self.tool = terms, terms.name, terms.name
        self.server.enter(self, ready=False)
        self.end_request()

    def act_as(self, name: str) -> None:
        """End the current session, so that the next one belongs to the member `name`. It lasts for one request."""
        self.pump.leave()
        self.name = name

    def end_request(self) -> None:
        """End the session that was opened for one request. Then handle the next frames of the client."""
        self.name = self.tool
        if self.tool:
            self.pump.leave()
            self._greeting.activate()
        else:
            self._greeting.again(self._too_late)
        self._go_on()

    def stay(self, why: str) -> None:
        """Refuse a RESUME with a NACK, for the reason `why`. The client may send HELLO on the same connection."""
        # spec 8: NACK with the code STALE, after which the client sends a fresh HELLO.
        self.send("NACK", {"code": ErrorCode.STALE.value, "message": why})
        self._greeting.again(self._too_late)
        self._go_on()

    def _go_on(self) -> None:
        """Handle the frames (protocol messages) that came while the hub was opening the session."""
        self._heard_since = False
        self._read()

    def _confirm(self) -> None:
        """Tell the hub, once, that the client has its new resume token. Any frame after the token proves this."""
        # gap 2: a resume token is replaced at each use, and the previous token becomes invalid here.
        active = self._greeting.phase is Phase.ACTIVE and not self.tool
        if active and self._heard_since and not self._confirmed:
            self._confirmed = True
            self.submit(c.Confirm(self.session))

    # Answering.

    def refuse(self, envelope: Envelope, refusal: Refusal) -> None:
        """Tell the client that its frame was refused: by a NACK (for a message, if the client wants it) or an ERROR."""
        code = ERROR_CODES[refusal.code]
        if self.wants_acceptance and envelope.type in _SAYING:
            self.send("NACK", {"ack_id": envelope.id, "code": code.value, "message": refusal.message})
        else:
            self.error(code, refusal.message, id=envelope.id)

    def busy(self, depth: int) -> None:
        """Send BUSY (a request to slow down), at most once a second. `depth` is the length of the full queue."""
        # spec 6, gap 1: the specification reserves backpressure for future versions.
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

    def _declined(self, envelope: Envelope) -> None:
        self._credit(codec.key_of(envelope.payload.get("ack_id") or envelope.payload.get("nack_id")))

    def _credit(self, key: int | None) -> None:
        """Let the hub send one more delivery, at the first ACK or NACK of the delivery `key`. Ignore any other key."""
        if key is not None and key in self._unacknowledged:
            self._unacknowledged.remove(key)
            self.pump.acknowledged(1)

    # Topics, questions and the rest.

    def _subscribe(self, envelope: Envelope) -> None:
        channel = codec.channel_named(envelope.topic or envelope.payload.get("topic"))
        if isinstance(channel, Refusal):
            self.refuse(envelope, channel)
            return
        subscribing = envelope.type == "SUBSCRIBE"
        command = (
            c.Subscribe(self.session, channel=channel) if subscribing else c.Unsubscribe(self.session, channel=channel)
        )
        self.submit(command, lambda reply: self._done(envelope, reply))

    def _done(self, envelope: Envelope, reply: r.Reply) -> None:
        if isinstance(reply, Refusal):
            self.refuse(envelope, reply)

    def _query(self, envelope: Envelope) -> None:
        query = QUERIES[envelope.type]
        self.run(query.procedure(self, envelope.payload), envelope, query)

    def run(
        self,
        procedure: Procedure,
        envelope: Envelope,
        query: Query | None = None,
        done: Callable[[], None] = lambda: None,
    ) -> None:
        """Run a procedure (a generator with the commands that handle one frame), and then answer the frame.

        `query`, if given, determines the type of the answer. `done` is called after the answer was sent.
        """

        def answer(result: Payload | Refusal | None) -> None:
            self._answer(envelope, query, result)
            done()

        try:
            command = next(procedure)
        except StopIteration as returned:
            answer(self.audit(envelope, returned.value))
            return
        self._procedure = procedure
        self.pump.suspend_reading(True)
        self.submit(command, lambda reply: self._step(procedure, envelope, answer, reply))

    def _step(
        self,
        procedure: Procedure,
        envelope: Envelope,
        answer: Callable[[Payload | Refusal | None], None],
        reply: r.Reply,
    ) -> None:
        """Continue a procedure (a generator that yields hub commands) with `reply`, the reply to its last command.

        When the procedure ends, call `answer` with the result, and handle the next frames of the client.
        """
        result: Payload | Refusal | None
        if isinstance(reply, Refusal):
            procedure.close()
            result = reply
        else:
            try:
                command = procedure.send(reply)
            except StopIteration as returned:
                result = self.audit(envelope, returned.value)
            else:
                self.submit(command, lambda following: self._step(procedure, envelope, answer, following))
                return
        self._procedure = None
        self.pump.suspend_reading(False)
        answer(result)
        self._read()

    def audit(self, envelope: Envelope, result: Payload | Refusal | None) -> Payload | Refusal | None:
        """Return `result`. If it is a refusal with the code FORBIDDEN or RESERVED_NAME, log it in the hub's log."""
        if isinstance(result, Refusal) and result.code in (Code.FORBIDDEN, Code.RESERVED_NAME):
            self.record(result.code, envelope.type)
        return result

    def _answer(self, envelope: Envelope, query: Query | None, result: Payload | Refusal | None) -> None:
        if isinstance(result, Refusal):
            if query is not None and query.refused is not None:
                self.send(query.answer, query.refused(result), id=envelope.id)
            else:
                self.refuse(envelope, result)
        elif query is not None and result is not None:
            self.send(query.answer, result, id=envelope.id)

    def _log(self, envelope: Envelope) -> None:
        """Handle a LOG frame: store the printed output of an agent as activity of its member."""
        data, timestamp = envelope.payload.get("data"), envelope.payload.get("timestamp")
        if isinstance(data, str):
            event = {"kind": "log", "ts": timestamp if isinstance(timestamp, int) else int(envelope.ts), "data": data}
            self.submit(
                c.RecordActivity(self.session, events=(event,), size=len(data)),
                lambda reply: self._done(envelope, reply),
            )

    def decline(self, envelope: Envelope) -> None:
        """Refuse SPAWN or RELEASE, because the hub runs no agents: send an ERROR and a result without success."""
        text = f"{envelope.type} is disabled: this hub starts and ends no agents"
        self.error(ErrorCode.INTERNAL, text, id=envelope.id)
        result = {"replyTo": envelope.id, "success": False, "name": envelope.payload.get("name"), "error": text}
        self.send(f"{envelope.type}_RESULT", result)


_ACTS: dict[str, Callable[[RelayConnection, Envelope], None]] = {
    # spec 5; CHANNEL_MESSAGE and the frames from CHANNEL_JOIN on are not in the specification.
    "SEND": speaking.say,
    codec.CHANNEL_MESSAGE: speaking.say,
    # spec 5: settles a delivery, and answers a synchronous SEND.
    "ACK": RelayConnection._acknowledged,
    # gap 4: declined for now. The delivery stays with the member and comes again in its next session.
    "NACK": RelayConnection._declined,
    # spec 3, gap 5: a subscription belongs to the member, and outlasts the connection.
    "SUBSCRIBE": RelayConnection._subscribe,
    "UNSUBSCRIBE": RelayConnection._subscribe,
    channels.JOIN: lambda client, envelope: client.run(channels.join(client, envelope.payload), envelope),
    channels.LEAVE: lambda client, envelope: client.run(channels.leave(client, envelope.payload), envelope),
    "SHADOW_BIND": lambda client, envelope: client.run(client.server.shadows.bind(client, envelope.payload), envelope),
    "SHADOW_UNBIND": lambda client, envelope: client.server.shadows.unbind(client, envelope.payload),
    **dict.fromkeys(QUERIES, RelayConnection._query),
    "LOG": RelayConnection._log,
    "SPAWN": RelayConnection.decline,
    "RELEASE": RelayConnection.decline,
}
"""The function that handles each kind of frame in an open session."""

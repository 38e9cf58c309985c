"""The Agent Relay Protocol as a protocol of the hub: one Unix socket, one connection per agent.

Above: the server's assembly. Below: the Hub port through a `Conversation` per connection, and this folder's codec.
"""

import asyncio
import itertools
import os
import time
from collections.abc import Callable, Sequence
from enum import Enum
from pathlib import Path
from typing import Any, cast

import structlog

from tieline import __version__
from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import Replayed, State
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName
from tieline.contract.member import ByToken, ByUser, Credential, MemberKind
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import (
    DEFAULT_TOPIC,
    PROTOCOL,
    Envelope,
    EnvelopeBuffer,
    EnvelopeError,
    ErrorCode,
)
from tieline.protocols.agent_relay.queries import QUERIES, Query
from tieline.protocols.agent_relay.sync import Pending, Syncs
from tieline.wire.conversation import Conversation, Parcel
from tieline.wire.unix import UnixServer, listen, peer_uid

HEARTBEAT_MS = 5000
MAX_INFLIGHT = 256
"""Deliveries on the way to a client that did not say how many it wants."""
BUSY_BACKLOG = 1000
"""A recipient this far behind makes its senders hear BUSY: advice to slow down, nothing is lost without it."""
BUSY_RETRY_MS = 50
_BUSY_EVERY_SECONDS = 1.0

log = structlog.get_logger(__name__)


class _Phase(Enum):
    """Where a connection stands."""

    GREETING = "nothing said yet"
    OPENING = "the hub is attaching the session"
    ACTIVE = "the session is open"
    CLOSED = "no more"


_ALWAYS = frozenset({"HELLO", "RESUME", "PING", "PONG", "BYE"})
"""Frames that have their answer in every phase."""


class RelayConnection(asyncio.Protocol):
    """One client."""

    __slots__ = (
        "_acknowledges",
        "_buffer",
        "_busy_at",
        "_confirmed",
        "_connected_at",
        "_conversation",
        "_heard_at",
        "_phase",
        "_pinged",
        "_server",
        "_tells",
        "_transport",
        "_unacknowledged",
        "_waiting",
        "_window",
        "name",
        "session_id",
    )

    def __init__(self, server: "RelayServer") -> None:
        self._server = server
        self._buffer = EnvelopeBuffer(server.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._conversation = Conversation(server.hub, self)
        self._phase = _Phase.GREETING
        # Envelopes that came while the hub was attaching the session.
        self._waiting: list[Envelope] = []
        # The agent's name and the id of its session, once it is open.
        self.name = ""
        self.session_id = ""
        # What HELLO said: whether it acknowledges, how many deliveries at once, whether it wants an ACK for each SEND.
        self._acknowledges = True
        self._window = MAX_INFLIGHT
        self._tells = False
        # Keys that were delivered here and not acknowledged.
        self._unacknowledged: set[int | None] = set()
        # Whether a frame came under the new resume token.
        self._confirmed = False
        self._connected_at = server.loop.time()
        # When it was last heard, and whether a PING is out.
        self._heard_at = server.loop.time()
        self._pinged = False
        self._busy_at = 0.0

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an `isinstance` check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._server.hub.limits.unsent_bytes_max)
        self._server.connections.add(self)
        if peer_uid(transport) not in (None, os.geteuid()):
            self.fail(ErrorCode.UNAUTHORIZED, "this socket is for the user who runs the hub")

    def data_received(self, data: bytes) -> None:
        self._heard_at = self._server.loop.time()
        self._pinged = False
        self._buffer.receive_data(data)
        try:
            while self._phase is not _Phase.CLOSED and (envelope := self._buffer.next_envelope()) is not None:
                self._receive(envelope)
        except EnvelopeError as error:
            self.fail(error.code, str(error))

    def pause_writing(self) -> None:
        self._conversation.pause_writing()

    def resume_writing(self) -> None:
        self._conversation.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._phase = _Phase.CLOSED
        self._server.connections.discard(self)
        self._server.syncs.forget(self)
        self._conversation.close()

    # What the conversation calls: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Push deliveries."""
        written: list[Parcel] = []
        given_up: list[tuple[int, int]] = []
        frames: list[bytes] = []
        for parcel in parcels:
            message, key, seq = parcel
            in_channel = codec.channel_message(message, key)
            delivery = codec.deliver(message, key, seq, recipient=self.name, session_id=self.session_id)
            frame = codec.encode(in_channel or delivery)
            if codec.payload_bytes(frame) > self._server.frame_bytes_max:
                given_up.append((key, key))
                continue
            frames.append(frame)
            if in_channel is None:
                written.append(parcel)
                if self._acknowledges:
                    self._unacknowledged.add(key)
            else:
                # The frame has no acknowledgement, so it is offered, and that is all.
                self._conversation.mute(key)
        if frames and self._transport is not None:
            self._transport.write(b"".join(frames))
        if given_up:
            self._submit(c.Advance(self._conversation.session, tuple(given_up), State.DEAD, "too_large"))
        return written

    def write_progress(self, step: r.Progress) -> None:
        """Nothing is followed from here."""

    def end(self, why: Refusal) -> None:
        """The hub ended the session."""
        self.fail(codec.ERROR_CODES[why.code], why.message)

    def pause_reading(self) -> None:
        """It sends more than the hub can take down."""
        if self._transport is not None:
            self._transport.pause_reading()
        self._busy(self._server.hub.limits.inflight_max)

    def resume_reading(self) -> None:
        """Go on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # What the server calls.

    def send(self, kind: str, payload: dict[str, Any], **fields: Any) -> None:
        """Send one envelope."""
        if self._transport is not None:
            fields.setdefault("id", self._server.next_id())
            envelope = Envelope(kind, ts=self._server.now_ms(), payload=payload, **fields)
            self._transport.write(codec.encode(envelope))

    def error(self, code: ErrorCode, text: str, *, fatal: bool = False, **fields: Any) -> None:
        """Say what is wrong."""
        self.send("ERROR", {"code": code.value, "message": text, "fatal": fatal}, **fields)

    def fail(self, code: ErrorCode, text: str) -> None:
        """Say what is wrong, say goodbye, and hang up."""
        if self._phase is _Phase.CLOSED:
            return
        self.error(code, text, fatal=True)
        self._goodbye(text)

    def check_pulse(self, now: float) -> None:
        """Ask a silent client for a sign of life; hang up on a dead one."""
        if self._phase is _Phase.GREETING and (now - self._connected_at) * 1000 >= self._server.hub.limits.hello_ms:
            self.fail(ErrorCode.UNAUTHORIZED, "say HELLO first")
            return
        silent_ms = (now - self._heard_at) * 1000
        if silent_ms >= 2 * self._server.heartbeat_ms:
            log.info("a client is dead", name=self.name, silent_ms=int(silent_ms))
            self._phase = _Phase.CLOSED
            if self._transport is not None:
                self._transport.abort()
        elif silent_ms >= self._server.heartbeat_ms and not self._pinged and self._phase is _Phase.ACTIVE:
            self._pinged = True
            self.send("PING", {"nonce": self._server.next_id()})

    # Inside.

    def _goodbye(self, reason: str) -> None:
        self.send("BYE", {"reason": reason})
        self._phase = _Phase.CLOSED
        self._conversation.close()
        if self._transport is not None:
            self._transport.close()

    def _submit(self, command: c.Command, done: Callable[[r.Reply], None] | None = None) -> None:
        self._conversation.submit((command,), None if done is None else (lambda replies: done(replies[0])))

    def _receive(self, envelope: Envelope) -> None:
        if self._phase is _Phase.OPENING:
            self._waiting.append(envelope)
            return
        match envelope.type:
            case "HELLO" if self._phase is _Phase.GREETING:
                self._hello(envelope)
            case "RESUME" if self._phase is _Phase.GREETING:
                self._resume(envelope)
            case "HELLO" | "RESUME":
                self.error(ErrorCode.BAD_REQUEST, f"Unexpected {envelope.type}")
            case "PING":
                self.send("PONG", envelope.payload)
            case "PONG":
                if self._phase is _Phase.ACTIVE:
                    self._confirm()
            case "BYE":
                self._goodbye("goodbye")
            case _ if self._phase is _Phase.GREETING:
                self.error(ErrorCode.BAD_REQUEST, "Not in ACTIVE state")
            case _:
                self._confirm()
                self._act(envelope)

    def _confirm(self) -> None:
        if not self._confirmed:
            self._confirmed = True
            self._submit(c.Confirm(self._conversation.session))

    def _act(self, envelope: Envelope) -> None:
        match envelope.type:
            case "SEND" | codec.CHANNEL_MESSAGE:
                self._say(envelope)
            case "ACK":
                self._acknowledged(envelope)
            case "NACK":
                # Not taken now: it stays with the member and comes again in its next session.
                self._credit(codec.key_of(envelope.payload.get("ack_id") or envelope.payload.get("nack_id")))
            case "SUBSCRIBE" | "CHANNEL_JOIN":
                self._membership(envelope, join=True)
            case "UNSUBSCRIBE" | "CHANNEL_LEAVE":
                self._membership(envelope, join=False)
            case kind if kind in QUERIES:
                self._ask(QUERIES[kind], envelope)
            case "SHADOW_BIND" | "SHADOW_UNBIND" | "SPAWN" | "RELEASE":
                self.error(ErrorCode.FORBIDDEN, f"{envelope.type} is not offered by this hub", id=envelope.id)
            case _:
                # Unknown types are ignored, as the protocol says.
                pass

    # Opening a session.

    def _hello(self, envelope: Envelope) -> None:
        payload = envelope.payload
        name = payload.get("agent")
        if not isinstance(name, str) or not self._learn(payload.get("capabilities")):
            self.fail(ErrorCode.BAD_REQUEST, "HELLO needs payload.agent, a name, and capabilities as an object")
            return
        session = payload.get("session")
        token = session.get("resume_token") if isinstance(session, dict) else None
        self._attach(payload, name, resume_token=token if isinstance(token, str) else None)

    def _learn(self, capabilities: object) -> bool:
        """Take down what the client can do; says whether it is said in the right form."""
        if capabilities is None:
            return True
        if not isinstance(capabilities, dict):
            return False
        self._acknowledges = capabilities.get("ack") is not False
        self._tells = capabilities.get("accept") is True
        inflight = capabilities.get("max_inflight")
        if isinstance(inflight, int) and inflight > 0:
            self._window = min(inflight, self._server.hub.limits.window_max)
        return True

    def _attach(
        self, payload: dict[str, Any], name: str, *, resume_token: str | None = None, resume_id: str | None = None
    ) -> None:
        self._phase = _Phase.OPENING
        secret = payload.get("token")
        credential: Credential = ByToken(secret) if isinstance(secret, str) else ByUser()
        human = payload.get("entityType") == "user"
        attach = c.Attach(
            protocol=PROTOCOL,
            credential=credential,
            member=MemberName(name),
            acknowledges=self._acknowledges,
            kind=MemberKind.HUMAN if human else MemberKind.AGENT,
            # An agent has one connection, the newest; a person may have several.
            exclusive=not human,
            resumable=True,
            resume_token=resume_token,
            resume_id=resume_id,
        )

        def opened(reply: r.Attached | Refusal) -> None:
            if self._phase is _Phase.CLOSED:
                return
            if isinstance(reply, r.Attached):
                self._opened(reply, payload, resuming=resume_id is not None)
            elif resume_id is not None:
                self._stale(reply.message)
            elif reply.code is Code.RESUME_REFUSED:
                self.error(ErrorCode.RESUME_TOO_OLD, reply.message)
                self._attach(payload, name)
            else:
                self.fail(codec.ERROR_CODES[reply.code], reply.message)

        self._conversation.open(attach, opened)

    def _opened(self, attached: r.Attached, payload: dict[str, Any], *, resuming: bool) -> None:
        assert attached.member is not None, "only members attach here"
        assert attached.resume_id is not None, "every session here is resumable"
        self.name, self.session_id = attached.member, attached.resume_id
        if resuming:
            read = c.ReadStreams(attached.session, _positions(payload.get("streams")))
            self._submit(read, lambda reply: self._synchronize(reply, attached))
            return
        server = {"max_frame_bytes": self._server.frame_bytes_max, "heartbeat_ms": self._server.heartbeat_ms}
        welcome = {"session_id": self.session_id, "resume_token": attached.resume_token, "server": server}
        self.send("WELCOME", welcome)
        self._activate(())

    def _activate(self, replay: tuple[Replayed, ...]) -> None:
        self._phase = _Phase.ACTIVE
        window = self._window if self._acknowledges else None
        self._conversation.receive(window=window, unoffered_only=not self._acknowledges, skip_muted=True, replay=replay)
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            # What an earlier one of them did may have ended the connection.
            if self._phase is _Phase.ACTIVE:
                # It was sent before the answer with the new token could be read, so it confirms nothing.
                self._act(envelope) if envelope.type not in _ALWAYS else self._receive(envelope)

    # Resuming.

    def _resume(self, envelope: Envelope) -> None:
        payload = envelope.payload
        name, session_id, token = payload.get("agent"), payload.get("session_id"), payload.get("resume_token")
        if not isinstance(name, str) or not isinstance(session_id, str) or not self._learn(payload.get("capabilities")):
            self.fail(ErrorCode.BAD_REQUEST, "RESUME needs payload.agent and payload.session_id")
            return
        if self._server.require_resume_token and not isinstance(token, str):
            self._stale("this hub wants payload.resume_token in a RESUME")
            return
        self._attach(payload, name, resume_id=session_id, resume_token=token if isinstance(token, str) else None)

    def _stale(self, text: str) -> None:
        """The session cannot go on: the client may send HELLO on this connection."""
        self.send("NACK", {"code": ErrorCode.STALE.value, "message": text})
        self._phase = _Phase.GREETING
        self._conversation.close()
        self._conversation = Conversation(self._server.hub, self)
        waiting, self._waiting = self._waiting, []
        for envelope in waiting:
            self._receive(envelope)

    def _synchronize(self, reply: r.Reply, attached: r.Attached) -> None:
        if not isinstance(reply, r.Streams) or reply.stale:
            self._stale("what happened since is not kept any more; send a fresh HELLO")
            return
        streams = [
            {
                "topic": view.topic or DEFAULT_TOPIC,
                "peer": view.peer,
                "last_seq": view.last_seq if view.position is None else min(view.position, view.last_seq),
                "server_last_seq": view.last_seq,
            }
            for view in reply.streams
        ]
        sync = {"session_id": self.session_id, "resume_token": attached.resume_token, "streams": streams}
        self.send("SYNC", sync)
        self._activate(reply.replay)

    # Speaking.

    def _say(self, envelope: Envelope) -> None:
        content = codec.content_of(envelope)
        if isinstance(content, Refusal):
            self._refused(envelope, content)
            return
        pending = self._server.syncs.prepare(envelope, self)
        if isinstance(pending, Refusal):
            self._refused(envelope, pending)
            return
        # The seed gives every envelope an id; a client that leaves it out has no protection against doubles.
        send = c.Send(self._conversation.session, content, envelope.id or None, allow_empty=True)
        self._submit(send, lambda reply: self._said(envelope, pending, reply))

    def _said(self, envelope: Envelope, pending: Pending | None, reply: r.Reply) -> None:
        if not isinstance(reply, r.Accepted):
            if pending is not None:
                self._server.syncs.drop(pending)
            if isinstance(reply, Refusal):
                self._refused(envelope, reply)
            return
        if pending is not None:
            # Of a repeated SEND too: its sender waits anew, and the answer may have gone to a connection it lost.
            self._server.syncs.start(pending)
        if self._tells:
            self.send("ACK", {"ack_id": envelope.id, "message_id": reply.message_id})
        if reply.backlog > BUSY_BACKLOG:
            self._busy(reply.backlog)

    def _refused(self, envelope: Envelope, refusal: Refusal) -> None:
        code = codec.ERROR_CODES[refusal.code]
        if self._tells:
            self.send("NACK", {"ack_id": envelope.id, "code": code.value, "message": refusal.message})
        else:
            self.error(code, refusal.message, id=envelope.id or self._server.next_id())

    def _busy(self, depth: int) -> None:
        now = self._server.loop.time()
        if now - self._busy_at >= _BUSY_EVERY_SECONDS:
            self._busy_at = now
            self.send("BUSY", {"retry_after_ms": BUSY_RETRY_MS, "queue_depth": depth})

    def _acknowledged(self, envelope: Envelope) -> None:
        payload = envelope.payload
        key = codec.key_of(payload.get("ack_id"))
        correlation = payload.get("correlationId")
        if isinstance(correlation, str):
            self._server.syncs.answer(correlation, self, envelope)
        if key is None:
            return
        self._credit(key)
        self._submit(c.Advance(self._conversation.session, ((key, key),), State.ACKED, "ACK"))

    def _credit(self, key: int | None) -> None:
        """The client is done with a delivery: once, however often it says so, and only if it was given to it."""
        if key in self._unacknowledged:
            self._unacknowledged.discard(key)
            self._conversation.settled(1)

    # Topics and questions.

    def _membership(self, envelope: Envelope, *, join: bool) -> None:
        topic = envelope.topic or envelope.payload.get("channel") or envelope.payload.get("topic")
        if not isinstance(topic, str) or not topic:
            self.error(ErrorCode.BAD_REQUEST, f"{envelope.type} needs a topic", id=envelope.id)
            return
        target = codec.target_of(f"#{topic.removeprefix('#')}", None)
        if isinstance(target, Refusal):
            self.error(codec.ERROR_CODES[target.code], target.message, id=envelope.id)
            return
        session = self._conversation.session
        channel = codec.channel_of(target)
        command = c.Subscribe(session, channel) if join else c.Unsubscribe(session, channel)
        self._submit(command, lambda reply: self._joined(envelope, reply))

    def _joined(self, envelope: Envelope, reply: r.Reply) -> None:
        if isinstance(reply, Refusal):
            self.error(codec.ERROR_CODES[reply.code], reply.message, id=envelope.id)

    def _ask(self, query: Query, envelope: Envelope) -> None:
        asked = query.command(self._conversation.session, self.name, envelope.payload)
        if isinstance(asked, Refusal):
            self.error(codec.ERROR_CODES[asked.code], asked.message, id=envelope.id)
            return

        def answered(reply: r.Reply) -> None:
            if isinstance(reply, Refusal):
                self.error(codec.ERROR_CODES[reply.code], reply.message, id=envelope.id)
            else:
                self.send(query.answer, query.payload(reply, envelope.payload, self._server), id=envelope.id)

        self._submit(asked, answered)


class RelayServer:
    """`<home>/agent-relay.sock`."""

    def __init__(
        self,
        hub: Hub,
        path: Path,
        *,
        heartbeat_ms: int = HEARTBEAT_MS,
        frame_bytes_max: int = codec.FRAME_BYTES_MAX,
        require_resume_token: bool = False,
    ) -> None:
        self.hub = hub
        self.path = path
        self.loop = asyncio.get_running_loop()
        self.heartbeat_ms = heartbeat_ms
        self.frame_bytes_max = frame_bytes_max
        self.require_resume_token = require_resume_token
        self.connections: set[RelayConnection] = set()
        self.syncs = Syncs(self)
        self.started_at = self.loop.time()
        self.version = __version__
        self._server: UnixServer | None = None
        self._pulse: asyncio.TimerHandle | None = None
        self._ids = itertools.count(1)

    def now_ms(self) -> int:
        """Milliseconds since the epoch, for envelopes."""
        return time.time_ns() // 1_000_000

    def next_id(self) -> str:
        """An id for an envelope of the hub."""
        return f"h-{next(self._ids)}"

    async def start(self) -> None:
        """Listen, for the hub's own user alone."""
        self._server = await listen(self.path, lambda: RelayConnection(self), mode=0o600)
        self._check_pulses()

    async def stop(self) -> None:
        """Say goodbye to everybody and stop listening."""
        if self._pulse is not None:
            self._pulse.cancel()
        if self._server is not None:
            self._server.close()
        for connection in list(self.connections):
            connection.fail(ErrorCode.SHUTTING_DOWN, "the hub is stopping; connect again later")

    def _check_pulses(self) -> None:
        now = self.loop.time()
        for connection in list(self.connections):
            connection.check_pulse(now)
        self._pulse = self.loop.call_later(self.heartbeat_ms / 4000, self._check_pulses)


def _positions(streams: object) -> tuple[c.Position, ...]:
    """How far a client says it got: by topic, and in our exact form also by peer."""
    found: list[c.Position] = []
    for topic, position in streams.items() if isinstance(streams, dict) else ():
        if not isinstance(position, dict):
            continue
        name = "" if topic == DEFAULT_TOPIC else topic
        last_seq, peers = position.get("last_seq"), position.get("peers")
        if isinstance(last_seq, int):
            found.append(c.Position(name, last_seq))
        for peer, seq in peers.items() if isinstance(peers, dict) else ():
            if isinstance(seq, int):
                found.append(c.Position(name, seq, peer))
    return tuple(found)

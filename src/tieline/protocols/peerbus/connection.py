"""The connection of one peer: handles its handshake, its messages, its deliveries and its acknowledgements.

Used by: a carrier (a WebSocket on either port, or a stream of lines), which receives and sends the frames. Uses: a
`SessionPump`.

After the handshake, this protocol has no frame that tells a peer about a refusal. A refused frame is dropped, as in the
first implementation, and the refusal is written into the audit chain.
"""

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName, MessageId
from tieline.contract.keys import Range, extend_ranges, one_key
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.codec import FRAME_BYTES_MAX, PROTOCOL, Ack, Envelope, FrameError
from tieline.wire.greeting import Greeting, Phase
from tieline.wire.session_pump import Parcel, SessionPump

if TYPE_CHECKING:
    from tieline.protocols.peerbus.server import PeerbusServer

NORMAL = 1000
GOING_AWAY = 1001
PROTOCOL_ERROR = 1002
UNSUPPORTED_DATA = 1003
INVALID_PAYLOAD = 1007
POLICY_VIOLATION = 1008
TOO_BIG = 1009
INTERNAL_ERROR = 1011

NO_HANDSHAKE = (PROTOCOL_ERROR, "no handshake frame")
NOT_TEXT = (UNSUPPORTED_DATA, "handshake must be text")
MALFORMED = (INVALID_PAYLOAD, "malformed handshake")
NOT_REGISTER = (POLICY_VIOLATION, "first frame must be register")
WRONG_VERSION = (POLICY_VIOLATION, "unsupported protocol version")
NO_NAME = (POLICY_VIOLATION, "empty peer name")
BAD_TOKEN = (POLICY_VIOLATION, "invalid bearer token")
NAME_CLAIMED = (POLICY_VIOLATION, "name claimed under a different token")
BAD_NAME = (POLICY_VIOLATION, "invalid peer name")
NOT_KEPT = (INTERNAL_ERROR, "peer persistence failed")
STOPPING = (GOING_AWAY, "server shutting down")
DONE = (NORMAL, "bye")

CLOSINGS: dict[Code, tuple[int, str]] = {
    Code.UNAUTHORIZED: BAD_TOKEN,
    Code.NAME_TAKEN: NAME_CLAIMED,
    Code.INVALID_NAME: BAD_NAME,
    Code.RESERVED_NAME: BAD_NAME,
    Code.SHUTTING_DOWN: STOPPING,
}
"""WebSocket close code and reason for each of these refusals of the hub. All other refusals use `NOT_KEPT`."""

_KEYS_MAX = 4096
_KEYS_CHARACTERS_MAX = 256 * 1024
"""Limits of the delivery keys that a connection remembers until the peer acknowledges them.

The limits are the number of keys and their total length. At either limit, the connection forgets all keys, and the hub
itself finds the acknowledged deliveries. So a peer that never acknowledges cannot use more memory than this.
"""
_QUESTIONS_MAX = 8
"""Largest number of `peers` requests of one connection that wait for their answers.

Each answer may list all members.
"""


class Carrier(Protocol):
    """Interface of a socket (WebSocket or stream of lines) that sends and receives the frames of one peer.

    A frame is one protocol message. `PeerConnection` calls these methods. All of them return at once.
    """

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send encoded frames (protocol messages) to the peer, in this order."""

    def close(self, code: int, reason: str) -> None:
        """Close the connection. Send this code and reason to the peer, if the kind of socket can do that."""

    def admit(self, name: str) -> None:
        """Allow larger frames (protocol messages), because the peer has proved that the name belongs to it."""

    def abort(self) -> None:
        """Close the connection at once, without sending a reason."""

    def pause_reading(self) -> None:
        """Stop reading frames (protocol messages) from the peer."""

    def resume_reading(self) -> None:
        """Read frames (protocol messages) from the peer again."""


class _Gone:
    """Stand-in for a closed socket. Its methods do nothing.

    A connection uses it, so that the closed socket can be freed from memory.
    """

    __slots__ = ()

    def send(self, payloads: Sequence[bytes]) -> None:
        """Drop the frames (protocol messages), because the peer's socket is closed."""

    def close(self, code: int, reason: str) -> None:
        """Do nothing, because the peer's socket is closed already."""

    def admit(self, name: str) -> None:
        """Do nothing, because the peer's socket is closed."""

    def abort(self) -> None:
        """Do nothing, because the peer's socket is closed already."""

    pause_reading = resume_reading = abort


_GONE = _Gone()


class PeerConnection:
    """The hub's side of one peer's connection: handles the peer's frames, and sends deliveries to the peer.

    A frame is one protocol message.
    """

    __slots__ = (
        "_acked",
        "_carrier",
        "_commands",
        "_flush_until",
        "_greeting",
        "_heard_all",
        "_keys",
        "_keys_characters",
        "_pump",
        "_questions",
        "_server",
        "_writable",
        "name",
    )

    def __init__(self, server: "PeerbusServer", carrier: Carrier) -> None:
        self._server = server
        self._carrier = carrier
        self._pump = SessionPump(server.hub, self)
        # Also keeps the frames that wait because too many `peers` requests are in progress.
        self._greeting: Greeting[bytes] = Greeting(self._pump)
        # The peer's name, once the peer is registered.
        self.name = ""
        self._questions = 0
        self._writable = True
        # True if the peer has ended its side of the stream.
        self._heard_all = False
        # Commands of this turn's frames for the hub, and the deliveries that the frames acknowledge.
        self._commands: list[c.Command] = []
        self._acked: list[Range] = []
        # Deliveries sent to the peer, by the key that acknowledges them. Only malicious peers give two the same key.
        self._keys: dict[str, tuple[int, ...]] = {}
        self._keys_characters = 0
        # Deliveries with a smaller key waited before the peer registered.
        self._flush_until = 0

    # Calls of the carrier.

    def expect_handshake(self) -> None:
        """Start the timeout of the handshake, because the peer's socket is connected now."""
        self._server.connections.add(self)
        self._greeting.expect(partial(self._fail, NO_HANDSHAKE))

    def receive_text(self, payload: bytes) -> None:
        """Handle a text frame (protocol message) of the peer.

        Several frames may arrive together. After the last of them, the caller must call `finish_turn`.
        """
        # spec 1: at most 1 MiB for a message.
        if len(payload) > FRAME_BYTES_MAX:
            self._fail((TOO_BIG, f"a frame has at most {FRAME_BYTES_MAX} bytes"))
        elif self._greeting.waits:
            self._greeting.wait((payload,))
        elif self._greeting.phase is Phase.ACTIVE:
            self._handle(payload)
        elif self._greeting.phase is Phase.GREETING:
            self._greet(payload)

    def receive_binary(self) -> None:
        """Ignore a frame (protocol message) that is not text.

        If it is the first frame, close the connection, because a handshake must be text.
        """
        # spec 1, 2.1: a message that is not text has no meaning; as the first one it is no register.
        if self._greeting.phase is Phase.GREETING:
            self._fail(NOT_TEXT)

    def finish_turn(self) -> None:
        """Send the commands for all frames (protocol messages) that arrived together to the hub, in one batch."""
        self._flush_acks()
        if self._commands:
            commands, self._commands = self._commands, []
            self._pump.submit_with_retry(commands, self._decided)

    def _decided(self, replies: Sequence[r.Reply]) -> None:
        # The protocol has no refusal. A peer that stays connected would believe that a failed message was accepted.
        if any(isinstance(reply, Refusal) and reply.code is Code.INTERNAL_ERROR for reply in replies):
            self._fail(NOT_KEPT)

    def receive_eof(self) -> None:
        """Note that the peer sends nothing more. Close the connection when all requests of the peer are answered."""
        self._heard_all = True
        if self._greeting.phase is Phase.GREETING:
            self._fail(NO_HANDSHAKE)
        elif self._greeting.phase is Phase.ACTIVE and not self._greeting.waits:
            self._finish()

    def pause_writing(self) -> None:
        """Stop taking deliveries from the hub, because the write buffer of the peer's socket is full."""
        self._writable = False
        self._pump.pause_writing()

    def resume_writing(self) -> None:
        """Take deliveries from the hub again, because the write buffer of the peer's socket has room."""
        self._writable = True
        self._pump.resume_writing()
        self._release()

    def connection_lost(self) -> None:
        """End the session, because the peer's socket is gone."""
        self._leave()
        self._carrier = _GONE

    # Calls of the session pump: the Wire port.

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Send deliveries to the peer. Return the deliveries that were sent.

        Deliveries that waited before the peer connected are sorted by sender, as in the first implementation.
        """
        if parcels[0][1] < self._flush_until:
            waited = [parcel for parcel in parcels if parcel[1] < self._flush_until]
            ordered = [*sorted(waited, key=lambda parcel: parcel[0].sender), *parcels[len(waited) :]]
        else:
            ordered = list(parcels)
        frames: list[bytes] = []
        left_out: set[int] = set()
        given_up: list[Range] = []
        for message, key, _ in ordered:
            envelope = self._envelope(message)
            name = codec.key_of(message, self.name)
            frame = None if envelope is None else codec.encode_deliver(name, envelope)
            if frame is None or len(frame) > FRAME_BYTES_MAX:
                left_out.add(key)
                if frame is not None:
                    extend_ranges(given_up, one_key(key))
                continue
            frames.append(frame)
            self._remember(name, key)
        if frames:
            self._carrier.send(frames)
        if given_up:
            advance = c.Advance(self._pump.session, ranges=tuple(given_up), state=State.DEAD, evidence="too_large")
            self._pump.submit((advance,))
        return parcels if not left_out else [parcel for parcel in parcels if parcel[1] not in left_out]

    def write_progress(self, step: r.Progress) -> None:
        """Do nothing, because this connection does not ask the hub to report the progress of sent messages."""

    def end(self, why: Refusal) -> None:
        """Close the connection to the peer, because the hub ended the session for the reason `why`."""
        if why.code is Code.TAKEN_OVER:
            # spec 2.1: the old connection is closed immediately. No reason is sent, as if the network had failed.
            self._leave()
            self._carrier.abort()
        else:
            self._fail(CLOSINGS.get(why.code, NOT_KEPT))

    def pause_reading(self) -> None:
        """Stop reading from the peer's socket, because the peer sends faster than the hub can store."""
        self._carrier.pause_reading()

    def resume_reading(self) -> None:
        """Read from the peer's socket again, after `pause_reading`."""
        self._carrier.resume_reading()

    # Inside: ending.

    def _fail(self, closing: tuple[int, str]) -> None:
        if self._greeting.phase is not Phase.CLOSED:
            self._leave()
            self._carrier.close(*closing)

    def _finish(self) -> None:
        self.finish_turn()
        # Answers come in order, so this callback runs after the last one.
        self._pump.after(lambda: self._pump.when_decided(lambda: self._fail(DONE)))

    def _leave(self) -> None:
        try:
            if self._greeting.phase is Phase.ACTIVE:
                # Frames that were received still go to the hub.
                self.finish_turn()
        finally:
            self._greeting.close()
            self._keys.clear()
            self._server.connections.discard(self)
            self._pump.close()

    # Inside: the handshake.

    def _greet(self, payload: bytes) -> None:
        try:
            said = codec.decode_handshake(payload)
        except FrameError:
            self._fail(MALFORMED)
            return
        # spec 2.1: the first frame must be a register of this version, with a name and a valid token.
        if said.type != "register":
            self._fail(NOT_REGISTER)
        elif said.version != codec.VERSION:
            self._fail(WRONG_VERSION)
        elif not said.name:
            self._fail(NO_NAME)
        elif not said.token:
            self._fail(BAD_TOKEN)
        else:
            attach = c.Attach(
                protocol=PROTOCOL,
                credential=self._server.credential(said.token),
                member=MemberName(said.name),
                # spec 2.1, 6: the same name under the same token takes over; under a different token it is rejected.
                exclusive=True,
            )
            self._greeting.open(attach, partial(self._opened, said.name))

    def _opened(self, name: str, reply: r.Attached | Refusal) -> None:
        if isinstance(reply, Refusal):
            self._server.log_refusal(name, reply)
        if self._greeting.phase is Phase.CLOSED:
            return
        if isinstance(reply, Refusal):
            self._fail(CLOSINGS.get(reply.code, NOT_KEPT))
            return
        assert reply.member is not None, "only members attach here"
        self.name = reply.member
        self._flush_until = reply.next_key
        self._pump.submit((c.ListMembers(reply.session),), self._registered)

    def _registered(self, replies: Sequence[r.Reply]) -> None:
        if self._greeting.phase is not Phase.OPENING:
            return
        self._carrier.admit(self.name)
        # spec 2.1: the answer to register is a peers frame; then everything that waits is delivered.
        self._answer(replies[0])
        waiting = self._greeting.activate()
        self._pump.receive(window=None)
        self._handle_waiting(waiting)

    # Inside: frames from the peer.

    def _handle(self, payload: bytes) -> None:
        try:
            request = codec.decode_request(payload)
        except FrameError:
            self._refuse(Code.INVALID_MESSAGE)
            return
        match request:
            case Ack():
                self._acknowledge(request.key)
            case Envelope():
                self._say(request)
            case codec.Peers() if self._questions < _QUESTIONS_MAX and self._writable:
                self._ask()
            case codec.Peers():
                # The answers to the earlier `peers` requests must be sent first.
                self._greeting.wait((payload,))
            case None:
                pass

    def _say(self, envelope: Envelope) -> None:
        content = codec.content_of(envelope)
        if isinstance(content, Refusal):
            self._refuse(content.code)
            return
        # spec 3: the message is durable before it is delivered; an id that was used is a no-op.
        self._flush_acks()
        self._commands.append(
            c.Send(
                self._pump.session,
                content=content,
                wire_id=codec.wire_id_of(envelope),
                allow_empty=True,
                shared_id=True,
                signature=codec.signature_of(envelope, self.name, self._server.secret),
                attempt=self._pump.attempt,
            )
        )

    def _refuse(self, code: Code) -> None:
        self._flush_acks()
        self._commands.append(c.RecordRefusal(protocol=PROTOCOL, code=code, what="Send", session=self._pump.session))

    def _acknowledge(self, name: str) -> None:
        # spec 2.2: an empty id is ignored, and an unknown or settled one is a no-op.
        if not name:
            return
        keys = self._keys.pop(name, ())
        if keys:
            key, *others = keys
            extend_ranges(self._acked, one_key(key))
            if others:
                self._keys[name] = tuple(others)
            else:
                self._keys_characters -= len(name)
            return
        # The delivery went to an earlier connection, or its key is forgotten here.
        self._flush_acks()
        stem = name.removesuffix(f"|{self.name}")
        wire_ids = (name,) if stem == name else (name, f"{stem}|{codec.ALL}")
        command = c.AcknowledgeIds(
            self._pump.session, wire_ids=wire_ids, message_ids=(MessageId(stem),), evidence="ack"
        )
        self._commands.append(command)

    def _flush_acks(self) -> None:
        if self._acked:
            acked, self._acked = tuple(self._acked), []
            self._commands.append(c.Advance(self._pump.session, ranges=acked, state=State.ACKED, evidence="ack"))

    # Inside: the connected peers.

    def _ask(self) -> None:
        # spec 2.3: a peers request is answered by a peers frame.
        # The request follows everything sent before it, so the answer means that all of it is durable.
        self.finish_turn()
        self._questions += 1
        self._pump.submit(
            (c.ListMembers(self._pump.session),),
            lambda replies: self._pump.when_decided(partial(self._answered, replies)),
        )

    def _answered(self, replies: Sequence[r.Reply]) -> None:
        self._questions -= 1
        self._answer(replies[0])
        self._release()

    def _answer(self, reply: r.Reply) -> None:
        if isinstance(reply, r.Roster):
            # spec 2.3: the names that are registered now.
            names: list[str] = [presence.member.name for presence in reply.members if presence.sessions]
            self._carrier.send((codec.encode_peers(names),))

    def _release(self) -> None:
        ready = self._greeting.phase is Phase.ACTIVE and self._writable and not self._questions
        if ready and self._greeting.waits:
            self._handle_waiting(self._greeting.take())

    def _handle_waiting(self, waiting: Sequence[bytes]) -> None:
        """Handle the frames (protocol messages) in `waiting`, which were queued before.

        They were queued during the handshake, or while too many `peers` requests were in progress. If a frame must wait
        again, queue this frame and all frames after it.
        """
        for index, payload in enumerate(waiting):
            if self._greeting.phase is not Phase.ACTIVE:
                return
            if self._greeting.waits:
                self._greeting.wait(waiting[index:])
                break
            self._handle(payload)
        if self._greeting.phase is Phase.ACTIVE:
            self.finish_turn()
            if self._heard_all and not self._greeting.waits:
                self._finish()

    # Inside: deliveries to the peer.

    def _envelope(self, message: Message) -> bytes | None:
        """Return the encoded envelope of a message for this peer.

        It is the sender's own envelope if the message came through peerbus. Otherwise the hub makes and signs an
        envelope. Return `None` if the hub has no secret for that.
        """
        # spec 3, 4: a recipient gets the sender's signed bytes, for a broadcast too.
        original = codec.original_of(message)
        if original is not None:
            return original
        secret = self._server.secret
        return None if secret is None else codec.translate(message, self.name, secret)

    def _remember(self, name: str, key: int) -> None:
        known = self._keys.get(name)
        if known is not None:
            if key not in known:
                self._keys[name] = (*known, key)
            return
        if len(self._keys) >= _KEYS_MAX or self._keys_characters + len(name) > _KEYS_CHARACTERS_MAX:
            self._keys.clear()
            self._keys_characters = 0
        self._keys[name] = (key,)
        self._keys_characters += len(name)

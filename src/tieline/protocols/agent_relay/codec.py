"""The envelopes of the Agent Relay Protocol, and their translation to the hub's messages and back.

Above: `server` and `client`. Below: `wire.frames`. It refuses to know sockets and sessions.

A frame is four bytes of length and a JSON object, the envelope. Some parts have no field in the hub's messages: the
payload's `kind`, `payload_meta`, and further keys of the payload. The codec keeps these parts beside the content, so
that nothing is lost from relay to relay.
"""

from collections.abc import Sequence
from enum import StrEnum
from typing import Any

import msgspec
from msgspec import Struct, field

from tieline.contract import message as m
from tieline.contract.identifiers import GENERAL, USERS, ChannelName, MessageId, parse_channel_name
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind, parse_target, to_channel
from tieline.wire.fidelity import Carriage, Field, beyond, labels, own_note
from tieline.wire.frames import HEADER_BYTES, FrameBuffer, FrameError, encode_frame
from tieline.wire.json_text import mend_pairs

# "spec N" is a section of the specification that PROTOCOL.md names; "gap N" is an issue in its appendix A.

VERSION = 1  # spec 3
# spec 2: a payload MUST NOT be larger than max_frame_bytes.
FRAME_BYTES_MAX = 1024 * 1024
"""The protocol's own default; a hub announces its limit in WELCOME."""

DEFAULT_TOPIC = "default"
"""The topic under which RESUME and SYNC count an envelope without a topic."""

PROTOCOL = "agent-relay"
EVERYBODY = "*"  # spec 3: a broadcast
HUMANS = "@users"
"""The address of all people: the hub's channel `users`."""
CHANNEL_MESSAGE = "CHANNEL_MESSAGE"

ID_CHARACTERS_MAX = 1024
"""Longest id. Answers repeat the id, and every answer must fit a frame."""
NESTING_MAX = 512
"""Nesting levels of a payload. A payload that was read must be written again, from deeper in the call stack."""
DELIVERY_BYTES = 1024
"""Upper bound of the bytes that a DELIVER adds to the SEND it comes from: names, ids, numbers."""
ANSWER_BYTES = 8192
"""Room for the rest of an answer beside its entries: the envelope, with the asker's id in it."""

_DELIVERY_PREFIX = "d-"


class ErrorCode(StrEnum):
    """Every code that an ERROR or NACK of the hub can carry."""

    # gap 3: the specification has only STALE (spec 8); the SDK knows some of the others.
    BAD_REQUEST = "BAD_REQUEST"
    UNAUTHORIZED = "UNAUTHORIZED"
    FORBIDDEN = "FORBIDDEN"
    NOT_FOUND = "NOT_FOUND"
    CONFLICT = "CONFLICT"
    TOO_LARGE = "TOO_LARGE"
    BUSY = "BUSY"
    LOOP = "LOOP"
    HELD = "HELD"
    STALE = "STALE"
    TIMEOUT = "TIMEOUT"
    RESUME_TOO_OLD = "RESUME_TOO_OLD"
    DUPLICATE_CONNECTION = "DUPLICATE_CONNECTION"
    SHUTTING_DOWN = "SHUTTING_DOWN"
    INTERNAL = "INTERNAL"


ERROR_CODES: dict[Code, ErrorCode] = {
    Code.INVALID_NAME: ErrorCode.BAD_REQUEST,
    Code.RESERVED_NAME: ErrorCode.FORBIDDEN,
    Code.NAME_TAKEN: ErrorCode.UNAUTHORIZED,
    Code.UNKNOWN_MEMBER: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_CHANNEL: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_MESSAGE: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_SESSION: ErrorCode.UNAUTHORIZED,
    Code.UNKNOWN_OBJECTIVE: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_LOG: ErrorCode.NOT_FOUND,
    Code.UNKNOWN_TOKEN: ErrorCode.NOT_FOUND,
    Code.INVALID_TARGET: ErrorCode.BAD_REQUEST,
    Code.INVALID_MESSAGE: ErrorCode.BAD_REQUEST,
    Code.INVALID_REQUEST: ErrorCode.BAD_REQUEST,
    Code.MESSAGE_TOO_LARGE: ErrorCode.TOO_LARGE,
    Code.NO_RECIPIENTS: ErrorCode.NOT_FOUND,
    Code.TOO_MANY_RECIPIENTS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_STREAMS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_FOLLOWED: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_OBJECTIVES: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_CHANNELS: ErrorCode.TOO_LARGE,
    Code.TOO_MANY_TOKENS: ErrorCode.TOO_LARGE,
    Code.OBJECTIVE_ENDED: ErrorCode.CONFLICT,
    Code.CHANNEL_ARCHIVED: ErrorCode.NOT_FOUND,
    Code.LAST_MANAGER: ErrorCode.CONFLICT,
    Code.ACTIVITY_FULL: ErrorCode.BUSY,
    Code.UNAUTHORIZED: ErrorCode.UNAUTHORIZED,
    Code.FORBIDDEN: ErrorCode.FORBIDDEN,
    Code.WIRE_ID_REUSED: ErrorCode.CONFLICT,
    Code.LOOP_DETECTED: ErrorCode.LOOP,
    Code.THREAD_PAUSED: ErrorCode.LOOP,
    Code.BACKLOG_FULL: ErrorCode.BUSY,
    Code.TAKEN_OVER: ErrorCode.DUPLICATE_CONNECTION,
    Code.RESUME_REFUSED: ErrorCode.RESUME_TOO_OLD,
    Code.NEVER_ACKNOWLEDGED: ErrorCode.FORBIDDEN,
    Code.CANNOT_SIGN: ErrorCode.FORBIDDEN,
    Code.STORE_FAILED: ErrorCode.INTERNAL,
    Code.INTERNAL_ERROR: ErrorCode.INTERNAL,
    Code.SHUTTING_DOWN: ErrorCode.SHUTTING_DOWN,
}
"""The wire form of every refusal."""


class EnvelopeError(ValueError):
    """The received bytes are not an envelope of this protocol. The connection that sent them ends."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Envelope(Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """One frame."""

    type: str
    v: int = VERSION
    id: str = ""
    ts: float = 0
    sender: str | None = None
    to: str | None = None
    topic: str | None = None
    payload: dict[str, Any] = field(default_factory=dict)
    payload_meta: dict[str, Any] | None = None
    delivery: dict[str, Any] | None = None


_decoder = msgspec.json.Decoder(Envelope)
_plain_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class EnvelopeBuffer:
    """Collects the bytes of one connection and gives back its envelopes, in order."""

    __slots__ = ("_frames", "frame_bytes")

    def __init__(self, frame_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._frames = FrameBuffer(frame_bytes_max)
        # Size of the last envelope in bytes.
        self.frame_bytes = 0

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._frames.receive_data(data)

    @property
    def held(self) -> int:
        """Bytes received but not yet returned as envelopes."""
        return self._frames.held

    def reset(self) -> None:
        """Drop the buffered bytes."""
        self._frames.reset()

    def next_envelope(self) -> Envelope | None:
        """The next whole envelope, or `None` until more bytes come. Raises `EnvelopeError`."""
        try:
            payload = self._frames.next_frame()
        except FrameError as error:
            # spec 2: a frame beyond the limit closes the connection with an error.
            code = ErrorCode.TOO_LARGE if error.size else ErrorCode.BAD_REQUEST
            raise EnvelopeError(code, str(error)) from error
        if payload is None:
            return None
        self.frame_bytes = len(payload)
        return decode(payload)


def decode(payload: bytes) -> Envelope:
    """One envelope from its JSON. Raises `EnvelopeError`.

    JavaScript may write half a surrogate pair, for example after it cut a text in the middle of an emoji. Such a half
    is not valid text here, but it is no reason to close the connection: it becomes U+FFFD.
    """
    try:
        # spec 2: the JSON MUST be an object.
        envelope = _decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        mended = mend_pairs(payload)
        if mended != payload:
            return decode(mended)
        raise EnvelopeError(ErrorCode.BAD_REQUEST, f"not an envelope: {error}") from error
    if envelope.v != VERSION:
        raise EnvelopeError(ErrorCode.BAD_REQUEST, f"this hub speaks version {VERSION} of the protocol")
    if len(envelope.id) > ID_CHARACTERS_MAX:
        raise EnvelopeError(ErrorCode.BAD_REQUEST, f"an id has at most {ID_CHARACTERS_MAX} characters")
    # Counting brackets is cheap, and nearly always enough.
    if payload.count(b"{") + payload.count(b"[") > NESTING_MAX and _too_deep(envelope):
        raise EnvelopeError(ErrorCode.BAD_REQUEST, f"an envelope nests at most {NESTING_MAX} levels")
    return envelope


def _too_deep(envelope: Envelope) -> bool:
    parts = (envelope.payload, envelope.payload_meta or {}, envelope.delivery or {})
    return any(m.nested_deeper(part, NESTING_MAX) for part in parts)


def encode(envelope: Envelope) -> bytes:
    """The frame of one envelope. It always contains `v`, `id`, `ts` and `payload`, as the protocol says."""
    return encode_frame(_encoder.encode(_always(envelope)))


def payload_bytes(frame: bytes) -> int:
    """Bytes of a frame that count against the frame limit."""
    return len(frame) - HEADER_BYTES


def fitting(entries: Sequence[dict[str, Any]], frame_bytes_max: int) -> list[dict[str, Any]]:
    """The first entries that fit an answer together. An entry that is too large for any frame is left out."""
    room = whole = frame_bytes_max - ANSWER_BYTES
    fit: list[dict[str, Any]] = []
    for entry in entries:
        size = len(_encoder.encode(entry)) + 1
        if size > whole:
            continue
        if size > room:
            break
        room -= size
        fit.append(entry)
    return fit


def _always(envelope: Envelope) -> dict[str, Any]:
    # spec 3: from, to and topic are optional, the rest is not.
    value: dict[str, Any] = {"v": envelope.v, "type": envelope.type, "id": envelope.id, "ts": int(envelope.ts)}
    optional = {"from": envelope.sender, "to": envelope.to, "topic": envelope.topic}
    value |= {key: text for key, text in optional.items() if text is not None}
    value["payload"] = envelope.payload
    if envelope.payload_meta is not None:
        value["payload_meta"] = envelope.payload_meta
    if envelope.delivery is not None:
        value["delivery"] = envelope.delivery
    return value


# Targets.


def target_of(to: str | None, topic: str | None) -> Target | Refusal:
    """The target of a SEND. `*` with a topic means the topic's subscribers; `*` without a topic means everybody."""
    if not to:
        return Refusal(Code.INVALID_TARGET, "a SEND needs 'to': an agent's name or *")
    if to == HUMANS:
        return to_channel(USERS)
    if to.startswith(("_", "@_")):
        return Refusal(Code.RESERVED_NAME, "names that start with _ are the relay's own, and this hub has none of them")
    if to == EVERYBODY:
        return _topic(topic) if topic else parse_target(EVERYBODY)
    if to.startswith("#"):
        return _topic(to)
    return parse_target(to if to.startswith(("@", "obj:")) else f"@{to}")


def _topic(name: object) -> Target | Refusal:
    channel = channel_named(name)
    return channel if isinstance(channel, Refusal) else to_channel(channel)


def channel_named(name: object) -> ChannelName | Refusal:
    """The channel that a topic or `#channel` names."""
    if not isinstance(name, str) or not name:
        return Refusal(Code.INVALID_TARGET, "name a topic or channel")
    # gap 5: wildcards of SUBSCRIBE are not specified.
    if EVERYBODY in name:
        return Refusal(Code.INVALID_TARGET, "version 1 has no wildcards: name each topic by itself")
    return parse_channel_name(name.removeprefix("#"))


def pair_of(channel: object) -> tuple[str, str] | None:
    """The two members of a channel `dm:a:b`. Both are always in the channel, and nobody else can join it."""
    match channel.split(":") if isinstance(channel, str) else ():
        case ["dm", one, other] if one != other:
            return one, other
    return None


def _other_of(pair: tuple[str, str], speaker: str) -> Target | Refusal:
    if speaker not in pair:
        return Refusal(Code.FORBIDDEN, "only its two members may write to this channel")
    return parse_target(f"@{pair[1] if speaker == pair[0] else pair[0]}")


def original_to(target: Target) -> str | None:
    """The address that the sender used, or `None` if it was the recipient alone."""
    match target.kind:
        case TargetKind.MEMBER:
            return None
        case TargetKind.EVERYBODY:
            return EVERYBODY
        case TargetKind.CHANNEL:
            return written(target) if target.name in (GENERAL, USERS) else EVERYBODY
        case TargetKind.OBJECTIVE:
            return str(target)


def written(target: Target) -> str:
    """A target as this protocol writes it."""
    match target.kind:
        case TargetKind.MEMBER:
            return target.name
        case TargetKind.CHANNEL if target.name == USERS:
            return HUMANS
        case _:
            return str(target)


# Content.

_KNOWN = frozenset({"kind", "body", "data", "thread"})
_KNOWN_IN_CHANNEL = _KNOWN | {"channel"}
_STATUS_KINDS = frozenset({"state", "thinking"})
_LABELS = frozenset({Field.TITLE, Field.LEVEL, Field.PRIORITY, Field.SCOPE, Field.REFS})
_STAMP = "tieline"
"""The key of `payload.data` that the hub alone writes."""

CARRIAGE = Carriage(
    PROTOCOL,
    says={
        Field.DATA: "`payload.data`",
        **{name: f"`payload.data.{name}`" for name in sorted(_LABELS)},
        Field.KIND: "`payload.kind`: `state` and `thinking` are `status`",
        Field.TOPIC: "`topic`",
        Field.THREAD: "`payload.thread`",
        Field.REPLY_TO: "`payload_meta.replyTo`, the id of a DELIVER",
        Field.TTL: "`payload_meta.ttl_ms`",
        Field.OWN: "other kinds, other keys of `payload_meta` and of `payload`",
    },
    carries={
        Field.DATA: "`payload.data`",
        Field.TOPIC: "`topic`",
        Field.THREAD: "`payload.thread`",
        Field.TTL: "`payload_meta.ttl_ms`",
    },
    rest=f"`payload.data.{_STAMP}`",
)


def content_of(envelope: Envelope, speaker: str) -> m.Content | Refusal:
    """The content and target of a SEND or a CHANNEL_MESSAGE that this member sends."""
    pair = None
    if envelope.type == CHANNEL_MESSAGE:
        channel = envelope.payload.get("channel")
        pair = pair_of(channel)
        target = _other_of(pair, speaker) if pair is not None else _topic(channel)
    else:
        target = target_of(envelope.to, envelope.topic)
    if isinstance(target, Refusal):
        return target
    payload, meta = envelope.payload, envelope.payload_meta or {}
    body, data, thread = payload.get("body"), payload.get("data"), payload.get("thread")
    kind, ttl_ms = payload.get("kind", "message"), meta.get("ttl_ms")
    problem = _problem(body, data, thread, kind, ttl_ms)
    if problem is not None:
        return Refusal(Code.INVALID_MESSAGE, problem)
    known = _KNOWN_IN_CHANNEL if envelope.type == CHANNEL_MESSAGE else _KNOWN
    extra = {key: value for key, value in payload.items() if key not in known}
    rest: dict[str, Any] = {}
    if kind != "message":
        rest["kind"] = kind
    if envelope.payload_meta:
        rest["meta"] = envelope.payload_meta
    if extra:
        rest["extra"] = extra
    if envelope.type == CHANNEL_MESSAGE:
        rest["frame"] = CHANNEL_MESSAGE
    if pair is not None:
        rest["channel"] = ":".join(("dm", *pair))
    notes = own_note(PROTOCOL, *_own_words(kind, meta, extra))
    # spec 5, gap 9: a SEND with payload_meta.sync waits for an ACK.
    if isinstance(meta.get("sync"), dict):
        notes = (*notes, AWAITED)
    topic = envelope.topic or ""
    if topic == DEFAULT_TOPIC:
        # The default topic counts in the same stream as an envelope without a topic.
        rest["topic"], topic = topic, ""
    return m.Content(
        target=target,
        body=str(body),
        data=data or None,
        kind=m.Kind.STATUS if kind in _STATUS_KINDS else m.Kind.CHAT,
        topic=topic,
        thread=thread or None,
        reply_to=MessageId(reply_to) if (reply_to := _reply_to(meta)) else None,
        ttl_ms=ttl_ms,
        original=_encoder.encode(rest) if rest else None,
        notes=notes,
        **labels(data, _LABELS),
    )


_TRANSLATED = frozenset({"ttl_ms", "replyTo", "requires_ack", "sync"})
"""Keys of `payload_meta` that have a meaning for members on every protocol."""
AWAITED = "its sender waits for a reply that names this message"
"""The note on a synchronous SEND, for recipients who have no ACK."""


def _own_words(kind: str, meta: dict[str, Any], extra: dict[str, Any]) -> list[str]:
    """Names of the parts that only agents of this protocol understand."""
    kinds = [f"kind {kind}"] if kind not in ("message", *_STATUS_KINDS) else []
    return [*kinds, *(f"payload_meta.{key}" for key in meta if key not in _TRANSLATED), *extra]


def _reply_to(meta: dict[str, Any]) -> str | None:
    value = meta.get("replyTo")
    return message_of(value) if isinstance(value, str) else None


def _problem(body: object, data: object, thread: object, kind: object, ttl_ms: object) -> str | None:
    if not isinstance(body, str):
        return "payload.body must be a string"
    if data is not None and not isinstance(data, dict):
        return "payload.data must be an object"
    if thread is not None and not isinstance(thread, str):
        return "payload.thread must be a string"
    if not isinstance(kind, str):
        return "payload.kind must be a string"
    if ttl_ms is not None and type(ttl_ms) is not int:
        return "payload_meta.ttl_ms must be a whole number"
    return None


def delivery_id(message_id: str, key: int) -> str:
    """The id of a DELIVER. It is the same each time the delivery is written, so that a client can detect a repeat."""
    return f"{_DELIVERY_PREFIX}{key}-{message_id}"


def key_of(ack_id: object) -> int | None:
    """The delivery key in the id of a DELIVER."""
    if not isinstance(ack_id, str) or not ack_id.startswith(_DELIVERY_PREFIX):
        return None
    digits = ack_id[len(_DELIVERY_PREFIX) :].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _KEY_DIGITS_MAX else None


def message_of(delivered_id: str) -> str | None:
    """The message's own id in the id of a DELIVER."""
    return delivered_id[len(_DELIVERY_PREFIX) :].partition("-")[2] or None if key_of(delivered_id) is not None else None


_KEY_DIGITS_MAX = 18
"""Most digits of a delivery key; keys are 64-bit numbers."""


def _rest(message: m.Message) -> dict[str, Any]:
    """The parts kept beside the content of a message from this protocol."""
    original = message.content.original
    if original is None or message.protocol != PROTOCOL:
        return {}
    rest: dict[str, Any] = _plain_decoder.decode(original)
    return rest


def is_channel_message(message: m.Message) -> bool:
    """True if a message came as a CHANNEL_MESSAGE, and so is passed on as a CHANNEL_MESSAGE."""
    return _rest(message).get("frame") == CHANNEL_MESSAGE


def channel_message(message: m.Message, key: int) -> Envelope | None:
    """The frame that passes a CHANNEL_MESSAGE on to the other members; `None` if the message did not come as one."""
    rest = _rest(message)
    if rest.get("frame") != CHANNEL_MESSAGE:
        return None
    said = message.content
    payload: dict[str, Any] = {"channel": rest.get("channel", str(said.target)), "body": said.body}
    if "kind" in rest:
        payload["kind"] = rest["kind"]
    if said.data is not None:
        payload["data"] = said.data
    if said.thread is not None:
        payload["thread"] = said.thread
    payload |= rest.get("extra", {})
    return Envelope(
        CHANNEL_MESSAGE,
        id=delivery_id(message.id, key),
        ts=message.sent_at_ms,
        sender=message.sender,
        payload=payload,
        payload_meta=rest.get("meta"),
    )


def deliver(message: m.Message, key: int, seq: int, *, recipient: str, session_id: str) -> Envelope:
    """The DELIVER of a message to one recipient."""
    said = message.content
    rest = _rest(message)
    payload: dict[str, Any] = {"kind": rest.get("kind", "message"), "body": said.body, "data": _data(message)}
    if said.thread is not None:
        payload["thread"] = said.thread
    payload |= rest.get("extra", {})
    meta = rest.get("meta")
    if meta is None and said.ttl_ms is not None:
        meta = {"ttl_ms": said.ttl_ms}
    # spec 5: seq counts the DELIVERs of a stream (topic, from → to).
    delivery: dict[str, Any] = {"seq": seq, "session_id": session_id}
    addressed = original_to(said.target)
    if addressed is not None:
        delivery["originalTo"] = addressed
    return Envelope(
        "DELIVER",
        id=delivery_id(message.id, key),
        ts=message.sent_at_ms,
        sender=message.sender,  # spec 3, gap 7: set by the daemon, never by the client
        to=recipient,
        topic=said.topic or rest.get("topic"),
        payload=payload,
        payload_meta=meta,
        delivery=delivery,
    )


def _data(message: m.Message) -> dict[str, Any]:
    """The data of a DELIVER: the sender's data, and the fields that this protocol has no other place for."""
    data = message.content.data or {}
    more = beyond(message, CARRIAGE.carries) if message.protocol != PROTOCOL else None
    if not more and _STAMP not in data:
        return data
    own = {key: value for key, value in data.items() if key != _STAMP}
    return {**own, _STAMP: more} if more else own


def delivered_bytes(content: m.Content, speaker: str) -> int:
    """Upper bound of the size of the frame that delivers this content, for any recipient and any sequence number."""
    target, number = content.target, 10**12
    recipient = target.name if target.kind is TargetKind.MEMBER else "x" * 128
    message = m.Message(
        id=MessageId("x" * 36), offset=0, sender=speaker, protocol=PROTOCOL, sent_at_ms=10**13, content=content
    )
    frame = channel_message(message, number) or deliver(
        message, number, number, recipient=recipient, session_id="x" * 32
    )
    return payload_bytes(encode(frame))

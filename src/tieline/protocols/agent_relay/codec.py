"""The envelopes of the Agent Relay Protocol, and their translation to the hub's messages and back.

Used by: `server` and `client`. Uses: `wire.frames`. This module knows nothing about sockets and sessions.

A frame is four bytes of length and a JSON object, the envelope. The hub's messages have no field for some parts of an
envelope: the payload's `kind`, `payload_meta`, and unknown keys of the payload. The codec stores these parts beside the
content, so that nothing is lost between two members on this protocol.
"""

import re
from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Struct, field

from tieline.contract import message as m
from tieline.contract.identifiers import USERS, ChannelName, MessageId, parse_channel_name
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import Target, TargetKind, parse_target, to_channel
from tieline.protocols.agent_relay.error_code import ErrorCode
from tieline.wire.fidelity import Carriage, Field, beyond, labels, own_note
from tieline.wire.frames import HEADER_BYTES, encode_frame
from tieline.wire.json_text import VALUES_MAX, has_many_values, mend_pairs

# "spec N" is a section of the specification that PROTOCOL.md names; "gap N" is an issue in its appendix A.

VERSION = 1  # spec 3
# spec 2: a payload MUST NOT be larger than max_frame_bytes.
FRAME_BYTES_MAX = 1024 * 1024
"""Most bytes of a frame, if a hub does not announce another limit in WELCOME."""

DEFAULT_TOPIC = "default"
"""Topic name that RESUME and SYNC use for envelopes without a topic."""

PROTOCOL = "agent-relay"
EVERYBODY = "*"  # spec 3: a broadcast
HUMANS = "@users"
"""The address of all human members in this protocol. The hub translates it to its channel `users`."""
CHANNEL_MESSAGE = "CHANNEL_MESSAGE"
GROUP_MAX = 32
"""Most members of a `dm:` channel. The number is small, because each member gets a separate message."""

ID_CHARACTERS_MAX = 1024
"""Most characters of an envelope's id. Answers repeat the id, and every answer must fit into a frame."""
NESTING_MAX = 512
"""Most nesting levels of a payload.

The hub decodes a payload and later encodes it again. At that time fewer levels of the call stack may be left.
"""
DELIVERY_BYTES = 1024
"""Most bytes by which a DELIVER can be longer than the SEND of the same message, because of added names and ids."""
ANSWER_BYTES = 8192
"""Bytes that an answer needs in addition to its list of entries: for the envelope and the query's id."""

_DELIVERY_PREFIX = "d-"


class EnvelopeError(ValueError):
    """Raised if received bytes are not a valid envelope of this protocol. The receiver then closes the connection."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Envelope(Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """One envelope (a message of the protocol between client and hub): its header fields and its payload."""

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


def decode(payload: bytes) -> Envelope:
    """Decode one envelope from its JSON. Raise `EnvelopeError` if it is invalid.

    JavaScript may write half a surrogate pair, for example after it cut a text in the middle of an emoji. Such a half
    is not valid text here. It is replaced by U+FFFD, so that the connection need not be closed.
    """
    if has_many_values(payload):
        raise EnvelopeError(ErrorCode.TOO_LARGE, f"an envelope has at most {VALUES_MAX} values")
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
    """Return an envelope as a frame: four bytes of length, and JSON with at least `v`, `id`, `ts` and `payload`."""
    return encode_frame(_encoder.encode(_always(envelope)))


def payload_bytes(frame: bytes) -> int:
    """Return the size of a frame without its first four bytes (the length). The limit for frames counts this size."""
    return len(frame) - HEADER_BYTES


def fitting(entries: Sequence[dict[str, Any]], frame_bytes_max: int) -> list[dict[str, Any]]:
    """Return the first entries that fit together into one answer. Skip an entry that is too large even alone."""
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
    """Return the hub's target for the address of a SEND, or a refusal if `to` is not valid.

    `to` and `topic` are fields of the SEND. The address `*` means the subscribers of the topic, or everybody if there
    is no topic.
    """
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
    """Return the hub's channel for a topic or a `#channel`, or a refusal if the name is not valid."""
    if not isinstance(name, str) or not name:
        return Refusal(Code.INVALID_TARGET, "name a topic or channel")
    # gap 5: wildcards of SUBSCRIBE are not specified.
    if EVERYBODY in name:
        return Refusal(Code.INVALID_TARGET, "version 1 has no wildcards: name each topic by itself")
    return parse_channel_name(name.removeprefix("#"))


def group_of(channel: object) -> tuple[str, ...] | None:
    """Return the names in a channel such as `dm:a:b` or `dm:a:b:c`; `None` if the channel has another form.

    The members with these names are always in the channel, and nobody else can join it.
    """
    match channel.split(":") if isinstance(channel, str) else ():
        case ["dm", *names] if len(set(names)) > 1:
            return tuple(dict.fromkeys(names))
    return None


_TOOL = re.compile(r"__[A-Za-z0-9._-]{1,126}|_DashboardUI")


def is_tool(name: str) -> bool:
    """True if this name is reserved for Agent Relay's own tools, such as its dashboard. No member can have the name."""
    return _TOOL.fullmatch(name) is not None


def to_each(envelope: Envelope, content: m.Content, speaker: str) -> list[m.Content]:
    """Return the contents to send to the hub for one message to a channel that the member `speaker` wrote.

    For a message to a `dm:` channel with three or more members, return one content for each recipient. For any other
    channel, return only `content`.
    """
    group = group_of(envelope.payload.get("channel"))
    others = others_in(group, speaker) if group is not None else ()
    if isinstance(others, Refusal) or len(others) <= 1:
        return [content]
    notes = (*content.notes, f"said to a group: {', '.join(group or ())}")
    return [msgspec.structs.replace(content, target=other, notes=notes) for other in others]


def others_in(group: tuple[str, ...], speaker: str) -> tuple[Target, ...] | Refusal:
    """Return the recipients of a message to a `dm:` channel: all names in `group` except `speaker`; or a refusal."""
    if speaker not in group:
        return Refusal(Code.FORBIDDEN, "only its own members may write to this channel")
    if len(group) > GROUP_MAX:
        return Refusal(Code.INVALID_TARGET, f"a dm: channel has at most {GROUP_MAX} members")
    targets = []
    for name in group:
        target = parse_target(f"@{name}")
        if isinstance(target, Refusal):
            return target
        if name != speaker:
            targets.append(target)
    return tuple(targets)


def original_to(target: Target) -> str | None:
    """Return the address to which the sender wrote, for the field `originalTo` of a DELIVER.

    Return `None` if the address is the name of one member.
    """
    return None if target.kind is TargetKind.MEMBER else written(target)


def written(target: Target) -> str:
    """Return a target as text in the form of this protocol, for example a member's name without `@`."""
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
"""Key of `payload.data` in a DELIVER that only the hub sets. A value that the sender wrote there is not delivered."""

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
    """Convert a SEND or CHANNEL_MESSAGE of the member `speaker` to the hub's content, or return a refusal.

    The content of a message to a `dm:` channel has only the first recipient as its target. `to_each` makes the contents
    for the other recipients.
    """
    in_channel = envelope.type == CHANNEL_MESSAGE
    target = _channel_of(envelope, speaker) if in_channel else target_of(envelope.to, envelope.topic)
    if isinstance(target, Refusal):
        return target
    payload, meta = envelope.payload, envelope.payload_meta or {}
    body, data, thread = payload.get("body"), payload.get("data"), payload.get("thread")
    kind, ttl_ms = payload.get("kind", "message"), meta.get("ttl_ms")
    problem = _problem(payload, data, thread, kind, ttl_ms)
    if problem is not None:
        return Refusal(Code.INVALID_MESSAGE, problem)
    extra = {key: value for key, value in payload.items() if key not in (_KNOWN_IN_CHANNEL if in_channel else _KNOWN)}
    rest = _beside(envelope, target, extra)
    notes = own_note(PROTOCOL, *_own_words(kind, meta, extra))
    # spec 5, gap 9: a SEND with payload_meta.sync waits for an ACK.
    if isinstance(meta.get("sync"), dict):
        notes = (*notes, AWAITED)
    if not _is_text(body):
        notes = (*notes, JSON_BODY)
    return m.Content(
        target=target,
        body=text_of(body) or _EMPTY,
        data=data or None,
        kind=m.Kind.STATUS if kind in _STATUS_KINDS else m.Kind.CHAT,
        # The default topic counts in the same stream as an envelope without a topic.
        topic=envelope.topic if envelope.topic and envelope.topic != DEFAULT_TOPIC else "",
        thread=thread or None,
        reply_to=MessageId(reply_to) if (reply_to := _reply_to(meta)) else None,
        ttl_ms=ttl_ms,
        original=_encoder.encode(rest) if rest else None,
        notes=notes,
        **labels(data, _LABELS),
    )


def _channel_of(envelope: Envelope, speaker: str) -> Target | Refusal:
    """Return the target of a CHANNEL_MESSAGE: a channel, or the first recipient in a `dm:` channel."""
    channel = envelope.payload.get("channel")
    group = group_of(channel)
    if group is None:
        return _topic(channel)
    others = others_in(group, speaker)
    return others if isinstance(others, Refusal) else others[0]


def _beside(envelope: Envelope, target: Target, extra: dict[str, Any]) -> dict[str, Any]:
    """Return the parts of an envelope for which the hub's content has no field.

    The hub stores these parts with the message, and recipients on this protocol get them.
    """
    payload, rest = envelope.payload, {}
    kind = payload.get("kind", "message")
    if kind != "message":
        rest["kind"] = kind
    if envelope.payload_meta:
        rest["meta"] = envelope.payload_meta
    if extra:
        rest["extra"] = extra
    if envelope.type == CHANNEL_MESSAGE:
        rest["frame"] = CHANNEL_MESSAGE
        if target.kind is TargetKind.MEMBER:
            rest["channel"] = payload["channel"]
    elif envelope.to == EVERYBODY and target.kind is TargetKind.CHANNEL:
        # spec 3: `*` is a broadcast, also to the subscribers of a topic; the target names the topic alone.
        rest["to"] = EVERYBODY
    if envelope.topic == DEFAULT_TOPIC:
        rest["topic"] = DEFAULT_TOPIC
    if payload.get("data") == {}:
        rest["empty_data"] = True
    if not _is_text(payload["body"]):
        rest["json_body"] = True
    return rest


_TRANSLATED = frozenset({"ttl_ms", "replyTo", "requires_ack", "sync"})
"""Keys of `payload_meta` that the hub understands and translates for members on other protocols."""
AWAITED = "its sender waits for a reply that names this message"
"""Note for recipients on protocols without an ACK: the sender of this message waits for the answer."""
JSON_BODY = "its body is JSON, and shown as text here"
"""Note for recipients on protocols that carry only text: the body of this message was a JSON value."""
_EMPTY = '""'
"""The empty text, encoded as JSON."""


def _is_text(body: object) -> bool:
    """True if a message's body is a text and not empty.

    Any other body is stored as JSON text, because the hub needs a text that is not empty.
    """
    return isinstance(body, str) and body != ""


def text_of(body: object) -> str:
    """Return a body as text. A body that is not a text is encoded as JSON."""
    return body if isinstance(body, str) else _encoder.encode(body).decode()


def _body_of(message: m.Message, rest: dict[str, Any]) -> Any:
    """Return the body of a message as its sender wrote it: a text, or any JSON value.

    `rest` is the result of `_rest`: the parts of the message that the hub has no field for.
    """
    return _plain_decoder.decode(message.content.body) if rest.get("json_body") else message.content.body


def _own_words(kind: str, meta: dict[str, Any], extra: dict[str, Any]) -> list[str]:
    """Return the names of those parts of a message that only agents on agent-relay understand.

    For recipients on other protocols, the message gets a note with these names.
    """
    kinds = [f"kind {kind}"] if kind not in ("message", *_STATUS_KINDS) else []
    return [*kinds, *(f"payload_meta.{key}" for key in meta if key not in _TRANSLATED), *extra]


def _reply_to(meta: dict[str, Any]) -> str | None:
    value = meta.get("replyTo")
    return message_of(value) if isinstance(value, str) else None


def _problem(payload: dict[str, Any], data: object, thread: object, kind: object, ttl_ms: object) -> str | None:
    # By the specification, a body is a text. But the SDK and its daemon pass on any JSON value.
    if "body" not in payload:
        return "a message needs payload.body"
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
    """Return the id of the DELIVER frame for a message; `key` is the delivery's key.

    The id is the same each time that the delivery is sent, so that a client can detect a repetition.
    """
    return f"{_DELIVERY_PREFIX}{key}-{message_id}"


def key_of(ack_id: object) -> int | None:
    """Return the delivery key in the id of a DELIVER frame; `None` if `ack_id` is not such an id."""
    if not isinstance(ack_id, str) or not ack_id.startswith(_DELIVERY_PREFIX):
        return None
    digits = ack_id[len(_DELIVERY_PREFIX) :].partition("-")[0]
    return int(digits) if digits.isascii() and digits.isdecimal() and len(digits) <= _KEY_DIGITS_MAX else None


def message_of(delivered_id: str) -> str | None:
    """Return the hub's message id in the id of a DELIVER frame; `None` if `delivered_id` is not such an id."""
    return delivered_id[len(_DELIVERY_PREFIX) :].partition("-")[2] or None if key_of(delivered_id) is not None else None


_KEY_DIGITS_MAX = 18
"""Most digits of a delivery key: a key is a 64-bit number."""


def _rest(message: m.Message) -> dict[str, Any]:
    """Return the agent-relay parts of a message that `_beside` stored with the message.

    Return an empty dict for a message that came through another protocol.
    """
    original = message.content.original
    if original is None or message.protocol != PROTOCOL:
        return {}
    rest: dict[str, Any] = _plain_decoder.decode(original)
    return rest


def is_channel_message(message: m.Message) -> bool:
    """True if a message came to the hub as a CHANNEL_MESSAGE. Recipients then get a CHANNEL_MESSAGE too."""
    return _rest(message).get("frame") == CHANNEL_MESSAGE


def channel_message(message: m.Message, key: int) -> Envelope | None:
    """Return the CHANNEL_MESSAGE envelope for one recipient. `key` is the delivery's key.

    Return `None` if the sender did not send the message as a CHANNEL_MESSAGE.
    """
    rest = _rest(message)
    if rest.get("frame") != CHANNEL_MESSAGE:
        return None
    said = message.content
    payload: dict[str, Any] = {"channel": rest.get("channel", str(said.target)), "body": _body_of(message, rest)}
    if "kind" in rest:
        payload["kind"] = rest["kind"]
    if said.data is not None or rest.get("empty_data"):
        payload["data"] = said.data or {}
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
    """Return the DELIVER envelope of a message for one recipient.

    `key` is the delivery's key. `seq` is the delivery's number in its stream. `session_id` is the recipient's session.
    """
    said = message.content
    rest = _rest(message)
    payload: dict[str, Any] = {"kind": rest.get("kind", "message"), "body": _body_of(message, rest)}
    data = _data(message)
    if data or rest.get("empty_data"):
        payload["data"] = data
    if said.thread is not None:
        payload["thread"] = said.thread
    payload |= rest.get("extra", {})
    meta = rest.get("meta")
    if meta is None and said.ttl_ms is not None:
        meta = {"ttl_ms": said.ttl_ms}
    # spec 5: seq counts the DELIVERs of a stream (topic, from → to).
    delivery: dict[str, Any] = {"seq": seq, "session_id": session_id}
    addressed = rest.get("to") or original_to(said.target)
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
    """Return the field `data` of a DELIVER.

    It contains the sender's data, and those fields of the message for which DELIVER has no other key.
    """
    data = message.content.data or {}
    more = beyond(message, CARRIAGE.carries) if message.protocol != PROTOCOL else None
    if not more and _STAMP not in data:
        return data
    own = {key: value for key, value in data.items() if key != _STAMP}
    return {**own, _STAMP: more} if more else own


def delivered_bytes(content: m.Content, speaker: str) -> int:
    """Return the size in bytes of the largest frame with this content that a recipient can get.

    The hub refuses a message at once if this size is beyond the frame limit.
    """
    target, number = content.target, 10**12
    recipient = target.name if target.kind is TargetKind.MEMBER else "x" * 128
    message = m.Message(
        id=MessageId("x" * 36), offset=0, sender=speaker, protocol=PROTOCOL, sent_at_ms=10**13, content=content
    )
    frame = channel_message(message, number) or deliver(
        message, number, number, recipient=recipient, session_id="x" * 32
    )
    return payload_bytes(encode(frame))

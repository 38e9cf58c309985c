"""The frames of peerbus, and the translation of envelopes to the hub's messages and back.

Used by: `connection` and `client`. Uses: `canonical`. This module knows nothing about sockets and sessions.

A frame is one JSON object. It is read as the first implementation of peerbus reads it. Keys may be in upper or lower
case. If a key is repeated, the last value counts. A field with `null` counts as absent. Half a surrogate pair in a
string is accepted. The sender's bytes are kept unchanged (`Envelope.raw`), and a recipient gets exactly these bytes.
"""

import json
import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import message as m
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.refusal import Code, Refusal
from tieline.contract.target import EVERYBODY, Target, TargetKind, parse_target
from tieline.protocols.peerbus import canonical
from tieline.wire.fidelity import LABELS, Carriage, Field, beyond, labels
from tieline.wire.json_text import VALUES_MAX, has_many_values, masked, mend_pairs

PROTOCOL = "peerbus"
# "spec N" is a section of the specification that PROTOCOL.md names.

VERSION = "v1"  # spec 6: any other is rejected at register
# spec 1: 1 MiB for a message and for a line.
FRAME_BYTES_MAX = 1024 * 1024
"""Most bytes of a frame (one protocol message).

Server and client have the same limit, on a WebSocket and on a stream of lines.
"""

ALL = "*"
MESSAGE = "msg"
BROADCAST = "broadcast"
SOURCE = "tieline"
"""Value of `source` in envelopes that the hub makes and signs itself, for messages from other protocols."""


class FrameError(ValueError):
    """Exception: received bytes are not a valid frame (protocol message) of peerbus."""


class Handshake(Struct, frozen=True):
    """The first frame (protocol message) of a client, which registers a name with a token.

    The decoder does not check `type`.
    """

    type: str
    version: str
    name: str
    token: str


class Ack(Struct, frozen=True, gc=False):
    """Frame (protocol message) with which a client acknowledges a delivery. `key` identifies the delivery.

    A client sends it when its program has consumed the message.
    """

    key: str


class Peers(Struct, frozen=True):
    """Frame (protocol message) about connected peers: the request of a client, or the answer with the names."""

    names: tuple[str, ...] = ()


class Envelope(Struct, frozen=True, gc=False):
    """One message of peerbus with its signature, as its sender signed it."""

    version: str
    id: str
    sender: str
    to: str
    ts: str
    source: str
    kind: str
    body: bytes
    """The body as JSON bytes; empty if the envelope has no body."""
    hmac: str
    raw: bytes
    """The whole envelope, byte for byte as it was received."""

    @property
    def fields(self) -> tuple[str, str, str, str, str, str, str]:
        """The signed fields except the body, in the order of `canonical.FIELDS`."""
        return self.version, self.id, self.sender, self.to, self.ts, self.source, self.kind

    def verify(self, secret: bytes) -> bool:
        """True if the signature was made with this secret."""
        return canonical.verify(secret, self.fields, self.body, self.hmac)


class Deliver(Struct, frozen=True):
    """Frame (protocol message) of the server that brings an envelope to its recipient.

    The recipient acknowledges the delivery by `key`.
    """

    key: str
    envelope: Envelope


# Reading.


class _Frame(Struct, forbid_unknown_fields=True, rename={"sender": "from"}, gc=False):
    """Shape of all frames (protocol messages), with the keys in their usual spelling.

    With this type, most frames are decoded in one step.
    """

    protocol_version: str | None = None
    type: str | None = None
    token: str | None = None
    name: str | None = None
    names: msgspec.Raw = msgspec.Raw()
    id: str | None = None
    sender: str | None = None
    to: str | None = None
    ts: str | None = None
    source: str | None = None
    kind: str | None = None
    body: msgspec.Raw = msgspec.Raw()
    hmac: str | None = None
    delivery_key: str | None = None
    envelope: msgspec.Raw = msgspec.Raw()


_ABSENT = b""
_TEXT_FIELDS = (*canonical.FIELDS, "hmac")
_decoder = msgspec.json.Decoder(_Frame)
_raw_decoder = msgspec.json.Decoder(msgspec.Raw)
_members_decoder: msgspec.json.Decoder[dict[str, msgspec.Raw] | None] = msgspec.json.Decoder(
    dict[str, msgspec.Raw] | None
)
_text_decoder: msgspec.json.Decoder[str | None] = msgspec.json.Decoder(str | None)
_names_decoder: msgspec.json.Decoder[tuple[str, ...] | None] = msgspec.json.Decoder(tuple[str, ...] | None)
_plain_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()
_BAD = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)


def decode_handshake(data: bytes) -> Handshake:
    """Return the first frame (protocol message) of a connection, decoded from JSON.

    Raise `FrameError` if the data is not JSON or a field has the wrong type.
    """
    _check_nesting(data)
    try:
        frame = _decoder.decode(data)
    except _BAD:
        loose = _loose(data)
        type_, version, name, token = (loose.text(key) for key in ("type", "protocol_version", "name", "token"))
        return Handshake(type_, version, name, token)
    return Handshake(frame.type or "", frame.protocol_version or "", frame.name or "", frame.token or "")


def decode_request(data: bytes) -> Ack | Peers | Envelope | None:
    """Return a client's frame (protocol message) after the handshake, decoded from JSON.

    Return `None` for a frame that the server ignores. Raise `FrameError` if the frame is invalid.
    """
    _check_nesting(data)
    try:
        frame = _decoder.decode(data)
    except _BAD:
        return _decode_loose_request(data)
    match frame.type:
        case "ack":
            return Ack(frame.id or "")
        case "peers":
            return Peers()
        case "register" | "deliver":
            # spec 2.1, 2.4: ignored from a client that is registered.
            return None
        case _:
            # spec 3: any frame that is not a control frame is an envelope.
            return _envelope(frame, data)


def decode_push(data: bytes) -> Deliver | Peers | None:
    """Return a frame (protocol message) of the server, decoded from JSON.

    Return `None` for a frame that a client can ignore. Raise `FrameError` if the frame is invalid.
    """
    # The frame adds one level around the envelope, which may itself be at the limit.
    _check_nesting(data, canonical.NESTING_MAX + 1)
    try:
        frame = _decoder.decode(data)
    except _BAD:
        return _decode_loose_push(data)
    match frame.type:
        case "peers":
            return Peers(_names(bytes(frame.names)))
        case "deliver":
            return Deliver(frame.delivery_key or "", decode_envelope(bytes(frame.envelope)))
        case _:
            return None


def _decode_loose_push(data: bytes) -> Deliver | Peers | None:
    loose = _loose(data)
    match loose.text("type"):
        case "peers":
            return Peers(_names(loose.value("names")))
        case "deliver":
            return Deliver(loose.text("delivery_key"), decode_envelope(loose.value("envelope")))
        case _:
            return None


def decode_envelope(data: bytes) -> Envelope:
    """Return an envelope, decoded from its JSON. Raise `FrameError` if the envelope is invalid."""
    _check_nesting(data)
    try:
        return _envelope(_decoder.decode(data), data)
    except _BAD:
        return _loose_envelope(_loose(data), data)


def is_signed(original: bytes, secret: bytes) -> bool:
    """True if these stored bytes are an envelope that was signed with the secret."""
    try:
        return decode_envelope(original).verify(secret)
    except (msgspec.MsgspecError, ValueError):
        return False


def _envelope(frame: _Frame, data: bytes) -> Envelope:
    return Envelope(
        frame.protocol_version or "",
        frame.id or "",
        frame.sender or "",
        frame.to or "",
        frame.ts or "",
        frame.source or "",
        frame.kind or "",
        bytes(frame.body),
        frame.hmac or "",
        data,
    )


def _check_nesting(data: bytes, levels: int = canonical.NESTING_MAX) -> None:
    if canonical.nested_deeper(data, levels):
        raise FrameError(f"nested deeper than {levels} levels")


def _names(value: bytes) -> tuple[str, ...]:
    try:
        return (_names_decoder.decode(value) if value else None) or ()
    except _BAD as error:
        raise FrameError(f"names is no list of names: {error}") from error


# Reading frames in another spelling: keys in another case, unknown keys, half surrogate pairs.

_TOKENS = re.compile(rb'"[^"]*+"|[{}\[\],:]')
_FOLDED = str.maketrans({"\N{LATIN SMALL LETTER LONG S}": "s", "\N{KELVIN SIGN}": "k"})


class _Loose:
    """The fields of a frame (protocol message) with unusual spelling or unknown keys, which `_Frame` cannot decode.

    Fields are found by their keys, ignoring upper and lower case.
    """

    __slots__ = ("_mended", "_values")

    def __init__(self, values: dict[str, bytes], *, mended: bool) -> None:
        self._values = values
        # True if surrogate pairs must be repaired before a value can be decoded.
        self._mended = mended

    def value(self, key: str) -> bytes:
        """Return the value of the field with this key as JSON bytes, unchanged; empty if the field is absent."""
        return self._values.get(key, _ABSENT)

    def text(self, key: str) -> str:
        """Return the string in the field with this key; empty if absent.

        Raise `FrameError` if the value is no string.
        """
        value = self._values.get(key)
        if value is None:
            return ""
        try:
            return _text_decoder.decode(mend_pairs(value) if self._mended else value) or ""
        except _BAD as error:
            raise FrameError(f"{key} is no string") from error


def _loose(data: bytes) -> _Loose:
    try:
        members = _members_decoder.decode(data)
        folded = {_fold(key): bytes(value) for key, value in members.items()} if members else {}
        if members is None or len(folded) == len(members):
            return _Loose(folded, mended=False)
    except msgspec.ValidationError as error:
        raise FrameError(f"not an object: {error}") from error
    except _BAD:
        pass
    # The text has half a surrogate pair, or one key in two spellings, of which the last wins.
    mended = mend_pairs(data)
    try:
        _raw_decoder.decode(mended)
        mended.decode()
    except _BAD as error:
        raise FrameError(f"not JSON: {error}") from error
    return _Loose({_fold(key): data[start:end] for key, (start, end) in _members(mended)}, mended=True)


def _members(data: bytes) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield each key of the outermost JSON object in `data`, with the start and end position of the key's value."""
    depth = 0
    key = ""
    pending: re.Match[bytes] | None = None
    start = -1
    for token in _TOKENS.finditer(masked(data)):
        sign = token[0][:1]
        if depth == 1:
            if sign == b'"' and start < 0:
                pending = token
            elif sign == b":" and pending is not None:
                key = msgspec.json.decode(data[pending.start() : pending.end()], type=str)
                start, pending = token.end(), None
            elif sign in b",}" and start >= 0:
                yield key, _trimmed(data, start, token.start())
                start = -1
        if sign in b"{[":
            depth += 1
        elif sign in b"}]":
            depth -= 1


def _trimmed(data: bytes, start: int, end: int) -> tuple[int, int]:
    value = data[start:end]
    return start + len(value) - len(value.lstrip()), end - len(value) + len(value.rstrip())


def _fold(key: str) -> str:
    return key.translate(_FOLDED).lower()


def _decode_loose_request(data: bytes) -> Ack | Peers | Envelope | None:
    loose = _loose(data)
    try:
        type_ = loose.text("type")
    except FrameError:
        # A `type` that is not a string names no control frame.
        type_ = ""
    match type_:
        case "ack":
            # A version of the wrong type makes the frame invalid, although its value is not used.
            loose.text("protocol_version")
            return Ack(loose.text("id"))
        case "peers":
            return Peers()
        case "register" | "deliver":
            return None
        case _:
            return _loose_envelope(loose, data)


def _loose_envelope(loose: _Loose, data: bytes) -> Envelope:
    version, ident, sender, to, ts, source, kind, hmac = (loose.text(key) for key in _TEXT_FIELDS)
    return Envelope(version, ident, sender, to, ts, source, kind, loose.value("body"), hmac, data)


# Writing.


def encode_register(name: str, token: str) -> bytes:
    """Return the first frame (protocol message) of a client as JSON. It registers the client's name with its token."""
    return _encoder.encode({"protocol_version": VERSION, "type": "register", "token": token, "name": name})


def encode_ack(key: str) -> bytes:
    """Return, as JSON, the frame (protocol message) that acknowledges the delivery with this key."""
    # spec 2.2: an ack names the delivery key, which is not always the id of the envelope.
    return _encoder.encode({"protocol_version": VERSION, "type": "ack", "id": key})


def encode_peers(names: list[str] | None = None) -> bytes:
    """Return the frame `peers` as JSON. Without `names`, it is a client's request for the connected peers.

    With `names`, it is the server's answer.
    """
    return _encoder.encode({"protocol_version": VERSION, "type": "peers", "names": names})


_DELIVER_HEAD = f'{{"protocol_version":"{VERSION}","type":"deliver","delivery_key":'.encode()


def encode_deliver(key: str, envelope: bytes) -> bytes:
    """Return, as JSON, the frame (protocol message) that brings an envelope to its recipient.

    `key` identifies the delivery. The bytes of the envelope stay unchanged.
    """
    # spec 2.4: the key stands outside the envelope, so the signed envelope stays unchanged.
    return b"".join((_DELIVER_HEAD, _encoder.encode(key), b',"envelope":', envelope, b"}"))


def encode_envelope(fields: tuple[str, str, str, str, str, str, str], body: bytes, secret: bytes) -> bytes:
    """Return a new envelope as JSON, signed with `secret`.

    `fields` are in the order of `canonical.FIELDS`. `body` is JSON.
    """
    head = "".join(f'"{name}":{canonical.quote(text)},' for name, text in zip(canonical.FIELDS, fields, strict=True))
    signature = canonical.sign(secret, fields, body)
    return b"".join((b"{", head.encode(), b'"body":', body, b',"hmac":"', signature.encode(), b'"}'))


def encode_body(value: object) -> bytes:
    """Return a message body as JSON, without white space.

    Raise `ValueError` if the value cannot be encoded as JSON, or has too many nesting levels for an envelope.
    """
    try:
        body = _encoder.encode(value)
    except (TypeError, UnicodeEncodeError, RecursionError) as error:
        raise ValueError(f"no JSON: {error}") from error
    if canonical.nested_deeper(body, canonical.NESTING_MAX - 1):
        raise ValueError(f"JSON that is nested deeper than {canonical.NESTING_MAX - 1} levels")
    return body


def decode_body(body: bytes) -> Any:
    """Return the body of an envelope, decoded from JSON. The body must be valid JSON.

    Half a surrogate pair becomes the replacement character. A number that is too large for Python becomes infinity.
    """
    try:
        return _decode_any(body or b"null")
    except msgspec.MsgspecError:
        return json.loads(mend_pairs(body), parse_int=_number, parse_float=float)


def _number(digits: str) -> float:
    try:
        return int(digits)
    except ValueError:
        return float(digits)


# Into the hub.

_TEXT_KEYS = ("text", "message", "content")
_DEEP = "the body has more levels than can be shown as data; peers get it as it was written"
_MANY = f"the body has more than {VALUES_MAX} values, too many to be shown as data; peers get it as it was written"
_UNREADABLE = "the body holds numbers that cannot be shown as data; peers get it as it was written"


def content_of(envelope: Envelope) -> m.Content | Refusal:
    """Return the hub's content for the message in an envelope, or a refusal if the envelope is not valid."""
    # spec 3: an envelope without id or recipient is dropped.
    if not envelope.id or not envelope.to:
        return Refusal(Code.INVALID_MESSAGE, "an envelope needs an id and a recipient")
    # spec 3: to "*" and kind "broadcast" belong together.
    if (envelope.to == ALL) != (envelope.kind == BROADCAST):
        return Refusal(Code.INVALID_TARGET, "an envelope to * is of kind broadcast, and no other is")
    target = EVERYBODY if envelope.to == ALL else parse_target(f"@{envelope.to}")
    if isinstance(target, Refusal):
        return target
    try:
        # JSON is UTF-8. A carrier that requires UTF-8 could not pass the message on.
        envelope.raw.decode()
    except UnicodeDecodeError:
        return Refusal(Code.INVALID_MESSAGE, "the envelope is no UTF-8")
    text, data, notes = _said(envelope.body)
    return m.Content(target=target, body=text, data=data, original=envelope.raw, notes=notes, **labels(data))


def wire_id_of(envelope: Envelope) -> str:
    """Return the wire id for the hub's message that is made from this envelope.

    A broadcast and a direct message are two messages, even if their envelopes have the same id. So the broadcast gets
    another wire id.
    """
    return f"{envelope.id}|{ALL}" if envelope.to == ALL else envelope.id


def signature_of(envelope: Envelope, sender: str, secret: bytes | None) -> m.Signature:
    """Return the result of an envelope's signature check: failed, misnamed, unverified (no secret) or verified.

    `sender` is the name under which the peer registered.
    """
    if secret is not None and not envelope.verify(secret):
        return m.Signature.FAILED
    # spec 3: the bound name routes; from is carried as it was signed.
    if envelope.sender != sender:
        return m.Signature.MISNAMED
    return m.Signature.UNVERIFIED if secret is None else m.Signature.VERIFIED


def _said(body: bytes) -> tuple[str, dict[str, Any] | None, tuple[str, ...]]:
    """Convert an envelope's body for a message of the hub. Return its text, its data, and notes for recipients.

    The data is `None` if there is nothing but text. The notes say that a body could not be converted, and why.
    """
    written = (body or b"null").decode()
    if has_many_values(body):
        return written, None, (_MANY,)
    try:
        value = _decode_any(body or b"null")
    except msgspec.MsgspecError:
        return written, None, (_UNREADABLE,)
    if isinstance(value, str):
        return value or written, None, ()
    if not isinstance(value, dict):
        return written, None, ()
    if m.nested_deeper(value, DEFAULT_LIMITS.nesting_max):
        return written, None, (_DEEP,)
    for key in _TEXT_KEYS:
        text = value.get(key)
        if isinstance(text, str) and text:
            del value[key]
            return text, value or None, ()
    return written, value or None, ()


def _decode_any(body: bytes) -> object:
    try:
        return _plain_decoder.decode(body)
    except msgspec.ValidationError:
        raise
    except msgspec.DecodeError:
        return _plain_decoder.decode(mend_pairs(body))


# Out of the hub.


def key_of(message: m.Message, recipient: str) -> str:
    """Return the key with which `recipient` acknowledges this message.

    It is a text of peerbus, and not the number that the hub calls a delivery's key.
    """
    everybody = message.content.target.kind is TargetKind.EVERYBODY
    wire_id = message.wire_id if message.protocol == PROTOCOL else None
    return delivery_key(wire_id, message.id, recipient, everybody=everybody)


def delivery_key(wire_id: str | None, message_id: str, recipient: str, *, everybody: bool) -> str:
    """Return the key with which a recipient acknowledges a message in peerbus.

    It is a text, and not the number that the hub calls a delivery's key. It is `wire_id` if the message came through
    peerbus, else `message_id`. If `everybody` is true (a broadcast), the recipient's name is added.
    """
    # spec 2.4: the id of a direct message, "<id>|<recipient>" for a copy of a broadcast.
    if wire_id is not None:
        return f"{wire_id.removesuffix(ALL)}{recipient}" if everybody else wire_id
    return f"{message_id}|{recipient}" if everybody else message_id


def original_of(message: m.Message) -> bytes | None:
    """Return the envelope as its sender signed it, or `None` if the message came through another protocol."""
    return message.content.original if message.protocol == PROTOCOL else None


def translate(message: m.Message, recipient: str, secret: bytes) -> bytes:
    """Return a new envelope, as signed JSON, for a message that came through another protocol.

    The envelope's field `source` names the hub.
    """
    said = message.content
    everybody = said.target.kind is TargetKind.EVERYBODY
    to, kind = (ALL, BROADCAST) if everybody else (recipient, MESSAGE)
    fields = (VERSION, message.id, message.sender, to, _timestamp(message.sent_at_ms), SOURCE, kind)
    return encode_envelope(fields, _encoder.encode(_body(message, said.target)), secret)


def _body(message: m.Message, target: Target) -> dict[str, Any]:
    shared = target.kind in (TargetKind.CHANNEL, TargetKind.OBJECTIVE)
    place = {"channel": str(target)} if shared else {}
    return {"text": message.content.body, **beyond(message, ()), **place}


CARRIAGE = Carriage(
    PROTOCOL,
    says={
        Field.DATA: "`body`, where it is an object",
        **{name: f"`body.{name}`" for name in LABELS},
    },
    carries={},
    rest="`body`",
)


def _timestamp(ms: int) -> str:
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")

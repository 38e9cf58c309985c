"""The messages of agent-channels and the frames that carry them: bytes to values and back.

Above: `connection`, and anybody with a transport of their own. Below: `wire.frames`. It refuses to know sockets.

A message is a JSON object with a non-empty string `msg` and, if present, an object `data`. Other top-level keys are
kept and forwarded, because a newer client may use them; nothing here says what any of it means.

Two kinds of fault, two types: `InvalidMessage` is ours (a value that no receiver would accept), `DecodeError` is the
other end's. Whatever bytes come in, nothing but a `DecodeError` comes out.

Stricter than a bare JSON parser, so that every reader of a forwarded message sees the same one: a repeated name, bytes
that are not UTF-8, and nesting deeper than `NESTING_MAX` are refused. Milder in one thing: half of a surrogate pair
(JavaScript makes one when it cuts a string inside an emoji) becomes U+FFFD, because UTF-8 has no form for it and the
rest of the message is sound.
"""

from collections.abc import Iterable, Mapping
from typing import Any

import msgspec

from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.json_text import mend_pairs, without_strings

# spec, Wire Format: 16 MB is the default for the payload of one frame.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024

# Far deeper than anything a person or a program means, and far from where encoders of nested values run out of stack.
NESTING_MAX = 256

_JSON_EXCERPT = 100
_MESSAGE_EXCERPT = 200

# What a decoded value can be nested in.
_NESTED = (dict, list)

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class InvalidMessage(ValueError):
    """A value that is not a message, given by our own side."""


class DecodeError(ValueError):
    """The other end sent what is not a message. `messages` are those that came whole before it in the same chunk."""

    def __init__(self, text: str, messages: tuple["Message", ...] = ()) -> None:
        super().__init__(text)
        self.messages = messages


class Message(msgspec.Struct, frozen=True):
    """One message."""

    msg: str
    """What a person reads; never empty."""

    data: dict[str, Any] | None = None
    """The structured part; None when the message has none, which is not the same as an empty one."""

    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """The other top-level keys, forwarded as they came."""

    def __post_init__(self) -> None:
        if not _has_shape(self.msg, {} if self.data is None else self.data) or self.extra.keys() & {"msg", "data"}:
            raise InvalidMessage(f"Invalid message format: {_excerpt(self.to_dict())}")

    def to_dict(self) -> dict[str, Any]:
        """Give the JSON object that this message is on the wire."""
        data = {} if self.data is None else {"data": self.data}
        return {"msg": self.msg, **data, **self.extra}


def is_valid_message(value: object) -> bool:
    """Tell whether `value` has the shape of a message: a non-empty `msg`, and `data` absent or an object."""
    if isinstance(value, Message):
        return True
    if not isinstance(value, Mapping):
        return False
    return _has_shape(value.get("msg"), value.get("data", {}))


def encode(message: Message | Mapping[str, Any], *, max_size: int | None = None) -> bytes:
    """Give the frame of a message. What no receiver would accept raises `InvalidMessage`."""
    if not is_valid_message(message):
        raise InvalidMessage(f"Invalid message format: {_excerpt(message)}")
    value = message.to_dict() if isinstance(message, Message) else dict(message)
    try:
        payload = _encoder.encode(value)
    except (msgspec.EncodeError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise InvalidMessage(f"Message cannot be written as JSON: {error}") from error
    if max_size is not None and len(payload) > max_size:
        raise InvalidMessage(f"Message size {len(payload)} exceeds maximum {max_size}")
    return encode_frame(payload)


def decode(payload: bytes) -> Message:
    """Give the message that a frame's payload says."""
    try:
        value = _decode_json(payload)
        names = _count_names(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(_invalid_json(payload)) from error
    # Colons outside strings are the names of the text; a name given twice is one in the value.
    if names != payload.count(b":") and names != without_strings(payload).count(b":"):
        raise DecodeError(_invalid_json(payload))
    if not is_valid_message(value):
        raise DecodeError(f"Invalid message format: {_excerpt(value)}")
    return Message(value.pop("msg"), value.pop("data", None), value)


class FrameDecoder:
    """Turns the chunks of one stream into messages.

    A bad frame ends the stream: `push` raises a `DecodeError` that carries the messages before it, and raises again
    (with none) until `reset`, because a peer that broke the rules once is not trusted with the next length.
    """

    __slots__ = ("_failure", "_frames")

    def __init__(self, max_size: int = MESSAGE_BYTES_MAX) -> None:
        self._frames = FrameBuffer(max_size)
        # The text of the first error; set until `reset`.
        self._failure: str | None = None

    @property
    def held(self) -> int:
        """Bytes of half a frame."""
        return self._frames.held

    def push(self, chunk: bytes) -> list[Message]:
        """Take a chunk and give the messages it completes, in order."""
        if self._failure is not None:
            raise DecodeError(self._failure)
        # spec, Wire Format: a chunk may hold a part of a message, or several.
        messages: list[Message] = []
        self._frames.receive_data(chunk)
        try:
            while (payload := self._frames.next_frame()) is not None:
                messages.append(decode(payload))
        except FrameError as error:
            # An empty frame is an empty text, and that is not JSON.
            too_large = f"Message size {error.size} exceeds maximum {error.maximum}"
            raise self._fail(too_large if error.size else _invalid_json(b""), messages) from error
        except DecodeError as error:
            raise self._fail(str(error), messages) from error
        return messages

    def reset(self) -> None:
        """Forget half a frame and any error: the next byte is the first of a new stream."""
        self._frames.reset()
        self._failure = None

    def _fail(self, text: str, messages: list[Message]) -> DecodeError:
        self._frames.reset()
        self._failure = text
        return DecodeError(text, tuple(messages))


def _has_shape(msg: object, data: object) -> bool:
    # spec, Messages: msg MUST be a non-empty string, and data, if present, a plain object.
    return isinstance(msg, str) and msg != "" and isinstance(data, dict)


def _decode_json(payload: bytes) -> Any:
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        mended = mend_pairs(payload)
        if mended == payload:
            raise
        return _decoder.decode(mended)


def _count_names(value: object) -> int:
    """Count the names of all objects, level by level."""
    names = 0
    level: list[Any] = [value] if type(value) in _NESTED else []
    for _ in range(NESTING_MAX + 1):
        if not level:
            return names
        below: list[Any] = []
        for node in level:
            children: Iterable[Any] = node
            if isinstance(node, dict):
                names += len(node)
                children = node.values()
            below += [child for child in children if type(child) in _NESTED]
        level = below
    raise RecursionError(f"nested deeper than {NESTING_MAX}")


def _invalid_json(payload: bytes) -> str:
    # Four bytes are the longest character of UTF-8.
    excerpt = payload[: 4 * _JSON_EXCERPT].decode(errors="replace")[:_JSON_EXCERPT]
    return f"Invalid JSON in message frame: {excerpt}"


def _excerpt(value: object) -> str:
    try:
        text = _encoder.encode(value).decode()
    except (msgspec.EncodeError, TypeError, ValueError, OverflowError, RecursionError):
        text = f"a {type(value).__name__} that is not JSON"
    return text[:_MESSAGE_EXCERPT]

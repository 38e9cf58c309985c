"""The messages of agent-channels and the frames that carry them: bytes to values and back.

Used by: `connection`, and programs that bring their own transport. Uses: `wire.frames`. The codec uses no sockets.

A message is a JSON object with a non-empty string `msg` and, if present, an object `data`. Other top-level keys are
kept and forwarded, because a newer client may use them. The codec gives no meaning to any key.

Each kind of error has its own type. `InvalidMessage` means that the calling program passed a value that no receiver
would accept. `DecodeError` means that the other end sent invalid input. Decoding raises no other exception, whatever
the input bytes are.

The decoder is stricter than a bare JSON parser, so that every reader of a forwarded message sees the same message. It
refuses a repeated name, bytes that are not UTF-8, and nesting deeper than `NESTING_MAX`. The decoder is more tolerant
than a bare JSON parser in one case: half of a surrogate pair becomes U+FFFD, because UTF-8 cannot encode it and the
rest of the message is valid. JavaScript makes such a half when it cuts a string inside an emoji.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, TypeVar

import msgspec

from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.json_text import mend_pairs, without_strings

# spec, Wire Format: 16 MB is the default for the payload of one frame.
MESSAGE_BYTES_MAX = 16 * 1024 * 1024

# Far deeper than any real message, and far below the depth at which encoders run out of stack.
NESTING_MAX = 256

_JSON_EXCERPT = 100
_MESSAGE_EXCERPT = 200

# Container types of decoded JSON.
_NESTED = (dict, list)

_M = TypeVar("_M")

_decoder = msgspec.json.Decoder()
_encoder = msgspec.json.Encoder()


class InvalidMessage(ValueError):
    """Raised if the calling program passes a value that is not a message, or cannot be sent as a message."""


class DecodeError(ValueError):
    """Raised if the other end sent invalid input.

    `messages` has the complete messages that came before the invalid input in the same chunk of bytes.
    """

    def __init__(self, text: str, messages: tuple["Message", ...] = ()) -> None:
        super().__init__(text)
        self.messages = messages


class Message(msgspec.Struct, frozen=True):
    """A message of agent-channels: a text, perhaps data, and further keys."""

    msg: str
    """Text for a person. Never empty."""

    data: dict[str, Any] | None = None
    """Structured part of the message. None means that the message has no key `data`. An empty object is a different
    value."""

    extra: dict[str, Any] = msgspec.field(default_factory=dict)
    """The top-level keys of the JSON object other than `msg` and `data`. They are forwarded unchanged."""

    def __post_init__(self) -> None:
        if not _has_shape(self.msg, {} if self.data is None else self.data) or self.extra.keys() & {"msg", "data"}:
            raise InvalidMessage(f"Invalid message format: {_excerpt(self.to_dict())}")

    def to_dict(self) -> dict[str, Any]:
        """Return the message as the JSON object that is written to a socket."""
        data = {} if self.data is None else {"data": self.data}
        return {"msg": self.msg, **data, **self.extra}


def is_valid_message(value: object) -> bool:
    """True if `value` has the shape of a message: a non-empty `msg`, and `data` absent or an object."""
    if isinstance(value, Message):
        return True
    if not isinstance(value, Mapping):
        return False
    return _has_shape(value.get("msg"), value.get("data", {}))


def encode(message: Message | Mapping[str, Any], *, max_size: int | None = None) -> bytes:
    """Return a message as a frame: the length, then the JSON of the message.

    `max_size` limits the bytes of the JSON. Raises `InvalidMessage` for a value that no receiver would accept.
    """
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
    """Return the message in the payload (the JSON) of a frame. Raises `DecodeError` if the payload is invalid."""
    try:
        value = decode_json(payload)
        names = count_names(value)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise DecodeError(invalid_json(payload)) from error
    # Each name in the text has one colon outside strings. A repeated name is only one name in the value.
    if names != payload.count(b":") and names != without_strings(payload).count(b":"):
        raise DecodeError(invalid_json(payload))
    if not is_valid_message(value):
        raise DecodeError(f"Invalid message format: {_excerpt(value)}")
    return Message(value.pop("msg"), value.pop("data", None), value)


class FrameDecoder:
    """Decoder for the bytes of one connection: turns chunks of bytes into messages.

    A bad frame (an encoded message) ends the decoding: `push` raises a `DecodeError` that carries the messages before
    the bad frame. Until `reset`, every further `push` raises again, without messages, because the length of the next
    frame may be wrong.
    """

    __slots__ = ("_failure", "_frames")

    def __init__(self, max_size: int = MESSAGE_BYTES_MAX) -> None:
        self._frames = FrameBuffer(max_size)
        # Text of the first error, until `reset`.
        self._failure: str | None = None

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes of the message that has arrived only in part."""
        return self._frames.buffered_bytes

    def push(self, chunk: bytes) -> list[Message]:
        """Take a chunk of bytes and return the messages that it completes, in order."""
        return self._push(chunk, decode)

    def push_some(self, chunk: bytes, is_large: Callable[[bytes], bool]) -> list["Message | bytes"]:
        """Take a chunk of bytes like `push`, but leave large messages undecoded.

        A message whose payload (JSON) `is_large` returns true for is returned as these bytes.
        """
        return self._push(chunk, lambda payload: payload if is_large(payload) else decode(payload))

    def _push(self, chunk: bytes, convert: Callable[[bytes], _M]) -> list[_M]:
        if self._failure is not None:
            raise DecodeError(self._failure)
        # spec, Wire Format: a chunk may hold a part of a message, or several.
        messages: list[_M] = []
        self._frames.receive_data(chunk)
        try:
            while (payload := self._frames.next_frame()) is not None:
                messages.append(convert(payload))
        except FrameError as error:
            # An empty frame is reported as invalid JSON.
            too_large = f"Message size {error.size} exceeds maximum {error.maximum}"
            raise self._fail(too_large if error.size else invalid_json(b""), messages) from error
        except DecodeError as error:
            raise self._fail(str(error), messages) from error
        return messages

    def reset(self) -> None:
        """Forget the message that has arrived only in part, and any error. The next byte begins a new stream."""
        self._frames.reset()
        self._failure = None

    def _fail(self, text: str, messages: Sequence[Any]) -> DecodeError:
        self._frames.reset()
        self._failure = text
        return DecodeError(text, tuple(messages))


def _has_shape(msg: object, data: object) -> bool:
    # spec, Messages: msg MUST be a non-empty string, and data, if present, a plain object.
    return isinstance(msg, str) and msg != "" and isinstance(data, dict)


def decode_json(payload: bytes) -> Any:
    """Return the value of a JSON text. Half of a surrogate pair becomes U+FFFD. Raises the errors of `msgspec`."""
    try:
        return _decoder.decode(payload)
    except msgspec.DecodeError:
        mended = mend_pairs(payload)
        if mended == payload:
            raise
        return _decoder.decode(mended)


def count_names(value: object) -> int:
    """Return the number of names (keys) in all objects of a decoded JSON value.

    If the JSON text has more names than the value, a name is repeated. Raises `RecursionError` if the value is nested
    deeper than `NESTING_MAX`.
    """
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


def invalid_json(payload: bytes) -> str:
    """Return the error text for the payload (content) of a frame that is not JSON."""
    # The longest character of UTF-8 has four bytes.
    excerpt = payload[: 4 * _JSON_EXCERPT].decode(errors="replace")[:_JSON_EXCERPT]
    return f"Invalid JSON in message frame: {excerpt}"


def invalid_shape(payload: bytes) -> str:
    """Return the error text for the payload (content) of a frame that is JSON but not a message."""
    excerpt = payload[: 4 * _MESSAGE_EXCERPT].decode(errors="replace")[:_MESSAGE_EXCERPT]
    return f"Invalid message format: {excerpt}"


def _excerpt(value: object) -> str:
    try:
        text = _encoder.encode(value).decode()
    except (msgspec.EncodeError, TypeError, ValueError, OverflowError, RecursionError):
        text = f"a {type(value).__name__} that is not JSON"
    return text[:_MESSAGE_EXCERPT]

"""The frames of the hub's own protocol.

Used by: the server in this folder and the SDK. Uses: nothing. This module knows no sockets. A *batch* is a JSON array
of frames; on a Unix socket it is the payload of one length-prefixed frame, on a WebSocket it is one text message. A
frame is an object whose `t` says its type. A request carries a number `n` that the client chooses, and the answer
repeats this number. Answers come in the order of their requests. Most frames are made from the contract, in `derived`;
this module re-exports them. The other frames are defined here.
"""

from collections.abc import Iterator, Sequence

import msgspec
from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import SessionId
from tieline.contract.keys import Keys
from tieline.contract.refusal import Code
from tieline.wire.json_text import VALUES_MAX, estimate_values, has_many_values
from tieline.wire.native import derived, tail
from tieline.wire.native import frame as root
from tieline.wire.native.activity import *  # noqa: F403 - every frame has its name here
from tieline.wire.native.activity import ActivityRows, Did
from tieline.wire.native.derived import *  # noqa: F403 - for the same reason
from tieline.wire.native.derived import Message

VERSION = 1

Frame = root.Frame
Number = root.Number
FollowAll = tail.FollowAll


# Frames from a client.


class Hello(Frame, frozen=True, omit_defaults=True, tag="hello"):
    """Log in: the first frame of a client. It carries a token or, on the hub's machine, the hub's key and a name."""

    v: int = VERSION
    token: str | None = None
    key: str | None = None
    member: str | None = None
    receive: bool = False
    """True if the hub should push deliveries to this client."""
    window: int = 256
    """Most deliveries that the hub pushes before the client acknowledges some of them."""


class Ack(Frame, frozen=True, omit_defaults=True, tag="ack"):
    """Acknowledge deliveries, given as inclusive ranges of keys. Has no answer; acknowledging twice is a no-op."""

    keys: Keys
    evidence: str = "ack"

    def command(self, session: SessionId) -> c.Advance:
        return c.Advance(session, ranges=self.keys, state=State.ACKED, evidence=self.evidence)


class See(Frame, frozen=True, omit_defaults=True, tag="see"):
    """Report that an agent or person has seen these deliveries, and how that is known. Has no answer."""

    keys: Keys
    evidence: str

    def command(self, session: SessionId) -> c.Advance:
        return c.Advance(session, ranges=self.keys, state=State.SEEN, evidence=self.evidence)


Request = derived.Send | Ack | See | derived.AnyRequest | FollowAll
ClientFrame = Hello | Request


# Frames from the hub.


class Welcome(Frame, frozen=True, omit_defaults=True, tag="welcome"):
    """Answer to `hello`: the session is open. It names the session, the member, and the limits."""

    v: int
    session: str
    speaker: str
    member: str | None
    window: int
    frame_bytes_max: int


class Refused(Frame, frozen=True, omit_defaults=True, tag="refused"):
    """The hub refused request number `n`. Without `n`, the hub closes the connection for this reason."""

    code: Code
    message: str
    n: int | None = None
    near: tuple[str, ...] = ()


class Deliver(Frame, frozen=True, omit_defaults=True, tag="deliver"):
    """A message that the hub pushes to the client. The client acknowledges it by its key."""

    key: int
    seq: int
    message: Message


class RawDeliver(Frame, frozen=True, omit_defaults=True, tag="deliver"):
    """Form of `Deliver` that the hub sends. The message is already encoded, only once for all its recipients."""

    key: int
    seq: int
    message: msgspec.Raw


class Progress(Frame, frozen=True, omit_defaults=True, tag="progress"):
    """A delivery of a message that the client follows changed its state, or was escalated to another way."""

    id: str
    member: str
    state: str
    at_ms: int
    way: str = ""
    """The next method to reach the member (such as `hook`), if the hub now tries another method; otherwise empty."""


class Said(Frame, frozen=True, omit_defaults=True, tag="said"):
    """New messages that the client may see, oldest first. `n` is the number of the client's `tail` request."""

    n: int
    messages: tuple[Message, ...]


class RawSaid(Frame, frozen=True, omit_defaults=True, tag="said"):
    """Form of `Said` that the hub sends. The messages are already encoded, only once for all viewers."""

    n: int
    messages: tuple[msgspec.Raw, ...]


Answer = derived.Accepted | Refused | derived.AnyAnswer | ActivityRows
HubFrame = Welcome | Deliver | Progress | Said | Did | Answer


# Bytes.


class BadBatch(ValueError):
    """Raised if bytes from a connection are not a batch (a JSON array of frames)."""


_encoder = msgspec.json.Encoder()
_client_decoder: msgspec.json.Decoder[list[ClientFrame]] = msgspec.json.Decoder(list[ClientFrame])
_hub_decoder: msgspec.json.Decoder[list[HubFrame]] = msgspec.json.Decoder(list[HubFrame])


def encode_batch(frames: Sequence[Frame]) -> bytes:
    """Return frames as one batch: a JSON array."""
    return _encoder.encode(frames)


def encode_struct(value: Struct) -> bytes:
    """Return one frame, or a part of a frame, as JSON."""
    return _encoder.encode(value)


def split_batch(frames: Sequence[bytes], size_max: int) -> Iterator[bytes]:
    """Join encoded frames into batches (JSON arrays) of at most `size_max` bytes and `VALUES_MAX` JSON values.

    Yield the batches. A single frame above one of these limits becomes a batch of its own.
    """
    start, size, values = 0, 2, 1
    # A value takes at least a byte, so a small batch need not be counted.
    counted = sum(map(len, frames)) + len(frames) >= VALUES_MAX
    for index, frame in enumerate(frames):
        more = estimate_values(frame) + 1 if counted else 0
        if (size + len(frame) > size_max or values + more > VALUES_MAX) and index > start:
            yield b"[" + b",".join(frames[start:index]) + b"]"
            start, size, values = index, 2, 1
        size += len(frame) + 1
        values += more
    yield b"[" + b",".join(frames[start:]) + b"]"


def decode_client_batch(payload: bytes | str) -> list[ClientFrame]:
    """Return the frames in a batch (a JSON array) that a client sent. Raises `BadBatch` if the batch is not valid."""
    if len(payload) > VALUES_MAX:
        text = payload.encode(errors="replace") if isinstance(payload, str) else payload
        if has_many_values(text):
            raise BadBatch(f"a batch has at most {VALUES_MAX} values")
    try:
        return _client_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatch(str(error)) from error


def decode_hub_batch(payload: bytes | str) -> list[HubFrame]:
    """Return the frames in a batch (a JSON array) that the hub sent. Raises `BadBatch` if the batch is not valid."""
    try:
        return _hub_decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadBatch(str(error)) from error

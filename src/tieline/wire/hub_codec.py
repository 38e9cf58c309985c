"""The Hub port as bytes: what stands between a protocol and a hub that is not in its process.

Above: whatever carries the bytes. Below: the contract. A payload is a JSON array of pairs, the name of a type of the
contract and its fields, so a new command or reply needs nothing here. JSON, because the data of a message may hold
integers of any size, which MessagePack has no form for.
"""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct

from tieline.contract.command import Command
from tieline.contract.hub import Interest, Notice, Question
from tieline.contract.identifiers import SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply


class Offer(Struct, frozen=True):
    """A new delivery for a session: `Listener.offer`."""

    session: SessionId
    message: Message
    key: int
    stream_seq: int


class Released(Struct, frozen=True):
    """Deliveries of a session that are held no more: `Listener.released`."""

    session: SessionId
    keys: tuple[int, ...]


class Stepped(Struct, frozen=True):
    """A message that a session follows took a step: `Listener.progress`."""

    session: SessionId
    step: Progress


class Ended(Struct, frozen=True):
    """The hub ended a session: `Listener.end`."""

    session: SessionId
    why: Refusal


Told = Offer | Released | Stepped | Ended
"""What the hub tells a session that listens."""

Value = Command | Reply | Told | Interest | Notice | Question

KINDS: dict[str, type[Struct]] = {kind.__name__: kind for kind in get_args(Value)}
assert len(KINDS) == len(get_args(Value)), "a name says which type it is"


class BadPayload(ValueError):
    """What came is none of the port's values."""


_encoder = msgspec.json.Encoder()
_pairs: msgspec.json.Decoder[list[tuple[str, msgspec.Raw]]] = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])
_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def encode(values: Sequence[Value]) -> bytes:
    """Values as a payload. Raises `UnicodeEncodeError` for half a surrogate pair, which no wire can carry."""
    return _encoder.encode([(type(value).__name__, value) for value in values])


def decode(payload: bytes) -> list[Value]:
    """The values of a payload. Raises `BadPayload`."""
    try:
        return [_decoders[name].decode(fields) for name, fields in _pairs.decode(payload)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise BadPayload(f"not values of the hub: {error}") from error

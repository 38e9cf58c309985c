"""Encoding of the Hub port as bytes, for a protocol and a hub in different processes.

Used by: the code that transports the bytes. Uses: the contract. A payload is a JSON array of pairs. Each pair has the
name of a type in the contract, and the fields of one value of that type. So a new command or reply needs no change
here. The format is JSON, because the data of a message may hold integers of any size, and MessagePack cannot encode
large integers.
"""

from collections.abc import Sequence
from typing import Any, get_args

import msgspec
from msgspec import Struct

from tieline.contract.command import COMMANDS, Command
from tieline.contract.hub import Interest, Notice, Question
from tieline.contract.identifiers import SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply


class Offer(Struct, frozen=True):
    """The call `Listener.offer` as a value: the hub has a new delivery for a session."""

    session: SessionId
    message: Message
    key: int
    stream_seq: int


class Released(Struct, frozen=True):
    """The call `Listener.released` as a value: some deliveries for a session are no longer held back."""

    session: SessionId
    keys: tuple[int, ...]


class Stepped(Struct, frozen=True):
    """The call `Listener.progress` as a value: a delivery of a message that the session follows changed its state."""

    session: SessionId
    step: Progress


class Ended(Struct, frozen=True):
    """The call `Listener.end` as a value: the hub ended a session."""

    session: SessionId
    why: Refusal


Told = Offer | Released | Stepped | Ended
"""A call of the hub to the listener of a session, as a value."""

Value = Command | Reply | Told | Interest | Notice | Question

_REST: tuple[type[Struct], ...] = get_args(Reply | Told | Interest | Notice | Question)
KINDS: dict[str, type[Struct]] = {kind.__name__: kind for kind in (*COMMANDS, *_REST)}
assert len(KINDS) == len(COMMANDS) + len(_REST), "a name says which type it is"


class BadPayload(ValueError):
    """The payload is not a list of values of the Hub port."""


_encoder = msgspec.json.Encoder()
_pairs: msgspec.json.Decoder[list[tuple[str, msgspec.Raw]]] = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])
_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def encode(values: Sequence[Value]) -> bytes:
    """Encode values as a payload. Raises `UnicodeEncodeError` for a lone half of a surrogate pair in a text."""
    return _encoder.encode([(type(value).__name__, value) for value in values])


def decode(payload: bytes) -> list[Value]:
    """Decode the values of a payload. Raises `BadPayload`."""
    try:
        return [_decoders[name].decode(fields) for name, fields in _pairs.decode(payload)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise BadPayload(f"not values of the hub: {error}") from error

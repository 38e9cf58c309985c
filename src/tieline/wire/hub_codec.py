"""Encoding of the Hub port (the interface that protocols use) as bytes, if protocol and hub are in different processes.

Used by: its test, because no protocol runs in a process of its own yet. Uses: the contract (the types of commands,
replies and messages). A payload is a JSON array of pairs. Each pair has the name of a type in the contract, and the
fields of one value of that type. So a new command or reply needs no change here. The format is JSON, because the data
of a message may hold integers of any size, and MessagePack cannot encode large integers.
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
    """A call of `Listener.offer` as a value that can be encoded: the hub has a new delivery for a session."""

    session: SessionId
    message: Message
    key: int
    stream_seq: int


class Released(Struct, frozen=True):
    """A call of `Listener.released` as a value that can be encoded: deliveries of a session are no longer held back."""

    session: SessionId
    keys: tuple[int, ...]


class Stepped(Struct, frozen=True):
    """A call of `Listener.progress` as a value that can be encoded: a delivery changed its state.

    The delivery belongs to a message that the session follows.
    """

    session: SessionId
    step: Progress


class Ended(Struct, frozen=True):
    """A call of `Listener.end` as a value that can be encoded: the hub ended a session."""

    session: SessionId
    why: Refusal


Told = Offer | Released | Stepped | Ended
"""A call of the hub to the listener of a session, as a value that can be encoded."""

Value = Command | Reply | Told | Interest | Notice | Question

_REST: tuple[type[Struct], ...] = get_args(Reply | Told | Interest | Notice | Question)
KINDS: dict[str, type[Struct]] = {kind.__name__: kind for kind in (*COMMANDS, *_REST)}
assert len(KINDS) == len(COMMANDS) + len(_REST), "a name says which type it is"


class BadPayload(ValueError):
    """Raised if bytes are not a JSON list of values of the Hub port (commands, replies, notices…)."""


_encoder = msgspec.json.Encoder()
_pairs: msgspec.json.Decoder[list[tuple[str, msgspec.Raw]]] = msgspec.json.Decoder(list[tuple[str, msgspec.Raw]])
_decoders: dict[str, msgspec.json.Decoder[Any]] = {name: msgspec.json.Decoder(kind) for name, kind in KINDS.items()}


def encode(values: Sequence[Value]) -> bytes:
    """Return values of the Hub port as bytes.

    Raises `UnicodeEncodeError` if a text has a lone half of a surrogate pair.
    """
    return _encoder.encode([(type(value).__name__, value) for value in values])


def decode(payload: bytes) -> list[Value]:
    """Return the values of the Hub port in bytes that `encode` made. Raises `BadPayload` if the bytes are not valid."""
    try:
        return [_decoders[name].decode(fields) for name, fields in _pairs.decode(payload)]
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError) as error:
        raise BadPayload(f"not values of the hub: {error}") from error

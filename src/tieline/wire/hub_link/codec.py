"""Encoding of calls of `Hub` (the interface that protocols use) as bytes, for a hub in another process.

Used by: both ends of a link. Uses: the contract (the types of commands, replies, notices and messages). A frame is a
MessagePack array: a number, and the items. An item stands for one call of a method of `Hub`, or for one callback of
it. The number is for the end of the link: it says how many frames its sender has taken.

A command, reply, notice or message in an item is *packed*: the number of its type, and its fields in MessagePack. The
number is the position of the type in `KINDS`, which is made from the unions of the contract. So a new command or reply
needs no change here. MessagePack has no integers beyond 64 bits, but the data of a message may have some. A value with
such an integer is packed as JSON, and the number of its type is replaced by `-1 - number`.
"""

import functools
from collections.abc import Sequence
from typing import Any, TypeVar, get_args

import msgspec
from blake3 import blake3
from msgspec import Raw, Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.command import COMMANDS
from tieline.contract.hub import Interest, Notice
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Progress, Reply

KINDS: tuple[type[Struct], ...] = (*COMMANDS, *get_args(Reply), *get_args(Notice), Message, ActivityRow)
"""Types of the values that are packed. A value is encoded with the position of its type in this tuple."""

COMMANDS_OR_REFUSAL = frozenset[type[Struct]]((*COMMANDS, Refusal))
REPLIES = frozenset[type[Struct]](get_args(Reply))
NOTICES = frozenset[type[Struct]](get_args(Notice))
MESSAGE = frozenset[type[Struct]]((Message,))
ACTIVITY = frozenset[type[Struct]]((ActivityRow,))
"""Types that may stand in one place of an item."""

Packed = tuple[int, Raw]
"""A value of one of the `KINDS`: the number of its type, and its encoded fields."""

_T = TypeVar("_T")


class _Item(Struct, frozen=True, array_like=True, tag_field="item"):
    """Base class of items. Fields are encoded by their position, because both ends run the same contract.

    Each kind of item has its own tag, so that an item in the wrong direction is refused.
    """


# Items from a worker to the hub.


class Submit(_Item, frozen=True, tag=1):
    """Item to the hub: a call of `Hub.submit`, or a part of one.

    If the worker itself refuses a command, its refusal takes the place of the command and becomes the reply. The hub
    answers `Replies` with the same number. The number 0 asks for no replies.
    """

    number: int
    commands: list[Packed]
    more: bool = False
    """True if another item with the same number has more commands of the same call."""


class Listen(_Item, frozen=True, tag=2):
    """Item to the hub: a call of `Hub.listen`."""

    session: SessionId
    member: MemberName | None


class Forget(_Item, frozen=True, tag=3):
    """Item to the hub: a call of `Hub.forget`."""

    session: SessionId


class Tail(_Item, frozen=True, tag=4):
    """Item to the hub: a call of `Hub.tail`. The worker has chosen the `number` for this call."""

    number: int
    session: SessionId
    member: MemberName


class Watch(_Item, frozen=True, tag=5):
    """Item to the hub: a call of `Hub.watch`. The worker has chosen the `number` for this call."""

    number: int
    interest: Interest


class Stop(_Item, frozen=True, tag=6):
    """Item to the hub: a call of the function that `Hub.tail` or `Hub.watch` returned for this `number`."""

    number: int


class SetInbox(_Item, frozen=True, tag=7):
    """Item to the hub: a call of `Hub.set_external_inbox`. `present` is false to remove the external inbox."""

    member: MemberName
    session: SessionId
    present: bool


class Resolve(_Item, frozen=True, tag=8):
    """Item to the hub: a call of `Hub.resolve`."""

    question: int
    reserved: tuple[int, ...]
    taken: tuple[int, ...]


class Leave(_Item, frozen=True, tag=9):
    """Item to the hub: the worker ends its link. It will not connect again."""


# Items from the hub to a worker.


class Replies(_Item, frozen=True, tag=21):
    """Item to a worker: the replies to the `Submit` with this number, or (with `more`) some of them."""

    number: int
    replies: list[Packed]
    more: bool = False
    """True if another item has more replies to the same `Submit`."""


class Offers(_Item, frozen=True, tag=22):
    """Item to a worker: calls of `Listener.offer` with one message.

    `to` has for each call the session, the delivery's key, and its number in its stream.
    """

    message: Packed
    to: list[tuple[SessionId, int, int]]


class Released(_Item, frozen=True, tag=23):
    """Item to a worker: a call of `Listener.released`."""

    session: SessionId
    keys: list[int]


class Stepped(_Item, frozen=True, tag=24):
    """Item to a worker: a call of `Listener.progress`."""

    session: SessionId
    step: Progress


class Ended(_Item, frozen=True, tag=25):
    """Item to a worker: a call of `Listener.end`. The session has ended, even if nobody listens to it."""

    session: SessionId
    why: Refusal


class Noticed(_Item, frozen=True, tag=26):
    """Item to a worker: a notice. `watches` has the numbers of the `Watch` items that asked for it."""

    watches: list[int]
    notice: Packed


class Rows(_Item, frozen=True, tag=27):
    """Item to a worker: new activity. `tail` is the number of the `Tail` item that asked for it."""

    tail: int
    rows: list[Packed]


class Asked(_Item, frozen=True, tag=28):
    """Item to a worker: a call of `ExternalInbox.asked`. Each delivery has its key and its message."""

    number: int
    member: MemberName
    deliveries: list[tuple[int, Packed]]


class Finished(_Item, frozen=True, tag=29):
    """Item to a worker: a call of `ExternalInbox.finish`."""

    member: MemberName
    keys: tuple[int, ...]


class GivenBack(_Item, frozen=True, tag=30):
    """Item to a worker: a call of `ExternalInbox.give_back`."""

    member: MemberName
    keys: tuple[int, ...]


class Close(_Item, frozen=True, tag=31):
    """Item to a worker: the hub ends the link, because it stops. The worker need not connect again."""


ToHub = Submit | Listen | Forget | Tail | Watch | Stop | SetInbox | Resolve | Leave
"""An item from a worker to the hub."""

ToWorker = Replies | Offers | Released | Stepped | Ended | Noticed | Rows | Asked | Finished | GivenBack | Close
"""An item from the hub to a worker."""


class BadFrame(ValueError):
    """Raised if the bytes of a frame are not items, or if an item has no meaning at this time."""


_encoder = msgspec.msgpack.Encoder()
_json_encoder = msgspec.json.Encoder()
_numbers = {kind: number for number, kind in enumerate(KINDS)}
_decoders = [msgspec.msgpack.Decoder(kind) for kind in KINDS]
_to_hub = msgspec.msgpack.Decoder(tuple[int, list[ToHub]])
_to_worker = msgspec.msgpack.Decoder(tuple[int, list[ToWorker]])


def pack(value: Struct) -> Packed:
    """Return a command, reply, notice or message with its type, as bytes.

    Raises `UnicodeEncodeError` if a text has a lone half of a surrogate pair, and `RecursionError` if data is nested
    too deep.
    """
    number = _numbers[type(value)]
    try:
        return number, Raw(_encoder.encode(value))
    except OverflowError:
        # MessagePack cannot hold one of the integers.
        return ~number, Raw(_encoder.encode(_json_encoder.encode(value)))


def packed_bytes(packed: Packed) -> int:
    """Return the size of a packed value."""
    return len(memoryview(packed[1]))


def unpack(packed: Packed, kinds: frozenset[type[Struct]]) -> Any:
    """Return the value that `pack` encoded. Raises `BadFrame` if its type is not one of `kinds`."""
    number, fields = packed
    try:
        if number >= 0:
            value = _decoders[number].decode(fields)
        else:
            value = msgspec.json.decode(msgspec.msgpack.decode(fields, type=bytes), type=KINDS[~number])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, IndexError) as error:
        raise BadFrame(f"no value of the contract: {error}") from error
    if type(value) not in kinds:
        raise BadFrame(f"a {type(value).__name__} has no place here")
    return value


def encode(taken: int, items: Sequence[ToHub] | Sequence[ToWorker]) -> bytes:
    """Return the payload of a frame: the number of frames that its sender has taken (`taken`), and the items."""
    return _encoder.encode((taken, items))


def decode_to_hub(payload: bytes) -> tuple[int, list[ToHub]]:
    """Return the number and the items in a payload from a worker. Raises `BadFrame` if the bytes are not valid."""
    return _decode(_to_hub, payload)


def decode_to_worker(payload: bytes) -> tuple[int, list[ToWorker]]:
    """Return the number and the items in a payload from the hub. Raises `BadFrame` if the bytes are not valid."""
    return _decode(_to_worker, payload)


def _decode(decoder: msgspec.msgpack.Decoder[_T], payload: bytes) -> _T:
    try:
        return decoder.decode(payload)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadFrame(f"no items of a link: {error}") from error


@functools.cache
def contract_version() -> str:
    """Return the version of the contract: a hash of all types and fields that can pass the link.

    Two programs with the same version understand each other. Any change of a type gives another version.
    """
    kinds = (*KINDS, Interest)
    (_, components) = msgspec.json.schema_components(kinds)
    shape = [[kind.__name__ for kind in KINDS], components]
    items = [[item.__name__, *item.__struct_fields__] for item in (*get_args(ToHub), *get_args(ToWorker))]
    return blake3(msgspec.json.encode([shape, items], order="deterministic")).hexdigest(16)

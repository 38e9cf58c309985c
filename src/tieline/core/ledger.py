"""The ledger: gives every event its place in the main log and its link in the audit chain.

`hash = blake3(hex of the previous hash ‖ event)`, and the hash before the first row is blake3 of nothing. Offsets are
dense, so a changed, dropped or reordered row breaks the chain at its place.
"""

from typing import Any

import msgspec
from blake3 import blake3
from msgspec import Struct

from tieline.contract.event import AnyEvent, Event, LogRow
from tieline.contract.message import Content, Message

GENESIS = blake3(b"").hexdigest()

_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode_content(content: Content) -> bytes:
    """Content as it is stored and digested."""
    return _encoder.encode(content)


def encode_activity(event: dict[str, Any]) -> bytes:
    """An activity event as it is stored."""
    return _encoder.encode(event)


def encode_struct(value: Struct) -> bytes:
    """A small value as it is stored and digested."""
    return _encoder.encode(value)


def encode_numbers(numbers: tuple[int, ...]) -> bytes:
    """Numbers of members as they are stored and digested."""
    return _encoder.encode(numbers)


def digest(data: bytes) -> str:
    """The digest of content, by which a repeated wire id is told from a reused one."""
    return blake3(data).hexdigest()


def seal(content: bytes, route: bytes, *stamps: str | int) -> str:
    """The digest of all that is stored of a message: what it says, to whom it went, what was stamped on it."""
    stamp = "\x1f".join(map(str, (*stamps, len(content))))
    return blake3(b"\x1f".join((stamp.encode(), content, route))).hexdigest()


def stamps(message: Message) -> tuple[str | int, ...]:
    """What the hub stamped on a message, as it is sealed.

    What it found of a signature is sealed only where there is one, and with it the id that recipients acknowledge by.
    """
    stamped = (message.id, message.sender, message.protocol, int(message.verified), message.sent_at_ms)
    return (*stamped, message.signature.value, message.wire_id or "") if message.signature else stamped


def link(previous: str, event: bytes) -> str:
    """The hash of a row that follows the row with hash `previous`."""
    return blake3(previous.encode("ascii") + event).hexdigest()


def decode_event(event: bytes) -> AnyEvent:
    """Read an event back from its bytes."""
    return _event_decoder.decode(event)


class Ledger:
    """The end of the main log. Only the broker appends."""

    __slots__ = ("end", "head")

    def __init__(self, end: int = 0, head: str = GENESIS) -> None:
        # Offset of the next row.
        self.end = end
        # Hash of the last row.
        self.head = head

    def append(self, event: Event, at_ms: int) -> LogRow:
        """Give `event` the next offset and link it to the chain."""
        encoded = _encoder.encode(event)
        self.head = link(self.head, encoded)
        row = LogRow(self.end, at_ms, encoded, self.head)
        self.end += 1
        return row

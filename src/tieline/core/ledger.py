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
    return _seal(content, route, "\x1f".join(map(str, stamps)))


def seal_message(message: Message, content: bytes, route: bytes) -> str:
    """The same for a message, with what the hub stamped on it.

    What it found of a signature is sealed only where there is one, and with it the id that recipients acknowledge by.
    """
    stamps = f"{message.id}\x1f{message.sender}\x1f{message.protocol}\x1f{message.verified:d}\x1f{message.sent_at_ms}"
    if message.signature:
        stamps = f"{stamps}\x1f{message.signature.value}\x1f{message.wire_id or ''}"
    return _seal(content, route, stamps)


def _seal(content: bytes, route: bytes, stamps: str) -> str:
    return blake3(b"%s\x1f%d\x1f%s\x1f%s" % (stamps.encode(), len(content), content, route)).digest().hex()


def link(previous: str, event: bytes) -> str:
    """The hash of a row that follows the row with hash `previous`."""
    return blake3(previous.encode("ascii") + event).digest().hex()


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

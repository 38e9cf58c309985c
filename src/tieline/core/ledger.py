"""The ledger: gives every event its offset in the main log (the event log) and its link in the audit chain.

Each link is a hash of the row and of the link before it; `contract/chain.py` computes it. Offsets have no gaps. So if a
row is changed, removed or moved, the chain is broken at this row.
"""

from typing import Any

import msgspec
from msgspec import Struct

from tieline.contract import chain
from tieline.contract.event import AnyEvent, Event, LogRow
from tieline.contract.message import Content

_encoder = msgspec.json.Encoder()
_event_decoder: msgspec.json.Decoder[AnyEvent] = msgspec.json.Decoder(AnyEvent)


def encode_content(content: Content) -> bytes:
    """Return the content of a message as JSON bytes, for storage and for its hash."""
    return _encoder.encode(content)


def encode_activity(event: dict[str, Any]) -> bytes:
    """Return an activity event as JSON bytes, for storage."""
    return _encoder.encode(event)


def encode_struct(value: Struct) -> bytes:
    """Return a small value as JSON bytes, for storage and for its hash."""
    return _encoder.encode(value)


def encode_numbers(numbers: tuple[int, ...]) -> bytes:
    """Return member numbers as JSON bytes, for storage and for their hash."""
    return _encoder.encode(numbers)


def decode_event(event: bytes) -> AnyEvent:
    """Return the event that is encoded in a row of the main log."""
    return _event_decoder.decode(event)


class Ledger:
    """The end of the main log: the next offset and the last hash. Only the broker appends rows."""

    __slots__ = ("end", "head")

    def __init__(self, end: int = 0, head: str = chain.GENESIS) -> None:
        # Offset of the next row.
        self.end = end
        # Hash of the last row.
        self.head = head

    def append(self, event: Event, at_ms: int) -> LogRow:
        """Give `event` the next offset, and link it to the audit chain. Return its log row, for the caller to store."""
        encoded = _encoder.encode(event)
        self.head = chain.link(self.head, at_ms, encoded)
        row = LogRow(offset=self.end, at_ms=at_ms, event=encoded, hash=self.head)
        self.end += 1
        return row

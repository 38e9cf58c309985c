"""The audit chain as the first broker keeps it: three kinds of events, in bytes that its own verifier accepts.

Above: `tieline audit export` and `tieline import`. Below: `canonical`, because the events are written as Go writes
JSON. It refuses to know databases: events go in, links come out.
"""

from collections.abc import Iterable, Iterator

from blake3 import blake3
from msgspec import Struct

from tieline.protocols.peerbus.canonical import quote

GENESIS = blake3(b"").hexdigest()
SEND, DELIVER, ACK = "send", "deliver", "ack"


class Link(Struct, frozen=True):
    """One row of the chain."""

    seq: int
    prev_hash: str
    hash: str
    event: bytes


def encode_event(kind: str, key: str, sender: str, to: str) -> bytes:
    """An event as it is hashed."""
    return f'{{"event":{quote(kind)},"id":{quote(key)},"from":{quote(sender)},"to":{quote(to)}}}'.encode()


def follow(previous: str, event: bytes) -> str:
    """The hash of a row behind the row with this hash."""
    return blake3(previous.encode() + event).hexdigest()


def link(events: Iterable[bytes]) -> Iterator[Link]:
    """Chain events, from the first row on."""
    previous = GENESIS
    for seq, event in enumerate(events):
        digest = follow(previous, event)
        yield Link(seq, previous, digest, event)
        previous = digest


def first_break(links: Iterable[Link]) -> str | None:
    """Where a chain is broken, or `None` if it is whole."""
    previous = GENESIS
    for seq, row in enumerate(links):
        if row.seq != seq:
            return f"row {seq} is missing: in its place is row {row.seq}"
        if row.prev_hash != previous:
            return f"row {seq} does not follow from the row before it"
        if row.hash != follow(row.prev_hash, row.event):
            return f"row {seq} was changed"
        previous = row.hash
    return None

"""The audit chain in the first broker's format: three kinds of events, in bytes that the broker's verifier accepts.

Above: `tieline audit export` and `tieline import`. Below: `canonical`, because the events use Go's form of JSON. It
refuses to know databases: events go in, links come out.
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
    """The bytes of an event, as they are hashed."""
    return f'{{"event":{quote(kind)},"id":{quote(key)},"from":{quote(sender)},"to":{quote(to)}}}'.encode()


def follow(previous: str, event: bytes) -> str:
    """The hash of a row that follows the row with this hash."""
    return blake3(previous.encode() + event).hexdigest()


def link(events: Iterable[bytes]) -> Iterator[Link]:
    """Chain events, starting with the first row."""
    previous = GENESIS
    for seq, event in enumerate(events):
        digest = follow(previous, event)
        yield Link(seq, previous, digest, event)
        previous = digest


def first_break(links: Iterable[Link]) -> str | None:
    """A description of the first break in a chain, or `None` if the chain is intact."""
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

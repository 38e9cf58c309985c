"""The audit chain of peerbus's first implementation: makes and checks rows that its verifier accepts.

The chain has three kinds of events: send, deliver and ack. Used by: `tieline audit export` and `tieline import`. Uses:
`canonical`, because the events use Go's form of JSON. This module knows nothing about databases.
"""

from collections.abc import Iterable, Iterator

from blake3 import blake3
from msgspec import Struct

from tieline.protocols.peerbus.canonical import quote

GENESIS = blake3(b"").hexdigest()
SEND, DELIVER, ACK = "send", "deliver", "ack"


class Link(Struct, frozen=True):
    """One row of the audit chain: an event, and the hashes that link this row to the previous row."""

    seq: int
    prev_hash: str
    hash: str
    event: bytes


def encode_event(kind: str, key: str, sender: str, to: str) -> bytes:
    """Return the JSON of one event of the audit chain, in the bytes that are hashed.

    `kind` is send, deliver or ack. `key` is the delivery's key.
    """
    return f'{{"event":{quote(kind)},"id":{quote(key)},"from":{quote(sender)},"to":{quote(to)}}}'.encode()


def follow(previous: str, event: bytes) -> str:
    """Return the hash of a new row of the audit chain. `event` is the row's event.

    `previous` is the last row's hash.
    """
    return blake3(previous.encode() + event).hexdigest()


def link(events: Iterable[bytes]) -> Iterator[Link]:
    """Yield the rows of a new audit chain. `events` are its encoded events, in order."""
    previous = GENESIS
    for seq, event in enumerate(events):
        digest = follow(previous, event)
        yield Link(seq, previous, digest, event)
        previous = digest


def first_break(links: Iterable[Link]) -> str | None:
    """Return a text about the first wrong or missing row of an audit chain; `None` if the chain is intact."""
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

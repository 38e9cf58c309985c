"""The audit chain as the first implementation of peerbus writes it, in bytes that its verifier accepts.

It has three kinds of events: send, deliver and ack. Above: `tieline audit export` and `tieline import`. Below:
`canonical`, because the events use Go's form of JSON. It refuses to know databases: events go in, links come out.
"""

from collections.abc import Iterable, Iterator

from blake3 import blake3
from msgspec import Struct

from tieline.protocols.peerbus.canonical import quote

GENESIS = blake3(b"").hexdigest()
SEND, DELIVER, ACK = "send", "deliver", "ack"


class Link(Struct, frozen=True):
    """One row of the audit chain: an event, and the hashes that link it to the row before."""

    seq: int
    prev_hash: str
    hash: str
    event: bytes


def encode_event(kind: str, key: str, sender: str, to: str) -> bytes:
    """Return the JSON bytes of an event of the audit chain, which are hashed.

    `key` is the delivery's key, `kind` is send, deliver or ack.
    """
    return f'{{"event":{quote(kind)},"id":{quote(key)},"from":{quote(sender)},"to":{quote(to)}}}'.encode()


def follow(previous: str, event: bytes) -> str:
    """Return the hash of a new row of the audit chain. `previous` is the hash of the row before it."""
    return blake3(previous.encode() + event).hexdigest()


def link(events: Iterable[bytes]) -> Iterator[Link]:
    """Make the rows of a new audit chain from its encoded events."""
    previous = GENESIS
    for seq, event in enumerate(events):
        digest = follow(previous, event)
        yield Link(seq, previous, digest, event)
        previous = digest


def first_break(links: Iterable[Link]) -> str | None:
    """Describe the first row of an audit chain whose hash is wrong; `None` if the chain is intact."""
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

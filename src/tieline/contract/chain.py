"""The formulas of the audit chain: the hash of a row of the main log, and the seals (hashes) of stored records.

`hash = blake3(hex of the previous hash ‖ time in decimal ‖ event)`. The time is the row's `at_ms`. An event is a JSON
object, so its opening brace marks the end of the time. The hash before the first row is blake3 of no bytes.

Older versions of the hub left the time out: `blake3(hex of the previous hash ‖ event)`. Rows with that older formula
are only at the beginning of a log. No row can satisfy both formulas.

A message, or a change of an objective, is stored in another table. Its row in the log contains the seal of that stored
record. The hub computes hashes and seals with these formulas, and every audit computes them again. Stored logs depend
on the formulas, so the formulas never change.
"""

from enum import IntEnum

from blake3 import blake3

from tieline.contract.message import Message

GENESIS_DIGEST = blake3(b"").digest()
"""The hash that the first row uses as its previous hash, in bytes. It is the hash of no bytes."""
GENESIS = GENESIS_DIGEST.hex()

_SEPARATOR = "\x1f"

_PIECE_BYTES = 2047
"""blake3 lets other threads run while it hashes more than this at once. Then the broker's thread would have to wait for
the event loop, up to five milliseconds, though the hash takes only a few microseconds."""
_LARGE_BYTES = 32 * 1024
"""Data from this size on is hashed at once, because other threads would wait too long."""

Stamps = tuple[str, str, str, int, int]
"""The fields that the hub adds to a message: id, sender, protocol, 1 if the sender is verified (else 0), time."""


class Link(IntEnum):
    """Result of checking the hash of a row with the hash of the previous row."""

    BROKEN = 0
    """The hash is wrong: somebody changed the row, its time or the previous row."""
    UNTIMED = 1
    """The hash is right by the older formula: it covers the event, but not the time of the row."""
    TIMED = 2
    """The hash is right. It covers the event and the time of the row."""


def link(previous: str, at_ms: int, event: bytes) -> str:
    """Return the hash (hex) of a row with this time and event that follows the row with hash `previous`."""
    return blake3(f"{previous}{at_ms}".encode("ascii") + event).digest().hex()


def link_digest(previous: bytes, at_ms: int, event: bytes) -> bytes:
    """Return the same hash as `link`, but as bytes. `previous` is also bytes, not hex text."""
    return blake3(f"{previous.hex()}{at_ms}".encode("ascii") + event).digest()


def check_link(previous: bytes, at_ms: int, event: bytes, own: bytes) -> Link:
    """Check the hash `own` of a row with this time and event, and return the result.

    `previous` is the hash of the row before it.
    """
    if event[:1].isdigit():
        # Somebody moved digits from the end of the time to the start of the event. The hash stays the same then.
        return Link.BROKEN
    if link_digest(previous, at_ms, event) == own:
        return Link.TIMED
    older = blake3(previous.hex().encode("ascii") + event).digest()
    return Link.UNTIMED if older == own else Link.BROKEN


def follows(before: Link | None, own: Link) -> bool:
    """True if a row of the audit chain is valid after the row before it.

    `own` and `before` are the results of `check_link` for the two rows. A hash with the time of its row is always
    valid, a wrong one never. A hash without the time, of older programs, is valid only until the first hash with a
    time. `before` is `None` if there is no row before, or if it was not checked.
    """
    return own is Link.TIMED or (own is Link.UNTIMED and before is not Link.TIMED)


def _hash(data: bytes) -> bytes:
    """Return the hash of data. Data of medium size is hashed in pieces, which saves time; see `_PIECE_BYTES`."""
    if not _PIECE_BYTES < len(data) < _LARGE_BYTES:
        return blake3(data).digest()
    hasher = blake3()
    for start in range(0, len(data), _PIECE_BYTES):
        hasher.update(data[start : start + _PIECE_BYTES])
    return hasher.digest()


def digest(data: bytes) -> str:
    """Return the hash (hex) of a message's content.

    A sender may use the same wire id (its own id of a message) twice. In this case, the hash shows if the sender
    repeated a message or sent other content.
    """
    return _hash(data).hex()


def seal(content: bytes, route: bytes, *stamps: str | int) -> str:
    """Return the hash (hex) of a stored record, which is a message, an objective or a change of an objective.

    `content` is the encoded content of the record. `route` has the encoded recipients of a message, or the encoded
    parties of an objective. `stamps` are the fields that the hub added.
    """
    stamped = _SEPARATOR.join(map(str, stamps)).encode()
    return _hash(b"%s\x1f%d\x1f%s\x1f%s" % (stamped, len(content), content, route)).hex()


def seal_stored(content: bytes, route: bytes, stamps: Stamps, signature: str, wire_id: str | None) -> str:
    """Return the seal (hash) of a stored message, from the columns in which it is stored.

    If the message has a signature, the seal also covers the result of the signature check and the wire id. The wire id
    is the sender's id of the message, and recipients acknowledge by it.
    """
    if signature:
        return seal(content, route, *stamps, signature, wire_id or "")
    return seal(content, route, *stamps)


def seal_message(message: Message, content: bytes, route: bytes) -> str:
    """Return the seal (hash) of a message that is about to be stored.

    `content` is its encoded content, and `route` has its encoded recipients.
    """
    stamps = (message.id, message.sender, message.protocol, int(message.verified), message.sent_at_ms)
    if message.signature:
        return seal_stored(content, route, stamps, message.signature, message.wire_id)
    return seal(content, route, *stamps)

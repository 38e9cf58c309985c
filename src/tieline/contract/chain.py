"""The formulas of the audit chain: the hash of a row, and the seals of records that are stored beside the rows.

`hash = blake3(hex of the previous hash ‖ event)`, and the hash before the first row is blake3 of nothing. A row
about a message, or about a change of an objective, carries the seal of the stored record. The ledger writes by these
formulas, and every audit computes them again. Stored logs depend on these formulas, so the formulas never change.
"""

from blake3 import blake3

from tieline.contract.message import Message

GENESIS_DIGEST = blake3(b"").digest()
"""The hash before the first row."""
GENESIS = GENESIS_DIGEST.hex()

_SEPARATOR = "\x1f"

Stamps = tuple[str, str, str, int, int]
"""The hub's stamps on a message: id, sender, protocol, whether its sender is verified (0 or 1), time."""


def link(previous: str, event: bytes) -> str:
    """The hash of a row that follows the row with hash `previous`."""
    return blake3(previous.encode("ascii") + event).digest().hex()


def link_digest(previous: bytes, event: bytes) -> bytes:
    """The same hash as `link`, from bytes and in bytes."""
    return blake3(previous.hex().encode("ascii") + event).digest()


def digest(data: bytes) -> str:
    """The digest of content. It tells a repeated message from a wire id that was reused for other content."""
    return blake3(data).hexdigest()


def seal(content: bytes, route: bytes, *stamps: str | int) -> str:
    """The digest of a stored record: its content, its recipients or parties, and the hub's stamps."""
    stamped = _SEPARATOR.join(map(str, stamps)).encode()
    return blake3(b"%s\x1f%d\x1f%s\x1f%s" % (stamped, len(content), content, route)).digest().hex()


def seal_stored(content: bytes, route: bytes, stamps: Stamps, signature: str, wire_id: str | None) -> str:
    """The seal of a message, from the columns in which it is stored.

    If the message has a signature, the seal also covers the result of the signature check and the wire id, by which
    recipients acknowledge.
    """
    if signature:
        return seal(content, route, *stamps, signature, wire_id or "")
    return seal(content, route, *stamps)


def seal_message(message: Message, content: bytes, route: bytes) -> str:
    """The seal of a message that is about to be stored."""
    stamps = (message.id, message.sender, message.protocol, int(message.verified), message.sent_at_ms)
    return seal_stored(content, route, stamps, message.signature, message.wire_id)

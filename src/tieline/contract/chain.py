"""The formulas of the audit chain: the hash of a row, and the seals of what is stored beside the rows.

`hash = blake3(hex of the previous hash ‖ event)`, and the hash before the first row is blake3 of nothing. A row that
tells of a message or of an objective's change carries the seal of what is stored of it. The ledger writes by these
formulas, and every audit computes them again; stored logs depend on them, so they never change.
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
    """The digest of content, by which a repeated wire id is told from a reused one."""
    return blake3(data).hexdigest()


def seal(content: bytes, route: bytes, *stamps: str | int) -> str:
    """The digest of all that is stored of something: its content, its recipients or parties, the hub's stamps."""
    stamped = _SEPARATOR.join(map(str, stamps)).encode()
    return blake3(b"%s\x1f%d\x1f%s\x1f%s" % (stamped, len(content), content, route)).digest().hex()


def seal_stored(content: bytes, route: bytes, stamps: Stamps, signature: str, wire_id: str | None) -> str:
    """The seal of a message, from the columns in which it is stored.

    The result of a signature check is sealed only where there is a signature, and with it the id that recipients
    acknowledge by.
    """
    if signature:
        return seal(content, route, *stamps, signature, wire_id or "")
    return seal(content, route, *stamps)


def seal_message(message: Message, content: bytes, route: bytes) -> str:
    """The seal of a message that is about to be stored."""
    stamps = (message.id, message.sender, message.protocol, int(message.verified), message.sent_at_ms)
    return seal_stored(content, route, stamps, message.signature, message.wire_id)

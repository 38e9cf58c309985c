"""Checkpoints: signed notes of how long the audit chain was and what it ended with, so that a cut tail shows.

The chain alone cannot tell that its last rows are missing: what is left is still a chain. A checkpoint says that there
were so many rows once, and the hash of the last of them. It is signed by a keyed hash, over the checkpoint before it
too, so none can be changed, added or taken out of the middle without the key.

What that protects against: whoever can change the database but not read the key beside it, be it a restored backup, a
copy, or another user; and with a checkpoint kept elsewhere, whoever holds the home as well. It does not protect against
somebody who has the key and all checkpoints: such a one can sign any history.
"""

import hmac
from collections.abc import Iterator, Sequence

from blake3 import blake3
from msgspec import Struct

KEY_BYTES = 32  # blake3's keyed hash takes no other

_SEPARATOR = "\x1f"


class Checkpoint(Struct, frozen=True):
    """One note."""

    rows: int
    """How many rows the chain had."""
    head: str
    """Hash of the last of them."""
    at_ms: int
    mac: str
    previous: str = ""
    """The `mac` of the checkpoint before this one."""


def sign(key: bytes, rows: int, head: str, at_ms: int, previous: str) -> Checkpoint:
    """Make a checkpoint."""
    return Checkpoint(rows, head, at_ms, _mac(key, rows, head, at_ms, previous), previous)


def forged(key: bytes, checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """What is wrong with checkpoints that were kept one after the other."""
    before: Checkpoint | None = None
    for number, one in enumerate(checkpoints, start=1):
        if not genuine(key, one):
            yield f"checkpoint {number}, of row {one.rows}, was not signed by this home's key"
        elif one.previous != (before.mac if before else ""):
            yield f"a checkpoint before checkpoint {number}, of row {one.rows}, is missing"
        before = one


def genuine(key: bytes, checkpoint: Checkpoint) -> bool:
    """Whether a checkpoint was signed with this key."""
    one = checkpoint
    return hmac.compare_digest(one.mac.encode(), _mac(key, one.rows, one.head, one.at_ms, one.previous).encode())


def _mac(key: bytes, rows: int, head: str, at_ms: int, previous: str) -> str:
    assert len(key) == KEY_BYTES, "a keyed hash takes a key of this length"
    return blake3(_SEPARATOR.join((str(rows), head, str(at_ms), previous)).encode(), key=key).hexdigest()

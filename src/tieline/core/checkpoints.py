"""Checkpoints: signed records of the length and the last hash of the audit chain. They show if the chain was cut off.

The chain alone cannot show that its last rows are missing, because the remaining rows are still a valid chain. A
checkpoint has the number of rows at some time, and the hash of the last row. Its signature is a keyed hash, which also
covers the signature of the checkpoint before it. So without the key, nobody can change or add a checkpoint, or remove
one from the middle.

Checkpoints detect changes by a person who can change the database but cannot read the key beside it. For example, this
person has a copy or a backup of the database, or is another user of the machine. If one checkpoint is also stored
elsewhere, checkpoints detect even changes by a person who can read and change all files of the hub. A person who has
the key and all checkpoints can sign any history, and checkpoints cannot detect that.
"""

import hmac
from collections.abc import Iterator, Sequence

from blake3 import blake3
from msgspec import Struct

KEY_BYTES = 32  # the only key length of blake3's keyed hash

_SEPARATOR = "\x1f"


class Checkpoint(Struct, frozen=True):
    """One signed record of the length and the last hash of the audit chain."""

    rows: int
    """Number of rows in the chain."""
    head: str
    """Hash of the last row."""
    at_ms: int
    mac: str
    """The signature: a keyed hash of all other fields of this checkpoint."""
    previous: str = ""
    """The `mac` of the checkpoint before this one."""


def sign(key: bytes, rows: int, head: str, at_ms: int, previous: str) -> Checkpoint:
    """Return a new checkpoint of an audit chain with `rows` rows, signed with `key`.

    `head` is the hash of the last row. `previous` is the signature (`mac`) of the checkpoint before the new one; empty
    if the new one is the first.
    """
    return Checkpoint(rows, head, at_ms, _mac(key, rows, head, at_ms, previous), previous)


def forged(key: bytes, checkpoints: Sequence[Checkpoint]) -> Iterator[str]:
    """Yield a sentence about each fault in a sequence of checkpoints: a bad signature, or a missing checkpoint."""
    before: Checkpoint | None = None
    for number, one in enumerate(checkpoints, start=1):
        if not genuine(key, one):
            yield f"checkpoint {number}, of row {one.rows}, was not signed by this home's key"
        elif one.previous != (before.mac if before else ""):
            yield f"a checkpoint before checkpoint {number}, of row {one.rows}, is missing"
        before = one


def genuine(key: bytes, checkpoint: Checkpoint) -> bool:
    """True if a checkpoint was signed with this key."""
    one = checkpoint
    return hmac.compare_digest(one.mac.encode(), _mac(key, one.rows, one.head, one.at_ms, one.previous).encode())


def _mac(key: bytes, rows: int, head: str, at_ms: int, previous: str) -> str:
    assert len(key) == KEY_BYTES, "a keyed hash takes a key of this length"
    return blake3(_SEPARATOR.join((str(rows), head, str(at_ms), previous)).encode(), key=key).hexdigest()

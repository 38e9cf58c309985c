"""The record of the last backup of a home, for `status` and `doctor`.

Used by: the command that makes backups, which writes the record, and the commands that show it. Uses: one file in the
home.
"""

from pathlib import Path

import msgspec
from msgspec import Struct

RECORD_FILE = "backup.json"
"""File in the home that describes the last backup."""


class LastBackup(Struct, frozen=True):
    """The last backup of a home: its time, its file, its size, and if it was read back and checked."""

    at_ms: int
    file: str
    bytes: int
    verified: bool


def last_backup(home: Path) -> LastBackup | None:
    """Return the record of the last backup of the hub in `home`; `None` if there is none, or it cannot be read."""
    try:
        return msgspec.json.decode((home / RECORD_FILE).read_bytes(), type=LastBackup)
    except (OSError, msgspec.MsgspecError):
        return None

"""Backups of a home as files: makes one, names it by the hub and the time, and removes old ones of the same hub.

Used by: `tieline backup`. Uses: `archive`, which writes the file.
"""

import contextlib
import errno
import re
import time
from collections.abc import Iterator
from pathlib import Path

import apsw
import msgspec

from tieline.cli.archive import ArchiveError, write_archive
from tieline.cli.failure import Exit, Failure
from tieline.cli.last_backup import RECORD_FILE, LastBackup
from tieline.core.store import DiskError, StoreError
from tieline.server.config_origin import database_of
from tieline.stores.sqlite.database import open_for_reading
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.wire.home import write_private


class Backup(LastBackup, frozen=True):
    """Description of a backup that was just made, with the number of log rows and messages in it."""

    rows: int
    messages: int


class MadeBackup(Backup, frozen=True):
    """A backup that was just made, with the paths of the older backups that were removed after it was made."""

    removed: list[str]


def make_backup(home: Path, file: Path) -> Backup:
    """Back up the hub in `home` to the new file `file`, note it in the home, and return a description of the backup."""
    if file.exists():
        raise Failure(Exit.USAGE, f"{file} is there already", "name a new file, or a folder")
    if not file.parent.is_dir():
        raise Failure(Exit.USAGE, f"there is no folder {file.parent}", f"mkdir -p {file.parent}")
    place = database_of(home)
    if place:
        hint = (
            "back it up with the tools of PostgreSQL, such as pg_dump; docs/postgres.md says what to copy of the home"
        )
        raise Failure(Exit.USAGE, f"the hub of {home} keeps its messages in {place}", hint)
    if not (home / MAIN_FILE).exists():
        raise Failure(Exit.USAGE, f"{home} has no messages to back up", "name the hub's home with --home DIR")
    try:
        with explained(file.parent):
            checked = write_archive(home, file)
    except ArchiveError as error:
        hint = f"look at the home: tieline doctor --deep --home {home}"
        raise Failure(Exit.FAILED, f"no backup was made: {error}", hint) from error
    made = Backup(checked.at_ms, str(file), file.stat().st_size, True, checked.rows, checked.messages)
    record = LastBackup(made.at_ms, made.file, made.bytes, made.verified)
    # The backup is good even if the home's disk is full.
    with contextlib.suppress(OSError):
        write_private(home / RECORD_FILE, msgspec.json.encode(record))
    return made


def dated_name(home: Path, folder: Path) -> Path:
    """Return the path of a new file in `folder` for a backup of `home`. Its name has the hub's id and the time."""
    stem = f"{_prefix(home)}-{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime())}"
    names = (f"{stem}{number}.tar.gz" for number in ("", *(f"-{count}" for count in range(2, 1000))))
    return next(folder / name for name in names if not (folder / name).exists())


def remove_old(home: Path, folder: Path, keep: int) -> list[Path]:
    """Remove all but the `keep` newest backups of the hub in `home` from a folder. Return the removed files.

    Backups of other hubs stay, and so do those whose name does not say which hub they are from.
    """
    old = sorted(own_backups(home, folder), key=lambda path: (path.stat().st_mtime_ns, path.name))[:-keep]
    for path in old:
        path.unlink(missing_ok=True)
    return old


def own_backups(home: Path, folder: Path) -> list[Path]:
    """Return the files in `folder` whose names show that they are backups of the hub with this home."""
    own = re.compile(re.escape(_prefix(home)) + r"-\d{8}T\d{6}Z(-\d+)?\.tar\.gz\Z")
    return [path for path in folder.iterdir() if own.match(path.name)]


def _prefix(home: Path) -> str:
    """Return the text with which the names of this hub's backups begin: it has digits of the epoch (id) of its log.

    A restored hub has another epoch. So a copy of a hub that was restored for a test never removes the backups of the
    original. A home of an older program has no epoch before this program starts on it. Then the text has no digits.
    """
    with (
        contextlib.suppress(StoreError, apsw.Error),
        contextlib.closing(open_for_reading(home / MAIN_FILE)) as connection,
    ):
        if connection.execute(QUERIES["has_log_state"]).get:
            return f"tieline-{str(connection.execute(QUERIES['epoch']).get)[:8]}"
    return "tieline"


@contextlib.contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn an error in the `with` block into a `Failure` if it says that the disk of `folder` is full.

    The failure advises what to do. Other errors pass unchanged.
    """
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise _full(folder) from error
        raise
    except DiskError as error:
        if "full" in str(error):
            raise _full(folder) from error
        raise


def _full(folder: Path) -> Failure:
    return Failure(Exit.FAILED, f"the disk of {folder} is full, and nothing was kept", f"make room (df -h {folder})")

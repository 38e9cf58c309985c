"""Opens a database file: sets how durable commits are, and migrates an older schema to the newest version."""

import errno
import re
import shutil
import sys
from contextlib import suppress
from functools import cache
from importlib.resources import files
from pathlib import Path

import apsw
import structlog

from tieline.core.store import DamagedError, DiskError, StoreError

BUSY_MS = 5000
"""Timeout for the write lock of a database. Another process needs the lock only for a short check or a migration. A
longer wait would hide a fault."""

IN_MEMORY = Path(":memory:")
"""Placeholder for a folder whose databases exist only in memory. Such a database is gone when its connection closes."""

INCREMENTAL = 2
"""SQLite's number for the auto-vacuum mode in which the file of a database can shrink by a few free pages at a time."""
_SHRINKING = frozenset({"main", "activity"})
"""Schemas of the databases that must be able to shrink, because retention deletes data from them."""
_VACUUM_COPIES = 3
"""Free disk space that the one-time `VACUUM` of a database needs, as a multiple of the database's size.

`VACUUM` needs space for a copy and for the write-ahead log. The hub adds some reserve.
"""

log = structlog.get_logger(__name__)

UPGRADE_FOLDER = "before-upgrade"
"""Folder in a home with the backups that are made before a newer program changes the databases."""

_DISK_ERRORS = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.NoMemError,
    apsw.PermissionsError,
)
"""Errors of the database whose cause is the disk or the system, and not the SQL statement."""


def explain(error: Exception, path: Path) -> Exception:
    """Return an error of the database or the file system as a `StoreError` with advice.

    Any other error is returned unchanged. `path` is the file of the database.
    """
    if isinstance(error, DamagedError) and not error.hint:
        error.hint = MENDING.get(path.name, "")
    if isinstance(error, StoreError):
        return error
    if _is_full(error, path):
        hint = f"make room there (df -h {path.parent}); nothing that was accepted is lost"
        return DiskError(f"the disk of {path.parent} is full", hint)
    if isinstance(error, apsw.CorruptError | apsw.NotADBError):
        return DamagedError(f"{path} is damaged: {error}", MENDING.get(path.name, ""))
    if isinstance(error, apsw.ReadOnlyError) or (isinstance(error, OSError) and error.errno == errno.EROFS):
        hint = f"look whether its disk is mounted read-only, and at who owns it (ls -l {path})"
        return DiskError(f"{path} can only be read", hint)
    if isinstance(error, apsw.BusyError | apsw.LockedError):
        return DiskError(f"{path} is held by another process", f"fuser {path} names it")
    if isinstance(error, _DISK_ERRORS):
        return DiskError(f"{path}: {error}", "look at the disk: the system's log (dmesg) says more")
    return StoreError(f"{path}: {error}") if isinstance(error, apsw.Error | OSError) else error


def _is_full(error: Exception, path: Path) -> bool:
    """True if the error means a full disk. SQLite may report an I/O error instead, so also check the free space."""
    if isinstance(error, OSError):
        return error.errno in (errno.ENOSPC, errno.EDQUOT)
    if isinstance(error, apsw.IOError | apsw.CantOpenError):
        with suppress(OSError):
            return shutil.disk_usage(path.parent).free < _ROOM_BYTES
    return isinstance(error, apsw.FullError)


_ROOM_BYTES = 64 * 1024
"""A disk with less free space than this counts as full, because the files of the database cannot grow any more."""

MENDING = {
    "tieline.db": (
        "stop the hub, keep a copy of the whole home, and restore the last backup (tieline restore); without one, "
        "'sqlite3 tieline.db .recover' saves what can be read, and 'tieline doctor --deep' shows what is left"
    ),
    "activity.db": "stop the hub and move activity.db* away: an empty one is made, and messages are not touched",
    "files.db": (
        "stop the hub, restore the last backup elsewhere (tieline restore), and take its files.db; messages are whole"
    ),
    "search.db": "stop the hub and remove search.db*: it is made anew from the messages",
}
"""For each database file, instructions to repair it if it is damaged."""


def check_main(home: Path) -> None:
    """Raise `StoreError` if the main database in `home` is lost, so that no empty hub starts in its place.

    The main database is lost if it is missing while other databases exist. It is also lost if it is empty while other
    databases or the key exist, because the key is made after the main database.
    """
    main = home / "tieline.db"
    empty = main.exists()
    if empty and main.stat().st_size:
        return
    beside = [*(name for name in MENDING if name != main.name), *(["key"] if empty else [])]
    left = [name for name in beside if (home / name).exists()]
    if left:
        hint = f"put {main.name} back from a backup; or, to begin with an empty hub, move all that is in {home} away"
        what = "empty" if empty else "missing"
        raise StoreError(f"{main} is {what}, though a hub ran here (see {', '.join(left)})", hint)


@cache
def _migrations(schema: str) -> tuple[str, ...]:
    """Return the migration scripts of a schema in order. Script N migrates version N-1 to version N."""
    found = {}
    for resource in files("tieline.stores.sqlite").joinpath("schema").iterdir():
        match = re.fullmatch(rf"{schema}_(\d{{4}})\.sql", resource.name)
        if match:
            found[int(match[1])] = resource.read_text(encoding="utf-8")
    assert sorted(found) == list(range(1, len(found) + 1)), f"the scripts of {schema} are numbered without gaps"
    return tuple(found[version] for version in sorted(found))


def newest_version(schema: str) -> int:
    """Return the newest version of a schema that this program knows."""
    return len(_migrations(schema))


def open_database(path: Path, schema: str, *, synchronous: str = "FULL", vfs: str | None = None) -> apsw.Connection:
    """Open a database for writing and return the connection. Migrate an older schema.

    Raise `StoreError` if the schema is newer than this program. `schema` is the name of the schema. The file names of
    its migration scripts begin with that name. `synchronous` is SQLite's setting of the same name. `vfs` is for tests.
    """
    try:
        if path.parent == IN_MEMORY:
            connection = apsw.Connection(str(IN_MEMORY))
        else:
            path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            connection = apsw.Connection(str(path), vfs=vfs)
            path.chmod(0o600)
        connection.set_busy_timeout(BUSY_MS)
        if schema in _SHRINKING:
            # Has an effect only before the first page is written; `_make_shrinkable` is for older databases.
            connection.pragma("auto_vacuum", INCREMENTAL)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", synchronous)
        if sys.platform == "darwin":
            # There, a plain sync leaves data in the cache of the drive, which a power failure empties.
            connection.pragma("fullfsync", True)
        connection.pragma("foreign_keys", True)
        # The store runs checkpoints of the write-ahead log itself, so that a commit costs exactly one sync.
        connection.wal_autocheckpoint(0)
        _migrate(connection, path, _migrations(schema))
        if schema in _SHRINKING and connection.pragma("auto_vacuum") != INCREMENTAL:
            _make_shrinkable(connection, path)
    except (apsw.Error, OSError) as error:
        raise explain(error, path) from error
    return connection


def vacuum_bytes(path: Path) -> int:
    """Return the free disk space in bytes that the one-time `VACUUM` needs.

    A database of an older version needs this `VACUUM` before its file can shrink.
    """
    return path.stat().st_size * _VACUUM_COPIES


def _make_shrinkable(connection: apsw.Connection, path: Path) -> None:
    """Rewrite a database of an older version once, with `VACUUM`, so that its file can shrink.

    SQLite runs `VACUUM` in one transaction, so a failure or a crash leaves the database as it was. Then the next start
    tries again.
    """
    need, free = vacuum_bytes(path), shutil.disk_usage(path.parent).free
    if free < need:
        said = "the disk has too little room to rewrite a database once, so its free space is not given back yet"
        log.warning(said, database=path.name, needs_bytes=need, free_bytes=free)
        return
    log.info(
        "a database of an older program is being rewritten, which takes a while if it is large", database=path.name
    )
    try:
        connection.pragma("auto_vacuum", INCREMENTAL)
        connection.execute("VACUUM")
        connection.wal_checkpoint(mode=apsw.SQLITE_CHECKPOINT_TRUNCATE)
    except apsw.Error as error:
        said = "a database could not be rewritten, so its free space is not given back yet"
        log.warning(said, database=path.name, error=str(error))
    else:
        log.info("a database was rewritten once, so that it can give back its free space", database=path.name)


def write_nothing(connection: apsw.Connection) -> None:
    """Write a page to disk without changing any data, for example to test if the database can be written."""
    connection.pragma("user_version", connection.pragma("user_version"))


def open_for_reading(path: Path) -> apsw.Connection:
    """Open a database for reading and return the connection.

    A process that writes to the database never waits for this reader.
    """
    if not path.exists():
        raise StoreError(f"there is no database at {path}")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(BUSY_MS)
        connection.pragma("user_version")
    except apsw.Error as error:
        raise explain(error, path) from error
    return connection


def upgrade_backups(home: Path) -> list[tuple[Path, tuple[int, ...]]]:
    """Return the backups that were made before upgrades of a home, oldest first.

    Each backup comes with the schema versions of its databases `main`, `activity` and `files`; 0 for a database that
    was not there. The name of the file has these versions and then the time, which older programs left out.
    """
    found = [
        ((named["time"] or "", path.stat().st_mtime_ns), path, (*map(int, named["schemas"].split("-")), 0, 0)[:3])
        for path in (home / UPGRADE_FOLDER).glob("*.tar.gz")
        if (named := _UPGRADE_BACKUP.fullmatch(path.name))
    ]
    return [(path, schemas) for _, path, schemas in sorted(found)]


_UPGRADE_BACKUP = re.compile(r"(?P<schemas>\d+(-\d+){0,2})(-(?P<time>\d{8}T\d{6}Z))?\.tar\.gz")


def _backup(home: Path) -> str:
    """Return the newest backup that this program can restore, as a path for an error text; else `FILE`."""
    known = [newest_version(schema) for schema in ("main", "activity", "files")]
    found = [
        path
        for path, schemas in upgrade_backups(home)
        if all(version <= newest for version, newest in zip(schemas, known, strict=True))
    ]
    return str(found[-1]) if found else "FILE"


def _migrate(connection: apsw.Connection, path: Path, scripts: tuple[str, ...]) -> None:
    version = connection.pragma("user_version")
    assert isinstance(version, int), "user_version is a number"
    if version > len(scripts):
        raise StoreError(
            f"{path} was written by a newer Tieline (schema {version}; this program knows {len(scripts)}): "
            f"upgrade this program",
            f"to go back to an older home: tieline restore {_backup(path.parent)} --home DIR",
        )
    if version == len(scripts):
        return
    # One transaction, so that a new home costs one sync per database, and a failed upgrade changes nothing.
    connection.execute("BEGIN IMMEDIATE")
    try:
        for script in scripts[version:]:
            connection.execute(script)
        connection.pragma("user_version", len(scripts))
    except BaseException:
        connection.execute("ROLLBACK")
        raise
    connection.execute("COMMIT")

"""Opening a database file: durability settings, and the schema brought up to date, forward only."""

import re
from importlib.resources import files
from pathlib import Path

import apsw

from tieline.core.store import StoreError

_BUSY_MS = 5000
"""Another process holds the write lock only while it checks or migrates; waiting longer would hide a fault."""


CHECKPOINT_PAGES = 4000
"""Pages in the write-ahead log before they are moved into the database: 16 MB, read back in well under a second."""

DISK_ERRORS = (
    apsw.FullError,
    apsw.IOError,
    apsw.ReadOnlyError,
    apsw.CantOpenError,
    apsw.BusyError,
    apsw.LockedError,
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.NoMemError,
    apsw.PermissionsError,
)
"""What the database says when the disk or the system fails it, and not what it was asked to do."""


def _migrations(schema: str) -> list[str]:
    """The scripts of a schema in order; script N brings version N-1 to version N."""
    found = {}
    for resource in files("tieline.stores.sqlite").joinpath("schema").iterdir():
        match = re.fullmatch(rf"{schema}_(\d{{4}})\.sql", resource.name)
        if match:
            found[int(match[1])] = resource.read_text(encoding="utf-8")
    assert sorted(found) == list(range(1, len(found) + 1)), f"the scripts of {schema} are numbered without gaps"
    return [found[version] for version in sorted(found)]


def newest_version(schema: str) -> int:
    """The version to which this program brings a schema."""
    return len(_migrations(schema))


def open_database(path: Path, schema: str, *, synchronous: str = "FULL", vfs: str | None = None) -> apsw.Connection:
    """Open for writing. A schema newer than this program's is refused, an older one is migrated."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        connection = apsw.Connection(str(path), vfs=vfs)
        path.chmod(0o600)
        connection.set_busy_timeout(_BUSY_MS)
        connection.pragma("journal_mode", "wal")
        connection.pragma("synchronous", synchronous)
        connection.pragma("foreign_keys", True)
        # The store moves the write-ahead log itself, so that a commit costs one sync and no more.
        connection.wal_autocheckpoint(0)
        _migrate(connection, path, _migrations(schema))
    except (apsw.Error, OSError) as error:
        raise StoreError(f"{path} cannot be opened: {error}") from error
    return connection


def open_for_reading(path: Path) -> apsw.Connection:
    """Open a database that another process may be writing to, without ever making it wait."""
    if not path.exists():
        raise StoreError(f"there is no database at {path}")
    try:
        connection = apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)
        connection.set_busy_timeout(_BUSY_MS)
        connection.pragma("user_version")
    except apsw.Error as error:
        raise StoreError(f"{path} cannot be read: {error}") from error
    return connection


def _migrate(connection: apsw.Connection, path: Path, scripts: list[str]) -> None:
    version = connection.pragma("user_version")
    assert isinstance(version, int), "user_version is a number"
    if version > len(scripts):
        raise StoreError(
            f"{path} was written by a newer Tieline (schema {version}; this program knows {len(scripts)}): "
            f"upgrade this program, or start with another home"
        )
    for number, script in enumerate(scripts[version:], start=version + 1):
        connection.execute("BEGIN IMMEDIATE")
        try:
            connection.execute(script)
            connection.pragma("user_version", number)
        except BaseException:
            connection.execute("ROLLBACK")
            raise
        connection.execute("COMMIT")

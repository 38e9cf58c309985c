"""Checks of the store in a hub's home: its databases with their schemas, and the audit chain.

Used by: `doctor`. Uses: the files, read without blocking a hub. Without `deep`, the checks are quick: they do not read
the pages of large databases, and read only the end of the chain. With `deep`, they read everything.
"""

import contextlib
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import apsw
import msgspec

from tieline.cli.checkpoints import CHECKPOINTS_FILE, Checkpoints
from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.cli.last_backup import last_backup
from tieline.cli.output import local_time
from tieline.contract import chain
from tieline.core.checkpoints import Checkpoint
from tieline.core.store import StoreError
from tieline.server.storage import HomeStorage, Storage
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import check_main, newest_version, open_for_reading
from tieline.stores.sqlite.files import FILES_FILE
from tieline.stores.sqlite.search import SEARCH_FILE
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import Words
from tieline.wire.home import read_running

_SCHEMAS = {MAIN_FILE: "main", ACTIVITY_FILE: "activity", FILES_FILE: "files", SEARCH_FILE: "search"}
_QUICK_BYTES_MAX = 256 * 1024 * 1024
"""Size, in bytes, of the largest database that is checked without `deep`. The check of a larger database takes a
while."""
TAIL_ROWS = 10_000
"""Number of newest rows whose hashes are checked without `deep`."""
_LATE = 3  # times between two backups, before the last one counts as too old
_OLD_SECONDS = 14 * 86_400.0
"""Age of the last backup, in seconds, from which the doctor mentions it though no regular backups are configured."""
_RESTORE = "stop the hub, keep a copy of the home, and restore a backup: tieline restore FILE --home DIR"


LinkedRow = tuple[int, int, bytes, bytes]
"""A row of the log: its offset, time, event and hash."""


def databases(home: Path, *, deep: bool) -> Iterator[DoctorFinding]:
    """Check that the main database exists, and that each database is not damaged; with `deep`, also large ones.

    Yield a finding for each check.
    """
    try:
        check_main(home)
    except StoreError as error:
        yield wrong("store", str(error), "the hub does not start without its messages", error.hint)
        return
    if not (home / MAIN_FILE).exists() and read_running(home) is None:
        do = f"nothing, if it ran with --store memory; else put {MAIN_FILE} back from a backup"
        yield note("store", "a hub ran here and left no messages; the next start begins empty", do)
    for name, schema in _SCHEMAS.items():
        if (home / name).exists():
            yield _database(home / name, schema, deep=deep)


def _database(path: Path, schema: str, *, deep: bool) -> DoctorFinding:
    size = path.stat().st_size
    try:
        with contextlib.closing(open_for_reading(path)) as connection:
            version = connection.pragma("user_version")
            assert isinstance(version, int), "user_version is a number"
            looked = deep or size <= _QUICK_BYTES_MAX
            problem = connection.pragma("quick_check") if looked else "ok"
    except (StoreError, apsw.Error) as error:
        return wrong("store", str(error), "its data cannot be read", _RESTORE)
    if problem != "ok":
        return wrong("store", f"{path} is damaged: {problem}", "messages may be lost or wrong", _RESTORE)
    newest = newest_version(schema)
    if version > newest:
        what = f"{path} has schema {version}, and this program knows {newest}"
        return wrong("store", what, "a newer Tieline wrote it, and this one does not start on it", "upgrade tieline")
    if version < newest:
        return note("store", f"{path.name} has schema {version}; the next start brings it to {newest}")
    if not looked:
        return note("store", f"{path.name} has {size >> 20} MiB, so its pages were not read", "tieline doctor --deep")
    return well("store", f"{path.name} is whole: {size >> 10} KiB, schema {version}")


def backups(home: Path) -> Iterator[DoctorFinding]:
    """Yield a finding about the last backup: a fault if regular backups are configured and it is too old."""
    if not (home / MAIN_FILE).exists():
        return
    last, every = last_backup(home), _backup_seconds(home)
    do = f"tieline backup FILE --home {home}; or make it regular: [backup] in tieline.toml"
    if last is None:
        yield note("backup", "no backup was ever made", do)
        return
    age = time.time() - last.at_ms / 1000
    what = f"the last backup was made {local_time(last.at_ms)}, {_ago(age)} ago: {last.file}"
    if every and age > _LATE * every:
        why = "regular backups are configured, and do not happen"
        yield wrong("backup", what, why, "look at what the hub logs about backups")
    elif not Path(last.file).exists():
        yield note("backup", f"{what}, and is not there now", do)
    elif not every and age > _OLD_SECONDS:
        yield note("backup", what, do)
    else:
        yield well("backup", what)


def _backup_seconds(home: Path) -> int:
    from tieline.server.config import BackupSection, ConfigError
    from tieline.server.config_origin import in_use

    try:
        return in_use(home).section("backup", BackupSection).every_seconds
    except (ConfigError, OSError):
        # Another check tells of it.
        return 0


def _ago(seconds: float) -> str:
    for unit, length in (("days", 86_400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{int(seconds / length)} {unit}"
    return f"{int(seconds)} seconds"


def audit(home: Path, *, deep: bool) -> Iterator[DoctorFinding]:
    """Check the end of the audit chain and the last checkpoint; with `deep`, the whole chain and every checkpoint.

    Yield a finding for each check.
    """
    if not (home / MAIN_FILE).exists() or not (home / MAIN_FILE).stat().st_size:
        return
    try:
        yield whole_chain(home, HomeStorage(home, "FULL")) if deep else _end_of_chain(home)
    except (StoreError, apsw.Error) as error:
        yield wrong("audit", f"the log cannot be read: {error}", "nothing in it can be proved", _RESTORE)


def whole_chain(home: Path, storage: Storage) -> DoctorFinding:
    """Check the whole audit chain in the store of a home, and all its checkpoints."""
    with contextlib.closing(storage.open_inspection()) as inspection:
        report = Checkpoints(home).verify(inspection, ())
    if report.intact:
        return well("audit", f"the chain is intact: {report.rows} rows, {report.messages} messages")
    first = report.findings[0]
    return _broken(home, f"the chain is broken at row {first.offset}: {first.what}")


def _broken(home: Path, what: str) -> DoctorFinding:
    why = "somebody or something changed what the hub had written"
    return wrong("audit", what, why, f"tieline audit verify --home {home}")


def _end_of_chain(home: Path) -> DoctorFinding:
    with contextlib.closing(open_for_reading(home / MAIN_FILE)) as connection:
        connection.execute("BEGIN")
        last = next(connection.execute(QUERIES["log_tail"]), None)
        if last is None:
            rows: list[LinkedRow] = []
            end = 0
        else:
            end = last[0] + 1
            found = connection.execute(QUERIES["read_main"], (max(0, end - TAIL_ROWS), TAIL_ROWS))
            unpack = Words(connection).unpack
            rows = [(offset, at_ms, unpack(event), digest) for offset, at_ms, event, digest in found]
    return tail_of_chain(home, rows, end)


def tail_of_chain(home: Path, rows: Sequence[LinkedRow], end: int) -> DoctorFinding:
    """Check the newest rows of a log that ends at offset `end`, and its last checkpoint in the home."""
    at = _first_break(rows)
    if at is not None:
        return _broken(home, f"the chain is broken at row {at}: its hash does not follow from the row before it")
    signed = _last_checkpoint(home / CHECKPOINTS_FILE)
    if signed is not None and signed.rows > end:
        return _broken(home, f"the log has {end} rows, and had {signed.rows} when the last checkpoint was made")
    return well("audit", f"the last {len(rows)} of {end} rows follow from each other; --deep looks at all")


def _first_break(rows: Sequence[LinkedRow]) -> int | None:
    """Return the offset of the first row with a wrong hash or a wrong offset; `None` if all rows are right.

    A hash is computed from the row and the hash of the previous row. The
    hash of the first row is not checked, unless this row begins the log, because the previous hash is unknown.
    """
    if not rows:
        return None
    previous = chain.GENESIS_DIGEST if rows[0][0] == 0 else None
    expected, before = rows[0][0], None
    for offset, at_ms, event, digest in rows:
        link = None if previous is None else chain.check_link(previous, at_ms, event, digest)
        if offset != expected or (link is not None and not chain.follows(before, link)):
            return offset
        previous, expected, before = digest, offset + 1, link
    return None


def _last_checkpoint(path: Path) -> Checkpoint | None:
    try:
        lines = path.read_bytes().splitlines()
        return msgspec.json.decode(lines[-1], type=Checkpoint) if lines else None
    except FileNotFoundError:
        return None
    except msgspec.MsgspecError as error:
        raise StoreError(f"{path} has no readable checkpoints: {error}") from error

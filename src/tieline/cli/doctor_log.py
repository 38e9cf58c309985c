"""Checks of the logs in a hub's home: their epochs and readers, their growth per message, and the space they can free.

Used by: `doctor`. Uses: the databases, read without blocking a hub.
"""

import contextlib
import json
import shutil
import time
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path

import apsw

from tieline.cli.doctor_finding import DoctorFinding, note, well, wrong
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.reader import Reader
from tieline.core.readers import WARN_SHARE, Readers, ReaderStore, Waiting
from tieline.core.store import ACTIVITY, MAIN, StoreError
from tieline.stores.sqlite.activity import ACTIVITY_FILE
from tieline.stores.sqlite.database import INCREMENTAL, newest_version, open_for_reading, vacuum_bytes
from tieline.stores.sqlite.readers import SqliteReaders
from tieline.stores.sqlite.statements import QUERIES
from tieline.stores.sqlite.store import MAIN_FILE
from tieline.stores.sqlite.words import SENT, Words, words_of

_FILES = {MAIN: MAIN_FILE, ACTIVITY: ACTIVITY_FILE}
_ENDS = {MAIN: "main_end", ACTIVITY: "activity_end"}
_GROWTH_ROWS = 30_000
"""Number of newest rows of the main log from which the growth is measured. They have enough messages to even out
bursts."""
_ROW_BYTES = 50
"""Bytes that a row of the main log needs in addition to its event: 32 for the hash, 6 for the time, and about 12 for
SQLite's own data (offset, lengths, pointer)."""
_WORD_BYTES = 10
"""Bytes that a word (text that rows share) needs in addition to its text, for SQLite's own data. All words of the
measured rows are counted, also those that older rows share."""
GROWTH_BYTES_MAX = 300
"""Maximum number of bytes per message that the doctor accepts. At this size a million messages need 300 MB of the disk
for ever, because the audit chain is never deleted."""


def logs(home: Path) -> Iterator[DoctorFinding]:
    """Check both logs of a home: epoch (id of the log), readers, growth, and if the database files can shrink.

    Yield a finding for each check.
    """
    limits = limits_of(home)
    for log, name in _FILES.items():
        path = home / name
        if not path.exists() or not path.stat().st_size:
            continue
        try:
            with contextlib.closing(open_for_reading(path)) as connection:
                if connection.pragma("user_version") != newest_version(log):
                    # An older or a newer program wrote it; the check of the store says so.
                    continue
                yield from _log(connection, log, path, limits)
        except (StoreError, apsw.Error) as error:
            do = "tieline doctor --deep"
            yield wrong("log", f"{path} cannot be read: {error}", "its readers are not known", do)


def reader_share(home: Path, name: str) -> tuple[float | None, Limits]:
    """Return the share of its limits that the reader `name` has used up (1 means all), and the limits.

    The limits say for how long, and up to which size of the database, the hub keeps rows that a reader has not read.
    There is a share for each of the two logs, and the larger one is returned; `None` if the hub has no such reader.
    """
    limits, found = limits_of(home), list[float]()
    for log, file in _FILES.items():
        with (
            contextlib.suppress(StoreError, apsw.Error),
            contextlib.closing(open_for_reading(home / file)) as connection,
        ):
            known = _known(log, _stored_readers(connection, log), limits)
            found += [known.waiting(row, _now_ms()).share for row in known.rows if row.name == name]
    return max(found, default=None), limits


def limits_of(home: Path) -> Limits:
    """Return the limits in the hub's configuration, or the default limits if it cannot be read."""
    from tieline.server.config import ConfigError, load_config

    try:
        return load_config(home).limits
    except (ConfigError, OSError):
        return DEFAULT_LIMITS


def _log(connection: apsw.Connection, log: str, path: Path, limits: Limits) -> Iterator[DoctorFinding]:
    end = int(connection.execute(QUERIES[_ENDS[log]]).get)
    yield from look_at_log(log, _stored_readers(connection, log), end, limits)
    if log == MAIN:
        yield from _growth(connection, end)
    yield from _space(connection, path)


def look_at_log(log: str, readers: ReaderStore, end: int, limits: Limits) -> Iterator[DoctorFinding]:
    """Describe a log that ends at offset `end`, and check its readers. Yield a finding for each check."""
    what = f"the log {log} has {end} rows, its epoch is {readers.epoch}"
    if readers.kept_from:
        what += f", and retention has deleted from it before row {readers.kept_from}"
    yield well("log", what)
    known = _known(log, readers, limits)
    for row in known.rows:
        yield _reader(row, end, known.waiting(row, _now_ms()), limits)


def _stored_readers(connection: apsw.Connection, log: str) -> SqliteReaders:
    def select(statement: str, values: tuple[object, ...]) -> Iterator[tuple[object, ...]]:
        return iter(connection.execute(QUERIES[statement], values))

    def write(_statement: str, _values: tuple[object, ...]) -> None:
        raise AssertionError("the doctor only reads")

    return SqliteReaders(log, connection, write, select)


def _known(log: str, readers: ReaderStore, limits: Limits) -> Readers:
    retention_ms = limits.retention_ms if log == MAIN else limits.activity_retention_ms
    return Readers(log, readers, limits, retention_ms)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _reader(row: Reader, end: int, waiting: Waiting, limits: Limits) -> DoctorFinding:
    what = f"the reader {row.name} of {row.log} is at row {row.position} of {end}"
    do = f"start it again; or, if nobody needs it: tieline log forget {row.name}"
    if row.missed:
        lost = f"{what}, and retention deleted {row.missed} rows before it read them"
        why = f"they are among the rows {row.missed_first} to {row.missed_last}, and its tables do not have them"
        return wrong("log", lost, why, do)
    waits = f"{limits.reader_wait_ms // 86_400_000} days or {limits.reader_wait_bytes >> 30} GiB"
    if waiting.share >= WARN_SHARE:
        why = f"the hub keeps unread rows for at most {waits} more, and {waiting.share:.0%} of that are used up"
        return wrong("log", what, why, do)
    return well("log", f"{what}; the hub keeps unread rows for it, for at most {waits} more")


def _growth(connection: apsw.Connection, end: int) -> Iterator[DoctorFinding]:
    unpack = Words(connection).unpack
    newest = (event for (event,) in connection.execute(QUERIES["newest_events"], (max(0, end - _GROWTH_ROWS),)))
    # The rows before the first message are not the growth of messages: a new hub logs its members there.
    events = list(dropwhile(lambda event: not unpack(event).startswith(SENT), newest))
    if not events:
        return
    messages = sum(unpack(event).startswith(SENT) for event in events)
    words = {number for event in events for number in words_of(event)}
    shared = int(connection.execute(QUERIES["word_bytes"], (json.dumps(list(words)),)).get) + len(words) * _WORD_BYTES
    rows = len(events)
    size = (sum(map(len, events)) + rows * _ROW_BYTES + shared) / messages
    counted = f"events, hashes, times and row overhead of the last {rows} rows, over their {messages} messages"
    what = f"the log grows by {size:.0f} bytes a message ({counted}; bodies are not in it)"
    if size <= GROWTH_BYTES_MAX:
        yield well("log", what)
    else:
        yield note("log", f"{what}, which is more than {GROWTH_BYTES_MAX}: few messages share the row of a step")


def _space(connection: apsw.Connection, path: Path) -> Iterator[DoctorFinding]:
    if connection.pragma("auto_vacuum") == INCREMENTAL:
        return
    need, free = vacuum_bytes(path), shutil.disk_usage(path.parent).free
    what = f"{path.name} cannot give free space back"
    if free < need:
        do = f"free {(need - free) >> 20} MiB more on its disk, and start the hub again"
        yield note("log", f"{what}: to rewrite it once, the hub needs {need >> 20} MiB of free disk", do)
    else:
        yield note("log", f"{what}; the next start of the hub rewrites it once")

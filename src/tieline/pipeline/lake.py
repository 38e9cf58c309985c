"""The lake: the Delta tables of the pipeline, and the table `commits`, whose last row has the version of each table.

Used by: the pipeline, and all readers: Spark, DuckDB, Polars, pandas, by `deltalake` or any other reader of Delta.
Stored in: a folder or an object store, through delta-rs. Spark's tasks write Parquet files, and this module commits
them. Each commit of a table contains the number of its batch as an application transaction. So an interrupted batch can
be completed, and is counted only once. Readers use the versions in `commits`, and so see all tables as of the same
batch.
"""

import fcntl
import json
import os
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import Any, TypeVar

import msgspec
import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction, create_table_with_add_actions
from msgspec import Struct
from pyarrow import fs, parquet

from tieline.pipeline.storage import DataFile, Storage, counted_columns

COMMITS = "commits"
DAY, OPEN = "day", "open"
"""Names of the partition columns. `day` is the day of a row (UTC). `open` exists only for deliveries, and is true if
the delivery may still change.
"""
SCHEMA_VERSION = 4
"""Version of the tables' columns. Lakes before version 2 were not Delta tables."""
CHANGED = {
    3: ("activity", "deliveries", "failures", "llm", "members", "responses", "service"),
    4: ("activity", "deliveries", "messages"),
}
"""For each version of the columns, the tables that got other columns with it, or that are new."""
MISSED = {"messages": "messages", "activity": "rows of activity", "rows": "other rows"}
"""Kinds of data that the hub may delete before the pipeline reads them, with the words for them in error messages."""
REBUILD = (
    "the next 'tieline pipeline run' makes its tables anew from the rows that it has ('tieline pipeline rebuild --all')"
)
_APPLICATION = "tieline"
_COMMITS_KEPT = 100
_KEPT_HOURS = 24
"""Hours for which readers may still use a file after a commit has replaced it. Then `sweep` deletes the file."""
_CONFIGURATION = {"delta.checkpointInterval": "20"}
_COUNTED = "delta.dataSkippingStatsColumns"
"""Property of a table with the columns that its statistics describe. Without it, readers take a column that has no
statistics for one without values, and leave out its rows."""
_SMALL_BYTES = 4 << 20
"""A file of fewer bytes is small. The files of a large batch's log rows have 6 to 9 MB: merging them costs a seventh of
the batch on Sail, and readers gain nothing.
"""
_FILES_MAX = 64
"""If one day of a table has more small files than this, they are merged."""
_DECORATION = re.compile(r"\x1b\[[0-9;]*m|↳")
_STORE_HINT = "check its address, and AWS_ENDPOINT_URL, AWS_ACCESS_KEY_ID and the like in the environment"
_T = TypeVar("_T")


class LakeError(Exception):
    """Raised if the lake cannot be used: another run writes to it, it is damaged, or it has an older format."""


class OldLake(LakeError):
    """Raised if an older version of Tieline wrote a lake, whose tables must be computed again from its log rows."""


class Commit(Struct, frozen=True):
    """A row of the table `commits`: the version of every table, and the position up to which the logs were read."""

    number: int = 0
    """Number of the commit: 1, 2, 3… The number 0 means that the lake is empty."""
    at_ms: int = 0
    engine: str = ""
    """Engine that computed the commit, such as `spark 4.3.0`."""
    schema_version: int = SCHEMA_VERSION
    position: dict[str, int] = {}
    """For each log, the offset up to which it was read."""
    epochs: dict[str, str] = {}
    """For each log, its epoch (a random id), which changes when a hub is restored from a backup."""
    versions: dict[str, int] = {}
    """For each table, the version of the Delta table."""
    sizes: dict[str, int] = {}
    """For each table, the number of all its rows."""
    written: dict[str, int] = {}
    """For each table, the number of rows that this commit wrote."""
    counts: dict[str, int] = {}
    """Sums over all commits. `late` counts states of deliveries that were reached after the watermark (a day).
    `unknown` counts states whose delivery is not in the lake. `missed_messages`, `missed_activity` and `missed_rows`
    count messages, rows of activity and other rows that the hub had deleted before they were read. `missed_ms` is not a
    sum: it is the time of the last batch with such deleted data. `redactions` counts redacted messages, and `erased`
    those whose quotes are gone from the lake.
    """
    last_hash: str = ""
    """Hash of the last row that was read from the main log. A later run compares it, to detect another log."""

    def missed(self) -> dict[str, int]:
        """Return how many rows of the log the hub deleted before the pipeline read them.

        The keys are `messages`, `activity`, and `rows` for all others.
        """
        return {name: self.counts[f"missed_{name}"] for name in MISSED if self.counts.get(f"missed_{name}")}

    def unerased(self) -> int:
        """Return the number of redactions that were read, and whose quotes in activity are still in the lake."""
        return self.counts.get("redactions", 0) - self.counts.get("erased", 0)

    def rows(self, table: str) -> int:
        """Return the number of rows in a table as of this commit."""
        return self.sizes.get(table, 0)


class DayFile(Struct, frozen=True):
    """A Parquet file of a table: its path in the lake, its day, and its first and last minute and offset, if known."""

    path: str
    day: str | None
    written_ms: int = 0
    """Time at which the file became a part of the table."""
    first_ms: int | None = None
    last_ms: int | None = None
    first_offset: int | None = None
    last_offset: int | None = None

    def overlaps(self, other: "DayFile") -> bool:
        """True if both files may have rows of the same offset."""
        offsets = (self.first_offset, self.last_offset, other.first_offset, other.last_offset)
        first, last, others_first, others_last = offsets
        if first is None or last is None or others_first is None or others_last is None:
            return True
        return first <= others_last and others_first <= last


_SPANS = ("min.minute_ms", "max.minute_ms", "min.offset", "max.offset")
_MAP = pa.map_(pa.string(), pa.int64())
_COMMIT_SCHEMA = pa.schema(
    [
        ("number", pa.int64()), ("at_ms", pa.int64()), ("engine", pa.string()), ("schema_version", pa.int64()),
        ("position", _MAP), ("epochs", pa.map_(pa.string(), pa.string())), ("versions", _MAP), ("sizes", _MAP),
        ("written", _MAP), ("counts", _MAP), ("last_hash", pa.string()),
    ]
)  # fmt: skip


class Lake:
    """Client for one lake, which is a folder or a URL that delta-rs supports, such as `s3://bucket/lake`.

    `options` are for delta-rs.
    """

    def __init__(self, location: str | Path, options: Mapping[str, str] | None = None) -> None:
        self.storage = Storage(str(location), dict(options or {}))

    def __str__(self) -> str:
        return self.storage.location

    @property
    def path(self) -> Path:
        """The lake's folder. Use it only if the lake is a folder, not a URL."""
        assert self.storage.is_local, f"{self} is no folder"
        return Path(self.storage.location)

    # Reading.

    def head(self) -> Commit:
        """Return the newest commit, or an empty commit if the lake has none.

        Raise `OldLake` for a lake of an older version, and `LakeError` for one of a newer version.
        """
        if self.is_old():
            raise OldLake(f"{self} was written by an older version, with tables of another form; {REBUILD}")
        newest = self.newest()
        changed = {name for at, names in CHANGED.items() if newest.schema_version < at for name in names}
        if newest.number and changed:
            told = ", ".join(sorted(changed))
            raise OldLake(f"an older version wrote {self}; these tables have other columns now: {told}; {REBUILD}")
        if newest.schema_version > SCHEMA_VERSION:
            raise LakeError(f"{self} was written by a newer version of Tieline; use that version, or another lake")
        return newest

    def newest(self) -> Commit:
        """Return the newest commit, or an empty commit if the lake has none. Do not check the format of the lake."""
        return (self._commits() or [Commit()])[-1]

    def is_old(self) -> bool:
        """True if the folder has only tables in the format before Delta."""
        return self.storage.is_local and (self.path / "_tieline" / "commits").is_dir() and not self.newest().number

    def files(self, table: str, commit: Commit | None = None) -> list[str]:
        """Return the paths of the Parquet files of a table as of a commit. Without `commit`, use the newest commit."""
        return [self.storage.url(file.path) for file in self.data_files(table, commit or self.head())]

    def data_files(self, table: str, commit: Commit | None = None) -> list[DataFile]:
        """Return the files of a table as of a commit. Without `commit`, use the last version of the table."""
        if commit is not None and table not in commit.versions:
            return []
        opened = self._open(table, commit.versions[table] if commit is not None else None)
        return _data_files(table, opened) if opened is not None else []

    def day_files(self, table: str, commit: Commit) -> list[DayFile]:
        """Return the files of a table as of a commit, with only the statistics that a report needs."""
        opened = self._open(table, commit.versions[table]) if table in commit.versions else None
        if opened is None:
            return []
        actions = pa.table(opened.get_add_actions(flatten=True))
        named = {name: actions[name].to_pylist() for name in actions.column_names if name in _SPANS}
        paths, none = actions["path"].to_pylist(), [None] * actions.num_rows
        key = f"partition.{DAY}"
        days = actions[key].cast(pa.string()).to_pylist() if key in actions.column_names else none
        times = actions["modification_time"].cast(pa.int64()).to_pylist()
        spans = (named.get(name, none) for name in _SPANS)
        return [DayFile(f"{table}/{path}", *rest) for path, *rest in zip(paths, days, times, *spans, strict=True)]

    def last_written(self) -> dict[str, int]:
        """Return for each table the time of the last commit that wrote rows to it.

        Only commits that are still stored are searched.
        """
        return {name: commit.at_ms for commit in self._commits() for name in commit.written}

    def table(self, name: str) -> DeltaTable:
        """Return a table as of the newest commit, to read it with pandas, Polars or DuckDB."""
        head = self.head()
        # `commits` itself is never part of a batch. Another table that no commit names belongs to a batch in progress.
        opened = self._open(name, head.versions.get(name)) if name in {COMMITS, *head.versions} else None
        if opened is None:
            raise LakeError(f"{self} has no table {name!r}")
        return opened

    def note(self, table: str, number: int) -> dict[str, Any] | None:
        """Return the note that batch `number` stored when it committed a table.

        Return `None` if the batch has not been committed to the table.
        """
        opened = self._open(table)
        if opened is None or (self._told(lambda: opened.transaction_version(_APPLICATION)) or 0) < number:
            return None
        # The commit of a batch that is not complete is the table's last one.
        for commit in opened.history(1):
            if commit.get("batch") == number:
                return dict(commit.get("note") or {})
        return {}

    # Writing.

    @contextmanager
    def held(self) -> Iterator[None]:
        """Reserve the lake for one writing run, during the `with` block. Raise `LakeError` if another run is writing.

        A folder is reserved by a lock file. An object store has no lock: if two runs write, Delta refuses the run that
        commits second.
        """
        if not self.storage.is_local:
            yield
            return
        # The lake has the activity of agents in full, so only the owner may read the folder.
        self.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        (self.path / "_tieline").mkdir(exist_ok=True)
        lock = os.open(self.path / "_tieline" / "lock", os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise LakeError(f"another run is writing to {self}; wait for it, or name another lake") from error
        try:
            yield
        finally:
            os.close(lock)

    def commit_table(
        self,
        name: str,
        number: int,
        schema: pa.Schema,
        added: Sequence[DataFile],
        removed: Iterable[DataFile] = (),
        note: Mapping[str, Any] | None = None,
        *,
        again: bool = False,
    ) -> None:
        """Commit the changes of batch `number` to a table in one transaction: add and remove files.

        `note` is stored with the commit. Raise `LakeError` if another run has committed this batch to the table, or has
        replaced one of the files in `removed`. With `again`, it is no error if the table has the batch already, because
        the table is rebuilt.
        """
        now = time.time_ns() // 1_000_000
        removed = list(removed)
        keys = [key for key in (DAY, OPEN) if added and key in _partition(added[0])]
        opened = self._open(name)
        if opened is not None:
            # Delta itself detects only what another run commits from here on.
            self._require_unchanged(name, opened, 0 if again else number, removed)
            keys = list(opened.metadata().partition_columns)
        kinds = {DAY: pa.date32(), OPEN: pa.bool_()}
        whole = Schema.from_arrow(pa.schema([*schema, *((key, kinds[key]) for key in keys)]))
        counted = {_COUNTED: ",".join(counted_columns(schema))}
        opened = self._widened(name, opened, whole, counted) if opened is not None else None
        adds = [
            AddAction(file.path.partition("/")[2], file.bytes, _partition(file), now, True, file.stats)
            for file in added
        ]
        removes = [
            RemoveAction(file.path.partition("/")[2], True, now, file.bytes, _partition(file)) for file in removed
        ]
        # A conflict is no reason to try again: the work began from tables that are no longer current.
        properties = CommitProperties(
            {"batch": number, "note": dict(note or {})}, None, [Transaction(_APPLICATION, number)]
        )
        location = self._location(name)
        if opened is None:
            self._told(
                lambda: create_table_with_add_actions(
                    location, whole, adds, "error", keys, name, configuration={**_CONFIGURATION, **counted},
                    storage_options=self.storage.options, commit_properties=properties,
                )
            )  # fmt: skip
        else:
            self._told(
                lambda: opened.create_write_transaction(
                    [*adds, *removes], "append", whole, keys, commit_properties=properties
                )
            )

    def commit(self, commit: Commit) -> Commit:
        """Add a row to the table `commits` and return it.

        Raise `LakeError` if another run has added a row since the work began.
        """
        before = self._commits()
        if commit.number != (before[-1].number if before else 0) + 1:
            raise LakeError(f"{self} was written to by another run")
        rows = [msgspec.structs.asdict(one) for one in (*before, commit)][-_COMMITS_KEPT:]
        table = pa.Table.from_pylist([{**row, **_pairs(row)} for row in rows], _COMMIT_SCHEMA)
        old = self.data_files(COMMITS)
        file = self.storage.write_file(COMMITS, commit.number, table)
        self.commit_table(COMMITS, commit.number, _COMMIT_SCHEMA, [file], old)
        return commit

    def follow(self, head: Commit, tables: Iterable[str], **changes: Any) -> Commit:
        """Return a new commit after `head`, with the next number and the current versions of `tables`.

        `changes` are other fields of the new commit.
        """
        versions, sizes = {}, {}
        for name in tables:
            opened = self._open(name)
            if opened is not None:
                versions[name] = opened.version()
                sizes[name] = sum(file.rows for file in _data_files(name, opened))
        now = time.time_ns() // 1_000_000
        fields: dict[str, Any] = {"written": {}, **changes}
        return msgspec.structs.replace(
            head, number=head.number + 1, at_ms=now, versions=versions, sizes=sizes, schema_version=SCHEMA_VERSION,
            **fields,
        )  # fmt: skip

    # Upkeep, by Delta itself.

    def compact(self, tables: Iterable[str], today: str) -> None:
        """Merge the small files of each day that has too many small files.

        The limit for a day before `today` is lower, because such a day rarely changes.
        """
        for name in tables:
            small: dict[str, int] = {}
            for file in self.data_files(name):
                if file.day and file.bytes < _SMALL_BYTES:
                    small[file.day] = small.get(file.day, 0) + 1
            for day, count in small.items():
                if count > (_FILES_MAX if day >= today else _FILES_MAX // 8):
                    opened = self._open(name)
                    assert opened is not None, "it has files"
                    self._told(lambda opened=opened, day=day: opened.optimize.compact([(DAY, "=", day)]))  # type: ignore[misc]

    def sweep(self, tables: Iterable[str], *, hours: int = _KEPT_HOURS) -> int:
        """Delete files that no table has used for `hours`, and files of interrupted runs.

        Return the number of deleted files.
        """
        swept = 0
        for name in (*tables, COMMITS):
            opened = self._open(name)
            if opened is not None:
                swept += len(self._told(lambda opened=opened: opened.vacuum(hours, False, False, full=True)))  # type: ignore[misc]
        return swept

    def drop_history(self, tables: Iterable[str]) -> None:
        """Delete the entries of the tables' logs before their last versions, which may quote values of replaced files.

        Only the last versions can be opened afterwards.
        """
        files = self.storage.filesystem()
        for name in tables:
            opened = self._open(name)
            if opened is None:
                continue
            self._told(opened.create_checkpoint)
            for entry in files.get_file_info(fs.FileSelector(f"{name}/_delta_log")):
                number = entry.base_name.partition(".")[0]
                if number.isdecimal() and int(number) < opened.version():
                    files.delete_file(entry.path)

    # Delta.

    def _commits(self) -> list[Commit]:
        """Return the commits that are still stored, oldest first."""
        opened = self._open(COMMITS)
        if opened is None:
            return []
        rows: list[dict[str, Any]] = []
        for file in _data_files(COMMITS, opened):
            with self._reading(file.path), self.storage.filesystem().open_input_file(file.path) as source:
                rows += parquet.read_table(source).select(_COMMIT_SCHEMA.names).to_pylist()
        found = [Commit(**{**row, **{k: dict(v) for k, v in row.items() if isinstance(v, list)}}) for row in rows]
        return sorted(found, key=lambda commit: commit.number)

    def _open(self, name: str, version: int | None = None) -> DeltaTable | None:
        if self.storage.is_local and not (self.path / name / "_delta_log").is_dir():
            return None
        try:
            return self._told(lambda: DeltaTable(self._location(name), version, self.storage.options))
        except TableNotFoundError:
            return None

    def _require_unchanged(self, name: str, opened: DeltaTable, number: int, removed: Sequence[DataFile]) -> None:
        """Raise `LakeError` if the table has batch `number` already, or lacks one of the files in `removed`.

        With the number 0, only the files are checked.
        """
        known = self._told(lambda: opened.transaction_version(_APPLICATION)) or 0
        gone = {file.path for file in removed} - (
            {file.path for file in _data_files(name, opened)} if removed else set()
        )
        if (number and known >= number) or gone:
            raise LakeError(f"{self} was written to by another run: {name} has changed since this run read it")

    def _widened(self, name: str, opened: DeltaTable, schema: Schema, counted: dict[str, str]) -> DeltaTable:
        """Return the table with all columns of `schema` and the property `counted`.

        A table of an older version may lack some of the columns, or the property. This method adds them to the table.
        """
        known = {field.name for field in opened.schema().fields}
        new = [field for field in schema.fields if field.name not in known]
        counts = _COUNTED in opened.metadata().configuration
        if counts and not new:
            return opened
        if not counts:
            self._told(lambda: opened.alter.set_table_properties(counted))
        if new:
            self._told(lambda: opened.alter.add_columns(new))
        return DeltaTable(self._location(name), storage_options=self.storage.options)

    def _location(self, name: str) -> str:
        if self.storage.is_local:
            (self.path / name).mkdir(parents=True, exist_ok=True)
        return self.storage.url(name)

    @contextmanager
    def _reading(self, path: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowInvalid) as error:
            raise LakeError(f"{self.storage.url(path)} is damaged or missing: {error}") from error

    def _told(self, work: Callable[[], _T]) -> _T:
        try:
            return work()
        except TableNotFoundError:
            raise
        except CommitFailedError as error:
            raise LakeError(f"{self} was written to by another run: {error}") from error
        except DeltaError as error:
            raise LakeError(f"{self} is damaged: {error}") from error
        except OSError as error:
            hint = "" if self.storage.is_local else f"; {_STORE_HINT}"
            raise LakeError(f"{self} cannot be used: {_reason(error)}{hint}") from error


def _reason(error: OSError) -> str:
    """Return the first and the last reason in an error text of delta-rs, joined into one line.

    Such a text has one reason on each line.
    """
    lines = [_DECORATION.sub("", line).strip() for line in str(error).splitlines()]
    told = [line for line in lines[1:] if line and not line.startswith("<")] or lines[:1]
    return ": ".join(dict.fromkeys((told[0], told[-1])))


def _pairs(row: Mapping[str, Any]) -> dict[str, list[tuple[str, Any]]]:
    return {name: sorted(value.items()) for name, value in row.items() if isinstance(value, dict)}


def _partition(file: DataFile) -> dict[str, str | None]:
    found: dict[str, str | None] = {}
    if file.day is not None:
        found[DAY] = file.day
    if file.open is not None:
        found[OPEN] = str(file.open).lower()
    return found


def _data_files(table: str, opened: DeltaTable) -> list[DataFile]:
    actions = pa.table(opened.get_add_actions(flatten=False)).to_pylist()
    return [_data_file(table, action) for action in actions]


def _data_file(table: str, action: Mapping[str, Any]) -> DataFile:
    partition = action.get("partition") or {}
    day = partition.get(DAY)
    stats = {
        "numRecords": action["num_records"],
        "minValues": action.get("min") or {},
        "maxValues": action.get("max") or {},
        "nullCount": action.get("null_count") or {},
    }
    return DataFile(
        path=f"{table}/{action['path']}",
        rows=action["num_records"] or 0,
        bytes=action["size_bytes"],
        day=day.isoformat() if isinstance(day, date) else day,
        open=partition.get(OPEN),
        stats=json.dumps(stats, default=str),
    )

"""The storage of a lake: a folder, or a URL that delta-rs supports. The driver and the workers use it.

A `Storage` can be sent to a worker, because the worker makes its own connection from the location and the options.
"""

import functools
import json
import os
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
from msgspec import Struct
from pyarrow import fs, parquet

_ROW_GROUP = 1 << 17
_COMPRESSION = "zstd"
_BUFFER_BYTES = 1 << 16  # any size does


class DataFile(Struct, frozen=True):
    """A Parquet file of a table: its path, size and partition, and Delta's statistics of its columns."""

    path: str
    """Path relative to the lake: `<table>/day=<day>/<number of the batch>-<random>.parquet`."""
    rows: int
    bytes: int
    day: str | None = None
    """The day of all rows in the file, such as `2026-01-31`. `None` if the table has no partitions."""
    open: bool | None = None
    """True if the file contains deliveries that may still change, false if it contains closed deliveries. `None` for
    files of all other tables.
    """
    stats: str = "{}"
    """Delta's statistics as JSON: the number of rows; for each column of integers, its extremes and its nulls."""
    note: str = ""
    """Additional information from the task that wrote the file, for the driver."""

    def span(self, column: str) -> tuple[int, int]:
        """Return the smallest and the largest value of a column.

        If they are unknown, return the range of all integers.
        """
        return self.known_span(column) or (-(2**63), 2**63 - 1)

    def known_span(self, column: str) -> tuple[int, int] | None:
        """Return the smallest and the largest value of a column, or `None` if the file has no value in it."""
        low, high = (json.loads(self.stats)[end].get(column) for end in ("minValues", "maxValues"))
        return None if low is None or high is None else (low, high)

    def is_of(self, number: int) -> bool:
        """True if batch `number` wrote the file."""
        return Path(self.path).name.startswith(f"{number:08d}-")


class Storage(Struct, frozen=True):
    """Location of a lake. `options` are options of delta-rs, such as the keys of an object store."""

    location: str
    options: dict[str, str] = {}

    @property
    def is_local(self) -> bool:
        """True if the lake is a folder."""
        return "://" not in self.location

    def url(self, path: str) -> str:
        """Return the address of a path in the lake."""
        return f"{self.location.rstrip('/')}/{path}"

    def filesystem(self) -> fs.FileSystem:
        """Return the lake as a file system of Arrow, with paths relative to the lake."""
        return _filesystem(self.location, json.dumps(self.options))

    def read(self, path: str) -> bytes | None:
        """Return the contents of a small file in the lake, or `None` if there is no such file."""
        try:
            with self.filesystem().open_input_file(path) as file:
                return bytes(file.read())
        except FileNotFoundError:
            return None

    def write(self, path: str, contents: bytes) -> None:
        """Write a small file into the lake. Readers never see an incomplete file."""
        temporary = f"{path}.{uuid.uuid4().hex}" if self.is_local else path
        if self.is_local:
            (Path(self.location) / path).parent.mkdir(parents=True, exist_ok=True)
        # delta-rs's client takes only what comes through a buffer.
        with self.filesystem().open_output_stream(temporary, compression=None, buffer_size=_BUFFER_BYTES) as file:
            file.write(contents)
        if self.is_local:
            (Path(self.location) / temporary).replace(Path(self.location) / path)

    def write_file(self, table: str, number: int, rows: pa.Table) -> DataFile:
        """Write rows as one Parquet file of a table that has no partitions. `number` is the number of the batch."""
        made = NewFile(self, table, number, rows.schema)
        made.add(rows)
        return made.close()


@functools.lru_cache(8)
def _filesystem(location: str, options: str) -> fs.FileSystem:
    if "://" not in location:
        Path(location).mkdir(parents=True, exist_ok=True, mode=0o700)
        return fs.SubTreeFileSystem(location, fs.LocalFileSystem())
    from deltalake.fs import DeltaStorageHandler  # noqa: PLC0415 - a folder needs no connection

    return fs.PyFileSystem(DeltaStorageHandler(location, json.loads(options)))


class NewFile:
    """Writer of one Parquet file. Rows stay in memory until there are enough for a row group."""

    def __init__(
        self,
        storage: Storage,
        table: str,
        number: int,
        schema: pa.Schema,
        day: str | None = None,
        state: bool | None = None,
    ) -> None:
        folders = [
            *([f"day={day}"] if day is not None else []),
            *([f"open={str(state).lower()}"] if state is not None else []),
        ]
        self._path = "/".join([table, *folders, f"{number:08d}-{uuid.uuid4().hex[:12]}.parquet"])
        self._storage = storage
        self._schema = schema
        self._day = day
        self._state = state
        self._held: list[pa.Table] = []
        self._metadata: list[Any] = []
        if storage.is_local:
            (Path(storage.location) / self._path).parent.mkdir(parents=True, exist_ok=True)
        self._sink = storage.filesystem().open_output_stream(self._path, compression=None)
        self._writer = parquet.ParquetWriter(
            self._sink, schema, compression=_COMPRESSION, metadata_collector=self._metadata, write_page_index=True
        )

    def add(self, rows: pa.Table) -> None:
        """Add rows. They must have the columns of the file's schema."""
        self._held.append(rows)
        if sum(one.num_rows for one in self._held) >= _ROW_GROUP:
            self._flush()

    def close(self, note: str = "") -> DataFile:
        """Write the rows that are still in memory, close the file, and return it."""
        self._flush()
        with self._abandoning():
            self._writer.close()
        size = self._sink.tell()
        self._sink.close()
        if self._storage.is_local:
            # A commit that names the file may be on disk before it otherwise.
            descriptor = os.open(Path(self._storage.location) / self._path, os.O_RDONLY)
            os.fsync(descriptor)
            os.close(descriptor)
        metadata = self._metadata[0]
        stats = json.dumps(_statistics(metadata, self._schema))
        return DataFile(self._path, metadata.num_rows, size, self._day, self._state, stats, note)

    def _flush(self) -> None:
        if self._held:
            with self._abandoning():
                self._writer.write_table(pa.concat_tables(self._held), row_group_size=_ROW_GROUP)
            self._held = []

    @contextmanager
    def _abandoning(self) -> Iterator[None]:
        """Let the writer know that it is not open any more after an error. Otherwise its destructor fails too."""
        try:
            yield
        except BaseException:
            self._writer.is_open = False
            raise


def counted_columns(schema: pa.Schema) -> list[str]:
    """Return the names of the columns whose values Delta's statistics describe: those of integers."""
    return [field.name for field in schema if pa.types.is_integer(field.type)]


def _statistics(metadata: Any, schema: pa.Schema) -> dict[str, Any]:
    low: dict[str, int] = {}
    high: dict[str, int] = {}
    nulls: dict[str, int] = {}
    leaves = {metadata.schema.column(index).path: index for index in range(metadata.num_columns)}
    for name in counted_columns(schema):
        groups = [metadata.row_group(group).column(leaves[name]).statistics for group in range(metadata.num_row_groups)]
        known = [group for group in groups if group.has_min_max]
        if known:
            low[name] = min(one.min for one in known)
            high[name] = max(one.max for one in known)
        nulls[name] = sum(group.null_count for group in groups)
    return {"numRecords": metadata.num_rows, "minValues": low, "maxValues": high, "nullCount": nulls}


def day_of(time_ms: int) -> str:
    """Return the day (UTC) that contains a time, such as `2026-01-31`."""
    return f"{datetime.fromtimestamp(time_ms / 1000, UTC):%Y-%m-%d}"


FILES = "table string, path string, rows bigint, bytes bigint, day string, open boolean, stats string, note string"
"""Columns of the rows with which tasks report their files to the driver, one row for each file."""


def told(table: str, files: Iterator[DataFile]) -> Iterator[pa.RecordBatch]:
    """Yield one row for each of `files`, with the columns of `FILES`. A task sends these rows to the driver."""
    for file in files:
        row = {"table": table, **{name: getattr(file, name) for name in DataFile.__struct_fields__}}
        yield pa.RecordBatch.from_pylist([row], _FILES_SCHEMA)


def heard(row: Mapping[str, Any]) -> DataFile:
    """Return the file that a row with the columns of `FILES` describes."""
    return DataFile(**{name: row[name] for name in DataFile.__struct_fields__})


_FILES_SCHEMA = pa.schema(
    [
        ("table", pa.string()), ("path", pa.string()), ("rows", pa.int64()), ("bytes", pa.int64()),
        ("day", pa.string()), ("open", pa.bool_()), ("stats", pa.string()), ("note", pa.string()),
    ]
)  # fmt: skip

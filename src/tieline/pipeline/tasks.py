"""The work of Spark's tasks on files: write the rows of a table, write log rows as bronze, read files of a lake.

Used by: `flow`, which passes these functions to `mapInArrow`. Uses: the storage of the lake, and the logs. A task
writes rows directly into the lake, and the driver gets one row for each file. If a task fails and is repeated, it
writes new files, and the files of the failed attempt are never committed.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from tieline.pipeline.row import SCHEMA
from tieline.pipeline.shape import page_shape
from tieline.pipeline.source import Options
from tieline.pipeline.storage import DataFile, NewFile, Storage, day_of, told
from tieline.pipeline.table import DAY_MS

STATE = "part"
"""Column of deliveries with the kind of a row. It decides in which file the row is stored. See `tables/deliveries.py`.
"""
_BATCH_ROWS = 1 << 16
_FILE_ROWS = 2_000_000
"""Number of rows after which a task begins another file."""


@dataclass(frozen=True)
class TableWriter:
    """Task of Spark that writes its rows as files of one table: one file for each day.

    Recent days have one file for each interval of `width_ms`.
    """

    storage: Storage
    table: str
    number: int
    """Number of the batch."""
    schema: pa.Schema
    time: str | None
    """Column with the time of a row. The table has one partition for each day of this time. `None` if the table has no
    partitions.
    """
    width_ms: int = DAY_MS
    recent_ms: int = 0
    """Rows from this time on are written to one file for each `width_ms`, so that a batch rewrites only the hours that
    it changes.
    """
    states: Mapping[int, bool | None] = field(default_factory=dict)
    """For each value of the column `STATE`, the value of the partition `open`."""

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows in `batches`. Yield one row for each written file, for the driver."""
        return told(self.table, self.write(pa.Table.from_batches([batch]) for batch in batches if batch.num_rows))

    def write(self, pages: Iterator[pa.Table]) -> Iterator[DataFile]:
        """Write the rows in `pages`, and yield the written files."""
        files: dict[tuple[int, int], NewFile] = {}
        counts: dict[tuple[int, int], int] = {}
        for page in pages:
            for key, rows in self._split(page):
                if key not in files:
                    day = None if self.time is None else day_of(max(0, key[0]))
                    files[key] = NewFile(
                        self.storage, self.table, self.number, self.schema, day, self.states.get(key[1])
                    )
                    counts[key] = 0
                files[key].add(rows.select(self.schema.names).cast(self.schema))
                counts[key] += rows.num_rows
                if counts[key] >= _FILE_ROWS:
                    yield files.pop(key).close(str(key[1]))
        for (_, state), file in files.items():
            yield file.close(str(state))

    def _split(self, page: pa.Table) -> Iterator[tuple[tuple[int, int], pa.Table]]:
        """Split the rows of a page by file. Yield the start time and the state of each file, and its rows."""
        parts = np.zeros(page.num_rows, np.int64)
        if self.time is not None:
            times = pc.fill_null(page[self.time], 0).to_numpy()
            parts = np.where(times >= self.recent_ms, times // self.width_ms * self.width_ms, times // DAY_MS * DAY_MS)
        states = page[STATE].to_numpy() if self.states else np.zeros(page.num_rows, np.int64)
        for part in np.unique(parts):
            for state in np.unique(states[parts == part]):
                mine = (parts == part) & (states == state)
                yield (int(part), int(state)), page if mine.all() else page.filter(pa.array(mine))


@dataclass(frozen=True)
class LogPiece:
    """A range of offsets of one log, which one Spark task reads. `where` are the options of the `tieline` source."""

    where: Mapping[str, str]
    log: str
    start: int
    end: int

    def pages(self) -> Iterator[pa.RecordBatch]:
        """Yield the log rows of the range, in batches."""
        return Options(self.where).log().read(self.log, self.start, self.end)


@dataclass(frozen=True)
class FilePiece:
    """A Parquet file with log rows, from a lake of an older format. One Spark task reads it."""

    path: str

    def pages(self) -> Iterator[pa.RecordBatch]:
        """Yield the rows of the file, in batches. Columns that the file lacks are null."""
        for batch in parquet.ParquetFile(self.path).iter_batches(_BATCH_ROWS):
            yield _with_columns(batch, SCHEMA)


Piece = LogPiece | FilePiece


@dataclass(frozen=True)
class BronzeWriter:
    """Task of Spark that reads log rows and writes them unchanged, as bronze.

    The note of each written file has the shape (summary) of its rows.
    """

    writer: TableWriter
    pieces: Sequence[Piece]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the `pieces` (ranges of a log, or files) whose numbers are in `batches`, and write their rows.

        Yield one row for each written file, for the driver.
        """
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from told(self.writer.table, self._write(self.pieces[number]))

    def _write(self, piece: Piece) -> Iterator[DataFile]:
        shapes: list[bytes] = []

        def pages() -> Iterator[pa.Table]:
            for batch in piece.pages():
                page = pa.Table.from_batches([batch])
                shapes.append(msgspec.json.encode(page_shape(page)))
                yield page

        files = list(self.writer.write(pages()))
        notes = ["[" + b",".join(shapes).decode() + "]", *[""] * len(files)]
        for file, note in zip(files, notes, strict=False):
            yield msgspec.structs.replace(file, note=note)


@dataclass(frozen=True)
class LogReader:
    """Task of Spark that reads log rows."""

    pieces: Sequence[LogPiece]

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the `pieces` (ranges of a log) whose numbers are in `batches`. Yield their rows."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield from self.pieces[number].pages()


@dataclass(frozen=True)
class FileReader:
    """Task of Spark that reads files of a lake. It is used if Spark itself has no client for the object store."""

    storage: Storage
    paths: Sequence[str]
    schema: pa.Schema

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Read the files whose numbers are in `batches`. Yield the rows of these files."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with self.storage.filesystem().open_input_file(self.paths[number]) as source:
                    for rows in parquet.ParquetFile(source).iter_batches(_BATCH_ROWS, columns=self.schema.names):
                        yield _with_columns(rows, self.schema)


@dataclass(frozen=True)
class KeyFinder:
    """Task of Spark that finds the files with at least one of the deliveries in `wanted`, by member number and key."""

    storage: Storage
    paths: Sequence[str]
    wanted: pa.Table

    def __call__(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Search the files whose numbers are in `batches`. Yield the numbers of files with a wanted delivery."""
        for batch in batches:
            for number in batch.column(0).to_pylist():
                with self.storage.filesystem().open_input_file(self.paths[number]) as source:
                    rows = parquet.read_table(source, columns=["number", "key"])
                if rows.join(self.wanted, ["number", "key"], join_type="left semi").num_rows:
                    yield pa.RecordBatch.from_pydict({"found": pa.array([number], pa.int64())})


def _with_columns(rows: pa.RecordBatch, schema: pa.Schema) -> pa.RecordBatch:
    """Return rows with the columns of `schema`. Columns that the rows lack are null: an older version wrote them."""
    given = set(rows.schema.names)
    columns = [
        rows.column(one.name).cast(one.type) if one.name in given else pa.nulls(len(rows), one.type) for one in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


Task = Callable[[Iterator[pa.RecordBatch]], Iterator[pa.RecordBatch]]

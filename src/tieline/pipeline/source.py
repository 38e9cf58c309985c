"""The `tieline` data source: Spark can read a hub's logs as a table or as a stream.

Used by: `spark.read.format("tieline")` and `spark.readStream.format("tieline")`, in the pipeline or in a notebook.
Reads from: a home (`home`) or a hub's address (`url`, `token`). A position is a map from log to offset. Rows of
different logs have no common order. Partitions are ranges of offsets, so any number of workers can read at the same
time.

Options: `home`, or `url` and `token`; `logs` (`main,activity`); `partitions`, the number for each log and batch (by
default, as many as are worth a task); `maxRowsPerBatch` of a stream; `from`, the position at which a stream begins, and
`to`, the position at which it ends, as `{"main": 0, "activity": 0}`; `audit` (`true`: check that the messages and
changes stored with the rows match the rows; only for a home).
"""

import itertools
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Protocol

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    InputPartition,
    LessThan,
    LessThanOrEqual,
)
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from tieline.pipeline.row import LOGS, SCHEMA

Position = dict[str, int]

_ROWS_MIN = 20_000
"""Smallest number of rows in a partition. A smaller partition would not be worth a Spark task."""
_PARTITIONS = 8


class Log(Protocol):
    """A reader of a hub's logs: from the database in its home folder, or from its URL."""

    def end(self, log: str) -> int:
        """Return the offset that the next row of a log will have. `log` is `main` or `activity`."""

    def epoch(self, log: str) -> str:
        """Return the epoch of a log: its random id, which changes when a hub is restored.

        The epoch is empty if the log has none.
        """

    def read(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows of a log with `start` <= offset < `end`, in batches."""


class SourceError(ValueError):
    """Raised if the options of a source are wrong: an unknown log, or not exactly one of `home` and `url`."""


class OffsetRange(InputPartition):
    """A partition for Spark: the rows of one log with `start` <= offset < `end`."""

    def __init__(self, log: str, start: int, end: int) -> None:
        super().__init__((log, start, end))
        self.log = log
        self.start = start
        self.end = end


class Options:
    """The options of the `tieline` source, checked and parsed."""

    def __init__(self, options: Mapping[str, str]) -> None:
        self._options = {name.lower(): value for name, value in options.items()}
        self.logs = tuple(name.strip() for name in self._options.get("logs", ",".join(LOGS)).split(","))
        unknown = [name for name in self.logs if name not in LOGS]
        if unknown:
            raise SourceError(f"there is no log {unknown[0]!r}; there are {' and '.join(LOGS)}")
        self._partitions = self._count("partitions")
        self.rows_max = self._count("maxRowsPerBatch")
        if ("home" in self._options) == ("url" in self._options):
            raise SourceError('say where the log is: option("home", DIR), or option("url", …) and option("token", …)')

    def log(self) -> Log:
        """Open a reader of the logs.

        Each worker opens its own reader, because a connection cannot be sent to a worker.
        """
        if "home" in self._options:
            from tieline.pipeline.sqlite_log import SqliteLog  # noqa: PLC0415 - a reader of a URL needs no database

            return SqliteLog(self._options["home"], audit=self._options.get("audit") == "true")
        from tieline.pipeline.http_log import HttpLog  # noqa: PLC0415 - a reader of a home needs no network

        return HttpLog(self._options["url"], self._options.get("token", ""))

    def split(self, log: str, start: int, end: int) -> list[OffsetRange]:
        """Split a range of offsets into partitions of about equal length.

        The option `partitions` is the number of partitions. Without it, there are as many as are worth a Spark task.
        """
        if self._partitions is not None:
            return split(log, start, end, self._partitions, 1)
        return split(log, start, end, _PARTITIONS, _ROWS_MIN)

    def position(self, name: str) -> Position | None:
        """Return the position in the option `name`, with an offset for every log. Return `None` without the option."""
        given = self._options.get(name)
        if given is None:
            return None
        found = json.loads(given)
        return {log: int(found.get(log, 0)) for log in self.logs}

    def _count(self, name: str) -> int | None:
        given = self._options.get(name.lower())
        if given is None:
            return None
        if not given.isdecimal() or int(given) == 0:
            raise SourceError(f"{name} must be a number above 0, not {given!r}")
        return int(given)


class TielineSource(DataSource):
    """Spark data source for a hub's logs."""

    @classmethod
    def name(cls) -> str:
        """Return the name of the source for `spark.read.format`."""
        return "tieline"

    def schema(self) -> StructType:
        """Return the columns of a log row, as in `row.SCHEMA`."""
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "TableReader":
        """Return a reader of the logs up to their current end."""
        del schema
        return TableReader(Options(self.options))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        """Return a reader of the logs as a stream, which also reads rows that are added later."""
        del schema
        return StreamReader(Options(self.options))


class TableReader(DataSourceReader):
    """Reads the logs up to their end at the start of the query. A query can be limited to some logs and offsets."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._start = 0
        self._end: int | None = None
        self._logs = options.logs

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Apply the filters on offsets and logs here. Yield the other filters, which Spark must apply."""
        for one in filters:
            if not self._take(one):
                yield one

    def _take(self, one: Filter) -> bool:
        match one:
            case EqualTo(("log",), str(log)):
                self._logs = tuple(name for name in self._logs if name == log)
            case In(("log",), values):
                self._logs = tuple(name for name in self._logs if name in values)
            case EqualTo(("offset",), int(value)):
                self._narrow(value, value + 1)
            case GreaterThan(("offset",), int(value)):
                self._narrow(value + 1, None)
            case GreaterThanOrEqual(("offset",), int(value)):
                self._narrow(value, None)
            case LessThan(("offset",), int(value)):
                self._narrow(0, value)
            case LessThanOrEqual(("offset",), int(value)):
                self._narrow(0, value + 1)
            case _:
                return False
        return True

    def _narrow(self, start: int, end: int | None) -> None:
        self._start = max(self._start, start)
        if end is not None:
            self._end = end if self._end is None else min(self._end, end)

    def partitions(self) -> Sequence[OffsetRange]:
        """Return ranges of offsets of about equal length, one for each task."""
        log = self._options.log()
        ranges: list[OffsetRange] = []
        for name in self._logs:
            end = log.end(name) if self._end is None else min(self._end, log.end(name))
            ranges += self._options.split(name, self._start, end)
        return ranges or [OffsetRange(LOGS[0], 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the log rows of one range of offsets."""
        assert isinstance(partition, OffsetRange), "made by `partitions`"
        return self._options.log().read(partition.log, partition.start, partition.end)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads the logs from a position on, in batches, for Spark's structured streaming."""

    def __init__(self, options: Options) -> None:
        self._options = options
        # End position of a run over the rows that exist now.
        self._target: Position | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the position at which a stream without a checkpoint begins."""
        return self._options.position("from") or dict.fromkeys(self._options.logs, 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Return the limit of rows in a batch: the option `maxRowsPerBatch`, or no limit."""
        return ReadMaxRows(self._options.rows_max) if self._options.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run at the current end of the logs. The next run reads later rows."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Return the end position of the batch that begins at `start`.

        The batch takes all rows of one log, then rows of the next log, up to the limit.
        """
        room = limit.max_rows if isinstance(limit, ReadMaxRows) else None
        position = {}
        for name, end in (self._target or self._ends()).items():
            begin = start.get(name, 0)
            # A log that became shorter has lost rows: it is not read again, and `verify` reports the loss.
            reach = max(begin, end)
            position[name] = reach if room is None else min(reach, begin + room)
            if room is not None:
                room -= position[name] - begin
        return position

    def partitions(self, start: dict[str, int], end: dict[str, int]) -> Sequence[OffsetRange]:
        """Return ranges of offsets of about equal length between two positions, one for each task."""
        ranges: list[OffsetRange] = []
        for name in self._options.logs:
            ranges += self._options.split(name, start.get(name, 0), end.get(name, 0))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the log rows of one range of offsets."""
        assert isinstance(partition, OffsetRange), "made by `partitions`"
        return self._options.log().read(partition.log, partition.start, partition.end)

    def _ends(self) -> Position:
        given = self._options.position("to")
        log = self._options.log()
        return given or {name: log.end(name) for name in self._options.logs}


def split(log: str, start: int, end: int, parts: int, rows_min: int) -> list[OffsetRange]:
    """Split a range of offsets into at most `parts` ranges of about equal length.

    Each range has at least `rows_min` rows, except if there is only one range.
    """
    rows = max(0, end - start)
    count = max(1, min(parts, rows // rows_min)) if rows else 0
    bounds = [start + rows * index // count for index in range(count + 1)] if count else []
    return [OffsetRange(log, first, last) for first, last in itertools.pairwise(bounds)]


def read_options(where: Mapping[str, str], **more: Any) -> dict[str, str]:
    """Make the options for `spark.read.options(**…)` from `where` and `more`, with all values as text."""
    return {**where, **{name: value if isinstance(value, str) else json.dumps(value) for name, value in more.items()}}

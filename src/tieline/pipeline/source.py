"""The `tieline` data source: a hub's logs as Spark reads them, as a table or as a stream.

Above: `spark.read.format("tieline")` and `spark.readStream.format("tieline")`, the pipeline's own or a notebook's.
Below: a home (`home`) or a hub's address (`url`, `token`). A position is a map from log to offset; there is no order
across logs. Partitions are ranges of offsets, so any number of workers can read at the same time.

Options: `home` or `url` and `token`; `logs` (`main,activity`); `partitions` (per log and batch; without it as many as
are worth a task); `maxRowsPerBatch` of a stream; `from`, where a stream begins, and `to`, where it ends, as
`{"main": 0, "activity": 0}`; `audit` (`true`: check that the data stored beside the rows match the rows; for a home
only).
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
"""A partition of fewer rows is not worth a task of its own."""
_PARTITIONS = 8


class Log(Protocol):
    """Source of rows: a home or a hub's address."""

    def end(self, log: str) -> int:
        """The offset that the next row of a log will have."""

    def read(self, log: str, start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The rows from `start` to before `end`."""


class SourceError(ValueError):
    """The options of a source name nothing that can be read."""


class OffsetRange(InputPartition):
    """Rows of one log from `start` to before `end`."""

    def __init__(self, log: str, start: int, end: int) -> None:
        super().__init__((log, start, end))
        self.log = log
        self.start = start
        self.end = end


class Options:
    """Options of a reader, checked and parsed."""

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
        """Open the log that the options name. Each worker opens its own: a connection cannot be sent to it."""
        if "home" in self._options:
            from tieline.pipeline.sqlite_log import SqliteLog  # noqa: PLC0415 - a reader of a URL needs no database

            return SqliteLog(self._options["home"], audit=self._options.get("audit") == "true")
        from tieline.pipeline.http_log import HttpLog  # noqa: PLC0415 - a reader of a home needs no network

        return HttpLog(self._options["url"], self._options.get("token", ""))

    def split(self, log: str, start: int, end: int) -> list[OffsetRange]:
        """Ranges of about equal length: as many as the option `partitions` says, or as many as are worth a task."""
        if self._partitions is not None:
            return split(log, start, end, self._partitions, 1)
        return split(log, start, end, _PARTITIONS, _ROWS_MIN)

    def position(self, name: str) -> Position | None:
        """The position in this option, for every log that is read; `None` without the option."""
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
    """A hub's logs."""

    @classmethod
    def name(cls) -> str:
        """Name of the source for `spark.read.format`."""
        return "tieline"

    def schema(self) -> StructType:
        """The columns of `row.SCHEMA`."""
        return from_arrow_schema(SCHEMA)

    def reader(self, schema: StructType) -> "TableReader":
        """The logs as they are now."""
        del schema
        return TableReader(Options(self.options))

    def streamReader(self, schema: StructType) -> "StreamReader":  # noqa: N802 - Spark's name
        """The logs as they grow."""
        del schema
        return StreamReader(Options(self.options))


class TableReader(DataSourceReader):
    """The logs up to where they end when the query starts, or the part that a query asks for."""

    def __init__(self, options: Options) -> None:
        self._options = options
        self._start = 0
        self._end: int | None = None
        self._logs = options.logs

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802 - Spark's name
        """Apply the filters on offsets and logs here; return the others for Spark to apply."""
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
        """Ranges of about equal length."""
        log = self._options.log()
        ranges: list[OffsetRange] = []
        for name in self._logs:
            end = log.end(name) if self._end is None else min(self._end, log.end(name))
            ranges += self._options.split(name, self._start, end)
        return ranges or [OffsetRange(LOGS[0], 0, 0)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        assert isinstance(partition, OffsetRange), "made by `partitions`"
        return self._options.log().read(partition.log, partition.start, partition.end)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The logs from a position on."""

    def __init__(self, options: Options) -> None:
        self._options = options
        # End position of a run over the rows that exist now.
        self._target: Position | None = None

    def initialOffset(self) -> dict[str, int]:  # noqa: N802 - Spark's name
        """Start position of a stream without a checkpoint."""
        return self._options.position("from") or dict.fromkeys(self._options.logs, 0)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        """Limit of rows in a batch."""
        return ReadMaxRows(self._options.rows_max) if self._options.rows_max else ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        """Fix the end of this run: later rows are for the next run."""
        self._target = self._ends()

    def latestOffset(self, start: dict[str, int], limit: ReadLimit) -> dict[str, int]:  # noqa: N802 - Spark's name
        """End position of the next batch: takes rows from all logs in turn, up to the limit."""
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
        """Ranges of about equal length."""
        ranges: list[OffsetRange] = []
        for name in self._options.logs:
            ranges += self._options.split(name, start.get(name, 0), end.get(name, 0))
        return ranges

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The rows of one range."""
        assert isinstance(partition, OffsetRange), "made by `partitions`"
        return self._options.log().read(partition.log, partition.start, partition.end)

    def _ends(self) -> Position:
        given = self._options.position("to")
        log = self._options.log()
        return given or {name: log.end(name) for name in self._options.logs}


def split(log: str, start: int, end: int, parts: int, rows_min: int) -> list[OffsetRange]:
    """At most `parts` ranges. Each has at least `rows_min` rows, unless there are fewer rows in total."""
    rows = max(0, end - start)
    count = max(1, min(parts, rows // rows_min)) if rows else 0
    bounds = [start + rows * index // count for index in range(count + 1)] if count else []
    return [OffsetRange(log, first, last) for first, last in itertools.pairwise(bounds)]


def read_options(where: Mapping[str, str], **more: Any) -> dict[str, str]:
    """Options for `spark.read.options(**…)`, as texts."""
    return {**where, **{name: value if isinstance(value, str) else json.dumps(value) for name, value in more.items()}}

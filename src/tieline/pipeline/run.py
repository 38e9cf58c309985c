"""A run: brings all new rows of the logs into the lake, once or until it is stopped.

Above: `tieline pipeline run`. Below: `flow`, which gets the batches. Few rows are read in this process; many rows are
read by Spark's structured streaming, which cuts them into batches and reads these in parallel. The lake's last commit
says where a run begins, so Spark's own checkpoint serves one stream only and is deleted with the stream.
"""

import contextlib
import re
import shutil
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import TypeVar

import pyarrow as pa
from msgspec import Struct
from pyspark import inheritable_thread_target
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tieline.core.store import StoreError
from tieline.pipeline.flow import FEW_ROWS, Flow, Stage
from tieline.pipeline.http_log import LogUnreachable
from tieline.pipeline.lake import Commit, Lake, LakeError
from tieline.pipeline.prices import load_prices
from tieline.pipeline.row import MAIN, SCHEMA
from tieline.pipeline.source import Options, Position, read_options
from tieline.pipeline.tables import deliveries

ROWS_PER_BATCH = 1_000_000
"""Most rows of a batch. This bounds the memory and disk that a run needs, however many rows are new."""
_ERROR = re.compile(r"(?!org\.|java\.|py4j\.)[\w.]*(?:Error|Exception|Invalid|Refused|Unreachable|Failed): \S")
_SWEEP_BATCHES = 100
_POLL_SECONDS = 1
_FOLLOW_SECONDS = 5
_BYTES_HELD_MAX = 256 << 20
"""Most bytes that are read into this process. Few rows may still be large, because activity events have no common
limit.
"""
_T = TypeVar("_T")


class RunFailed(Exception):
    """Raised when a run stops before it is done. The lake is as of the last whole batch."""


@dataclass(frozen=True)
class Watch:
    """Callbacks by which a caller follows and stops a run."""

    stage: Stage = lambda name: None
    done: Callable[[Commit], None] = lambda commit: None
    """Called after every commit, with that commit."""
    stopped: Callable[[], bool] = lambda: False
    """Called now and then; the run ends when it returns true."""


class Summary(Struct):
    """Result of a run: how many rows it read and wrote, and how long it took. `pipeline run --json` prints it last."""

    events_read: int = 0
    batches: int = 0
    tables: dict[str, int] = {}
    seconds: float = 0.0


def new_rows(lake: Lake, where: Mapping[str, str]) -> int:
    """Return how many log rows the lake does not have yet. `where` are the source's options. Needs no Spark."""
    return _count(lake.head().position, _reach(where, None))


def is_brief(lake: Lake, rows: int) -> bool:
    """Return true if a run over `rows` new rows is short, so that a brief Spark session suits it.

    Open deliveries count too, because every batch reads them.
    """
    held = sum(
        file.rows for file in lake.head().tables.get(deliveries.TABLE.name, ()) if file.part in deliveries.OPEN_PARTS
    )
    return rows + held < FEW_ROWS


def run(
    spark: SparkSession,
    lake: Lake,
    where: Mapping[str, str],
    *,
    follow: bool = False,
    until: Position | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    few_rows: int | None = None,
    watch: Watch | None = None,
) -> Summary:
    """Read all new rows of the logs into the lake. `where` are the source's options. Return a summary.

    With `follow`, continue until `watch.stopped()` returns true. `until` is the position at which to stop reading.
    Batches of fewer than `few_rows` are read in this process alone. By default, on a cluster no batch is.
    """
    watch = watch or Watch()
    if few_rows is None:
        few_rows = FEW_ROWS if (spark.sparkContext.master or "").startswith("local") else 0
    summary = Summary()
    begun = time.monotonic()
    if not follow and new_rows(lake, where) == 0:
        return summary
    with lake.held():
        batches = _Batches(spark, lake, where, summary, watch, few_rows)
        try:
            batches.ask(_require_same_log, lake, where)
            lake.sweep()
            while not watch.stopped():
                begin, end = lake.head().position, batches.ask(_reach, where, until)
                if end is not None and _count(begin, end):
                    few = _count(begin, end) <= min(few_rows - 1, rows_per_batch)
                    rows = batches.ask(_read, where, begin, end) if few else None
                    if rows is not None:
                        batches.bring(rows)
                    elif not watch.stopped():
                        batches.stream(begin, end, rows_per_batch)
                if not follow:
                    break
                _rest(watch.stopped)
        except (LogUnreachable, StoreError) as error:
            raise RunFailed(str(error)) from error
    summary.seconds = round(time.monotonic() - begun, 3)
    return summary


def _rest(stopped: Callable[[], bool]) -> None:
    """Wait some seconds for more rows, or until `stopped` returns true."""
    for _ in range(_FOLLOW_SECONDS // _POLL_SECONDS):
        time.sleep(_POLL_SECONDS)
        if stopped():
            return


def _reach(where: Mapping[str, str], until: Position | None) -> Position:
    """Return the position up to which to read: the end of the logs, or `until` if that comes first."""
    options = Options(where)
    log = options.log()
    ends = {name: log.end(name) for name in options.logs}
    return ends if until is None else {name: min(end, until.get(name, 0)) for name, end in ends.items()}


def _read(where: Mapping[str, str], begin: Position, end: Position) -> pa.Table | None:
    """Read the rows from one position to another; return `None` if they are too large for this process."""
    log = Options(where).log()
    pages: list[pa.RecordBatch] = []
    for page in (page for name, last in end.items() for page in log.read(name, begin.get(name, 0), last)):
        pages.append(page)
        if sum(page.nbytes for page in pages) > _BYTES_HELD_MAX:
            return None
    return pa.Table.from_batches(pages, SCHEMA)


def _count(begin: Position, end: Position) -> int:
    """Return the number of rows from one position to another. A log that became shorter has no new rows."""
    return sum(max(0, last - begin.get(name, 0)) for name, last in end.items())


class _Batches:
    """Brings the batches of one run into the lake, one after the other, and sums them up in a `Summary`."""

    def __init__(
        self, spark: SparkSession, lake: Lake, where: Mapping[str, str], summary: Summary, watch: Watch, few_rows: int
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._where = where
        self._summary = summary
        self._watch = watch
        self._let_go = threading.Event()
        self._flow = Flow(spark, lake, load_prices(lake.path), self._stage, few_rows=few_rows)
        self._failures: list[Exception] = []

    def ask(self, question: Callable[..., _T], *about: object) -> _T | None:
        """Call `question(*about)`, which may block for long. Return `None` if the run is stopped before the result."""
        heard: Future[_T] = Future()

        def answer() -> None:
            try:
                heard.set_result(question(*about))
            except Exception as error:  # noqa: BLE001 - whoever asked is told
                heard.set_exception(error)

        # Nothing joins this thread: a hub that accepts connections and never answers must not keep a run from ending.
        threading.Thread(target=answer, daemon=True, name="tieline-question").start()
        while not heard.done():
            wait([heard], _POLL_SECONDS)
            if not heard.done() and self._watch.stopped():
                return None
        return heard.result()

    def bring(self, rows: pa.Table) -> None:
        """Add few rows to the lake as one batch, without a Spark stream."""
        group = f"tieline-{uuid.uuid4().hex}"

        def add() -> None:
            self._spark.sparkContext.setJobGroup(group, "a batch of tieline's")
            self._add(rows)

        with ThreadPoolExecutor(1, thread_name_prefix="tieline-batch") as pool:
            batch = pool.submit(inheritable_thread_target(self._spark)(add))
            try:
                while not batch.done():
                    wait([batch], _POLL_SECONDS)
                    if not batch.done() and self._watch.stopped():
                        self._let_go_of(group)
            except BaseException:
                self._let_go_of(group)
                raise
        try:
            batch.result()
        except Exception as error:
            if not self._let_go.is_set():
                raise RunFailed(_reason(error)) from error

    def stream(self, begin: Position, end: Position, rows_per_batch: int) -> None:
        """Add many rows to the lake, in batches that Spark's workers read."""
        options = read_options(self._where, maxRowsPerBatch=str(rows_per_batch), **{"from": begin, "to": end})
        shutil.rmtree(self._lake.checkpoint, ignore_errors=True)
        writer = self._spark.readStream.format("tieline").options(**options).load().writeStream
        writer = writer.foreachBatch(lambda rows, _: self._add(rows)).trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._lake.checkpoint)).start()
        try:
            while not query.awaitTermination(_POLL_SECONDS):
                if self._watch.stopped():
                    self._let_go.set()
                    return
        except StreamingQueryException as error:
            raise RunFailed(_reason(self._failures[0] if self._failures else error)) from error
        finally:
            with contextlib.suppress(Exception):
                query.stop()
            shutil.rmtree(self._lake.checkpoint, ignore_errors=True)

    def _let_go_of(self, group: str) -> None:
        self._let_go.set()
        self._spark.sparkContext.cancelJobGroup(group)

    def _add(self, rows: DataFrame | pa.Table) -> None:
        before = self._lake.head().position
        try:
            commit = self._flow.add(rows)
        except Exception as error:
            # Spark ends the stream because of this error, and reports the error in a page of text.
            self._failures.append(error)
            raise
        if commit is None:
            return
        summary = self._summary
        summary.batches += 1
        summary.events_read += _count(before, commit.position)
        for table, count in commit.written.items():
            summary.tables[table] = summary.tables.get(table, 0) + count
        self._watch.done(commit)
        # A run with `follow` may last for weeks: publish and sweep now, not at its end.
        self._lake.publish()
        if summary.batches % _SWEEP_BATCHES == 0:
            self._lake.sweep()

    def _stage(self, name: str) -> None:
        if self._let_go.is_set():
            raise RunFailed("the batch was let go")
        self._watch.stage(name)


def _require_same_log(lake: Lake, where: Mapping[str, str]) -> None:
    """Raise if the lake was made from another log, or from a log that was restored and has grown again since.

    The lake's positions mean nothing in such a log.
    """
    head = lake.head()
    end = head.position.get(MAIN, 0)
    if not head.last_hash or not end:
        return
    for page in Options(where).log().read(MAIN, end - 1, end):
        found = page.column("hash").to_pylist()
        # A log that lost this row is shorter: none of its rows is read again, and `verify` reports the loss.
        if found and found[0].hex() != head.last_hash:
            raise LakeError(f"{lake.path} is of another log; name another lake with --lake DIR")


def rebuild(spark: SparkSession, lake: Lake, table: str, stage: Stage = lambda name: None) -> int:
    """Compute one table again from all log rows that the lake holds (bronze). Return its number of rows."""
    with lake.held():
        commit = Flow(spark, lake, load_prices(lake.path), stage).rebuild(table)
        lake.publish()
    return commit.rows(table)


def _reason(error: BaseException) -> str:
    """Return the reason of a failure in one line.

    From Spark's long reports, take the line with the worker's Python error.
    """
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return str(error) or type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _ERROR.match(line)]
    return (told[-1:] or lines[:1] or ["Spark gave no reason"])[0]

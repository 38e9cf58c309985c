"""A run: brings everything that is new in the logs into the lake, once or for as long as it is wanted.

Above: `tieline pipeline run`. Below: Spark's structured streaming, which cuts what is new into batches, and `flow`. The
lake's last commit says where a run begins, so Spark's own notes are of one run only and are thrown away with it.
"""

import contextlib
import re
import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from msgspec import Struct
from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession

from tieline.pipeline.flow import Flow, Stage
from tieline.pipeline.http_log import LogUnreachable
from tieline.pipeline.lake import Commit, Lake, LakeError
from tieline.pipeline.prices import load_prices
from tieline.pipeline.row import MAIN
from tieline.pipeline.source import Options, Position, read_options

ROWS_PER_BATCH = 1_000_000
"""Rows of a batch: what bounds the memory and disk that a run needs, however much is new."""
_ERROR = re.compile(r"(?!org\.|java\.|py4j\.)[\w.]*(?:Error|Exception|Invalid|Refused|Unreachable|Failed): \S")
_SWEEP_BATCHES = 100
_POLL_SECONDS = 1
_FOLLOW_SECONDS = 5


class RunFailed(Exception):
    """A run stopped before it was done; the lake is as of the last whole batch."""


@dataclass(frozen=True)
class Watch:
    """Whoever looks on."""

    stage: Stage = lambda name: None
    done: Callable[[Commit], None] = lambda commit: None
    """Told of every commit."""
    stopped: Callable[[], bool] = lambda: False
    """Asked now and then whether the run should end."""


class Summary(Struct):
    """What a run did: the last line of `--json`."""

    events_read: int = 0
    batches: int = 0
    tables: dict[str, int] = {}
    seconds: float = 0.0


def new_rows(lake: Lake, where: Mapping[str, str]) -> int:
    """How many rows the lake does not have yet; needs no session."""
    log, position = Options(where).log(), lake.head().position
    return sum(max(0, log.end(name) - position.get(name, 0)) for name in Options(where).logs)


def run(
    spark: SparkSession,
    lake: Lake,
    where: Mapping[str, str],
    *,
    follow: bool = False,
    until: Position | None = None,
    rows_per_batch: int = ROWS_PER_BATCH,
    watch: Watch | None = None,
) -> Summary:
    """Bring in what is new. `where` are the source's options."""
    watch = watch or Watch()
    summary, failures = Summary(), list[Exception]()
    begun = time.monotonic()
    if not follow and new_rows(lake, where) == 0:
        return summary
    with lake.held():
        try:
            _require_same_log(lake, where)
        except LogUnreachable as error:
            raise RunFailed(str(error)) from error
        lake.sweep()
        flow = Flow(spark, lake, load_prices(lake.path), watch.stage)

        def add(rows: DataFrame, _batch: int) -> None:
            before = lake.head().position
            try:
                commit = flow.add(rows)
            except Exception as error:
                # Spark ends the stream because of it, and tells of it in a page.
                failures.append(error)
                raise
            if commit is None:
                return
            summary.batches += 1
            summary.events_read += sum(end - before.get(log, 0) for log, end in commit.position.items())
            for table, count in commit.written.items():
                summary.tables[table] = summary.tables.get(table, 0) + count
            watch.done(commit)
            # Who follows for weeks must not wait for the end of the run, nor keep what was replaced till then.
            lake.publish()
            if summary.batches % _SWEEP_BATCHES == 0:
                lake.sweep()

        bounds = {"from": lake.head().position, **({"to": until} if until else {})}
        options = read_options(where, maxRowsPerBatch=str(rows_per_batch), **bounds)
        shutil.rmtree(lake.checkpoint, ignore_errors=True)
        try:
            _stream(spark, options, add, lake.checkpoint, follow=follow, stopped=watch.stopped)
        except StreamingQueryException as error:
            raise RunFailed(_reason(failures[0] if failures else error)) from error
        finally:
            shutil.rmtree(lake.checkpoint, ignore_errors=True)
    summary.seconds = round(time.monotonic() - begun, 3)
    return summary


def _require_same_log(lake: Lake, where: Mapping[str, str]) -> None:
    """Positions mean nothing in another hub's log, nor in one that was restored and grew again."""
    head = lake.head()
    end = head.position.get(MAIN, 0)
    if not head.last_hash or not end:
        return
    for page in Options(where).log().read(MAIN, end - 1, end):
        found = page.column("hash").to_pylist()
        # A log that lost this row is shorter: nothing of it is read again, and `verify` tells.
        if found and found[0].hex() != head.last_hash:
            raise LakeError(f"{lake.path} is of another log; name another lake with --lake DIR")


def rebuild(spark: SparkSession, lake: Lake, table: str, stage: Stage = lambda name: None) -> int:
    """Compute one table anew from bronze; returns how many rows it has."""
    with lake.held():
        commit = Flow(spark, lake, load_prices(lake.path), stage).rebuild(table)
        lake.publish()
    return commit.rows(table)


def _stream(
    spark: SparkSession,
    options: Mapping[str, str],
    add: Callable[[DataFrame, int], None],
    checkpoint: Path,
    *,
    follow: bool,
    stopped: Callable[[], bool],
) -> None:
    writer = spark.readStream.format("tieline").options(**options).load().writeStream.foreachBatch(add)
    writer = writer.option("checkpointLocation", str(checkpoint))
    writer = (
        writer.trigger(processingTime=f"{_FOLLOW_SECONDS} seconds") if follow else writer.trigger(availableNow=True)
    )
    query = writer.start()
    try:
        while not query.awaitTermination(_POLL_SECONDS):
            if stopped():
                return
    finally:
        with contextlib.suppress(Exception):
            query.stop()


def _reason(error: BaseException) -> str:
    """What went wrong, in a line: of Spark's long reports the one that a worker's Python gave as its reason."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return str(error) or type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    told = [line for line in lines if _ERROR.match(line)]
    return (told[-1:] or lines[:1] or ["Spark gave no reason"])[0]

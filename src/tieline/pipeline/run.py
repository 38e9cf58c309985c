"""A run: adds all new rows of the logs to the lake, once or until it is stopped.

Used by: `tieline pipeline run`. Uses: `flow`, which gets the batches. A batch is a range of offsets of each log. It is
divided into smaller ranges, each of which one Spark task reads. A run begins at the position of the lake's last commit.
"""

import contextlib
import functools
import re
import threading
import time
import uuid
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, wait
from dataclasses import dataclass
from typing import TypeVar

from msgspec import Struct
from pyspark.sql import SparkSession

from tieline.core.store import StoreError
from tieline.pipeline.catalogue import BRONZE, REBUILDABLE
from tieline.pipeline.flow import FEW_ROWS, Flow, Stage
from tieline.pipeline.http_log import LogUnreachable
from tieline.pipeline.lake import Commit, Lake, LakeError
from tieline.pipeline.old_lake import last_commit, remove_old_files
from tieline.pipeline.prices import load_prices
from tieline.pipeline.row import MAIN
from tieline.pipeline.source import Options, Position
from tieline.pipeline.tables import deliveries
from tieline.pipeline.tasks import LogPiece, Piece

ROWS_PER_BATCH = 1_000_000
"""Maximum number of rows of a batch. It limits the memory and disk space that a run needs, however many rows are new.
"""
_ERROR = re.compile(r"(?!org\.|java\.|py4j\.)[\w.]*(?:Error|Exception|Invalid|Refused|Unreachable|Failed): \S")
_DAMAGED = re.compile(r"reading file (\S+\.parquet)")
_FULL = "No space left on device"
_POLL_SECONDS = 1  # soon enough after Ctrl-C
_FOLLOW_SECONDS = 5  # about as long as a small batch takes
_T = TypeVar("_T")


class LogChanged(LakeError):
    """Raised if the lake was made from a different log.

    It may be the log of another hub, or the log before the hub was restored.
    """

    def __init__(self, what: str) -> None:
        super().__init__(
            f"{what}; name another lake with --lake DIR, or after the hub was restored from a backup use "
            "'tieline pipeline rewind'"
        )


class RunFailed(Exception):
    """Raised when a run fails before its end. The lake then contains all batches up to the last complete one."""


@dataclass(frozen=True)
class Watch:
    """Callbacks by which a caller observes and stops a run."""

    stage: Stage = lambda name: None
    done: Callable[[Commit], None] = lambda commit: None
    """Called after every commit, with that commit."""
    stopped: Callable[[], bool] = lambda: False
    """Called about every second. The run ends when this function returns true."""


class Summary(Struct):
    """Result of a run: how many rows it read and wrote, and how long it took. `pipeline run --json` prints it last."""

    events_read: int = 0
    batches: int = 0
    tables: dict[str, int] = {}
    seconds: float = 0.0
    missed: dict[str, int] = {}
    """Numbers of `messages`, `activity` and other `rows` that the hub had deleted before they were read, in all runs.
    """

    def add(self, commit: Commit) -> None:
        """Add the numbers of rows in a batch's commit to the summary."""
        self.batches += 1
        self.events_read += commit.written.get(BRONZE, 0)
        self.missed = commit.missed()
        for table, count in commit.written.items():
            self.tables[table] = self.tables.get(table, 0) + count


def new_rows(lake: Lake, where: Mapping[str, str]) -> int:
    """Return how many log rows the lake does not have yet. `where` are the source's options. This needs no Spark.

    Raise `LogChanged` if the lake was not made from this log.
    """
    head = lake.head()
    _require_known(lake, head, where)
    return rows_after(head.position, where)


def rows_after(position: Position, where: Mapping[str, str]) -> int:
    """Return how many log rows come after a position. `where` are the source's options."""
    return _count(position, _reach(where, None))


def _require_known(lake: Lake, head: Commit, where: Mapping[str, str]) -> None:
    """Raise `LogChanged` if a log has fewer rows than the lake has read from it, or another epoch."""
    options = Options(where)
    log = options.log()
    for name in options.logs:
        known, epoch = head.epochs.get(name, ""), log.epoch(name)
        if known and epoch and known != epoch:
            raise LogChanged(f"{lake} is of another log: {name} has the epoch {epoch}, and had {known}")
        if log.end(name) < head.position.get(name, 0):
            had = head.position[name]
            raise LogChanged(f"{lake} is of another log: {name} has {log.end(name)} rows, and had {had}")


def is_brief(lake: Lake, rows: int) -> bool:
    """True if a run over `rows` new rows needs so little time that a brief Spark session is faster.

    Open deliveries count too, because every batch reads them.
    """
    held = sum(file.rows for file in lake.data_files(deliveries.TABLE.name) if file.open)
    return rows + held < FEW_ROWS


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
    """Read all new rows of the logs into the lake. `where` are the source's options. Return a summary.

    With `follow`, continue until `watch.stopped()` returns true. `until` is the position at which to stop reading.
    """
    watch = watch or Watch()
    summary = Summary()
    begun = time.monotonic()
    if not follow and new_rows(lake, where) == 0 and not lake.head().unerased():
        return summary
    with lake.held():
        batches = _Batches(spark, lake, summary, watch)
        try:
            batches.ask(_require_same_log, lake, where)
            batches.bring(batches.flow.recover)
            while not watch.stopped():
                # A hub may be restored from a backup while its log is followed.
                batches.ask(_require_same_log, lake, where)
                epochs = batches.ask(_epochs, where) or {}
                reach = batches.ask(_reach, where, until)
                while reach is not None and _count(begin := lake.head().position, reach) and not watch.stopped():
                    end = _limited(begin, reach, rows_per_batch)
                    pieces = _pieces(where, begin, end)
                    batches.bring(functools.partial(batches.flow.add, pieces, begin, end, epochs=epochs))
                if lake.head().unerased() and not watch.stopped():
                    batches.bring(functools.partial(batches.flow.erase, where))
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
    """Return the position up to which to read: for each log its end, or the offset in `until` if that is smaller."""
    options = Options(where)
    log = options.log()
    ends = {name: log.end(name) for name in options.logs}
    return ends if until is None else {name: min(end, until.get(name, 0)) for name, end in ends.items()}


def _epochs(where: Mapping[str, str]) -> dict[str, str]:
    options = Options(where)
    return {name: options.log().epoch(name) for name in options.logs}


def _limited(begin: Position, end: Position, rows_max: int) -> Position:
    """Return the end position of a batch of at most `rows_max` rows between `begin` and `end`.

    The batch takes all rows of one log before it takes rows of the next log.
    """
    found = {}
    for name, last in end.items():
        first = begin.get(name, 0)
        found[name] = min(max(first, last), first + rows_max)
        rows_max -= found[name] - first
    return found


def _pieces(where: Mapping[str, str], begin: Position, end: Position) -> Sequence[Piece]:
    options = Options(where)
    ranges = [one for name, last in end.items() for one in options.split(name, begin.get(name, 0), last)]
    return [LogPiece(where, one.log, one.start, one.end) for one in ranges]


def _count(begin: Position, end: Position) -> int:
    """Return the number of rows from one position to another. A log that became shorter counts as 0 rows."""
    return sum(max(0, last - begin.get(name, 0)) for name, last in end.items())


class _Batches:
    """Adds the batches of one run to the lake, one after the other, and counts them in a `Summary`."""

    def __init__(self, spark: SparkSession, lake: Lake, summary: Summary, watch: Watch) -> None:
        self._spark = spark
        self._summary = summary
        self._watch = watch
        self._let_go = threading.Event()
        self.flow = Flow(spark, lake, load_prices(lake), self._stage)

    def ask(self, question: Callable[..., _T], *about: object) -> _T | None:
        """Call `question(*about)` on another thread, because it may block for a long time. Return its result.

        Return `None` if the run is stopped before there is a result.
        """
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

    def bring(self, work: Callable[[], Commit | None]) -> None:
        """Call `work`, which adds a batch to the lake, on another thread, so that the run can be stopped meanwhile.

        Then count the commit that `work` returns in the summary.
        """
        tag = f"tieline-{uuid.uuid4().hex}"
        done: Future[Commit | None] = Future()

        def add() -> None:
            try:
                self._spark.addTag(tag)
                done.set_result(work())
            except BaseException as error:  # noqa: BLE001 - the thread that waits is told
                done.set_exception(error)

        batch = threading.Thread(target=add, name="tieline-batch")
        batch.start()
        try:
            while not done.done():
                wait([done], _POLL_SECONDS)
                if not done.done() and self._watch.stopped():
                    self._stop(tag)
        except BaseException:
            self._stop(tag)
            raise
        finally:
            batch.join()
        try:
            commit = done.result()
        except Exception as error:
            if self._let_go.is_set():
                return
            if isinstance(error, (LakeError, LogUnreachable, StoreError)) and _FULL not in str(error):
                raise
            raise RunFailed(_reason(error)) from error
        if commit is not None:
            self._summary.add(commit)
            self._watch.done(commit)

    def _stop(self, tag: str) -> None:
        self._let_go.set()
        with contextlib.suppress(Exception):
            # An engine that cannot stop a query ends it, and the next stage is not begun.
            self._spark.interruptTag(tag)

    def _stage(self, name: str) -> None:
        if self._let_go.is_set():
            raise RunFailed("the batch was let go")
        self._watch.stage(name)


def _require_same_log(lake: Lake, where: Mapping[str, str]) -> None:
    """Raise `LogChanged` if the lake was made from another log, or if the log was restored from a backup since.

    In such a log, the lake's positions are not valid.
    """
    head = lake.head()
    _require_known(lake, head, where)
    if head.last_hash and _hash_before(where, head.position.get(MAIN, 0)) != head.last_hash:
        raise LogChanged(f"{lake} is of another log")


def _hash_before(where: Mapping[str, str], end: int) -> str:
    """Return the hash of the row of the main log at offset `end` - 1. It is empty if there is no such row."""
    found = [one for page in Options(where).log().read(MAIN, end - 1, end) for one in page.column("hash").to_pylist()]
    return found[0].hex() if found else ""


def rewind(spark: SparkSession, lake: Lake, where: Mapping[str, str], stage: Stage = lambda name: None) -> Commit:
    """Remove the rows from the lake that its log does not have any more, after the hub was restored from a backup.

    All tables are computed again from the rows that are in both the log and the lake. Return the new commit. `stage` is
    called with the name of each step that begins.
    """
    with lake.held():
        flow = Flow(spark, lake, load_prices(lake), stage)
        flow.recover()
        log = Options(where).log()
        position = flow.shared(where, _reach(where, None))
        told = {
            "epochs": {name: log.epoch(name) for name in position},
            "last_hash": _hash_before(where, position.get(MAIN, 0)),
        }
        return flow.rewind(position, **told)


def rebuild(spark: SparkSession, lake: Lake, table: str, stage: Stage = lambda name: None) -> Commit:
    """Compute one table again from all log rows in the lake (bronze). Return the commit.

    `stage` is called with the name of each step that begins.
    """
    with lake.held():
        return Flow(spark, lake, load_prices(lake), stage).rebuild([table])


def rebuild_all(spark: SparkSession, lake: Lake, stage: Stage = lambda name: None) -> Commit:
    """Compute all tables again from all log rows in the lake. Return the commit.

    A lake of an older format becomes Delta tables. `stage` is called with the name of each step that begins.
    """
    with lake.held():
        flow = Flow(spark, lake, load_prices(lake), stage)
        old = last_commit(lake.path) if lake.is_old() else None
        if old is not None:
            if flow.recover() is None:
                flow.add(old.pieces(lake.path), {}, old.position)
            remove_old_files(lake.path)
            return lake.head()
        return flow.rebuild(REBUILDABLE)


def _reason(error: BaseException) -> str:
    """Return the reason of a failure in one line, and what to do about a full disk or a damaged file."""
    reason = _line(error)
    if _FULL in reason:
        place = "that of the lake, or that of Spark's temporary files"
        return f"a disk is full: {place} ({reason}); make room, and run the same command again"
    damaged = _DAMAGED.search(reason)
    if damaged is None:
        return reason
    table = next((name for name in reversed(damaged[1].split("/")) if name in REBUILDABLE), None)
    if table is None:
        return f"{reason} The file has log rows: delete the lake, and run the pipeline again."
    return f"{reason} 'tieline pipeline rebuild {table}' makes the table anew."


def _line(error: BaseException) -> str:
    """Return one line of an error text. From Spark's long error texts, take the line with a worker's Python error."""
    if not type(error).__module__.startswith(("pyspark.", "py4j.")):
        return str(error) or type(error).__name__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    damaged = [line[line.find("[") :] for line in lines if _DAMAGED.search(line)]
    told = [line for line in lines if _ERROR.match(line)]
    return (damaged[:1] or told[-1:] or lines[:1] or ["Spark gave no reason"])[0]

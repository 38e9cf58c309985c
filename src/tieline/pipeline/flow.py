"""The flow of one batch: writes the bronze, silver and gold files, and the commit that makes them the tables.

Bronze has the rows of the logs as they were read, silver has typed facts, gold has sums of facts. Above: a run, which
brings batches, and `rebuild`. Below: the tables' functions and the lake. Nothing is visible before the commit, and the
commit holds the position in the logs. An interrupted batch is processed again; a committed batch is never counted
twice.
"""

import functools
import shutil
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

import pyarrow as pa
import pyarrow.compute as pc
from pyspark import inheritable_thread_target
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import IntegerType, StructField, StructType

from tieline.pipeline.catalogue import BRONZE, GOLD, SCHEMAS, SILVER
from tieline.pipeline.frames import Frames
from tieline.pipeline.lake import Commit, DataFile, Lake, follow, replaced
from tieline.pipeline.prices import Prices
from tieline.pipeline.row import LOGS, SCHEMA
from tieline.pipeline.shape import Shape, moved_by, shape_of
from tieline.pipeline.table import HOUR_MS, Gold, start_of
from tieline.pipeline.tables import activity, deliveries, findings, messages, objective_events, records

_T = TypeVar("_T")

Stage = Callable[[str], None]
"""Callback for progress: gets the name of the work that begins, which is `bronze`, the name of a table, or `commit`."""

_AT_ONCE = 2
"""Tables computed at the same time; each of them uses every core that it gets."""
_FILES_MAX = 64
_SMALL_ROWS = 100_000
"""Files with fewer rows than this count as small. More than `_FILES_MAX` small files of one part are merged into one.
"""
FEW_ROWS = 200_000
"""A batch of fewer rows is processed by one Spark task: distributing such work takes longer than the work itself."""
_HELD_ROWS = 20_000
"""If the touched parts of a gold table have more rows, only the rows whose keys have new facts are merged again."""
_TOUCHED = StructType([*deliveries.TABLE.schema.fields, StructField("fresh", IntegerType())])


@dataclass
class _Work:
    """State of a commit that is being made: the files of each table so far, and counts of what was written."""

    head: Commit
    shape: Shape
    bronze: list[DataFile]
    """Files with the rows of the logs that this commit adds."""
    tables: dict[str, list[DataFile]]
    written: dict[str, int] = field(default_factory=dict)
    moved: int = 0
    """Number of deliveries that began or reached a new rung."""
    late: int = 0
    unknown: int = 0

    _lock: threading.Lock = field(default_factory=threading.Lock)

    @property
    def number(self) -> int:
        return self.head.number + 1

    def replace(self, table: str, gone: Iterable[DataFile], new: Iterable[DataFile]) -> None:
        """Replace the files `gone` of a table by the files `new`.

        The lock is needed because tables are made in parallel.
        """
        with self._lock:
            self.tables = replaced(self.tables, table, gone, new)


class Flow:
    """Writer of one lake. It turns batches of log rows into files and commits, with one Spark session."""

    def __init__(
        self,
        spark: SparkSession,
        lake: Lake,
        prices: Prices,
        stage: Stage = lambda name: None,
        *,
        few_rows: int = FEW_ROWS,
    ) -> None:
        self._spark = spark
        self._lake = lake
        self._prices = prices
        self._stage = stage
        self._few_rows = few_rows

    # A batch.

    def add(self, rows: DataFrame | pa.Table) -> Commit | None:
        """Add a batch of log rows to all tables, and commit. Rows that were added before are skipped.

        Return the commit, or `None` if no row is new.
        """
        head = self._lake.head()
        self._stage(BRONZE)
        files, shape = self._bronze(head, rows)
        if any(begin < head.position.get(log, 0) for log, begin in shape.begins.items()):
            assert isinstance(rows, DataFrame), "who reads rows here begins at the head"
            files, shape = self._bronze(head, rows.where(_after(head.position)))
        if not files:
            return None
        bronze = self._read(BRONZE, files)
        tables, rows_read = replaced(head.tables, BRONZE, (), files), sum(file.rows for file in files)
        work = _Work(head, shape, files, tables, {BRONZE: rows_read})
        frames = self._silver(work, bronze)
        self._side_by_side(
            {
                gold.name: functools.partial(self._merge, work, gold, gold.contributions(frames))
                for gold in GOLD.values()
                if set(gold.reads) - frames.empty
            }
        )
        self._compact(work)
        self._stage("commit")
        counts = {
            "late": head.counts.get("late", 0) + work.late,
            "unknown": head.counts.get("unknown", 0) + work.unknown,
        }
        commit = follow(
            head,
            position={**head.position, **shape.ends},
            tables=work.tables,
            counts=counts,
            last_hash=shape.last_hash or head.last_hash,
        )
        commit.written.update(work.written)
        self._lake.commit(commit)
        return commit

    def _bronze(self, head: Commit, rows: DataFrame | pa.Table) -> tuple[list[DataFile], Shape]:
        """Write the log rows unchanged, as bronze. Return the files, and the counts, offsets and times of the rows."""
        if isinstance(rows, pa.Table):
            files = self._lake.store(BRONZE, head.number + 1, rows)
        else:
            files = self._spread(head.number + 1, BRONZE, rows)
        return files, shape_of(self._paths(files))

    def _silver(self, work: _Work, bronze: DataFrame) -> Frames:
        rows = {
            "messages": messages.messages(bronze),
            "objective_events": objective_events.objective_events(bronze),
            "records": records.records(bronze),
        }
        # The longest first.
        jobs: dict[str, Callable[[], DataFrame]] = {
            "deliveries": functools.partial(self._fold_deliveries, work, bronze),
            "activity": functools.partial(self._add_activity, work, bronze),
            **{name: functools.partial(self._append, work, name, added) for name, added in rows.items()},
        }
        empty = work.shape.empty() | ({"deliveries"} if {"sendings", "steps"} <= work.shape.empty() else set())
        new = self._side_by_side({name: job for name, job in jobs.items() if name not in empty})
        nothing = {name: self._none(name) for name in jobs if name in empty and name != "deliveries"}
        touched = new.pop("deliveries", None)
        return self._frames(work, bronze, new | nothing, self._read_as(_TOUCHED, ()) if touched is None else touched)

    def _side_by_side(self, jobs: Mapping[str, Callable[[], _T]]) -> dict[str, _T]:
        """Run one job for each table in parallel, and return the results by table.

        One table is computed while Spark's driver plans another or closes its files.
        """
        with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="tieline-table") as pool:
            # The threads inherit this thread's Spark job group, so their jobs stop with the batch.
            running = {name: pool.submit(inheritable_thread_target(self._spark)(job)) for name, job in jobs.items()}
            try:
                return {name: one.result() for name, one in running.items()}
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _frames(self, work: _Work, bronze: DataFrame, new: dict[str, DataFrame], touched: DataFrame) -> Frames:
        asked = self._asked(work)
        changed = new["objective_events"].select("objective").distinct()
        history = self._read("objective_events", work.tables.get("objective_events", ()))
        return Frames(
            messages=new["messages"],
            sendings=deliveries.sendings(touched),
            steps=deliveries.steps(touched),
            answers=messages.answers(new["messages"], asked),
            exchanges=new["activity"].where(f.col("kind") == activity.EXCHANGE),
            objective_events=new["objective_events"],
            objective_history=history.join(f.broadcast(changed), "objective", "left_semi"),
            records=new["records"],
            findings=findings.findings(bronze),
            prices=self._prices,
            empty=work.shape.empty(),
        )

    def _asked(self, work: _Work) -> DataFrame:
        """Return the earlier messages to which messages of this batch may reply, to measure the delays of replies."""
        name, hours = messages.TABLE.name, work.shape.asked_hours
        if not hours or work.written[BRONZE] >= self._few_rows:
            return self._of_hours(work, name, hours)
        ids = self._lake.load(work.bronze, pa.schema([SCHEMA.field("reply_to")]))["reply_to"].unique()
        files = [file for file in work.tables.get(name, ()) if _overlap(file, hours)]
        schema = StructType([messages.TABLE.schema[column] for column in ("id", "sender", "sent_ms")])
        return self._frame(self._lake.load(files, to_arrow_schema(schema), pc.field("id").isin(ids)), schema)

    def _add_activity(self, work: _Work, bronze: DataFrame) -> DataFrame:
        table = SILVER["activity"]
        focus = self._read("focus", work.tables.get("focus", ()))
        told = activity.activity(bronze, focus, self._prices)
        if work.tables.get(table.name):
            told = activity.unknown(told, self._of_hours(work, table.name, work.shape.activity_hours))
        added = self._append(work, table.name, told)
        if "focus" not in work.shape.empty():
            self._merge(work, activity.FOCUS, activity.FOCUS.in_columns(activity.markers(bronze)))
        return added

    # Deliveries, whose rows change.

    def _fold_deliveries(self, work: _Work, bronze: DataFrame) -> DataFrame:
        """Add the rungs (states) that deliveries reached in this batch to the table of deliveries, and write its rows.

        Return the rows that changed. The bits in their column `fresh` say which of their times are new.
        """
        name = deliveries.TABLE.name
        self._stage(name)
        before = [file for file in work.tables.get(name, ()) if file.part in deliveries.OPEN_PARTS]
        assert work.shape.span_ms is not None, "deliveries come from the main log"
        now_ms = work.shape.span_ms[1]
        count = work.shape.begun + sum(file.rows for file in before)
        moved = moved_by(self._paths(work.bronze), self._few_rows - count) if count < self._few_rows else None
        rest: list[DataFile] = []
        known = deliveries.begun(bronze)
        if before and moved is not None:
            # Most open deliveries have not moved: leave them out of the join.
            open_rows = self._lake.load(before, to_arrow_schema(deliveries.TABLE.schema))
            moving, others = deliveries.parted(open_rows, moved, now_ms)
            rest = self._lake.store(name, work.number, others, _time(name))
            known = known.unionByName(self._frame(moving, _TOUCHED))
        elif before:
            known = known.unionByName(deliveries.known(self._read(name, before)))
        reached = deliveries.reached(bronze)
        if moved is not None:
            known = self._gathered(known, count)
        if moved is not None or count >= self._few_rows:
            # A batch fits into a hash table; a row that moves millions of deliveries, or a rebuild, may not fit.
            reached = reached.hint("shuffle_hash")
        folded = deliveries.fold(known, reached, now_ms)
        files = [*rest, *self._write(work.number, name, folded, self._few_rows if moved is None else count)]
        orphans = [file for file in files if file.part == deliveries.ORPHAN]
        written = [file for file in files if file.part != deliveries.ORPHAN]
        work.replace(name, before, written)
        if orphans:
            written = [*written, *self._fold_late(work, orphans)]
        work.written[name] = sum(file.rows for file in written)
        touched = [file for file in written if file.part != deliveries.RESTING]
        work.moved = sum(file.rows for file in touched)
        return self._read_as(_TOUCHED, touched)

    def _fold_late(self, work: _Work, orphans: list[DataFile]) -> list[DataFile]:
        """Add rungs (states) that came late to deliveries that are closed: find their files and rewrite them.

        Return the new files. `orphans` are the files with the rungs for which no open delivery was found.
        """
        name = deliveries.TABLE.name
        steps = self._read(name, orphans)
        old = [file for file in work.head.tables.get(name, ()) if file.part == deliveries.CLOSED]
        if not old:
            work.unknown += sum(file.rows for file in orphans)
            return []
        keys = f.broadcast(steps.select("number", "key", deliveries.last_reached_ms().alias("at_ms")))
        after_ms = f.col("at_ms") - f.col("sent_ms")
        found = (
            self._read(name, old)
            .select("number", "key", "sent_ms", f.col("_metadata.file_path").alias("path"))
            .join(keys, ["number", "key"])
            .groupBy("path")
            .agg(f.count(f.lit(1)).alias("rows"), f.count_if(after_ms > deliveries.WATERMARK_MS).alias("late"))
            .collect()
        )
        work.late += sum(row["late"] for row in found)
        work.unknown += sum(file.rows for file in orphans) - sum(row["rows"] for row in found)
        # Compare commit folder, part folder and name: files of the same name are in many folders.
        hit = {Path(row["path"]).parts[-3:] for row in found}
        touched = [file for file in old if Path(file.path).parts[-3:] in hit]
        if not touched:
            return []
        folded = deliveries.fold(deliveries.known(self._read(name, touched)), steps, 2**62)
        count = sum(file.rows for file in (*touched, *orphans))
        files = self._write(work.number, name, folded.where(f.col("part") != deliveries.ORPHAN), count)
        work.replace(name, touched, files)
        return files

    # Reading and writing.

    def _append(self, work: _Work, name: str, rows: DataFrame) -> DataFrame:
        """Add rows to a silver table (a table of facts). Return the rows as written."""
        self._stage(name)
        files = self._write(work.number, name, rows, work.written[BRONZE])
        work.replace(name, (), files)
        work.written[name] = sum(file.rows for file in files)
        return self._read(name, files)

    def _merge(self, work: _Work, gold: Gold, new: DataFrame) -> None:
        """Merge new facts into a gold table (a table of sums): into the rows with the same keys, or as new rows."""
        self._stage(gold.name)
        files = work.tables.get(gold.name, [])
        if gold.part is not None:
            known = frozenset(file.part for file in files if file.part is not None)
            touched = work.shape.parts(gold.reads, gold.part_ms, known)
            files = [file for file in files if file.part in touched]
        held = sum(file.rows for file in files)
        count = work.written[BRONZE] + work.moved + held
        rest: pa.Table | None = None
        if held > _HELD_ROWS and count < self._few_rows:
            new, rest = self._apart(gold, new, files)
        elif files:
            new = new.unionByName(gold.in_columns(self._read(gold.name, files)))
        merged = gold.merge(self._gathered(new, count))
        written = self._write(work.number, gold.name, _parted(gold, merged), count, rest)
        work.replace(gold.name, files, written)
        work.written[gold.name] = sum(file.rows for file in written)

    def _apart(self, gold: Gold, new: DataFrame, files: Sequence[DataFile]) -> tuple[DataFrame, pa.Table]:
        """Split a gold table (a table of sums), so that only rows with new facts are computed again.

        Return the new facts with the stored rows of the same keys, and all other rows. The other rows stay unchanged.
        """
        facts = new.toArrow()
        known = self._lake.load(files, to_arrow_schema(gold.schema))
        same, others = gold.apart(known, facts)
        old = gold.in_columns(self._frame(same, gold.schema))
        return self._frame(facts, new.schema).unionByName(old), others

    def _write(
        self, number: int, name: str, rows: DataFrame, count: int, rest: pa.Table | None = None
    ) -> list[DataFile]:
        """Write rows of a table together with `rest`, its unchanged rows, as files of commit `number`.

        `count` is the number of rows from which `rows` are computed. If they are few, this process writes, else Spark.
        """
        if count < self._few_rows:
            table = rows.toArrow()
            if rest is not None:
                table = pa.concat_tables([table, rest.select(table.column_names).cast(table.schema)])
            return self._lake.store(name, number, table, _time(name))
        return self._spread(number, name, rows)

    def _spread(self, number: int, name: str, rows: DataFrame) -> list[DataFile]:
        """Let Spark's tasks write the rows in parallel. Return the files."""
        folder = self._lake.new_folder(name, number)
        writer = rows.write.partitionBy("part") if "part" in rows.columns else rows.write
        writer.parquet(str(folder))
        files = self._lake.adopt(folder, _time(name))
        if not files:
            shutil.rmtree(folder)
        return files

    def _compact(self, work: _Work) -> None:
        """Merge small files, so that a lake that grows for months stays quick to read."""
        for name, files in list(work.tables.items()):
            by_part: dict[int | None, list[DataFile]] = {}
            for file in files:
                if file.rows < _SMALL_ROWS:
                    by_part.setdefault(file.part, []).append(file)
            for part, small in by_part.items():
                if len(small) > _FILES_MAX:
                    self._stage(name)
                    rows = self._read(name, small).coalesce(1)
                    folder = self._lake.new_folder(name, work.number)
                    target = folder if part is None else folder / f"part={part}"
                    rows.write.parquet(str(target))
                    work.replace(name, small, self._lake.adopt(folder, _time(name)))

    def _read(self, name: str, files: Sequence[DataFile]) -> DataFrame:
        return self._read_as(SCHEMAS[name], files)

    def _read_as(self, schema: StructType, files: Sequence[DataFile]) -> DataFrame:
        if not files:
            # Spark sees from this form that the frame is empty, and skips every step that depends on it.
            nulls = [f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in schema]
            return self._spark.range(1).where(f.lit(False)).selectExpr(*nulls)
        rows = self._spark.read.schema(schema).parquet(*map(str, self._paths(files)))
        return self._gathered(rows, sum(file.rows for file in files))

    def _frame(self, rows: pa.Table, schema: StructType) -> DataFrame:
        """Make a Spark frame of an Arrow table, in one chunk.

        Spark cannot make a frame of no rows, and stops reading at an empty chunk.
        """
        whole = rows.combine_chunks()
        return self._spark.createDataFrame(whole, schema) if whole.num_rows else self._read_as(schema, ())

    def _gathered(self, rows: DataFrame, count: int) -> DataFrame:
        """Put the rows into one partition if they come from few rows (`count`). Then Spark need not shuffle them."""
        return rows.coalesce(1) if count < FEW_ROWS else rows

    def _paths(self, files: Iterable[DataFile]) -> list[Path]:
        return [self._lake.path / file.path for file in files]

    def _of_hours(self, work: _Work, name: str, hours: frozenset[int]) -> DataFrame:
        """Return the rows of a silver table (a table of facts) from the first of these hours to the last.

        An hour is its start in milliseconds.
        """
        if not hours:
            return self._none(name)
        first, last = min(hours), max(hours) + HOUR_MS - 1
        files = [file for file in work.tables.get(name, ()) if _overlap(file, hours)]
        # The page index of the files tells Spark which pages have such rows.
        return self._read(name, files).where(f.col(SILVER[name].time).between(first, last))

    def _none(self, name: str) -> DataFrame:
        return self._read(name, ())

    # Rebuilding.

    def rebuild(self, name: str) -> Commit:
        """Compute a table again from all stored log rows (bronze), and replace the stored table in a new commit."""
        head = self._lake.head()
        files = head.tables.get(BRONZE, [])
        bronze = self._read(BRONZE, files)
        work = _Work(head, shape_of(self._paths(files)), files, dict(head.tables))
        self._stage(name)
        if name in GOLD:
            gold = GOLD[name]
            # One file per part, however many parts there are.
            rows = _parted(gold, gold.merge(gold.contributions(self._everything(work, bronze)))).repartition("part")
        elif name == activity.FOCUS.name:
            rows = _parted(activity.FOCUS, activity.FOCUS.merge(activity.FOCUS.in_columns(activity.markers(bronze))))
        elif name == deliveries.TABLE.name:
            rows = self._all_deliveries(work, bronze)
        else:
            rows = self._all_silver(bronze)[name]
        written = self._spread(work.number, name, rows)
        tables = {**head.tables, name: written}
        self._stage("commit")
        commit = follow(head, tables=tables)
        commit.written[name] = sum(file.rows for file in written)
        self._lake.commit(commit)
        return commit

    def _all_silver(self, bronze: DataFrame) -> dict[str, DataFrame]:
        return {
            "messages": messages.messages(bronze),
            "objective_events": objective_events.objective_events(bronze),
            "records": records.records(bronze),
            "activity": activity.activity(bronze, self._none(activity.FOCUS.name), self._prices),
        }

    def _all_deliveries(self, work: _Work, bronze: DataFrame) -> DataFrame:
        now_ms = work.shape.span_ms[1] if work.shape.span_ms else 0
        folded = deliveries.fold(deliveries.begun(bronze), deliveries.reached(bronze), now_ms)
        return folded.where(f.col("part") != deliveries.ORPHAN)

    def _everything(self, work: _Work, bronze: DataFrame) -> Frames:
        silver = self._all_silver(bronze)
        touched = self._all_deliveries(work, bronze)
        return Frames(
            messages=silver["messages"],
            sendings=deliveries.sendings(touched),
            steps=deliveries.steps(touched),
            answers=messages.answers(silver["messages"], silver["messages"]),
            exchanges=silver["activity"].where(f.col("kind") == activity.EXCHANGE),
            objective_events=silver["objective_events"],
            objective_history=silver["objective_events"],
            records=silver["records"],
            findings=findings.findings(bronze),
            prices=self._prices,
            empty=work.shape.empty(),
        )


def _time(name: str) -> str | None:
    return SILVER[name].time if name in SILVER else None


def _parted(gold: Gold, rows: DataFrame) -> DataFrame:
    part = start_of(f.col(gold.part), gold.part_ms) if gold.part else f.lit(0)
    return rows.withColumn("part", part)


def _after(position: Mapping[str, int]) -> Column:
    new = f.lit(False)
    for log in LOGS:
        new = new | ((f.col("log") == log) & (f.col("offset") >= position.get(log, 0)))
    return new


def _overlap(file: DataFile, hours: Iterable[int]) -> bool:
    """Return true if the file may have rows of these hours, so that it must be read. An hour is its start."""
    span = file.span
    return span is None or any(hour <= span[1] and hour + HOUR_MS > span[0] for hour in hours)

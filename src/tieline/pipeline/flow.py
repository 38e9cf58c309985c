"""Adds one batch to the lake: writes the bronze, silver and gold files, and commits them table by table.

Bronze has the rows of the logs as they were read, silver has typed facts, gold has sums of facts. Used by: a run, which
adds batches, and `rebuild`. Uses: the tables' functions, the tasks that write files, and the lake. Each commit of a
table contains the number of the batch. The commit of bronze also contains the end of the batch. So the next run can
complete an interrupted batch, and does not change the tables that have the batch already. The last step adds a row to
`commits`, which makes the batch visible to readers.
"""

import contextlib
import functools
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from tieline.pipeline.catalogue import ACTIVITY_TABLES, BRONZE, GOLD, REBUILDABLE, SCHEMAS, SILVER, STORED, TIMES
from tieline.pipeline.engines import engine_name
from tieline.pipeline.erasure import REDACT, Eraser, deleted_windows
from tieline.pipeline.frames import Frames, frames
from tieline.pipeline.lake import Commit, Lake, LakeError
from tieline.pipeline.row import ACTIVITY, MAIN, SCHEMA
from tieline.pipeline.session import brief_queries
from tieline.pipeline.shape import Shape, whole_shape
from tieline.pipeline.source import Options, Position
from tieline.pipeline.statements import rows_of, statement
from tieline.pipeline.storage import FILES, DataFile, day_of, heard
from tieline.pipeline.table import DAY_MS, HOUR_MS, Gold, gathered
from tieline.pipeline.tables import activity, deliveries, inboxes, messages, objective_events, records
from tieline.pipeline.tasks import BronzeWriter, FileReader, KeyFinder, LogPiece, LogReader, Piece, TableWriter, Task
from tieline.wire.prices import Prices

Stage = Callable[[str], None]
"""Callback for progress. Its argument is the name of the work that begins: `bronze`, `silver`, `gold`, `commit`, or the
name of a table that is about to be committed.
"""

FEW_ROWS = 200_000
"""A batch of fewer rows is computed by one Spark task: distributing such work takes longer than the work itself."""
_HASHED_ROWS = 4_000_000
"""A batch with fewer rows than this is joined with a hash table in memory. A larger batch may not fit into memory."""
_LATE_MAX = 100_000
"""If more late states of deliveries than this are in a batch, all files of their days are rewritten. Otherwise a search
finds the files to rewrite.
"""
_UPKEEP_COMMITS = 100
_FOCUS = activity.FOCUS
_ALWAYS = 2**62
"""A time that is later than every real time."""


@dataclass(frozen=True)
class _Batch:
    """A batch that is being added to the lake: the commit before it (`head`), and a summary of its rows (`shape`)."""

    head: Commit
    shape: Shape

    @property
    def number(self) -> int:
        return self.head.number + 1

    @property
    def recent_ms(self) -> int:
        """Start of the last day of the batch. On this day, a table may have one file for each hour."""
        return self.shape.span_ms[1] // DAY_MS * DAY_MS if self.shape.span_ms else _ALWAYS


@dataclass(frozen=True)
class _Change:
    """Change of a table by a batch. `gone` are the files that are removed.

    When Spark computes `rows`, it writes the new files. `rows` then has one row for each new file.
    """

    rows: DataFrame
    gone: Sequence[DataFile] = ()


class Flow:
    """Writer of one lake. It turns log rows into files and commits, with one Spark session."""

    def __init__(self, spark: SparkSession, lake: Lake, prices: Prices, stage: Stage = lambda name: None) -> None:
        self._spark = spark
        self._lake = lake
        self._prices = prices
        self._stage = stage
        self._views: list[str] = []

    # A batch.

    def add(self, pieces: Sequence[Piece], begin: Position, end: Position, **told: Any) -> Commit:
        """Add a batch of log rows, from the position `begin` to `end`, to all tables. Return the new commit.

        `pieces` are the parts of the batch, each of which one Spark task reads. `told` are additional fields of the
        commit. Raise `LakeError` if the lake does not end at `begin`.
        """
        self._stage(BRONZE)
        head = self._lake.newest()
        if any(head.position.get(log, 0) != begin.get(log, 0) for log in end):
            raise LakeError(f"{self._lake} was written to by another run")
        writer = self._writer(BRONZE, head.number + 1)
        files = self._collected(self._numbered(len(pieces), BronzeWriter(writer, pieces), FILES))
        shape = whole_shape(one for file in files if file.note for one in _shapes(file.note))
        told["counts"] = {**_missed(head, shape, end), **_redactions(head, shape)}
        if not files:
            # Retention has deleted the whole range.
            return self._finish(_Batch(head, shape), position={**head.position, **end}, **told)
        note = {"end": end, "told": told, "shape": msgspec.json.encode(shape).decode()}
        self._lake.commit_table(BRONZE, head.number + 1, SCHEMA, files, note=note)
        return self._complete(_Batch(head, shape), {**head.position, **end}, told)

    def recover(self) -> Commit | None:
        """Complete a batch, a rewind or a rebuild of tables, if an interrupted run began to commit it.

        Return its commit, or `None` if there is nothing to complete.
        """
        head = self._lake.newest()
        note = self._lake.note(BRONZE, head.number + 1)
        if note is not None and "rewound" in note:
            return self._complete_rewinding(head, note)
        if note is not None:
            shape = msgspec.json.decode(note["shape"], type=Shape)
            return self._complete(_Batch(head, shape), {**head.position, **note["end"]}, note["told"])
        if any(self._lake.note(name, head.number + 1) is not None for name in SCHEMAS):
            return self._finish(_Batch(head, Shape()))
        return None

    def _complete(self, batch: _Batch, position: Position, told: Mapping[str, Any]) -> Commit:
        brief = brief_queries(self._spark) if batch.shape.count() < FEW_ROWS else contextlib.nullcontext()
        with brief, self._own_views():
            bronze = self._read(BRONZE, self._new(batch, BRONZE))
            self._silver(batch, bronze)
            self._stage("gold")
            facts, empty = self._frames(batch, bronze), batch.shape.empty()
            golds = {gold.name: gold for gold in GOLD.values() if set(gold.reads) - empty}
            self._commit_changes(
                batch, {name: functools.partial(self._merged, batch, gold, facts) for name, gold in golds.items()}
            )
        return self._finish(batch, position=position, last_hash=batch.shape.last_hash or batch.head.last_hash, **told)

    def _finish(self, batch: _Batch, **changes: Any) -> Commit:
        """Add the row to the table `commits` that makes the batch visible. Return this row. `changes` are fields of it.

        Then merge small files. Every `_UPKEEP_COMMITS` commits, also delete old files.
        """
        self._stage("commit")
        head, names = batch.head, list(SCHEMAS)
        written = {name: sum(file.rows for file in self._new(batch, name)) for name in names}
        moved = self._lake.note(deliveries.TABLE.name, batch.number) or {}
        late = {name: head.counts.get(name, 0) + moved.get(name, 0) for name in ("late", "unknown")}
        changes["counts"] = {**head.counts, **changes.get("counts", {}), **late}
        changes["written"] = {name: rows for name, rows in written.items() if rows}
        commit = self._lake.follow(head, names, engine=engine_name(self._spark), **changes)
        self._lake.commit(commit)
        self._lake.compact((name for name in names if written[name]), day_of(batch.recent_ms % _ALWAYS))
        if commit.number % _UPKEEP_COMMITS == 0:
            self._lake.sweep(names)
        return commit

    def _silver(self, batch: _Batch, bronze: str) -> None:
        self._stage("silver")
        empty, number = batch.shape.empty(), batch.number
        names = {"deliveries": {"sendings", "steps"}, "focus": {"focus"}}
        # The longest first, and `focus` after `activity`, which needs the objectives before the batch.
        jobs: dict[str, Callable[[], _Change]] = {
            "deliveries": lambda: self._folded(batch, bronze),
            "messages": lambda: self._change(number, "messages", messages.messages(bronze)),
            "objective_events": lambda: self._change(
                number, "objective_events", objective_events.objective_events(bronze)
            ),
            "records": lambda: self._change(number, "records", records.records(bronze)),
            "activity": lambda: self._change(number, "activity", self._told_activity(batch, bronze)),
            "focus": lambda: self._merged(batch, _FOCUS, {"bronze": bronze}),
        }
        self._commit_changes(batch, {name: job for name, job in jobs.items() if names.get(name, {name}) - empty})

    def _commit_changes(self, batch: _Batch, jobs: Mapping[str, Callable[[], _Change]]) -> None:
        """In one Spark query, change all tables that do not have the batch yet. Then commit each of these tables.

        For each table, `jobs` has a function. The function returns the change of the table.
        """
        changes = {name: job() for name, job in jobs.items() if self._lake.note(name, batch.number) is None}
        if not changes:
            return
        for name, files in self._written(changes).items():
            added, gone, note = files, list(changes[name].gone), dict[str, int]()
            if name == deliveries.TABLE.name:
                orphans = [file for file in files if file.note == str(deliveries.ORPHAN)]
                added = [file for file in files if file.note != str(deliveries.ORPHAN)]
                if orphans:
                    late, replaced, note = self._fold_late(batch, orphans)
                    added, gone = [*added, *late], [*gone, *replaced]
            self._stage(name)
            if added or gone:
                self._lake.commit_table(name, batch.number, to_arrow_schema(STORED[name]), added, gone, note)

    def _written(self, changes: Mapping[str, _Change]) -> dict[str, list[DataFile]]:
        """Write the new files of all tables in one Spark query. Return the files by table."""
        written: dict[str, list[DataFile]] = {name: [] for name in changes}
        query = functools.reduce(lambda some, more: some.union(more), (one.rows for one in changes.values()))
        for row in query.collect():
            written[row["table"]].append(heard(row.asDict()))
        return written

    def _frames(self, batch: _Batch, bronze: str) -> Frames:
        new = {name: self._read(name, self._new(batch, name), STORED[name]) for name in SILVER}
        history = self._none("objective_events")
        if "objective_events" not in batch.shape.empty():
            known = self._read("objective_events", self._lake.data_files("objective_events"))
            history = rows_of("objective_history", known=known, new=new["objective_events"])
        return frames(bronze, new, self._of_hours("messages", batch.shape.asked_hours), history)

    def _told_activity(self, batch: _Batch, bronze: str) -> str:
        focus = self._read("focus", self._lake.data_files("focus"))
        told = activity.activity(bronze, focus, self._prices)
        known = self._of_hours("activity", batch.shape.activity_hours)
        return activity.unknown(told, known) if batch.head.rows("activity") else told

    # Deliveries, whose rows change.

    def _folded(self, batch: _Batch, bronze: str) -> _Change:
        """Return the change of the table `deliveries`: new deliveries, and the states reached in this batch.

        `bronze` is the view with the log rows of the batch.
        """
        name = deliveries.TABLE.name
        before = [file for file in self._lake.data_files(name) if file.open]
        assert batch.shape.span_ms is not None, "deliveries come from the main log"
        known = deliveries.begun(bronze)
        if before:
            known = rows_of("open", begun=known, before=deliveries.known(self._read(name, before)))
        count = batch.shape.begun + batch.shape.count() + sum(file.rows for file in before)
        folded = deliveries.fold(
            known,
            deliveries.reached(bronze, typed=batch.shape.is_typed),
            batch.shape.span_ms[1],
            few=count < FEW_ROWS,
            hashed=count < _HASHED_ROWS,
        )
        return self._change(batch.number, name, folded, gone=before)

    def _fold_late(
        self, batch: _Batch, orphans: list[DataFile]
    ) -> tuple[list[DataFile], list[DataFile], dict[str, int]]:
        """Add late states to deliveries that are stored as closed, because they are settled or too old to stay open.

        `orphans` are files of states whose delivery is not among the open ones. The table `inboxes` has the day of each
        such delivery. Of that day, only files that contain one of these deliveries are rewritten. Return the new
        files, the files that they replace, and how many states were late and how many have no known delivery.
        """
        name = deliveries.TABLE.name
        steps, count = self._read(name, orphans), sum(file.rows for file in orphans)
        ranges = self._read(inboxes.TABLE.name, self._lake.data_files(inboxes.TABLE.name))
        days = {day_of(row["day_ms"]) for row in self._spark.sql(inboxes.days(ranges, steps)).collect()}
        old = [file for file in self._lake.data_files(name) if file.open is False and file.day in days]
        if old and count <= _LATE_MAX:
            wanted = self._spark.sql(statement("columns", columns="number, key", rows=steps)).toArrow()
            finder = KeyFinder(self._lake.storage, [file.path for file in old], wanted)
            old = [old[row["found"]] for row in self._numbered(len(old), finder, "found bigint").collect()]
        if not old:
            return [], [], {"late": 0, "unknown": count}
        known = self._read(name, old)
        (found,) = self._spark.sql(deliveries.lateness(known, steps)).collect()
        few = sum(file.rows for file in old) + count < FEW_ROWS
        folded = deliveries.fold(deliveries.known(known), steps, _ALWAYS, few=few)
        rows = gathered(rows_of("some", rows=folded, where=f"part <> {deliveries.ORPHAN}"), few=few)
        files = self._collected(self._change(batch.number, name, rows).rows)
        return files, old, {"late": found["late"], "unknown": count - found["rows"]}

    # Reading and writing.

    def _merged(self, batch: _Batch, gold: Gold, facts: Mapping[str, Any]) -> _Change:
        """Return the change of a gold table (a table of sums) by new facts.

        A fact changes the row with its keys or makes a new row.
        """
        files = self._lake.data_files(gold.name)
        if gold.part is not None:
            files = [file for file in files if batch.shape.touches(gold.reads, file.span(gold.part), gold.part_ms)]
        count = batch.shape.count() + batch.shape.begun + sum(file.rows for file in files)
        merged = gold.query(facts, self._read(gold.name, files) if files else None, few=count < FEW_ROWS)
        return self._change(batch.number, gold.name, merged, gold.part_ms, batch.recent_ms, gone=files)

    def _change(
        self,
        number: int,
        name: str,
        rows: str,
        width_ms: int = DAY_MS,
        recent_ms: int = _ALWAYS,
        *,
        gone: Sequence[DataFile] = (),
    ) -> _Change:
        columns = [*STORED[name].fieldNames(), *(["part"] if name == deliveries.TABLE.name else [])]
        names = ", ".join(f"`{column}`" for column in columns)
        selected = self._spark.sql(statement("columns", columns=names, rows=rows))
        return _Change(selected.mapInArrow(self._writer(name, number, width_ms, recent_ms), FILES), gone)

    def _writer(self, name: str, number: int, width_ms: int = DAY_MS, recent_ms: int = _ALWAYS) -> TableWriter:
        states = deliveries.STATES if name == deliveries.TABLE.name else {}
        schema = SCHEMA if name == BRONZE else to_arrow_schema(STORED[name])
        return TableWriter(self._lake.storage, name, number, schema, TIMES[name], width_ms, recent_ms, states)

    def _numbered(self, count: int, task: Task, schema: str) -> DataFrame:
        """Run `task` for the numbers from 0 to `count` - 1, each in its own Spark task. Return the rows of the results.

        `schema` describes the columns of the results.
        """
        return self._spark.range(0, count, 1, max(1, count)).mapInArrow(task, schema)

    def _collected(self, rows: DataFrame) -> list[DataFile]:
        return [heard(row.asDict()) for row in rows.collect()]

    def _new(self, batch: _Batch, name: str) -> list[DataFile]:
        """Return the files of a table that the batch wrote."""
        return [file for file in self._lake.data_files(name) if file.is_of(batch.number)]

    def _read(self, name: str, files: Sequence[DataFile], schema: StructType | None = None) -> str:
        """Make a temporary view with the rows of these files of the table `name`. Return the name of the view.

        If there are no files, return a query without rows. `schema` has the columns, if they are not the usual ones.
        """
        schema = schema or SCHEMAS[name]
        if not files:
            return self._none(name, schema)
        rows = read_files(self._spark, self._lake, schema, files)
        # Few rows in one partition need no shuffle.
        rows = rows.coalesce(1) if sum(file.rows for file in files) < FEW_ROWS else rows
        view = f"tieline_{uuid.uuid4().hex}"
        rows.createOrReplaceTempView(view)
        self._views.append(view)
        return view

    @contextlib.contextmanager
    def _own_views(self) -> Iterator[None]:
        """At the end of the `with` block, drop the views that were made in it."""
        try:
            yield
        finally:
            for view in self._views:
                self._spark.catalog.dropTempView(view)
            self._views.clear()

    def _of_hours(self, name: str, hours: frozenset[int]) -> str:
        """Return a query (SQL text) for rows of a silver table, from the first hour in `hours` to the last.

        Each hour is given by its start in milliseconds. A silver table is a table of facts.
        """
        if not hours:
            return self._none(name)
        time = SILVER[name].time
        first, last = min(hours), max(hours) + HOUR_MS - 1
        files = [file for file in self._lake.data_files(name) if _overlap(file.span(time), hours)]
        # The page index of the files tells Spark which pages have such rows.
        return rows_of("some", rows=self._read(name, files), where=f"{time} BETWEEN {first} AND {last}")

    def _none(self, name: str, schema: StructType | None = None) -> str:
        return f"({nothing(schema or SCHEMAS[name])})"

    # Rebuilding.

    def shared(self, where: Mapping[str, str], end: Position) -> Position:
        """Return the position up to which the lake and the log of a hub have the same rows. The log ends at `end`.

        `where` are the source's options. A row that is only in the lake or only in the log does not count as a
        difference, because retention deletes activity.
        """
        head = self._lake.newest()
        files = self._lake.data_files(BRONZE)
        mine = read_files(self._spark, self._lake, SCHEMAS[BRONZE], files).select("log", "offset", "at_ms", "hash")
        theirs = read_log(self._spark, where)
        renamed = theirs.select("log", "offset", f.col("at_ms").alias("their_ms"), f.col("hash").alias("their_hash"))
        differ = ~f.col("at_ms").eqNullSafe(f.col("their_ms")) | ~f.col("hash").eqNullSafe(f.col("their_hash"))
        first = mine.join(renamed, ["log", "offset"]).where(differ).groupBy("log").agg(f.min("offset").alias("offset"))
        changed = {row["log"]: row["offset"] for row in first.collect()}
        return {log: min(at, end.get(log, 0), changed.get(log, at)) for log, at in head.position.items()}

    def rewind(self, position: Position, **told: Any) -> Commit:
        """Drop the log rows from a position on, and compute all tables again. Return the new commit.

        `told` are additional fields of the commit. If the lake has no rows from that position on, only these fields are
        committed, if they are new.
        """
        head = self._lake.newest()
        if position == head.position:
            same = all(getattr(head, name) == value for name, value in told.items())
            return head if same else self._finish(_Batch(head, Shape()), **told)
        kept = " OR ".join(f"log = '{log}' AND `offset` < {end}" for log, end in position.items())
        files = [one for one in self._lake.data_files(BRONZE) if one.span("offset")[1] >= min(position.values())]
        self._stage(BRONZE)
        with self._own_views():
            rows = rows_of("some", rows=self._read(BRONZE, files), where=kept)
            left = self._collected(self._change(head.number + 1, BRONZE, rows).rows)
        note = {"rewound": position, "told": told}
        self._lake.commit_table(BRONZE, head.number + 1, SCHEMA, left, files, note)
        return self._complete_rewinding(head, note)

    def _complete_rewinding(self, head: Commit, note: Mapping[str, Any]) -> Commit:
        number = head.number + 1
        left = [name for name in note.get("tables", REBUILDABLE) if self._lake.note(name, number) is None]
        self._replace(left, number, self._lake.data_files(BRONZE), stored="tables" not in note)
        return self._finish(_Batch(head, Shape()), position=note["rewound"], **note["told"])

    def erase(self, where: Mapping[str, str]) -> Commit:
        """Erase the activity that quotes redacted messages, as the hub did. Return the new commit.

        `where` are the source's options. Replaced files and the history of the tables are deleted, even if readers
        still use them. If this is interrupted, the next run does it again.
        """
        head = self._lake.newest()
        self._stage("erase")
        files = self._lake.data_files(BRONZE)
        rows = read_files(self._spark, self._lake, SCHEMAS[BRONZE], files)
        rows = rows.where((f.col("log") == MAIN) & (f.col("kind") == REDACT)).orderBy(f.desc("offset"))
        found = rows.select("at_ms", "event").limit(head.unerased()).collect()
        windows = deleted_windows((row["at_ms"], row["event"]) for row in found)
        eraser = Eraser(self._lake.storage, where, BRONZE, head.number + 1, files, windows)
        made = self._collected(self._numbered(len(files), eraser, FILES))
        if made:
            note = {"rewound": head.position, "told": {}, "tables": ACTIVITY_TABLES}
            self._lake.commit_table(BRONZE, head.number + 1, SCHEMA, made, [files[int(one.note)] for one in made], note)
            head = self._complete_rewinding(head, note)
        # To sweep is a commit of each table, and readers must have a version that is there.
        self._lake.sweep(SCHEMAS, hours=0)
        head = self._lake.commit(self._lake.follow(head, SCHEMAS))
        self._lake.drop_history(SCHEMAS)
        counts = {**head.counts, "erased": head.counts.get("redactions", 0)}
        return self._lake.commit(self._lake.follow(head, SCHEMAS, counts=counts))

    def rebuild(self, names: Sequence[str]) -> Commit:
        """Compute tables again from all stored log rows (bronze), and replace the stored tables. Return the new commit.

        If a batch was interrupted, perhaps because a table is damaged, the batch is completed afterwards.
        """
        head, stored = self._lake.newest(), set(SILVER) <= set(names)
        note = self._lake.note(BRONZE, head.number + 1)
        if note is None or "rewound" in note:
            head = self.recover() or head
            self._replace(names, head.number + 1, self._lake.data_files(BRONZE), stored=stored)
            return self._finish(_Batch(head, Shape()))
        before = [file for file in self._lake.data_files(BRONZE) if not file.is_of(head.number + 1)]
        self._replace(names, head.number, before, stored=stored)
        commit = self.recover()
        assert commit is not None, "there is a batch to complete"
        return commit

    def _replace(self, names: Sequence[str], number: int, files: Sequence[DataFile], *, stored: bool) -> None:
        """Compute tables from `files`, which have log rows (bronze), and commit them as the tables of batch `number`.

        One Spark query makes the silver tables, and another one the gold tables. With `stored`, which is true if all
        silver tables are in `names`, the gold tables are made from the new silver tables. Otherwise they are made from
        the log rows.
        """
        few = sum(file.rows for file in files) < FEW_ROWS
        silver, gold = ([name for name in names if (name in GOLD) is among] for among in (False, True))
        with self._own_views():
            bronze = self._read(BRONZE, files)
            if silver:
                self._stage("silver")
                made = {name: self._all_silver(bronze, name, few=few) for name in silver}
                self._commit_whole(number, made, few=few)
            if gold:
                self._stage("gold")
                facts: Mapping[str, Any] = self._everything(bronze, stored=stored, few=few)
                self._commit_whole(number, {name: GOLD[name].query(facts, few=few) for name in gold}, few=few)

    def _commit_whole(self, number: int, tables: Mapping[str, str], *, few: bool) -> None:
        """Replace all rows of each table in one Spark query, and commit each table.

        `tables` has a query (SQL text) for the rows of each table. With `few`, there are so few rows that one task is
        enough.
        """
        changes = {}
        for name, rows in tables.items():
            time = TIMES[name]
            # Each day goes to one task, so that it becomes one file.
            daily = rows
            if time is not None and not few:
                daily = rows_of("by_day", rows=rows, time=time, day_ms=DAY_MS)
            changes[name] = self._change(number, name, daily, gone=self._lake.data_files(name))
        for name, files in self._written(changes).items():
            self._stage(name)
            old = changes[name].gone
            if files or old:
                self._lake.commit_table(name, number, to_arrow_schema(STORED[name]), files, old, again=True)

    def _all_silver(self, bronze: str, name: str, *, few: bool) -> str:
        if name == _FOCUS.name:
            return _FOCUS.query({"bronze": bronze}, few=few)
        if name == deliveries.TABLE.name:
            (found,) = self._spark.sql(statement("last_time", bronze=bronze)).collect()
            folded = deliveries.fold(
                deliveries.begun(bronze), deliveries.reached(bronze), found["now_ms"] or 0, few=few
            )
            return rows_of("some", rows=folded, where=f"part <> {deliveries.ORPHAN}")
        if name == activity.TABLE.name:
            return activity.activity(bronze, self._none(_FOCUS.name), self._prices)
        return {"messages": messages.messages, "objective_events": objective_events.objective_events,
                "records": records.records}[name](bronze)  # fmt: skip

    def _everything(self, bronze: str, *, stored: bool, few: bool) -> Frames:
        """Return queries (SQL texts) for all facts that were ever read.

        With `stored`, they read the stored silver tables. Otherwise they compute the facts from the log rows `bronze`.
        """
        silver = {
            name: self._read(name, self._lake.data_files(name), STORED[name])
            if stored
            else self._all_silver(bronze, name, few=few)
            for name in SILVER
        }
        return frames(bronze, silver, silver["messages"], silver["objective_events"])


def read_files(spark: SparkSession, lake: Lake, schema: StructType, files: Sequence[DataFile]) -> DataFrame:
    """Return the rows of files of a lake.

    If the lake is a folder, Spark itself reads the files. For other lakes, Spark tasks read the files with delta-rs's
    client.
    """
    if not files:
        return spark.sql(nothing(schema))
    if lake.storage.is_local:
        return spark.read.schema(schema).parquet(*(lake.storage.url(file.path) for file in files))
    reader = FileReader(lake.storage, [file.path for file in files], to_arrow_schema(schema))
    return spark.range(0, len(files), 1, len(files)).mapInArrow(reader, schema)


def read_log(spark: SparkSession, where: Mapping[str, str]) -> DataFrame:
    """Return all rows of the logs that `where`, the source's options, names.

    Spark tasks read the rows, as in a run. The `tieline` source is not used, because over Spark Connect it would run
    with the server's Python.
    """
    options = Options(where)
    log = options.log()
    ranges = [one for name in options.logs for one in options.split(name, 0, log.end(name))]
    pieces = [LogPiece(where, one.log, one.start, one.end) for one in ranges]
    return spark.range(0, len(pieces), 1, max(1, len(pieces))).mapInArrow(LogReader(pieces), SCHEMAS[BRONZE])


def nothing(schema: StructType) -> str:
    """Return a query (SQL text) without rows. Spark sees that, and skips every step that depends on it."""
    nulls = (f"CAST(NULL AS {field.dataType.simpleString()}) AS `{field.name}`" for field in schema)
    return statement("nothing", columns=", ".join(nulls))


def _missed(head: Commit, shape: Shape, end: Position) -> dict[str, int]:
    """Return the numbers of messages and rows that the hub had deleted before they could be read.

    The numbers are sums over all batches, including the batch that ends at `end`.
    """
    gone = {log: last - head.position.get(log, 0) - shape.count(log) for log, last in end.items()}
    new = {"messages": shape.unrouted, "activity": gone.get(ACTIVITY, 0), "rows": gone.get(MAIN, 0)}
    found = {f"missed_{name}": head.counts.get(f"missed_{name}", 0) + count for name, count in new.items() if count > 0}
    return {**found, "missed_ms": time.time_ns() // 1_000_000} if found else {}


def _redactions(head: Commit, shape: Shape) -> dict[str, int]:
    """Return the number of redactions in all batches, with this batch; an empty dict if this batch has none."""
    new = shape.rows.get(MAIN, {}).get(REDACT, 0)
    return {"redactions": head.counts.get("redactions", 0) + new} if new else {}


def _shapes(note: str) -> list[Shape]:
    return msgspec.json.decode(note, type=list[Shape])


def _overlap(span: tuple[int, int], hours: Iterable[int]) -> bool:
    """True if a file may have rows of one of the `hours`, so that it must be read.

    `span` has the first and the last time in the file. Each hour is given by its start.
    """
    return any(hour <= span[1] and hour + HOUR_MS > span[0] for hour in hours)

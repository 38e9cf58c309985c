"""A process of the pipeline's benchmark: does one engine's job and prints its figures as a line of JSON.

`synth HOME EVENTS`, `spark HOME SCRATCH WARMUP`, `duck HOME SCRATCH`, `grow HOME SCRATCH EVENTS`,
`follow HOME SCRATCH NEW`. After `spark`, `grow` and `follow`, `sail` may name the engine instead of Apache Spark.
"""

import contextlib
import json
import re
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

import psutil  # type: ignore[import-untyped]  # it has no types of its own

SQL = Path(__file__).with_name("pipeline.sql")
LOCAL = "local[*]"
"""Apache Spark in the process of the job."""
_READS = 3
_WARM = 4
"""Batches of a session that follows; the first of them makes the session warm."""
_FEW = 100
"""Rows of a batch with or without one late acknowledgement."""
_TAIL = 100_000
_LATE = tuple(f'{{"event":"{kind}","member":"agent-002"' for kind in ("ack", "claim"))
"""Only this member of the generated logs acknowledges late. Its events begin so."""
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def synth(home: Path, events: int) -> dict[str, Any]:
    """Generate a log."""
    from bench.synth import Generator  # noqa: PLC0415 - each process imports what it measures

    begun = time.monotonic()
    answers = Generator(home, events, seed=7).run()
    return {"events": answers.events, "seconds": time.monotonic() - begun}


def spark(home: Path, scratch: Path, warmup: Path, engine: str = LOCAL) -> dict[str, Any]:
    """Run the whole job in a session that has done it before.

    Apache Spark then reads the log, and the same rows in Parquet.
    """
    from tieline.pipeline.lake import Lake  # noqa: PLC0415 - the same
    from tieline.pipeline.run import run  # noqa: PLC0415 - the same
    from tieline.pipeline.session import start_session  # noqa: PLC0415 - the same

    begun = time.monotonic()
    session = start_session(engine, scratch=scratch / "spark")
    found: dict[str, Any] = {"start": time.monotonic() - begun}
    begun = time.monotonic()
    run(session, Lake(scratch / "warmup"), {"home": str(warmup)})
    found["warmup"] = time.monotonic() - begun
    _mark("job")
    lake = Lake(scratch / "lake")
    stages: dict[str, float] = {}
    summary = run(session, lake, {"home": str(home)}, watch=_watch(stages))
    _mark("read")
    found |= {"seconds": summary.seconds, "batches": summary.batches, "events": summary.events_read, "stages": stages}
    found["rows"] = lake.head().sizes
    reads: dict[str, list[float]] = {"log": [], "parquet": []}
    for _ in range(_READS if engine == LOCAL else 0):
        for name, times in reads.items():
            rows = (
                session.read.format("tieline").option("home", str(home)).load()
                if name == "log"
                else session.read.parquet(*lake.files("bronze"))
            )
            begun = time.monotonic()
            rows.write.format("noop").mode("overwrite").save()
            times.append(time.monotonic() - begun)
    found["reads"] = {name: median(taken) for name, taken in reads.items() if taken}
    session.stop()
    return found


def grow(home: Path, scratch: Path, events: int, engine: str = LOCAL) -> dict[str, Any]:
    """Bring a lake to `events` events in a new session."""
    from tieline.pipeline.lake import Lake  # noqa: PLC0415 - each process imports what it measures
    from tieline.pipeline.run import is_brief, run  # noqa: PLC0415 - the same
    from tieline.pipeline.session import start_session  # noqa: PLC0415 - the same

    lake = Lake(scratch / "growing")
    new = events - sum(lake.head().position.values())
    session = start_session(engine, scratch=scratch / "spark", brief=is_brief(lake, new))
    _mark("job")
    summary = run(session, lake, {"home": str(home)}, until=_at(home, events))
    _mark("end")
    session.stop()
    return {"events": summary.events_read, "seconds": summary.seconds}


def follow(home: Path, scratch: Path, new: int, engine: str = LOCAL) -> dict[str, Any]:
    """Add a few events to the lake of `grow`, again and again in one session, like a run that follows the log.

    Returns the processor seconds of `new` events, and those of batches of `_FEW` rows with and without one late
    acknowledgement.
    """
    from tieline.pipeline.lake import Lake  # noqa: PLC0415 - each process imports what it measures
    from tieline.pipeline.run import is_brief, run  # noqa: PLC0415 - the same
    from tieline.pipeline.session import start_session  # noqa: PLC0415 - the same

    lake, where = Lake(scratch / "growing"), {"home": str(home)}
    session = start_session(engine, scratch=scratch / "spark", brief=is_brief(lake, new))

    def spent(until: dict[str, int]) -> float:
        before = _processor_seconds()
        run(session, lake, where, until=until)
        return _processor_seconds() - before

    begun = sum(lake.head().position.values())
    found: dict[str, Any] = {"warm": [spent(_at(home, begun + new * nth)) for nth in range(1, 1 + _WARM)][1:]}
    found |= {"plain": [], "late": []}
    activity = lake.head().position["activity"]
    for late in _late_acknowledgements(home):
        # A first batch of the same length, so that the next two have the same files before them.
        for name, end in (("before", late - 2 * _FEW), ("plain", late - _FEW), ("late", late)):
            if end < lake.head().position["main"]:
                raise AssertionError(f"row {end} was read before")
            found.setdefault(name, []).append(spent({"main": end + 1, "activity": activity}))
    if lake.head().counts["late"] < len(found["late"]):
        raise AssertionError(f"the late acknowledgements were not late: {lake.head().counts}")
    session.stop()
    return found


def _at(home: Path, events: int) -> dict[str, int]:
    """Position in the logs after about so many events, with the same share of each log."""
    from tieline.pipeline.row import LOGS  # noqa: PLC0415 - each process imports what it measures
    from tieline.pipeline.sqlite_log import SqliteLog  # noqa: PLC0415 - the same

    ends = {log: SqliteLog(str(home)).end(log) for log in LOGS}
    return {log: min(end, events * end // sum(ends.values())) for log, end in ends.items()}


def _late_acknowledgements(home: Path) -> list[int]:
    """Offsets of the late acknowledgements that come alone."""
    from tieline.pipeline.row import MAIN  # noqa: PLC0415 - each process imports what it measures
    from tieline.pipeline.sqlite_log import SqliteLog  # noqa: PLC0415 - the same

    log = SqliteLog(str(home))
    end = log.end(MAIN)
    offsets = [
        offset
        for page in log.read(MAIN, end - _TAIL, end)
        for offset, event in zip(page["offset"].to_pylist(), page["event"].to_pylist(), strict=True)
        if event.startswith(_LATE)
    ]
    return [late for late, before in zip(offsets, [0, *offsets], strict=False) if late - before > 2 * _FEW]


def _processor_seconds() -> float:
    """Processor time that this process and all its children have used, also those that have ended."""
    found = 0.0
    me = psutil.Process()
    for process in (me, *me.children(recursive=True)):
        with contextlib.suppress(psutil.Error):
            found += sum(process.cpu_times()[:4])
    return found


def _watch(stages: dict[str, float]) -> Any:
    """A watch that adds up the time of each table."""
    from tieline.pipeline.run import Watch  # noqa: PLC0415 - the same

    last: list[Any] = [None, time.monotonic()]

    def stage(name: str | None) -> None:
        now = time.monotonic()
        if last[0] is not None:
            stages[last[0]] = stages.get(last[0], 0.0) + now - last[1]
        last[:] = [name, now]

    return Watch(stage=stage, done=lambda commit: stage(None))


def duck(home: Path, scratch: Path) -> dict[str, Any]:
    """Run the same job with DuckDB: one Python process writes the log to Parquet; DuckDB makes the tables from that."""
    import duckdb  # noqa: PLC0415 - each process imports what it measures
    import pyarrow as pa  # noqa: PLC0415 - the same
    from pyarrow import parquet  # noqa: PLC0415 - the same

    from tieline.pipeline.row import LOGS, SCHEMA  # noqa: PLC0415 - the same
    from tieline.pipeline.sqlite_log import SqliteLog  # noqa: PLC0415 - the same

    scratch.mkdir(parents=True, exist_ok=True)
    log = SqliteLog(str(home))
    begun, before = time.monotonic(), _processor_seconds()
    target = scratch / "log.parquet"
    with parquet.ParquetWriter(target, SCHEMA, compression="zstd") as writer:
        for name in LOGS:
            held: list[Any] = []
            for batch in log.read(name, 0, log.end(name)):
                held.append(batch)
                if sum(one.num_rows for one in held) >= 250_000:
                    writer.write_table(pa.Table.from_batches(held))
                    held = []
            if held:
                writer.write_table(pa.Table.from_batches(held))
    extracted, extract_cpu = time.monotonic() - begun, _processor_seconds() - before
    _, *parts = _NAME.split(SQL.read_text(encoding="utf-8"))
    queries = dict(zip(parts[::2], parts[1::2], strict=True))
    _mark("job")
    begun = time.monotonic()
    database = duckdb.connect(str(scratch / "duck.db"))
    database.execute(queries.pop("base").replace("$log", f"'{target}'"))
    rows = {}
    for name, query in queries.items():
        counted = database.execute(f"COPY ({query}) TO '{scratch / name}.parquet' (COMPRESSION zstd)").fetchall()
        rows[name] = counted[0][0]
    return {"extract": extracted, "extract_cpu": extract_cpu, "seconds": time.monotonic() - begun, "rows": rows}


def _mark(what: str) -> None:
    """Tell the process that measures this one's memory which step begins."""
    print(what, flush=True)


def main() -> None:
    """Run the job that the arguments name."""
    job, home, *rest = sys.argv[1:]
    if job == "synth":
        found = synth(Path(home), int(rest[0]))
    elif job == "spark":
        found = spark(Path(home), Path(rest[0]), Path(rest[1]), *rest[2:])
    elif job == "grow":
        found = grow(Path(home), Path(rest[0]), int(rest[1]), *rest[2:])
    elif job == "follow":
        found = follow(Path(home), Path(rest[0]), int(rest[1]), *rest[2:])
    else:
        found = duck(Path(home), Path(rest[0]))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

"""A process of the pipeline's benchmark: does one engine's job and prints its figures as a line of JSON.

`synth HOME EVENTS`, `spark HOME SCRATCH WARMUP`, `duck HOME SCRATCH`, `grow HOME SCRATCH EVENTS`.
"""

import json
import re
import sys
import time
from pathlib import Path
from statistics import median
from typing import Any

SQL = Path(__file__).with_name("pipeline.sql")
_READS = 3
_ACTIVITY = 10
"""One of so many events of a generated log is in the activity log."""
_NAME = re.compile(r"^-- name: (\w+)$", re.MULTILINE)


def synth(home: Path, events: int) -> dict[str, Any]:
    """Generate a log."""
    from bench.synth import Generator  # noqa: PLC0415 - each process imports what it measures

    begun = time.monotonic()
    answers = Generator(home, events, seed=7).run()
    return {"events": answers.events, "seconds": time.monotonic() - begun}


def spark(home: Path, scratch: Path, warmup: Path) -> dict[str, Any]:
    """Run the whole job in a session that has done it before; then read the log, and the same rows in Parquet."""
    from tieline.pipeline.lake import Lake  # noqa: PLC0415 - the same
    from tieline.pipeline.run import run  # noqa: PLC0415 - the same
    from tieline.pipeline.session import start_session  # noqa: PLC0415 - the same

    begun = time.monotonic()
    session = start_session("local[*]", scratch=scratch / "spark")
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
    for _ in range(_READS):
        for name, times in reads.items():
            rows = (
                session.read.format("tieline").option("home", str(home)).load()
                if name == "log"
                else session.read.parquet(*lake.files("bronze"))
            )
            begun = time.monotonic()
            rows.write.format("noop").mode("overwrite").save()
            times.append(time.monotonic() - begun)
    found["reads"] = {name: median(taken) for name, taken in reads.items()}
    session.stop()
    return found


def grow(home: Path, scratch: Path, events: int) -> dict[str, Any]:
    """Bring a lake to `events` events in a new session; the session's start does not count as part of the job."""
    from tieline.pipeline.lake import Lake  # noqa: PLC0415 - each process imports what it measures
    from tieline.pipeline.run import is_brief, run  # noqa: PLC0415 - the same
    from tieline.pipeline.session import start_session  # noqa: PLC0415 - the same

    lake = Lake(scratch / "growing")
    new = events - sum(lake.head().position.values())
    session = start_session("local[*]", scratch=scratch / "spark", brief=is_brief(lake, new))
    session.range(1).count()
    _mark("job")
    until = {"main": events - events // _ACTIVITY, "activity": events // _ACTIVITY}
    summary = run(session, lake, {"home": str(home)}, until=until)
    _mark("end")
    session.stop()
    return {"events": summary.events_read, "seconds": summary.seconds}


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
    begun = time.monotonic()
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
    extracted = time.monotonic() - begun
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
    return {"extract": extracted, "seconds": time.monotonic() - begun, "rows": rows}


def _mark(what: str) -> None:
    """Tell the process that measures this one's memory which step begins."""
    print(what, flush=True)


def main() -> None:
    """Run the job that the arguments name."""
    job, home, *rest = sys.argv[1:]
    if job == "synth":
        found = synth(Path(home), int(rest[0]))
    elif job == "spark":
        found = spark(Path(home), Path(rest[0]), Path(rest[1]))
    elif job == "grow":
        found = grow(Path(home), Path(rest[0]), int(rest[1]))
    else:
        found = duck(Path(home), Path(rest[0]))
    print(json.dumps(found), flush=True)


if __name__ == "__main__":
    main()

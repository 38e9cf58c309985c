"""Tests that every engine makes the same tables: Spark on one machine, on a cluster, over Spark Connect, and Sail.

Each engine reads a log in three runs, of which the last is killed and has late facts. `make soak` runs all engines.
`make test` has short cases of a cluster in `test_cluster.py`, and of Sail in `test_object_store.py`.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

from bench.synth import Generator
from tests.faults.processes import ROOT, SOAK
from tests.pipeline.clusters import cluster, connect_server
from tests.pipeline.event_logs import tasks, write_settings
from tests.pipeline.oracle import Oracle, stored
from tieline.pipeline.catalogue import BRONZE, GOLD, SCHEMAS
from tieline.pipeline.engines import SAIL
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

SAIL_PYTHON = Path(os.environ.get("TIELINE_SAIL", Path(sys.prefix) / "sail")) / "bin" / "python"
"""Python of the environment that has the extra `sail`. `make ready` makes it."""


class Engine(NamedTuple):
    """An engine under test: its master, the Python of its driver, and what it writes into a commit."""

    master: str
    python: str
    name: str
    has_archive: bool = False
    """True if its workers get Tieline as an archive."""
    starts_soon: bool = False
    """True if a new process needs no new Java."""


SAIL_ENGINE = Engine(SAIL, str(SAIL_PYTHON), "sail ", starts_soon=True)


@contextlib.contextmanager
def started(kind: str, folder: Path) -> Iterator[Engine]:
    """Start an engine. Stop it at the end. `kind` is one of `ENGINES`."""
    match kind:
        case "local":
            yield Engine("local[2]", sys.executable, "(local[2])")
        case "cluster":
            with cluster(folder / "cluster") as there:
                yield Engine(there.url, sys.executable, f"({there.url})", has_archive=True)
        case "connect":
            with connect_server(folder / "connect") as address:
                yield Engine(address, sys.executable, "(connect, local[2])", has_archive=True, starts_soon=True)
        case _:
            yield SAIL_ENGINE


def job(
    engine: Engine,
    home: Path,
    lake: Lake,
    *steps: str,
    expected: int = 0,
    environment: Mapping[str, str] | None = None,
) -> list[bytes]:
    """Do steps in a new process. Return the lines that it printed. `expected` is its exit code."""
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as scratch:
        command = [engine.python, "-m", "tests.pipeline.engine_job", engine.master, scratch, str(home), str(lake)]
        done = subprocess.run(
            [*command, *steps], cwd=ROOT, env={**os.environ, **(environment or {})}, check=False, capture_output=True
        )
    assert done.returncode == expected, done.stderr.decode()[-3000:]
    return done.stdout.splitlines()


soak = pytest.mark.skipif(not SOAK, reason="engines that take long to start: make soak")
sail = pytest.mark.skipif(not SAIL_PYTHON.exists(), reason="the environment with Sail is missing: make ready")
ENGINES = ("local", "cluster", "connect", pytest.param("sail", marks=sail))


@soak
@pytest.mark.parametrize("kind", ENGINES)
def test_an_engine_makes_the_tables_that_duckdb_makes(
    kind: str, made_home: Path, oracle: Oracle, scratch: Path
) -> None:
    folder = scratch / f"engine-{kind}"
    lake = Lake(folder / "lake")
    answers = json.loads((made_home / "answers.json").read_text())
    # The last two rows are late: they are of deliveries that are closed by then.
    nearly = f"{answers['main'] - 2},{answers['activity'] // 3}"
    with started(kind, folder) as engine:
        found = job(engine, made_home, lake, "run:600,60", f"run:{nearly}", "die:commit", expected=-signal.SIGKILL)
        assert ("tieline.zip" in json.loads(found[0])[0]) == engine.has_archive
        assert lake.head().number == 2
        *_, verified, _ = job(engine, made_home, lake, "run", "verify", "rebuild")
    commits = lake._commits()[2:]
    assert len(commits) == 2, "the run after the kill, and the rebuilding"
    for commit in commits:
        assert engine.name in commit.engine
        assert commit.counts == {"late": 2, "unknown": 0}
        assert commit.position == {"main": answers["main"], "activity": answers["activity"]}
        for table in GOLD:
            assert stored(lake.files(table, commit), SCHEMAS[table].fieldNames()) == oracle.rows(table), table
    assert json.loads(verified)["verified_rows"] == answers["main"]
    report = make_report(lake)
    assert report.engine == lake.head().engine
    assert (report.totals.messages, report.totals.deliveries) == (answers["messages"], answers["deliveries"])


@soak
@pytest.mark.parametrize("kind", ["local", "cluster"])
def test_tasks_read_the_log_and_write_the_files(kind: str, scratch: Path) -> None:
    folder, home = scratch / f"events-{kind}", scratch / f"events-{kind}" / "home"
    answers = Generator(home, 14_000, seed=11).run()
    lake, notes = Lake(folder / "lake"), folder / "notes"
    notes.mkdir()
    # Both workers are there before anything is given to one.
    events = write_settings(folder / "conf", {"spark.scheduler.minRegisteredResourcesRatio": "1.0"})
    with started(kind, folder) as engine:
        job(engine, home, lake, f"witness:{notes}", "run", environment={"SPARK_CONF_DIR": str(folder / "conf")})
    ended = {task.attempt: task for task in tasks(events)}
    told = [json.loads(line) for note in notes.iterdir() for line in note.read_text().splitlines()]
    # Work of the driver itself would have no task in Spark's log.
    by_tasks = [one for one in told if one["attempt"] in ended]
    source = [one for one in by_tasks if one["table"] == BRONZE]
    rows = sum(one["rows"] for one in source)
    assert rows > 0.95 * lake.head().rows(BRONZE)
    assert lake.head().rows(BRONZE) == answers.main + answers.activity >= 10_000
    read, written = sum(one["read"] for one in source), sum(one["bytes"] for one in by_tasks)
    files = [file for table in SCHEMAS for file in lake.data_files(table)]
    assert written >= sum(file.bytes for file in files) > 0
    assert sum(task.rows_read for task in ended.values()) > rows, "silver tables are made of the rows in bronze"
    executors = {ended[one["attempt"]].executor for one in by_tasks}
    assert executors == ({"0", "1"} if kind == "cluster" else {"driver"})
    sys.stdout.write(
        f"{kind}: {len(ended)} tasks on {len(executors)} executors; source tasks read {read:,} bytes of the log and "
        f"counted {rows:,} of {lake.head().rows(BRONZE):,} bronze rows; tasks wrote {written:,} bytes, and Spark read "
        f"{sum(task.bytes_read for task in ended.values()):,} bytes of Parquet\n"
    )

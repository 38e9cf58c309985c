"""Tests that every engine makes the right tables after each hardship: kills, a second run, a full disk, and others.

Every gold table must be what DuckDB and plain Python make of the same log. `make soak` runs these tests. `make test`
has the same hardships on Spark in the tests' process, each in the file that is named after it.
"""

import json
import shutil
import signal
import tarfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from bench.synth import Generator
from tests.faults.disks import fill, small_disk
from tests.faults.processes import SOAK
from tests.pipeline.oracle import Oracle, stored
from tests.pipeline.plain_oracle import PlainOracle
from tests.pipeline.test_engines import ENGINES, Engine, job, started
from tests.pipeline.test_gold import make_gaps
from tests.pipeline.test_missed import change
from tests.pipeline.test_old_lake import HOME, LAKE
from tieline.pipeline.catalogue import BRONZE, GOLD, SCHEMAS, SILVER
from tieline.pipeline.checks import check_tables
from tieline.pipeline.lake import Commit, Lake

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not SOAK, reason="hardships on every engine: make soak"),
]

KIB = 1024
BEGUN = "run:600,60"
"""The first step of most lakes: what comes later is merged into tables that are there."""
PHASES = (BRONZE, "silver", "deliveries", "gold", "latency", "members", "commit")


@pytest.fixture(scope="module", params=ENGINES)
def engine(request: pytest.FixtureRequest, scratch: Path) -> Iterator[Engine]:
    """Fixture: an engine. Each test runs on all of them."""
    with started(request.param, scratch / f"hardships-{request.param}") as there:
        yield there


def require_right(lake: Lake, home: Path, commit: Commit | None = None) -> None:
    """Fail the test if a gold table is not what DuckDB and plain Python make of the log of a home."""
    duck, plain = Oracle(home), PlainOracle(home)
    for table in GOLD:
        found = stored(lake.files(table, commit), SCHEMAS[table].fieldNames())
        assert found == plain.rows(table), table
        assert found == duck.rows(table), table
    if commit is None:
        assert check_tables(lake, everything=True).failed == []


def test_kills_one_after_the_other_at_every_stage_of_a_batch(engine: Engine, made_home: Path, folder: Path) -> None:
    lake = Lake(folder / "lake")
    *_, told = job(engine, made_home, Lake(folder / "whole"), BEGUN, "stages")
    stages = list(dict.fromkeys(json.loads(told)))
    assert {*PHASES, *SILVER, *GOLD} <= {*stages}, "the batch changes every table"
    job(engine, made_home, lake, BEGUN)
    # The next process completes the batch of the one before, and comes one stage farther. On a cluster it starts late.
    for stage in stages if engine.starts_soon else PHASES:
        job(engine, made_home, lake, f"die:{stage}", expected=-signal.SIGKILL)
        assert lake.head().number == 1, stage
    job(engine, made_home, lake, "run")
    assert lake.head().number == 2, "it was one batch all the time"
    require_right(lake, made_home)


def test_a_second_run_at_the_same_time_is_refused(engine: Engine, made_home: Path, folder: Path) -> None:
    lake = Lake(folder / "lake")
    *_, told = job(engine, made_home, lake, BEGUN, "beside:gold")
    assert told.count(b"another run") == 2, told
    assert lake.head().number == 2
    require_right(lake, made_home)


@pytest.mark.parametrize("left", [60, 300])
def test_a_full_disk(engine: Engine, made_home: Path, folder: Path, left: int) -> None:
    with small_disk(folder / "small", 16 * KIB) as disk:
        lake = Lake(disk / "lake")
        job(engine, made_home, lake, BEGUN)
        ballast = fill(disk, leave=left * KIB)
        *_, told, _, _ = job(engine, made_home, lake, "fails:run", f"free:{ballast}", "run")
        assert b"a disk is full" in told, told
        require_right(lake, made_home)


def test_a_log_with_gaps(engine: Engine, folder: Path) -> None:
    home, lake = make_gaps(folder / "home"), Lake(folder / "lake")
    job(engine, home, lake, "run:700,45", "run")
    assert lake.head().missed().keys() == {"messages", "activity", "rows"}
    require_right(lake, home)


def test_a_hub_that_was_restored_and_went_on(engine: Engine, folder: Path) -> None:
    home, restored, lake = folder / "home", folder / "restored", Lake(folder / "lake")
    Generator(home, 1000, seed=5).run()
    job(engine, home, lake, "run")
    for one in (home, restored):
        if one is restored:
            shutil.copytree(home, restored)
            for table in ("log", "message", "objective_event"):
                change(restored / "tieline.db", f"DELETE FROM {table} WHERE offset >= 400")
            change(restored / "activity.db", "DELETE FROM activity WHERE offset >= 30")
        for name in ("tieline.db", "activity.db"):
            change(one / name, "UPDATE log_state SET epoch = 'restored'")
    _, refused, _, again = job(engine, restored, lake, "fails:run", "rewind", "run")
    assert b"pipeline rewind" in refused
    assert b'"batches":0' in again
    require_right(lake, restored)
    job(engine, home, lake, "run")
    require_right(lake, home)


def test_a_lake_of_the_old_form(engine: Engine, folder: Path) -> None:
    for archive in (HOME, LAKE):
        with tarfile.open(archive) as tar:
            tar.extractall(folder, filter="data")
    lake = Lake(folder / "lake")
    assert lake.is_old()
    job(engine, folder / "home", lake, "rebuild")
    assert lake.head().position == {"main": 18, "activity": 1}
    require_right(lake, folder / "home")

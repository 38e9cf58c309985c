"""Tests of kills: a run that is killed at any stage has changed nothing or everything. The next run completes it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lakes import copied
from tests.pipeline.oracle import stored
from tests.pipeline.victim import gateway
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Commit, Lake
from tieline.pipeline.run import RunFailed, Watch, rebuild, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS = 1500
ROOT = Path(__file__).resolve().parents[2]


class Interrupted(Exception):
    """Exception that a test raises in the middle of a batch."""


def fail_at(stage: str) -> Watch:
    def look(name: str) -> None:
        if name == stage:
            raise Interrupted("in the middle")

    return Watch(stage=look)


def test_a_run_that_is_killed_or_fails_at_any_stage_is_made_whole_by_the_next(
    spark: SparkSession, made_home: Path, scratch: Path, begun: Lake, filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Not an empty lake: what is killed below merges into parts that are there.
    lake = copied(begun, scratch / "killed")
    # While bronze is written; when bronze has the batch and nothing else has; when all tables have it.
    for stage, seconds in (("bronze", 0.2), ("silver", 0.1), ("commit", 0.0)):
        arguments = [*map(str, (made_home, lake.path, ROWS, stage, seconds))]
        command = [sys.executable, "-m", "tests.pipeline.victim", *arguments]
        environment = {**os.environ, **gateway(spark)}
        victim = subprocess.run(command, cwd=ROOT, env=environment, check=False, capture_output=True)
        assert victim.returncode == -signal.SIGKILL, victim.stderr.decode()[-2000:]
        assert lake.head().number == 1
    # The batch that was cut off is completed; then the next one fails before each of these tables has it.
    for stage in ("messages", "edges"):
        with pytest.raises(RunFailed, match="in the middle"):
            run(spark, lake, {"home": str(made_home)}, rows_per_batch=ROWS // 2, watch=fail_at(stage))
        assert lake.head().number == 2
    # Small files are put together at once, where it would take a day.
    monkeypatch.setattr("tieline.pipeline.lake._FILES_MAX", 1)
    done = list[Commit]()
    run(spark, lake, {"home": str(made_home)}, rows_per_batch=ROWS, watch=Watch(done=done.append))
    assert [commit.number for commit in done] == list(range(3, lake.head().number + 1))
    assert lake.head().position == filled.head().position
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(lake.files(table), columns) == stored(filled.files(table), columns), table
    assert lake.sweep(SCHEMAS, hours=0) > 0
    assert stored(lake.files("latency"), ["member"])


def test_a_rebuilding_that_is_cut_off_is_completed(
    spark: SparkSession, made_home: Path, scratch: Path, begun: Lake
) -> None:
    lake, where = copied(begun, scratch / "cut-off"), {"home": str(made_home)}
    before = stored(lake.files("edges"), SCHEMAS["edges"].fieldNames())
    with pytest.raises(Interrupted):
        rebuild(spark, lake, "edges", fail_at("commit").stage)
    assert lake.head().number == 1
    run(spark, lake, where, until={"main": 630, "activity": 60})
    assert lake.head().number == 3
    assert stored(lake.files("edges"), ["day_ms"])
    assert sum(row[0] for row in stored(lake.files("edges"), ["messages"])) == lake.head().rows("deliveries")
    assert before

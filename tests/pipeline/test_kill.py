"""Kills: a run that is killed at any stage has changed nothing or everything, and the next one makes it whole."""

import math
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.oracle import stored
from tieline.pipeline import flow
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake
from tieline.pipeline.prices import load_prices
from tieline.pipeline.run import RunFailed, Watch, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROWS, ALL = 1500, 1_000_000
ROOT = Path(__file__).resolve().parents[2]


class Interrupted(Exception):
    """Something went wrong in the middle of a batch."""


def fail_at(stage: str) -> Watch:
    def look(name: str) -> None:
        if name == stage:
            raise Interrupted("in the middle")

    return Watch(stage=look)


def test_a_run_that_is_killed_or_fails_at_any_stage_is_made_whole_by_the_next(
    spark: SparkSession, made_home: Path, scratch: Path, filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake = Lake(scratch / "killed")
    # Not an empty lake: what is killed below merges into parts that are there.
    run(spark, lake, {"home": str(made_home)}, until={"main": 600, "activity": 60})
    # While bronze is written, silver, gold; and when the last file of the batch is there, and nothing is committed.
    # Batches of a stream, and one of all that is new, which needs no stream.
    for rows, stage, seconds in (
        (ROWS, "bronze", 0.2), (ROWS, "deliveries", 0.1), (ALL, "latency", 0.1), (ROWS, "commit", 0.0),
    ):  # fmt: skip
        arguments = [*map(str, (made_home, lake.path, scratch / "victim", rows, stage, seconds))]
        command = [sys.executable, "-m", "tests.pipeline.victim", *arguments]
        victim = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, start_new_session=True)
        assert victim.returncode == -signal.SIGKILL, victim.stderr.decode()[-2000:]
        assert lake.head().number == 1
    with pytest.raises(RunFailed, match="in the middle"):
        run(spark, lake, {"home": str(made_home)}, rows_per_batch=ROWS, watch=fail_at("messages"))
    assert lake.head().number == 1
    # Files of the same part are put together at once, where it would take months.
    monkeypatch.setattr(flow, "_FILES_MAX", 1)
    run(spark, lake, {"home": str(made_home)}, rows_per_batch=ROWS)
    left = sum(filled.head().position.values()) - 660
    assert lake.head().number == 1 + math.ceil(left / ROWS)
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(lake.files(table), columns) == stored(filled.files(table), columns), table
    assert lake.sweep(seconds=-1) > 0
    assert stored(lake.files("latency"), ["member"])


def test_a_batch_that_spark_brings_again_is_not_counted_again(
    spark: SparkSession, made_home: Path, filled: Lake
) -> None:
    before = filled.head()
    rows = spark.read.format("tieline").option("home", str(made_home)).load()
    assert flow.Flow(spark, filled, load_prices(filled.path)).add(rows) is None
    assert filled.head() == before

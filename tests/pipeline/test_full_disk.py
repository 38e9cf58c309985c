"""Tests of a lake on a disk that becomes full: a run says so in a sentence, and the next run completes it."""

import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.disks import fill, small_disk
from tests.faults.processes import SOAK
from tests.pipeline.oracle import stored
from tests.pipeline.plain_oracle import PlainOracle
from tieline.pipeline.catalogue import GOLD, SCHEMAS
from tieline.pipeline.checks import check_tables
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.run import RunFailed, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

KIB = 1024
LEFT = range(0, 560, 16) if SOAK else (300,)
"""Free space in KiB at the start of each run: for no file of the batch, for some of them, or for all, but no commit."""


def test_a_run_that_fills_the_disk_says_so_and_the_next_one_completes_it(
    spark: SparkSession, made_home: Path, plain_oracle: PlainOracle, scratch: Path, begun: Lake
) -> None:
    where = {"home": str(made_home)}
    failed = list[str]()
    with small_disk(scratch / "small", 16 * KIB) as disk:
        for left in LEFT:
            lake = Lake(shutil.copytree(begun.path, disk / f"lake-{left}"))
            ballast = fill(disk, leave=left * KIB)
            try:
                run(spark, lake, where)
            except (LakeError, RunFailed) as error:
                failed.append(str(error))
                assert lake.head().number == 1, "readers see the tables of the last whole batch"
            ballast.unlink()
            run(spark, lake, where)
            for table in GOLD:
                assert stored(lake.files(table), SCHEMAS[table].fieldNames()) == plain_oracle.rows(table), table
            assert check_tables(lake, everything=True).failed == []
            shutil.rmtree(lake.path)
    assert len(failed) > len(LEFT) // 2
    for told in failed:
        assert told.startswith("a disk is full: that of the lake, or that of Spark's temporary files (")
        assert "No space left on device" in told
        assert told.endswith("); make room, and run the same command again")
        assert "\n" not in told

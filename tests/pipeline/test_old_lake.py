"""Tests of a lake in the format before Delta, which the pipeline of commit 9854711 made.

Every command reports the old format, and one command rebuilds the tables from the log rows in the lake.
"""

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.oracle import stored
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.old_lake import last_commit
from tieline.pipeline.run import rebuild_all, run

OLD = "9854711"
FOLDER = Path(__file__).parent
HOME = FOLDER.parent / "stores" / "homes" / OLD / "home.tar.gz"
"""The home from which the lake was made, by a hub of the same commit. Its README says how."""

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_an_old_lake_is_never_misread_and_becomes_delta_tables_by_one_command(
    spark: SparkSession, tmp_path: Path
) -> None:
    for archive in (HOME, FOLDER / "lakes" / f"{OLD}.tar.gz"):
        with tarfile.open(archive) as tar:
            tar.extractall(tmp_path, filter="data")
    lake, where = Lake(tmp_path / "lake"), {"home": str(tmp_path / "home")}
    with pytest.raises(LakeError, match=r"older version.*rebuild --all"):
        lake.head()
    with pytest.raises(LakeError, match="older version"):
        run(spark, lake, where)
    assert last_commit(lake.path) is not None
    rebuild_all(spark, lake)
    assert last_commit(lake.path) is None
    made = Lake(tmp_path / "made")
    run(spark, made, where)
    assert lake.head().position == made.head().position == {"main": 18, "activity": 1}
    assert lake.head().last_hash == made.head().last_hash
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(lake.files(table), columns) == stored(made.files(table), columns), table
    assert stored(lake.files("messages"), ["id"])
    assert run(spark, lake, where).batches == 0
    assert sorted(path.name for path in lake.path.glob("bronze/*-*")) == sorted(
        path.name for path in lake.path.glob("bronze/day=*")
    )

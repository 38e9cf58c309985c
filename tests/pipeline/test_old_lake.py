"""Tests of a lake in the format before Delta.

Every command reports the old format, and one command rebuilds the tables from the log rows in the lake.
"""

import json
import shutil
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.oracle import stored
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.old_lake import last_commit
from tieline.pipeline.run import rebuild_all, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def old_lake(path: Path, filled: Lake) -> Lake:
    """Make a lake in the format of version 9854711, with the log rows (bronze) of the lake `filled`. Return it."""
    bronze = []
    for number, file in enumerate(filled.files("bronze"), 1):
        target = path / "bronze" / f"{number:08d}-0123abcd" / "rows.parquet"
        target.parent.mkdir(parents=True)
        shutil.copy(file, target)
        bronze.append({"path": str(target.relative_to(path)), "rows": 1})
    head = filled.head()
    tables = {
        "bronze": bronze,
        "edges": [{"path": "edges/00000001-0123abcd/part=0/rows.parquet", "rows": 1, "part": 0}],
    }
    commit = {"number": 3, "position": head.position, "tables": tables, "last_hash": head.last_hash, "at_ms": 5}
    (path / "_tieline" / "commits").mkdir(parents=True)
    (path / "_tieline" / "commits" / "00000003.json").write_text(json.dumps(commit))
    (path / "current.json").write_text("{}")
    return Lake(path)


def test_an_old_lake_is_never_misread_and_becomes_delta_tables_by_one_command(
    spark: SparkSession, made_home: Path, filled: Lake, tmp_path: Path
) -> None:
    lake = old_lake(tmp_path / "lake", filled)
    with pytest.raises(LakeError, match=r"older version.*rebuild --all"):
        lake.head()
    with pytest.raises(LakeError, match="older version"):
        run(spark, lake, {"home": str(made_home)})
    assert last_commit(lake.path) is not None
    rebuild_all(spark, lake)
    assert last_commit(lake.path) is None
    assert lake.head().position == filled.head().position
    assert lake.head().last_hash == filled.head().last_hash
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(lake.files(table), columns) == stored(filled.files(table), columns), table
    assert run(spark, lake, {"home": str(made_home)}).batches == 0
    assert sorted(path.name for path in lake.path.glob("bronze/*-*")) == sorted(
        path.name for path in lake.path.glob("bronze/day=*")
    )

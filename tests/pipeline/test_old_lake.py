"""Tests of a lake in the format before Delta, which the pipeline of commit 9854711 made.

Every command reports the old format. `run` and `rebuild --all` make the tables anew from the log rows in the lake.
"""

import tarfile
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.faults.processes import SOAK
from tests.pipeline.conftest import Ask
from tests.pipeline.oracle import stored
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake, OldLake
from tieline.pipeline.old_lake import last_commit
from tieline.pipeline.run import run

OLD = "9854711"
FOLDER = Path(__file__).parent
HOME = FOLDER.parent / "stores" / "homes" / OLD / "home.tar.gz"
LAKE = FOLDER / "lakes" / f"{OLD}.tar.gz"
"""The home from which the lake was made, by a hub of the same commit, and the lake. The home's README says how."""

soak = pytest.mark.skipif(not SOAK, reason="the same by another command: make soak")
pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.mark.parametrize("command", ["run", pytest.param("rebuild --all", marks=soak)])
def test_an_old_lake_is_never_misread_and_becomes_delta_tables_by_one_command(
    spark: SparkSession, ask: Ask, tmp_path: Path, command: str
) -> None:
    for archive in (HOME, LAKE):
        with tarfile.open(archive) as tar:
            tar.extractall(tmp_path, filter="data")
    lake, where = Lake(tmp_path / "lake"), {"home": str(tmp_path / "home")}
    with pytest.raises(OldLake, match="older version"):
        lake.head()
    with pytest.raises(OldLake, match="older version"):
        run(spark, lake, where)
    at = ("--home", where["home"], "--lake", lake.path)
    said = ask("status", *at)
    assert (said.exit_code, "the next 'tieline pipeline run' makes its tables" in said.stderr) == (1, True)
    assert last_commit(lake.path) is not None
    said = ask(*command.split(), *(at if command == "run" else at[2:]))
    assert said.exit_code == 0, said.stderr
    if command == "run":
        assert f"An older version of Tieline wrote {lake}. First all its tables are made anew" in said.stderr
        assert "Nothing new" in said.stdout
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

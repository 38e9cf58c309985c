"""Tests of a lake in an object store (moto's server for S3): kills, two runs at once, and other programs that read it.

`make test` kills one run, on Sail, which takes the least time. `make soak` kills runs on Spark, at many stages.
"""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import duckdb
import polars
import pyarrow as pa
import pytest
from pyspark.sql import SparkSession

from tests.faults.processes import ROOT
from tests.pipeline.object_stores import ObjectStore, object_store
from tests.pipeline.oracle import Oracle, ordered
from tests.pipeline.test_engines import SAIL_ENGINE, job, sail, soak
from tests.pipeline.victim import gateway
from tieline.pipeline.catalogue import GOLD, SCHEMAS
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.report import make_report
from tieline.pipeline.run import RunFailed, Watch, run
from tieline.pipeline.storage import DataFile

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

ROWS = 1_000_000


@pytest.fixture(scope="module")
def store(scratch: Path) -> Iterator[ObjectStore]:
    """Fixture: an object store with an empty bucket."""
    with object_store(scratch / "store") as started:
        yield started


def kill_at(stage: str, spark: SparkSession, home: Path, lake: Lake, *, seconds: float = 0.0, rows: int = ROWS) -> None:
    """Run the pipeline in a process that kills itself at a stage."""
    arguments = [str(home), str(lake), str(rows), stage, str(seconds), json.dumps(lake.storage.options)]
    victim = subprocess.run(
        [sys.executable, "-m", "tests.pipeline.victim", *arguments],
        cwd=ROOT, env={**os.environ, **gateway(spark)}, check=False, capture_output=True,
    )  # fmt: skip
    assert victim.returncode == -signal.SIGKILL, victim.stderr.decode()[-2000:]


def require_expected(lake: Lake, oracle: Oracle) -> None:
    """Fail the test if a gold table, read by DuckDB or Polars, is not what DuckDB makes of the same log."""
    for table in GOLD:
        names, opened = SCHEMAS[table].fieldNames(), lake.table(table)
        found = opened.to_pyarrow_dataset()
        columns = ", ".join(f'"{name}"' for name in names)
        assert ordered(duckdb.execute(f"SELECT {columns} FROM found").fetchall()) == oracle.rows(table), table
        assert ordered(polars.read_delta(opened).select(names).rows()) == oracle.rows(table), table
        del found


@sail
def test_a_run_that_is_killed_when_it_commits_is_completed_by_the_next(
    store: ObjectStore, made_home: Path, oracle: Oracle
) -> None:
    lake, answers = store.lake("sail"), json.loads((made_home / "answers.json").read_text())
    job(SAIL_ENGINE, made_home, lake, "die:commit", expected=-signal.SIGKILL, environment=store.options)
    assert lake.head().number == 0
    job(SAIL_ENGINE, made_home, lake, "run", environment=store.options)
    head = lake.head()
    assert (head.number, head.position["main"]) == (1, answers["main"])
    assert SAIL_ENGINE.name in head.engine
    require_expected(lake, oracle)
    report = make_report(lake)
    assert (report.totals.messages, report.engine) == (answers["messages"], head.engine)
    lake.storage.write("_tieline/told.json", b"{}")
    assert lake.storage.read("_tieline/told.json") == b"{}"


def test_of_two_runs_at_once_the_one_that_commits_second_is_refused(
    store: ObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, other = store.lake("two"), store.lake("two")
    schema = pa.schema([("n", pa.int64())])

    def written(number: int) -> list[DataFile]:
        return [lake.storage.write_file("edges", number, pa.table({"n": [number]}, schema))]

    lake.commit_table("edges", 1, schema, written(1))
    opened = other._open("edges")
    lake.commit_table("edges", 2, schema, written(2), lake.data_files("edges"))
    with pytest.raises(LakeError, match="another run"):
        other.commit_table("edges", 2, schema, written(2))
    # Delta refuses it, too, if the first commit comes after the second run has looked.
    monkeypatch.setattr(other, "_open", lambda *_: opened)
    monkeypatch.setattr(other, "_require_unchanged", lambda *_: None)
    with pytest.raises(LakeError, match="another run"):
        other.commit_table("edges", 2, schema, written(2))
    assert [file.span("n") for file in lake.data_files("edges")] == [(2, 2)]


@soak
def test_a_killed_run_is_completed_and_a_second_run_at_the_same_time_is_refused(
    spark: SparkSession, store: ObjectStore, made_home: Path, begun: Lake, oracle: Oracle
) -> None:
    lake, where = store.copied(begun, "short"), {"home": str(made_home)}
    kill_at("gold", spark, made_home, lake)
    assert lake.head().number == 1
    others = list[int]()

    def run_beside(stage: str) -> None:
        if stage == "gold" and not others:
            others.append(0)
            others.append(run(spark, store.lake("short"), where).batches)

    # Both complete the batch that was cut off. The one that commits first is the one that counts.
    with pytest.raises((LakeError, RunFailed), match="another run"):
        run(spark, lake, where, watch=Watch(stage=run_beside))
    assert others == [0, 1]
    assert lake.head().number == 2
    require_expected(lake, oracle)
    assert run(spark, lake, where).batches == 0
    assert make_report(lake).totals.messages == json.loads((made_home / "answers.json").read_text())["messages"]
    assert lake.storage.read("nothing.json") is None


def test_a_store_that_does_not_answer_or_lacks_the_bucket_is_told_of(store: ObjectStore) -> None:
    with pytest.raises(LakeError, match=r"s3://nothing/lake cannot be used: .*404 Not Found; check its address"):
        Lake("s3://nothing/lake", store.options).head()
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        options = {
            **store.options,
            "AWS_ENDPOINT_URL": f"http://127.0.0.1:{unused.getsockname()[1]}",
            "max_retries": "1",
        }
        with pytest.raises(LakeError, match=r"Connection refused .*; check its address"):
            Lake("s3://lakes/lake", options).head()


@soak
def test_runs_that_are_killed_at_any_stage_lose_nothing_and_count_nothing_twice(
    spark: SparkSession, store: ObjectStore, made_home: Path, oracle: Oracle
) -> None:
    lake = store.lake("soak")
    for rows, stage, seconds in (
        (1200, "bronze", 0.2), (1200, "silver", 0.0), (1200, "silver", 0.5), (1200, "latency", 0.0),
        (1200, "commit", 0.0), (1000, "deliveries", 0.0), (1000, "members", 0.0), (ROWS, "gold", 1.0),
    ):  # fmt: skip
        kill_at(stage, spark, made_home, lake, seconds=seconds, rows=rows)
    run(spark, lake, {"home": str(made_home)}, rows_per_batch=1000)
    require_expected(lake, oracle)

"""Increments: a lake that grows run by run is the lake that one run makes; what is new decides what is done."""

from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.oracle import Oracle, stored
from tieline.pipeline.alerts import find_alerts
from tieline.pipeline.catalogue import GOLD, REBUILDABLE, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report
from tieline.pipeline.run import new_rows, rebuild, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600), pytest.mark.xdist_group("spark")]


@pytest.fixture(scope="module")
def grown(spark: SparkSession, made_home: Path, scratch: Path, filled: Lake) -> Lake:
    """Fill a lake in three runs, the way few rows go; the last brings steps of deliveries that are closed as too old."""
    lake = Lake(scratch / "grown")
    ends = filled.head().position
    middle = {"main": ends["main"] // 2, "activity": ends["activity"] // 3}
    nearly = {"main": ends["main"] - 2, "activity": ends["activity"] // 3}
    for until in (middle, nearly, None):
        run(spark, lake, {"home": str(made_home)}, until=until)
    return lake


def test_three_runs_make_the_tables_of_one(grown: Lake, filled: Lake) -> None:
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(grown.files(table), columns) == stored(filled.files(table), columns), table


def test_late_steps_are_counted_and_kept(grown: Lake, oracle: Oracle) -> None:
    assert grown.head().counts == {"late": 2, "unknown": 0}
    assert stored(grown.files("latency"), SCHEMAS["latency"].fieldNames()) == oracle.rows("latency")


def test_a_run_over_nothing_new_writes_nothing(spark: SparkSession, grown: Lake, made_home: Path) -> None:
    before = sorted(path for path in grown.path.rglob("*") if path.is_file())
    assert new_rows(grown, {"home": str(made_home)}) == 0
    summary = run(spark, grown, {"home": str(made_home)})
    assert (summary.events_read, summary.batches, summary.tables) == (0, 0, {})
    assert sorted(path for path in grown.path.rglob("*") if path.is_file()) == before


def test_a_table_that_is_rebuilt_is_what_it_was(spark: SparkSession, grown: Lake) -> None:
    alerts = find_alerts(make_report(grown), budget_usd=1)
    for table in REBUILDABLE:
        columns = SCHEMAS[table].fieldNames()
        before, files = stored(grown.files(table), columns), grown.files(table)
        assert rebuild(spark, grown, table) == len(before)
        assert grown.files(table) != files
        assert stored(grown.files(table), columns) == before, table
    assert find_alerts(make_report(grown), budget_usd=1) == alerts, "nothing would be told again"
    assert alerts

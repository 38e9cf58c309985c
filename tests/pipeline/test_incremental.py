"""Tests that several runs make the same tables as one run, and that a run changes only what new rows affect."""

import socket
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from tests.pipeline.lakes import copied
from tests.pipeline.oracle import Oracle, stored
from tieline.pipeline.alerts import find_alerts
from tieline.pipeline.catalogue import GOLD, REBUILDABLE, SCHEMAS, SILVER
from tieline.pipeline.flow import FEW_ROWS, Flow
from tieline.pipeline.lake import Commit, Lake, LakeError
from tieline.pipeline.report import make_report
from tieline.pipeline.run import LogChanged, Watch, is_brief, new_rows, rebuild, rebuild_all, run
from tieline.pipeline.sqlite_log import SqliteLog

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def grown(spark: SparkSession, made_home: Path, scratch: Path, begun: Lake, filled: Lake) -> Lake:
    """Fixture: a lake (tables) filled in three runs.

    The last run has new states of deliveries that were closed before.
    """
    lake = copied(begun, scratch / "grown")
    ends = filled.head().position
    nearly = {"main": ends["main"] - 2, "activity": ends["activity"] // 3}
    for until in (nearly, None):
        run(spark, lake, {"home": str(made_home)}, until=until)
    return lake


def test_three_runs_make_the_tables_of_one(grown: Lake, filled: Lake) -> None:
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(grown.files(table), columns) == stored(filled.files(table), columns), table


def test_late_steps_are_counted_and_kept(grown: Lake, oracle: Oracle) -> None:
    head = grown.head()
    assert head.counts == {"late": 2, "unknown": 0}
    closed = [file for file in grown.data_files("deliveries") if not file.open]
    assert [file for file in closed if file.is_of(1)], "files that have none of those deliveries stay as they are"
    assert stored(grown.files("latency"), SCHEMAS["latency"].fieldNames()) == oracle.rows("latency")


def test_a_batch_is_let_go_when_somebody_asks_and_nothing_else_is(
    spark: SparkSession, made_home: Path, scratch: Path
) -> None:
    lake, stages = Lake(scratch / "let-go"), list[str]()
    with ThreadPoolExecutor(1) as pool:
        # Somebody else's work in the same session.
        other = pool.submit(lambda: spark.sparkContext.parallelize([3], 1).map(time.sleep).collect())
        watch = Watch(stage=stages.append, stopped=lambda: "silver" in stages)
        summary = run(spark, lake, {"home": str(made_home)}, watch=watch)
        assert other.result() == [None]
    assert (summary.batches, lake.head().number) == (0, 0)
    assert "commit" not in stages


def test_a_run_that_is_asked_to_end_waits_for_no_hub(spark: SparkSession, scratch: Path) -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        where = {"url": f"http://127.0.0.1:{silent.getsockname()[1]}", "token": "x"}
        begun = time.monotonic()
        watch = Watch(stopped=lambda: time.monotonic() > begun + 1)
        assert run(spark, Lake(scratch / "silent"), where, follow=True, watch=watch).batches == 0
        assert time.monotonic() - begun < 20


def test_who_follows_is_given_what_comes_later(spark: SparkSession, made_home: Path, scratch: Path) -> None:
    lake, commits = Lake(scratch / "followed"), list[Commit]()
    ends = iter([{"main": 100, "activity": 0}, {"main": 100, "activity": 0}, {"main": 160, "activity": 10}])
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tieline.pipeline.run._FOLLOW_SECONDS", 1)
        patched.setattr("tieline.pipeline.run._reach", lambda where, until: next(ends))
        watch = Watch(done=commits.append, stopped=lambda: len(commits) == 2)
        summary = run(spark, lake, {"home": str(made_home)}, follow=True, watch=watch)
    assert [commit.position for commit in commits] == [{"main": 100, "activity": 0}, {"main": 160, "activity": 10}]
    assert (summary.events_read, summary.batches) == (170, 2)


def test_a_hub_that_is_restored_while_it_is_followed_is_an_error_at_once(
    spark: SparkSession, made_home: Path, scratch: Path, begun: Lake
) -> None:
    lake, asked = copied(begun, scratch / "restored-meanwhile"), list[str]()

    def epoch(_log: SqliteLog, name: str) -> str:
        asked.append(name)
        return begun.head().epochs[name] if len(asked) <= 8 else "another"

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr("tieline.pipeline.run._FOLLOW_SECONDS", 1)
        patched.setattr(SqliteLog, "epoch", epoch)
        with pytest.raises(LogChanged, match="another"):
            run(spark, lake, {"home": str(made_home)}, follow=True, until=begun.head().position)
    assert lake.head() == begun.head()


def test_a_batch_of_rows_that_another_run_has_added_is_refused(
    spark: SparkSession, made_home: Path, begun: Lake
) -> None:
    with pytest.raises(LakeError, match="another run"):
        Flow(spark, begun, {}).add([], {"main": 500, "activity": 60}, {"main": 700, "activity": 60})
    assert begun.head().number == 1


def test_a_run_is_brief_if_little_is_new_and_little_is_open(grown: Lake, tmp_path: Path) -> None:
    assert is_brief(Lake(tmp_path), FEW_ROWS - 1)
    assert not is_brief(Lake(tmp_path), FEW_ROWS)
    held = sum(file.rows for file in grown.data_files("deliveries") if file.open)
    assert is_brief(grown, FEW_ROWS - held - 1)
    assert not is_brief(grown, FEW_ROWS - held)


def test_a_run_over_nothing_new_writes_nothing(spark: SparkSession, grown: Lake, made_home: Path) -> None:
    before = sorted(path for path in grown.path.rglob("*") if path.is_file())
    assert new_rows(grown, {"home": str(made_home)}) == 0
    summary = run(spark, grown, {"home": str(made_home)})
    assert (summary.events_read, summary.batches, summary.tables) == (0, 0, {})
    assert sorted(path for path in grown.path.rglob("*") if path.is_file()) == before


def test_tables_that_are_rebuilt_are_what_they_were(spark: SparkSession, grown: Lake) -> None:
    alerts = find_alerts(make_report(grown), budget_usd=1)
    before = {table: stored(grown.files(table), SCHEMAS[table].fieldNames()) for table in REBUILDABLE}
    # All at once, gold from silver; then some alone, from bronze.
    for tables in (REBUILDABLE, ("deliveries",), ("activity",), ("members",), ("objectives",)):
        files = {table: grown.files(table) for table in REBUILDABLE}
        commit = rebuild_all(spark, grown) if tables == REBUILDABLE else rebuild(spark, grown, tables[0])
        for table in REBUILDABLE:
            assert commit.rows(table) == len(before[table])
            assert (grown.files(table) != files[table]) == (table in tables)
            assert stored(grown.files(table), SCHEMAS[table].fieldNames()) == before[table], table
    assert find_alerts(make_report(grown), budget_usd=1) == alerts, "nothing would be told again"
    assert alerts

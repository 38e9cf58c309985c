"""Tests that no missing row is ignored: deleted rows are counted and reported.

A restored or shorter log is an error.
"""

import asyncio
import json
import shutil
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from typer.testing import Result

from bench.synth import Generator
from tests.cli.printed import assert_shape
from tests.core.doubles import BrokerHarness
from tests.faults.processes import SOAK
from tests.pipeline.conftest import Ask
from tests.pipeline.oracle import Oracle, stored
from tests.server.hubs import running_hub
from tieline.cli.pipeline_after_batch import AfterBatch, AlertOptions
from tieline.contract import command as c
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.reply import Readers, ReaderState
from tieline.core.store import MAIN
from tieline.pipeline.alerts import find_alerts
from tieline.pipeline.catalogue import GOLD, SCHEMAS
from tieline.pipeline.lake import Lake
from tieline.pipeline.reader import reader_name
from tieline.pipeline.report import make_report
from tieline.pipeline.run import LogChanged, new_rows, rewind, run
from tieline.stores.sqlite import SqliteActivity, SqliteStore

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

DAY_MS, HOUR_MS = 86_400_000, 3_600_000


def change(database: Path, *statements: str) -> None:
    opened = sqlite3.connect(database)
    for statement in statements:
        opened.execute(statement)
    opened.commit()
    opened.close()


def test_what_the_hub_deleted_unread_is_counted_and_told_by_run_status_report_and_an_alert(
    ask: Ask, tmp_path: Path
) -> None:
    home, lake = tmp_path / "home", Lake(tmp_path / "home" / "lake")
    Generator(home, 1000, seed=4).run()
    change(home / "activity.db", "DELETE FROM activity WHERE offset BETWEEN 5 AND 24")
    change(
        home / "tieline.db", "DELETE FROM message WHERE offset IN (SELECT offset FROM message ORDER BY offset LIMIT 7)"
    )
    result = ask("run", "--home", home, "--json")
    summary = json.loads(result.stdout.splitlines()[-1])
    missed = {"messages": 7, "activity": 20}
    assert result.exit_code == 6, result.stderr
    assert summary["missed"] == missed
    assert summary["events_read"] == sum(lake.head().position.values()) - 20, "rows are counted, not offsets"
    assert "7 messages and 20 rows of activity before they were read" in result.stderr
    assert json.loads(ask("status", "--home", home, "--json").stdout)["missed"] == missed
    assert "the hub had deleted 7 messages" in ask("status", "--home", home).stderr
    report = make_report(lake)
    assert report.missed == missed
    assert "the hub had deleted 7 messages" in " ".join(ask("report", "--home", home).stdout.split())
    (alert,) = [one for one in find_alerts(report) if one.kind == "missed"]
    assert "activity and messages" in alert.what
    # It is told once; later runs are complete.
    more = "offset + 1, at_ms, number, kind, ts_ms + 1, event FROM activity ORDER BY offset DESC LIMIT 1"
    change(home / "activity.db", f"INSERT INTO activity (offset, at_ms, number, kind, ts_ms, event) SELECT {more}")
    again = ask("run", "--home", home, "--json")
    assert (again.exit_code, json.loads(again.stdout)["events_read"]) == (0, 1)
    assert "missed" not in json.loads(again.stdout)
    assert [one.id for one in find_alerts(make_report(lake)) if one.kind == "missed"] == [alert.id]


@pytest.mark.skipif(not SOAK, reason="two more runs; tests/core/test_readers.py has the hub's half: make soak")
def test_a_pipeline_that_sleeps_for_ten_days_misses_nothing_and_past_the_bound_it_is_told(
    ask: Ask, tmp_path: Path
) -> None:
    home, lake = tmp_path / "home", Lake(tmp_path / "home" / "lake")
    home.mkdir()
    SqliteActivity(home, synchronous="OFF").close()
    limits = Limits(retention_ms=7 * DAY_MS, reader_wait_ms=10 * DAY_MS)
    hub = BrokerHarness(lambda: SqliteStore(home, synchronous="OFF"), limits)
    ada, bob = hub.join("ada"), hub.join("bob")
    sent = 0

    def sleep(messages: int, days: int) -> Result:
        """Send and acknowledge messages, let the hub run for some days, and then run the pipeline."""
        nonlocal sent
        for _ in range(messages):
            hub.send(ada, "@bob", "hello")
            sent += 1
            hub.advance(bob, sent)
        for _ in range(days):
            hub.pass_ms(DAY_MS)
        # The passes of retention are an hour apart, and each deletes a few.
        hub.pass_ms(HOUR_MS)
        result = ask("run", "--home", home, "--json")
        position = lake.head().position[MAIN]
        hub.expect(ReaderState, c.AdvanceReader(hub.operator, name="pipeline", position=position))
        return result

    hub.expect(ReaderState, c.AdvanceReader(hub.operator, name="pipeline", position=0))
    result = sleep(4, 10)
    assert (result.exit_code, "missed" in json.loads(result.stdout)) == (0, False), result.stderr
    assert make_report(lake).totals.deliveries == 4, "nothing was gone that it had not read"
    hub.join("person", kind=MemberKind.HUMAN)
    result = sleep(3, 18)
    assert result.exit_code == 6, result.stderr
    assert json.loads(result.stdout.splitlines()[-1])["missed"] == {"messages": 3}
    assert "the hub had deleted 3 messages before they were read" in result.stderr
    report = make_report(lake)
    assert report.missed == {"messages": 3}
    assert report.totals.messages == 4 + 3 + 1, "their rows still count them; one is the hub's warning"
    # The hub's clock is the test's, and a commit has the time of the machine.
    alerts = find_alerts(report, now_ms=report.missed_ms)
    assert [alert.kind for alert in alerts if alert.kind == "missed"] == ["missed"]
    notices = [one.message.content.body for one in hub.fetch(hub.attach("person"))]
    (told,) = [body for body in notices if "the reader pipeline has not read the log main" in body]
    assert "reader_wait_ms" in told
    reader = hub.expect(Readers, c.ListReaders(hub.operator)).readers[0]
    assert reader.missed == 3


def test_a_log_that_is_shorter_than_the_lake_is_an_error_until_the_lake_is_rewound(
    spark: SparkSession, ask: Ask, tmp_path: Path
) -> None:
    home, lake = tmp_path / "home", Lake(tmp_path / "lake")
    Generator(home, 1000, seed=5).run()
    where, at = {"home": str(home)}, ("--home", home, "--lake", lake)
    run(spark, lake, where)
    whole = lake.head()
    shutil.copytree(home, tmp_path / "restored")
    restored = tmp_path / "restored"
    for table, end in (("log", 400), ("message", 400), ("objective_event", 400)):
        change(restored / "tieline.db", f"DELETE FROM {table} WHERE offset >= {end}")
    change(restored / "activity.db", "DELETE FROM activity WHERE offset >= 30")
    where, at = {"home": str(restored)}, ("--home", restored, "--lake", lake)
    with pytest.raises(LogChanged, match=r"main has 400 rows.*pipeline rewind"):
        new_rows(lake, where)
    assert "pipeline rewind" in ask("run", *at).stderr
    assert lake.head() == whole
    # Rewinding is cut off, and completed by the same command.
    seen = list[str]()
    with pytest.raises(InterruptedError):
        rewind(spark, lake, where, lambda name: fail_at_second(name, seen))
    assert lake.head() == whole
    result = ask("rewind", *at, "--json")
    assert json.loads(result.stdout)["to"] == {"main": 400, "activity": 30}, result.stderr
    assert_shape("pipeline rewind", result.stdout)
    oracle = Oracle(restored)
    for table in GOLD:
        assert stored(lake.files(table), SCHEMAS[table].fieldNames()) == oracle.rows(table), table
    assert run(spark, lake, where).batches == 0
    assert lake.head().last_hash != whole.last_hash


def fail_at_second(name: str, seen: list[str]) -> None:
    seen.append(name)
    if name == "deliveries":
        raise InterruptedError


def test_a_log_of_another_epoch_is_an_error_until_the_lake_is_rewound(
    spark: SparkSession, ask: Ask, tmp_path: Path
) -> None:
    home, lake = tmp_path / "home", Lake(tmp_path / "lake")
    Generator(home, 300, seed=6).run()
    where = {"home": str(home)}
    run(spark, lake, where, until={"main": 50, "activity": 5})
    assert set(lake.head().epochs) == {"main", "activity"}
    change(home / "activity.db", "UPDATE log_state SET epoch = 'another'")
    with pytest.raises(LogChanged, match="activity has the epoch another"):
        run(spark, lake, where)
    said = ask("status", "--home", home, "--lake", lake)
    assert said.exit_code == 1
    assert "activity has the epoch another" in said.stderr
    assert "bronze" in said.stdout, "the tables are shown all the same"
    told = ask("status", "--home", home, "--lake", lake, "--json")
    assert (told.exit_code, "pipeline rewind" in json.loads(told.stdout)["changed"]) == (1, True)
    rewind(spark, lake, where)
    assert lake.head().epochs["activity"] == "another"
    assert run(spark, lake, where).batches == 1


async def test_the_hub_knows_the_position_of_the_lake_after_a_run(spark: SparkSession, ask: Ask, folder: Path) -> None:
    home, lake = folder / "h", Lake(folder / "h" / "lake")
    where = {"home": str(home)}
    async with running_hub(home) as hub:
        await hub.add("ada", "bob")
        ada = await hub.join("ada")
        for number in range(5):
            await ada.send("@bob", f"number {number}")
        await asyncio.to_thread(run, spark, lake, where)
        await asyncio.to_thread(AfterBatch(lake, AlertOptions(), where).finish)
        operator = await hub.operator()
        found = {one.log: one for one in (await operator.readers()).readers}
        epochs = {one.log: one.epoch for one in (await operator.readers()).logs}
    head = lake.head()
    assert {log: one.position for log, one in found.items()} == head.position
    assert {one.name for one in found.values()} == {"pipeline"}
    assert head.epochs == epochs
    state = json.loads(ask("status", "--home", home, "--json").stdout)
    assert state["reader"] == {"name": "pipeline", "wait_ms": 30 * DAY_MS, "wait_bytes": 16 << 30, "share": 0.0}
    assert state["changed"] is None
    kept = "The hub keeps rows that pipeline has not read for at most 30 days or 16 GiB more; 0% of that"
    assert f"{kept} is used up." in ask("status", "--home", home).stdout
    assert f"{kept} was used up before this run." in (await asyncio.to_thread(ask, "run", "--home", home)).stdout
    # No hub runs now: nobody deletes, and nobody need be told.
    await asyncio.to_thread(AfterBatch(lake, AlertOptions(), where).finish)


def test_every_lake_is_another_reader() -> None:
    where = {"home": "/h"}
    assert reader_name(Lake("/h/lake"), where) == "pipeline"
    other = reader_name(Lake("/h/other"), where)
    assert other.startswith("pipeline-")
    assert other != reader_name(Lake("/h/third"), where)
    assert other == reader_name(Lake("/h/other"), {"url": "http://hub:1", "token": "t"})


@pytest.mark.parametrize("spelling", ["s3://bucket/lake/", "S3://bucket//lake", "s3://Bucket/lake"])
def test_a_url_that_is_spelled_otherwise_is_the_same_reader(spelling: str) -> None:
    where = {"url": "http://hub:1", "token": "t"}
    assert reader_name(Lake(spelling), where) == reader_name(Lake("s3://bucket/lake"), where)
    assert reader_name(Lake(spelling), where) != reader_name(Lake("s3://bucket/other"), where)


def test_a_folder_that_is_reached_by_another_path_is_the_same_reader(tmp_path: Path) -> None:
    (tmp_path / "h").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "h")
    names = {
        reader_name(Lake(f"{tmp_path}/{name}"), {"home": f"{tmp_path}/link"}) for name in ("h/lake", "link/../h/lake/")
    }
    assert names == {"pipeline"}

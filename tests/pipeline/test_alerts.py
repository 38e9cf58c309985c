"""Tests of alerts: they are found in a report and sent to members through a real hub, each once."""

import asyncio
import time
from pathlib import Path

import msgspec
import pytest

from tests.pipeline.lakes import DAY, START, busy, lake_of
from tests.server.hubs import running_hub, take
from tieline.cli.failure import Exit, Failure
from tieline.cli.pipeline_after_batch import AfterBatch, AlertOptions
from tieline.client import connect
from tieline.pipeline.alert_sender import SPEAKER, SentAlerts, open_client, send_alerts
from tieline.pipeline.alerts import ALERTS_MAX, Alert, find_alerts
from tieline.pipeline.lake import Commit, Lake
from tieline.pipeline.report import make_report

pytestmark = pytest.mark.slow  # each test writes a lake

HOUR = 3_600_000
BROKEN = (
    "The audit chain is broken: row 41 does not follow from the row before it. 'tieline pipeline verify' says more."
)


def test_each_kind_of_trouble_is_one_alert(folder: Path) -> None:
    alerts = find_alerts(make_report(busy(folder)), budget_usd=3)
    assert sorted((alert.kind, alert.what) for alert in alerts) == [
        ("audit", "Messages of bob have a signature that is wrong or made under another name."),
        ("audit", BROKEN),
        ("backlog", "At least 100 deliveries wait for dave."),
        ("budget", "Models cost more than $3.00 on 2024-10-04."),
        ("loop", "Agents answer each other in a loop: @alice+@bob."),
        ("silent", "dave has messages waiting and has not said or read anything for an hour."),
    ]  # fmt: skip


def test_a_budget_that_holds_is_no_alert(folder: Path) -> None:
    report = make_report(busy(folder))
    assert "budget" not in {alert.kind for alert in find_alerts(report, budget_usd=3.5)}
    assert "budget" not in {alert.kind for alert in find_alerts(report)}


def test_the_same_trouble_has_the_same_id_in_a_later_report(folder: Path) -> None:
    report = make_report(busy(folder))
    grown = msgspec.structs.replace(report, backlog=[*report.backlog])
    grown.backlog[0] = msgspec.structs.replace(grown.backlog[0], waiting=grown.backlog[0].waiting + 300)
    assert find_alerts(grown) == find_alerts(report)
    grown.backlog[0] = msgspec.structs.replace(grown.backlog[0], waiting=1000)
    assert {alert.what for alert in find_alerts(grown)} - {alert.what for alert in find_alerts(report)} == {
        "At least 1,000 deliveries wait for dave."
    }


def test_a_log_that_is_broken_everywhere_is_no_storm_of_alerts(folder: Path) -> None:
    rows = [
        {"day_ms": 20_000 * DAY, "offset": offset, "kind": "chain", "member": "", "at_ms": START, "what": "broken"}
        for offset in range(500)
    ]
    alerts = find_alerts(make_report(lake_of(folder, {"findings": rows})))
    assert len(alerts) == ALERTS_MAX + 1
    assert len({alert.id for alert in alerts}) == ALERTS_MAX + 1


def test_what_is_old_news_is_not_told(folder: Path) -> None:
    report = make_report(busy(folder))
    assert report.to_ms is not None
    late = msgspec.structs.replace(report, to_ms=report.to_ms + 30 * DAY)
    assert {alert.kind for alert in find_alerts(late)} == {"backlog"}


async def test_alerts_go_to_a_channel_each_once(folder: Path) -> None:
    lake = busy(folder / "lake")
    alerts = find_alerts(make_report(lake))
    async with running_hub(folder / "h", store="memory") as there:
        await there.add("bob")
        bob = await there.join("bob", receive=True)
        await bob.subscribe("#ops")
        async with await open_client(there.home, None, None, None) as client:
            assert await send_alerts(client, "#ops", alerts, SentAlerts(lake)) == len(alerts)
        heard = await take(bob, len(alerts))
        assert [one.message.body for one in heard] == [alert.what for alert in alerts]
        assert {(one.message.sender, one.message.level.value) for one in heard} == {(SPEAKER, "warning")}
        async with await open_client(there.home, None, None, None) as client:
            assert await send_alerts(client, "#ops", alerts, SentAlerts(lake)) == 0
        assert len((await bob.inbox()).items) == len(alerts)


async def test_a_lake_that_forgot_what_it_told_tells_nothing_twice(folder: Path) -> None:
    lake = busy(folder / "lake")
    alerts = find_alerts(make_report(lake))
    async with running_hub(folder / "h", store="memory") as there:
        await there.add("bob")
        for expected in (len(alerts), 0):
            (folder / "lake" / "_tieline" / "told.json").unlink(missing_ok=True)
            async with await open_client(there.home, None, None, None) as client:
                assert await send_alerts(client, "@bob", alerts, SentAlerts(lake)) == expected


class Killed(Exception):
    """Exception that stands for a kill in the middle of a run."""


async def test_a_run_that_is_killed_between_telling_and_noting_tells_nothing_twice(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def die(_told: SentAlerts, alert: Alert) -> None:
        raise Killed(alert.id)

    lake = busy(folder / "lake")
    alerts = find_alerts(make_report(lake))
    async with running_hub(folder / "h", store="memory") as there:
        await there.add("bob")
        with monkeypatch.context() as during:
            during.setattr(SentAlerts, "add", die)
            async with await open_client(there.home, None, None, None) as client:
                with pytest.raises(Killed):
                    await send_alerts(client, "@bob", alerts, SentAlerts(lake))
        assert alerts[0] not in SentAlerts(lake)
        async with await open_client(there.home, None, None, None) as client:
            assert await send_alerts(client, "@bob", alerts, SentAlerts(lake)) == len(alerts) - 1
            assert await send_alerts(client, "@bob", alerts, SentAlerts(lake)) == 0
        async with await connect(token=there.tokens["bob"], home=there.home) as bob:
            heard = [item.message.body for item in (await bob.inbox()).items]
    assert sorted(heard) == sorted(alert.what for alert in alerts)


async def test_a_hub_elsewhere_hears_them_from_the_member_of_the_token(folder: Path) -> None:
    lake = busy(folder / "lake")
    alerts = find_alerts(make_report(lake))
    async with running_hub(folder / "h", store="memory") as there:
        await there.add("bob", "watcher")
        async with await open_client(None, there.running.http, there.tokens["watcher"], None) as client:
            assert await send_alerts(client, "@bob", alerts, SentAlerts(lake)) == len(alerts)
        async with await connect(token=there.tokens["bob"], home=there.home) as bob:
            assert {item.message.sender for item in (await bob.inbox()).items} == {"watcher"}


def test_a_hub_that_is_down_costs_no_table_and_is_said(folder: Path) -> None:
    lake = busy(folder / "lake")
    after_batch = AfterBatch(lake, AlertOptions(target="#ops", home=folder / "nobody"))
    after_batch.note(Commit())
    with pytest.raises(Failure) as failed:
        after_batch.finish()
    assert failed.value.code is Exit.UNREACHABLE
    assert "alerts were not sent" in failed.value.message
    assert not (folder / "lake" / "report.json").exists(), "the console's report is in the hub"


def quiet(folder: Path, end: int, at_ms: int) -> Lake:
    """Make a lake of a log with `end` rows. The last thing in it is a delivery for bob, who has not read it."""
    minute, day = at_ms // 60_000 * 60_000, at_ms // DAY * DAY
    member = {"day_ms": day, "member": "bob", "sent": 1, "received": 1, "departed": 0, "acked": 0, "refused": 0,
              "exchanges": 0, "cost_nano_usd": 0, "heard_ms": at_ms}  # fmt: skip
    backlog = [{"member": "bob", "minute_ms": minute, "arrived": 1, "departed": 0}]
    return lake_of(folder, {"backlog": backlog, "members": [member]}, main=end)


def test_a_member_becomes_silent_by_the_clock_alone(folder: Path) -> None:
    report = make_report(quiet(folder, 9, START))
    assert find_alerts(report) == [], "the log ends a minute after the delivery"
    (alert,) = find_alerts(report, now_ms=START + HOUR)
    assert (alert.kind, alert.at_ms) == ("silent", START + HOUR)
    assert find_alerts(report, now_ms=START + 9 * HOUR) == [alert], "it is the same alert at any later time"
    assert find_alerts(report, now_ms=START + 9 * DAY) == [], "and no news after a week"


async def test_a_silent_agent_on_a_quiet_hub_is_told_of_once_without_a_new_row(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with running_hub(folder / "h") as there:
        await there.add("bob", "chief")
        now_ms = time.time_ns() // 1_000_000
        (main, _) = (await (await there.operator()).readers()).logs
        where = {"home": str(there.home)}
        unread = AfterBatch(
            quiet(folder / "behind", main.end - 1, now_ms), AlertOptions("@chief", home=there.home), where
        )
        caught_up = quiet(folder / "lake", main.end, now_ms)
        monkeypatch.setattr(time, "time_ns", lambda: (now_ms + 2 * HOUR) * 1_000_000)
        assert await asyncio.to_thread(unread.finish) == 0, "bob may have spoken in the row that was not read"
        for count in (1, 0, 0):
            # Each is another run, as every tick of the service is.
            run = AfterBatch(caught_up, AlertOptions("@chief", home=there.home), where)
            assert await asyncio.to_thread(run.finish) == count
        async with await connect(token=there.tokens["chief"], home=there.home) as chief:
            (told,) = (await chief.inbox()).items
    assert told.message.body == "bob has messages waiting and has not said or read anything for an hour."

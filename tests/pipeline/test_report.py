"""Tests of the report: it has the contents of the gold tables, over all time or from a given time on."""

import json
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.pipeline.lakes import DAY, MINUTE, START, busy, lake_of
from tieline.cli.main import make_app
from tieline.pipeline.arrow_tables import ArrowTables, grouped
from tieline.pipeline.insights import store_report
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import ROWS_MAX, make_report, report_with_ranges
from tieline.pipeline.storage import day_of
from tieline.wire.insights import FILE

pytestmark = pytest.mark.slow  # each test writes a lake

HOUR = 60 * MINUTE
LLM_SUMS = ("failed", "late", "unpriced", "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
            "lasted_ms", "cost_nano_usd")  # fmt: skip
CONTRACT = {
    "totals": {"messages", "deliveries", "acked", "expired", "activity"},
    "audit": {"verified_rows", "findings"},
}


def test_totals_count_what_the_tables_have(folder: Path) -> None:
    totals = make_report(busy(folder)).totals
    assert (totals.messages, totals.deliveries, totals.acked) == (252, 256, 4)
    assert (totals.expired, totals.activity, totals.waiting) == (1, 1, 249)
    assert totals.cost_usd == 3.5


def test_latency_is_exact_over_all_minutes_and_says_what_it_measured(folder: Path) -> None:
    rows = {row.member: row for row in make_report(busy(folder)).latency}
    assert set(rows) == {"bob", "carol"}, "dave's only delivery went over no wire"
    assert (rows["bob"].p50_ms, rows["bob"].p99_ms, rows["bob"].deliveries) == (20, 4000, 4)
    assert (rows["carol"].p50_ms, rows["carol"].p99_ms, rows["carol"].measured) == (5, 7, "offered")


def test_edges_of_several_days_are_one(folder: Path) -> None:
    edges = {(edge.sender, edge.recipient): edge for edge in make_report(busy(folder)).edges}
    assert edges["bob", "alice"].messages == 3
    assert edges["bob", "alice"].response_p50_ms == 700
    assert edges["alice", "bob"].response_p50_ms is None


def test_what_waits_counts_all_time_whatever_the_report_is_about(folder: Path) -> None:
    report = make_report(busy(folder), START + 60 * MINUTE)
    assert report.totals.messages == 2
    assert report.totals.deliveries == 2
    assert report.totals.waiting == 249
    assert [point.waiting for point in report.backlog_series] == [249]
    assert report.latency == []


def test_series_show_how_it_went(folder: Path) -> None:
    report = make_report(busy(folder))
    assert [(point.at_ms, point.p50_ms) for point in report.latency_series] == [(START, 20), (START + MINUTE, 4000)]
    assert [point.waiting for point in report.backlog_series] == [250, 249, 249]
    assert [(hour.hour_ms, hour.cost_usd) for hour in report.llm_by_hour] == [(START, 3.5)]


def test_a_blocked_objective_says_since_when(folder: Path) -> None:
    objectives = {one.id: one for one in make_report(busy(folder)).objectives}
    assert objectives["o-1"].blocked == [(START + MINUTE, None)]
    assert objectives["o-1"].blocked_ms == 100 * MINUTE, "it is blocked until the end of the log, and not 0 ms"
    assert (objectives["o-2"].cycle_ms, objectives["o-2"].blocked_ms) == (9 * MINUTE, 0)


def test_a_conversation_of_several_days_is_one(folder: Path) -> None:
    days = [
        {"day_ms": day * DAY, "conversation": name, "messages": 2, "first_ms": day * DAY, "last_ms": day * DAY + 5,
         "participants": people}
        for day, name, people in ((1, "#a", ["bob"]), (2, "#a", ["alice"]), (2, "#b", ["bob"]), (3, "#b", ["bob"]))
    ]  # fmt: skip
    threads = make_report(lake_of(folder, {"threads": [*days, {**days[0], "conversation": "#c"}]})).threads
    assert (threads.conversations, threads.unanswered) == (3, 2)
    assert threads.longest[0] == {
        "conversation": "#a", "messages": 4, "first_ms": DAY, "last_ms": 2 * DAY + 5, "participants": ["alice", "bob"],
    }  # fmt: skip
    assert [one["conversation"] for one in threads.longest] == ["#a", "#b", "#c"]


def test_the_audit_says_how_far_and_what(folder: Path) -> None:
    audit = make_report(busy(folder)).audit
    assert (audit.verified_rows, audit.intact, audit.chain_breaks, audit.bad_signatures) == (100, False, 1, 1)


def test_an_empty_lake_has_an_empty_report(folder: Path) -> None:
    report = make_report(Lake(folder / "none"))
    assert report.totals.messages == 0
    assert not [*report.edges, *report.latency, *report.backlog_series]


def test_long_lists_are_cut_and_say_so(folder: Path) -> None:
    rows = [
        {"day_ms": START, "sender": f"a{index}", "recipient": "b", "messages": index, "answers": 0, "response_ms": []}
        for index in range(ROWS_MAX + 5)
    ]
    report = make_report(lake_of(folder, {"edges": rows}))
    assert len(report.edges) == ROWS_MAX
    assert report.edges[0].messages == ROWS_MAX + 4
    assert report.left_out == {"edges": 5}


def test_the_report_is_stored_in_the_hubs_home_as_the_hub_would_store_it(folder: Path) -> None:
    lake = busy(folder / "lake")
    assert store_report(make_report(lake), {"home": str(folder)}) == ""
    told = json.loads((folder / FILE).read_text())
    assert told == json.loads(msgspec.json.encode(make_report(lake)))
    assert told["refreshed_at_ms"] == lake.head().at_ms


def test_json_has_at_least_what_the_contract_names(folder: Path) -> None:
    busy(folder)
    done = CliRunner().invoke(make_app(), ["pipeline", "report", "--lake", str(folder), "--json"])
    assert done.exit_code == 0, done.output
    told = json.loads(done.stdout)
    for part, fields in CONTRACT.items():
        assert fields <= set(told[part])
    assert {"from", "to", "messages"} <= set(told["edges"][0])
    assert {"member", "protocol", "p50_ms", "p99_ms", "deliveries"} <= set(told["latency"][0])
    for part in ("objectives", "llm", "loops"):
        assert told[part]


def test_a_terminal_gets_tables_and_no_control_characters(folder: Path) -> None:
    busy(folder, name="b\x1b[31mob")
    done = CliRunner().invoke(make_app(), ["pipeline", "report", "--lake", str(folder), "--since", "2024-01-01"])
    assert done.exit_code == 0, done.output
    for heading in ("Findings", "Latency", "Backlog", "Who writes to whom", "Objectives", "Spend by model"):
        assert heading in done.stdout
    assert "\x1b" not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "code", "says"),
    [(["--since", "yesterday-ish"], 2, "is not a time"), (["--lake", "{none}"], 1, "is empty")],
)
def test_what_cannot_be_reported_is_said_in_a_sentence(
    folder: Path, arguments: list[str], code: int, says: str
) -> None:
    busy(folder)
    given = [argument.format(none=folder / "none") for argument in arguments]
    done = CliRunner().invoke(make_app(), ["pipeline", "report", "--lake", str(folder), *given])
    assert done.exit_code == code
    assert says in done.output


def test_groups_are_told_apart_whatever_their_names_are() -> None:
    names = ["a", "a\nb", "a", None, "a\nb"]
    others = ["b\nc", "c", "b\nc", "x", None]
    of_row, keys = grouped(pa.table({"one": names, "other": others}), ("one", "other"))
    assert [keys[group] for group in of_row] == [("a", "b\nc"), ("a\nb", "c"), ("a", "b\nc"), ("", "x"), ("a\nb", "")]
    assert len(keys) == 4


# Windows.


def _days(*counts: int) -> dict[str, list[dict[str, object]]]:
    """Return rows of tables: on each day the member bob sends as many messages to alice, at nine o'clock."""
    days = [(START + index * DAY, 20_000 * DAY + index * DAY, count) for index, count in enumerate(counts)]
    return {
        "storms": [
            {"minute_ms": at, "sender": "bob", "messages": n, "deliveries": n, "storm": False} for at, _, n in days
        ],
        "backlog": [{"member": "alice", "minute_ms": at, "arrived": n, "departed": n - 1} for at, _, n in days],
        "edges": [
            {"day_ms": day, "sender": "bob", "recipient": "alice", "messages": n, "answers": 0, "response_ms": []}
            for _, day, n in days
        ],
        "deliveries": [
            {"offset": at, "number": 2, "key": key, "sender": "bob", "recipient": "alice", "sent_ms": at}
            for at, _, n in days for key in range(n)
        ],
        "members": [
            {"day_ms": day, "member": "bob", "sent": n, "received": 0, "departed": 0, "heard_ms": at}
            for at, day, n in days
        ] + [
            {"day_ms": day, "member": "alice", "sent": 0, "received": n, "departed": n - 1, "heard_ms": at}
            for at, day, n in days
        ],
    }  # fmt: skip


def test_a_window_ends_with_the_log_and_is_compared_with_the_one_before(folder: Path) -> None:
    report = make_report(lake_of(folder, _days(1, 10, 10, 20, 25)), window_ms=2 * DAY)
    assert report.since_ms == 20_003 * DAY, "the last day, and the one before it"
    assert (report.totals.messages, report.totals.deliveries, report.totals.waiting) == (45, 45, 5)
    assert report.before is not None
    assert (report.before.messages, report.before_ms) == (20, 20_001 * DAY)
    assert [(edge.sender, edge.messages) for edge in report.edges] == [("bob", 45)]
    changes = {(one.what, one.name): (one.before, one.now) for one in report.changes}
    assert changes["messages", ""] == (20, 45)
    assert changes["messages", "bob → alice"] == (20, 45), "of the day before, the hours until the end are counted"


def test_a_window_of_hours_begins_within_a_day(folder: Path) -> None:
    tables = _days(1, 10)
    tables["storms"].append(
        {"minute_ms": START + DAY + 5 * MINUTE, "sender": "bob", "messages": 3, "deliveries": 3, "storm": False}
    )
    report = make_report(lake_of(folder, tables), window_ms=4 * MINUTE)
    assert (report.since_ms, report.totals.messages) == (START + DAY + 2 * MINUTE, 3)
    assert report.before is not None
    assert report.before.messages == 10, "those of four minutes earlier"
    whole = make_report(lake_of(folder / "other", tables), START + DAY - MINUTE)
    assert whole.totals.messages == 13


def test_a_day_that_has_only_begun_is_compared_with_the_same_part_of_the_day_before(folder: Path) -> None:
    midnight = 20_001 * DAY
    counts = {midnight - 23 * HOUR: 4, START: 50, midnight + MINUTE: 6}
    tables: dict[str, list[dict[str, Any]]] = {
        "storms": [
            {"minute_ms": at, "sender": "bob", "messages": n, "deliveries": n, "storm": False}
            for at, n in counts.items()
        ],
        "records": [{"offset": at + index, "at_ms": at, "kind": "refuse", "member": "bob", "code": "no", "count": 1}
                    for at, n in counts.items() for index in range(n)],
        "failures": [{"day_ms": day * DAY, "kind": "refused", "member": "bob", "cause": "no", "count": n}
                     for day, n in ((20_000, 54), (20_001, 6))],
        "members": [{"day_ms": day * DAY, "member": "bob", "sent": n, "received": 0, "departed": 0, "refused": n}
                    for day, n in ((20_000, 54), (20_001, 6))],
        "llm": [{"hour_ms": at // HOUR * HOUR, "member": "bob", "model": "m", "objective": "", "exchanges": n,
                 **dict.fromkeys(LLM_SUMS, 0)} for at, n in counts.items()],
    }  # fmt: skip
    report = make_report(lake_of(folder, tables), window_ms=DAY)
    assert report.before is not None
    assert (report.since_ms, report.before_ms) == (midnight, midnight - DAY)
    assert (report.totals.messages, report.totals.refused, report.totals.exchanges) == (6, 6, 6)
    assert (report.before.messages, report.before.refused) == (0, 0), "the first two minutes of that day"
    # Ten hours later as much of the day before is compared, and numbers by hour too.
    last = {"minute_ms": midnight + 10 * HOUR, "sender": "bob", "messages": 0, "deliveries": 0, "storm": False}
    tables["storms"].append(last)
    report = make_report(lake_of(folder / "more", tables), window_ms=DAY)
    assert report.before is not None
    assert (report.before.messages, report.before.refused, report.before.exchanges) == (54, 54, 54)
    changes = {(one.what, one.name): (one.before, one.now) for one in report.changes}
    assert changes["refused", ""] == changes["failures: refused", "no"] == (54, 6)
    assert changes["exchanges", ""] == (54, 6)


def test_a_window_of_an_hour_is_not_compared_with_itself(folder: Path) -> None:
    tables = {
        "storms": [
            {"minute_ms": START + at * MINUTE, "sender": "bob", "messages": n, "deliveries": n, "storm": False}
            for at, n in ((-50, 3), (29, 7))
        ],
        "records": [{"offset": 1, "at_ms": START + 20 * MINUTE, "kind": "refuse", "member": "bob", "code": "no",
                     "count": 7}],
        "failures": [{"day_ms": 20_000 * DAY, "kind": "refused", "member": "bob", "cause": "no", "count": 7}],
        "llm": [{"hour_ms": START, "member": "bob", "model": "m", "objective": "", "exchanges": 9,
                 **dict.fromkeys(LLM_SUMS, 0)}],
    }  # fmt: skip
    report = make_report(lake_of(folder, tables), window_ms=HOUR)
    assert report.before is not None
    assert (report.totals.messages, report.before.messages) == (7, 3)
    assert (report.totals.refused, report.before.refused) == (7, 0)
    assert (report.totals.exchanges, report.before.exchanges) == (9, 0)
    changes = {(one.what, one.name): (one.before, one.now) for one in report.changes}
    assert changes["refused", ""] == (0, 7)
    assert not any("exchanges" in what for what, _ in changes), "model calls are counted by whole hours"


def test_the_backlog_before_a_window_counts_in_its_series(folder: Path) -> None:
    report = make_report(lake_of(folder, _days(1, 10, 10, 20, 25)), window_ms=DAY)
    assert [point.waiting for point in report.backlog_series] == [5]
    wide = make_report(lake_of(folder / "other", _days(*[2] * 200)), window_ms=150 * DAY)
    assert wide.series_ms == 7 * DAY
    assert wide.backlog_series[-1].waiting == 200
    assert [point.waiting for point in wide.backlog_series[-3:-1]] == [188, 195], "whole weeks"


def test_a_window_reads_only_the_files_of_its_days(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake = lake_of(folder, _days(*[2] * 30))
    read: set[str] = set()
    plain = ArrowTables._read

    def noted(self: ArrowTables, files: Any, name: str, *rest: Any) -> pa.Table:
        read.update(file.path.split("/")[1] for file in files if name not in ("members", "objectives", "deliveries"))
        return plain(self, files, name, *rest)

    monkeypatch.setattr(ArrowTables, "_read", noted)
    make_report(lake, window_ms=2 * DAY)
    assert read == {f"day={day_of((20_030 - back) * DAY)}" for back in range(1, 5)}


def test_who_waits_for_whom_is_a_chain_or_a_circle(folder: Path) -> None:
    reasons = {"o-1": "needs o-2 first", "o-2": "@carol must answer", "o-3": "o-4", "o-4": "see o-3", "o-5": "o-6",
               "o-6": None, "o-7": "nobody knows"}  # fmt: skip
    blocked = [
        {"objective": name, "title": name, "assignee": "dave", "status": "blocked" if reason else "active",
         "created_ms": START, "blocked_ms": 0, "blocked_since_ms": START + MINUTE if reason else None, "exchanges": 0,
         "input_tokens": 0, "output_tokens": 0, "cost_nano_usd": 0}
        for name, reason in reasons.items()
    ]  # fmt: skip
    events = [
        {"offset": index, "at_ms": START + MINUTE, "objective": name, "status": "blocked",
         "happening": json.dumps({"kind": "blocked", "reason": reason})}
        for index, (name, reason) in enumerate(reasons.items()) if reason
    ]  # fmt: skip
    report = make_report(lake_of(folder, {"objectives": blocked, "objective_events": events}))
    chains = {one.objective: (one.chain, one.circle) for one in report.waits}
    assert chains == {
        "o-1": (["o-1", "o-2", "@carol"], False),
        "o-2": (["o-2", "@carol"], False),
        "o-3": (["o-3", "o-4", "o-3"], True),
        "o-4": (["o-4", "o-3", "o-4"], True),
        "o-5": (["o-5", "o-6", "@dave"], False),
        "o-7": (["o-7"], False),
    }
    assert report.waits[0].reason == "needs o-2 first"


def test_the_document_of_a_run_has_the_ranges_of_the_console(folder: Path) -> None:
    report = report_with_ranges(lake_of(folder, _days(*range(1, 41))))
    assert report.totals.messages == sum(range(11, 41))
    assert {name: one.totals.messages for name, one in report.ranges.items()} == {"1d": 40, "7d": sum(range(34, 41))}
    assert report.ranges["7d"].before is not None
    assert report.ranges["7d"].before.messages == sum(range(27, 34))


def test_the_command_takes_a_window_and_json_is_about_all_time(folder: Path) -> None:
    lake_of(folder, _days(*range(1, 41)))

    def told(*arguments: str) -> int:
        done = CliRunner().invoke(make_app(), ["pipeline", "report", "--lake", str(folder), "--json", *arguments])
        assert done.exit_code == 0, done.output
        found: int = json.loads(done.stdout)["totals"]["messages"]
        return found

    assert told() == told("--window", "all") == sum(range(1, 41))
    assert told("--window", "7d") == sum(range(34, 41))
    said = CliRunner().invoke(make_app(), ["pipeline", "report", "--lake", str(folder)])
    assert f"{sum(range(34, 41))} messages" in said.stdout
    assert "What changed" in said.stdout
    for wrong in (["--window", "a week"], ["--window", "0d"], ["--window", "7d", "--since", "2024-01-01"]):
        assert CliRunner().invoke(make_app(), ["pipeline", "report", "--lake", str(folder), *wrong]).exit_code == 2

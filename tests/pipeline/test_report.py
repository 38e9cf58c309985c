"""Tests of the report: it has the contents of the gold tables, over all time or from a given time on."""

import json
from pathlib import Path

import msgspec
import pyarrow as pa
import pytest
from typer.testing import CliRunner

from tests.pipeline.lakes import DAY, MINUTE, START, busy, lake_of
from tieline.cli.main import make_app
from tieline.pipeline.arrow_tables import grouped
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import ROWS_MAX, make_report, write_report

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


def test_the_file_in_the_lake_is_the_report(folder: Path) -> None:
    lake = busy(folder)
    report = write_report(lake)
    told = json.loads((folder / "report.json").read_text())
    assert told == json.loads(msgspec.json.encode(report))
    assert told["refreshed_at_ms"] == lake.head().at_ms
    assert [path.name for path in folder.glob(".report*")] == []


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
    for heading in ("Findings", "Latency", "Backlog", "Who writes to whom", "Objectives", "Models"):
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

"""Tests of the verdicts of benchmarks: grown processor time, a goal, and a line of the history. Nothing is measured."""

import json
from pathlib import Path

import pytest

from bench import history
from bench.against import judge, only, subjects
from bench.report import Report, Wanted


def measured(*rounds: tuple[float, float]) -> Report:
    report = Report("against")
    for before, now in rounds:
        report.add("ac7, 1 connection | before", before)
        report.add("ac7, 1 connection | now", now)
    return report


@pytest.mark.parametrize(
    ("rounds", "kept"),
    [
        ([(100.0, 109.0), (100.0, 109.0), (100.0, 109.0)], True),
        ([(100.0, 111.0), (100.0, 111.0), (100.0, 111.0)], False),
        ([(100.0, 100.0), (100.0, 190.0), (100.0, 101.0)], True),
        ([(400.0, 100.0), (100.0, 112.0), (200.0, 300.0)], False),
    ],
    ids=["under a tenth", "over a tenth", "one bad round", "each ratio within its round"],
)
def test_processor_time_that_grew_by_more_than_a_tenth_in_the_median_round_fails(
    rounds: list[tuple[float, float]], kept: bool
) -> None:
    table, grown = judge(measured(*rounds))
    assert grown == ([] if kept else ["ac7, 1 connection"])
    assert [row[-1] for row in table.rows] == ["" if kept else "grew"]


def test_only_the_loads_that_seem_to_have_grown_are_measured_again() -> None:
    chosen = subjects()
    assert [subject.name for subject in chosen][:3] == ["native", "ac7", "backchannel"]
    again = only(chosen, ["ac7, 1 connection", "native, 8→8", "backchannel, 1 connection"])
    assert [(subject.name, [load.name for load in subject.loads]) for subject in again] == [
        ("native", ["8→8"]),
        ("ac7", ["1 connection"]),
    ]


def test_a_goal_is_reached_missed_or_not_measured() -> None:
    least, most = Wanted(least=1.2), Wanted(most=0.9)
    assert [least.verdict([1.1, 1.2, 9.0]), least.verdict([1.1, 1.1, 9.0])] == ["reached", "missed"]
    assert [most.verdict([0.1, 0.9, 1.0]), most.verdict([0.1, 0.95, 1.0])] == ["reached", "missed"]
    assert least.verdict([]) == "not measured"
    assert (least.text, most.text) == ("≥ 1.2", "≤ 0.9")


def test_a_run_adds_one_line_with_the_medians_of_its_loads(tmp_path: Path) -> None:
    report = Report("ac7")
    for cpu, ratio in ((400.0, 0.5), (350.0, 0.7), (360.0, 0.6)):
        report.add("cpu", cpu)
        report.add("ratio", ratio)
    report.remember("1 connection", "cpu", {"per s ÷ peer": report.samples["ratio"], "missing ÷ peer": []})
    path = tmp_path / "history.jsonl"
    for _ in range(2):
        history.add(path, {"python": "CPython 3.11.2", "machine": "2 cores", "load": "0.1"}, [report])
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first["cpu_us"] == second["cpu_us"] == {"ac7, 1 connection": 360.0}
    assert first["ratios"] == {"ac7, 1 connection, per s ÷ peer": 0.6}
    assert first["commit"]
    assert first["python"] == "CPython 3.11.2"

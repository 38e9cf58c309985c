"""Tests of the limits of objectives: lengths of texts, required fields, and numbers."""

from typing import Any

import msgspec
import pytest

from tests.core.conftest import MakeHarness
from tests.core.objective_team import Team
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.refusal import Code
from tieline.contract.reply import ObjectiveList, ObjectiveView


@pytest.mark.parametrize(
    ("field", "limit"),
    [("title", 200), ("outcome", 2048), ("body", 4096)],
)
def test_texts_of_an_objective_have_a_limit(team: Team, field: str, limit: int) -> None:
    assert len(getattr(team.create(**{field: "x" * limit}), field)) == limit
    too_long: dict[str, Any] = {"title": "t", "outcome": "o", field: "x" * (limit + 1)}
    command = c.CreateObjective(session=team.sessions["ada"], assignee=MemberName("bob"), **too_long)
    assert team.harness.refused(command).code is Code.INVALID_REQUEST


@pytest.mark.parametrize("field", ["title", "outcome"])
def test_title_and_outcome_are_needed(team: Team, field: str) -> None:
    texts: dict[str, Any] = {"title": "t", "outcome": "o", field: "  "}
    command = c.CreateObjective(session=team.sessions["ada"], assignee=MemberName("bob"), **texts)
    assert team.harness.refused(command).code is Code.INVALID_REQUEST


@pytest.mark.parametrize(
    "change",
    [
        o.Block(""),
        o.Block("x" * 2049),
        o.Block("\ud800"),
        o.Complete(" "),
        o.Complete("x" * 4097),
    ],
    ids=str,
)
def test_reasons_and_results_are_needed_and_have_a_limit(team: Team, change: o.AnyChange) -> None:
    assert team.refused("bob", team.create(), change) is Code.INVALID_REQUEST


def test_a_result_may_be_as_long_as_its_limit(team: Team) -> None:
    assert team.change("bob", team.create(), o.Complete("x" * 4096)).result == "x" * 4096


def test_only_members_are_assigned_or_watch(team: Team) -> None:
    for fields in ({"assignee": MemberName("nobody")}, {"watchers": (MemberName("nobody"),)}):
        given: dict[str, Any] = {"assignee": MemberName("bob"), **fields}
        command = c.CreateObjective(session=team.sessions["ada"], title="t", outcome="o", **given)
        assert team.harness.refused(command).code is Code.UNKNOWN_MEMBER
    assert team.refused("ada", team.create(), o.Watch(add=(MemberName("nobody"),))) is Code.UNKNOWN_MEMBER
    assert team.refused("ada", team.create(), o.Watch(remove=(MemberName("nobody"),))) is Code.UNKNOWN_MEMBER


def _team(make_harness: MakeHarness, **limits: int) -> Team:
    return Team(make_harness(msgspec.structs.replace(DEFAULT_LIMITS, **limits)))


def test_only_so_many_objectives_are_open(make_harness: MakeHarness) -> None:
    team = _team(make_harness, objectives_open_max=2)
    first, _ = team.create(), team.create()
    command = c.CreateObjective(session=team.sessions["ada"], title="t", outcome="o", assignee=MemberName("bob"))
    assert team.harness.refused(command).code is Code.TOO_MANY_OBJECTIVES
    team.change("ada", first, o.Cancel())
    team.create()


def test_only_so_many_watch(make_harness: MakeHarness) -> None:
    team = _team(make_harness, objective_watchers_max=1)
    made = team.create()
    watchers = (MemberName("wes"), MemberName("cy"))
    command = c.CreateObjective(
        session=team.sessions["ada"], title="t", outcome="o", assignee=MemberName("bob"), watchers=watchers
    )
    assert team.harness.refused(command).code is Code.INVALID_REQUEST
    assert team.refused("ada", made, o.Watch(add=(MemberName("cy"),))) is Code.INVALID_REQUEST
    moved = team.change("ada", made, o.Watch(add=(MemberName("cy"),), remove=(MemberName("wes"),)))
    assert moved.watchers == ("cy",)


def test_only_so_many_hear_of_a_change(make_harness: MakeHarness) -> None:
    team = _team(make_harness, recipients_max=4)
    made = team.create()
    assert team.refused("ada", made, o.Watch(add=(MemberName("cy"),))) is Code.TOO_MANY_RECIPIENTS
    team.change("bob", made, o.Complete("it works"))


def test_a_change_that_somebody_has_no_room_for_is_refused_whole(make_harness: MakeHarness) -> None:
    team = _team(make_harness, backlog_max=3)
    made = team.create()
    before = team.view("ada", made)
    assert team.refused("ada", made, o.Watch(add=(MemberName("cy"),), remove=(MemberName("wes"),))) is Code.BACKLOG_FULL
    assert team.view("ada", made) == before
    team.change("ada", made, o.Watch(remove=(MemberName("wes"),)))


def test_long_lists_and_logs_come_in_pages(make_harness: MakeHarness) -> None:
    team = _team(make_harness, read_max=3, page_bytes_max=500)
    objectives = [team.create() for _ in range(4)]
    page = team.harness.expect(ObjectiveList, team.query("ada"))
    assert (0 < len(page.objectives) <= 3, page.complete) == (True, False)
    for _ in range(3):
        team.change("bob", objectives[0], o.Block("stuck"))
        team.change("bob", objectives[0], o.Unblock())
    kinds, after, complete = [], -1, False
    while not complete:
        command = c.ViewObjective(team.sessions["bob"], objective_id=objectives[0].id, after=after)
        part = team.harness.expect(ObjectiveView, command)
        assert 0 < len(part.events) <= 3
        kinds += [o.kind_of(event.what) for event in part.events]
        after, complete = part.events[-1].offset, part.complete
    assert kinds == ["assigned", "watcher_added", *["blocked", "unblocked"] * 3]

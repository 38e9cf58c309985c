"""Tests of lists of objectives, of the event logs of objectives, and of their storage in one transaction."""

import msgspec
import pytest

from tests.core.doubles import START_MS
from tests.core.objective_team import Team
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.event import ObjectiveChanged, Sent
from tieline.contract.identifiers import MemberName
from tieline.contract.refusal import Code
from tieline.contract.reply import ObjectiveList, ObjectiveView

# Reading.


def test_who_may_create_lists_all_others_their_own(team: Team) -> None:
    first, second = team.create(), team.create(watchers=("cy",))
    assert team.listed("ada") == [second.id, first.id]
    assert team.listed("bob") == [second.id, first.id]
    assert team.listed("wes") == [first.id]
    assert team.listed("cy") == [second.id]
    # Managing members brings the thread, not the list.
    assert team.listed("mo") == []


def test_lists_are_narrowed_by_status_and_assignee_and_read_page_by_page(team: Team) -> None:
    made = [team.stand(status) for status in o.Status]
    mine = team.create(assignee="cy")
    assert team.listed("ada", statuses=(o.Status.BLOCKED, o.Status.DONE)) == [made[2].id, made[1].id]
    assert team.listed("ada", assignee=MemberName("cy")) == [mine.id]
    page = team.harness.expect(ObjectiveList, team.query("ada", limit=3))
    assert not page.complete
    rest = team.harness.expect(ObjectiveList, team.query("ada", limit=3, before=page.objectives[-1].id))
    assert rest.complete
    assert [one.id for one in (*page.objectives, *rest.objectives)] == team.listed("ada")
    assert team.harness.refused(team.query("ada", assignee=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


def test_the_event_log_tells_everything_in_order(team: Team) -> None:
    made = team.create()
    team.harness.pass_ms(5)
    team.change("bob", made, o.Block("stuck"))
    told = team.view("wes", made)
    assert [(event.at_ms - START_MS, event.actor, event.what) for event in told.events] == [
        (0, "ada", o.Assigned("ship it", "users have it", "bob", ("wes",))),
        (0, "ada", o.WatcherAdded("wes")),
        (5, "bob", o.Blocked("stuck")),
    ]
    assert told.complete
    later = team.harness.expect(
        ObjectiveView, c.ViewObjective(team.sessions["wes"], objective_id=made.id, after=told.events[1].offset)
    )
    assert later.events == told.events[2:]


def test_the_event_log_has_the_payloads_that_its_readers_know() -> None:
    said = [
        o.Assigned("t", "o", "bob", ("wes",)),
        o.Assigned("t", "o", "bob"),
        o.Blocked("r"),
        o.Unblocked(),
        o.Completed("r"),
        o.Cancelled(),
        o.Cancelled("r"),
        o.Reassigned("a", "b"),
        o.Reassigned("a", "b", "n"),
        o.WatcherAdded("w"),
        o.WatcherRemoved("w"),
    ]
    assert [msgspec.to_builtins(one) for one in said] == [
        {"kind": "assigned", "title": "t", "outcome": "o", "assignee": "bob", "watchers": ("wes",)},
        {"kind": "assigned", "title": "t", "outcome": "o", "assignee": "bob"},
        {"kind": "blocked", "reason": "r"},
        {"kind": "unblocked"},
        {"kind": "completed", "result": "r"},
        {"kind": "cancelled"},
        {"kind": "cancelled", "reason": "r"},
        {"kind": "reassigned", "from": "a", "to": "b"},
        {"kind": "reassigned", "from": "a", "to": "b", "note": "n"},
        {"kind": "watcher_added", "name": "w"},
        {"kind": "watcher_removed", "name": "w"},
    ]


# Kept together.


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_everything_is_there_after_a_restart(team: Team, how: str) -> None:
    objectives = [team.stand(status) for status in o.Status]
    before = [team.view("ada", objective) for objective in objectives]
    told = team.told("bob")
    getattr(team.harness, how)()
    for name in team.sessions:
        team.sessions[name] = team.harness.attach(name)
    assert [team.view("ada", objective) for objective in objectives] == before
    assert team.told("bob") == told
    assert team.change("bob", objectives[0], o.Complete("after all")).status is o.Status.DONE
    assert team.create().id not in [objective.id for objective in objectives]


def test_what_was_not_committed_never_was(team: Team) -> None:
    made = team.create()
    before = team.view("ada", made)
    told = team.told("ada")
    team.harness.decide(c.ChangeObjective(team.sessions["bob"], objective_id=made.id, change=o.Complete("lost")))
    team.harness.crash()
    for name in team.sessions:
        team.sessions[name] = team.harness.attach(name)
    assert team.view("ada", made) == before
    assert team.told("ada") == told
    assert team.change("bob", made, o.Complete("kept")).result == "kept"


def test_each_step_is_a_link_of_the_chain_followed_by_its_message(team: Team) -> None:
    made = team.create(watchers=())
    team.change("bob", made, o.Complete("it works"))
    events = [event for event in team.harness.events() if isinstance(event, ObjectiveChanged | Sent)]
    assert [type(event) for event in events] == [ObjectiveChanged, Sent, ObjectiveChanged, Sent]
    last = events[-2]
    assert isinstance(last, ObjectiveChanged)
    assert (last.id, last.kind, last.by, last.status, last.assignee) == (made.id, "completed", "bob", "done", "bob")
    offsets = [event.offset for event in team.view("bob", made).events]
    assert offsets == [
        row.offset for row, event in zip(team.harness.log(), team.harness.events(), strict=True) if event in events[::2]
    ]

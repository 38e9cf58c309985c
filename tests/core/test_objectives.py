"""Tests of objectives: their fields, the allowed changes of status, and the permissions."""

from itertools import product

import pytest
from msgspec.structs import replace

from tests.core.doubles import START_MS, content
from tests.core.objective_team import CHANGES, Team
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Unnamed
from tieline.contract.message import Attachment
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.contract.refusal import Code
from tieline.contract.reply import Attached, ObjectiveList, ObjectiveState, ObjectiveView, SeenObjective
from tieline.core.objectives import RIGHTS, rights_of

# Fields of an objective.


def test_a_new_objective_is_active_and_says_who_made_it_and_who_does_it(team: Team) -> None:
    attachment = Attachment("/ada/plan.md", "plan.md", 3, "text/markdown")
    made = team.create(body="all of it", attachments=(attachment,))
    assert made == SeenObjective(
        id=made.id,
        title="ship it",
        outcome="users have it",
        body="all of it",
        status=o.Status.ACTIVE,
        assignee=MemberName("bob"),
        originator=MemberName("ada"),
        watchers=(MemberName("wes"),),
        created_at_ms=START_MS,
        updated_at_ms=START_MS,
        attachments=(attachment,),
        may=("cancel", "watch"),
    )


def test_an_id_is_the_time_and_a_count_in_base_36(team: Team) -> None:
    ids = [team.create().id for _ in range(37)]
    assert ids[0] == "obj-mywpiww0-1"
    assert ids[35:] == ["obj-mywpiww0-10", "obj-mywpiww0-11"]
    assert int("mywpiww0", 36) == START_MS


def test_an_id_that_the_caller_chose_is_given_once(team: Team) -> None:
    chosen = o.ObjectiveId("obj-mywpiww0-000000000042")
    assert team.create(objective_id=chosen).id == chosen
    again = c.CreateObjective(
        team.sessions["ada"], title="t", outcome="o", assignee=MemberName("bob"), objective_id=chosen
    )
    assert team.harness.refused(again).code is Code.INVALID_REQUEST
    assert team.listed("ada") == [chosen]


def test_assignee_and_originator_are_no_watchers_and_nobody_watches_twice(team: Team) -> None:
    assert team.create(watchers=("bob", "wes", "ada", "wes")).watchers == ("wes",)


def test_each_change_leaves_its_mark(team: Team) -> None:
    made = team.create()
    team.harness.pass_ms(1000)
    blocked = team.change("bob", made, o.Block("  waiting "))
    assert (blocked.status, blocked.block_reason, blocked.updated_at_ms) == ("blocked", "waiting", START_MS + 1000)
    active = team.change("bob", made, o.Unblock())
    assert (active.status, active.block_reason) == ("active", None)
    team.change("bob", made, o.Block("again"))
    team.harness.pass_ms(1000)
    done = team.change("bob", made, o.Complete("it works"))
    assert (done.status, done.result, done.block_reason) == ("done", "it works", None)
    assert done.completed_at_ms == done.updated_at_ms == START_MS + 2000
    cancelled = team.change("ada", team.create(), o.Cancel("no"))
    assert (cancelled.status, cancelled.completed_at_ms, cancelled.result) == ("cancelled", None, None)


# Transitions between states.


@pytest.mark.parametrize(("kind", "status"), list(product(CHANGES, o.Status)), ids=str)
def test_the_transition_table_is_what_happens(team: Team, kind: type[o.Change], status: o.Status) -> None:
    objective = team.stand(status)
    boss = team.join("boss", *TEAM_PERMISSIONS)
    by = "bob" if kind is o.Complete else "boss"
    before = team.view("boss", objective)
    after = o.TRANSITIONS[kind].get(status)
    if after is None:
        assert status in o.TERMINAL
        assert team.refused(by, objective, CHANGES[kind]) is Code.OBJECTIVE_ENDED
        assert team.view("boss", objective) == before
    else:
        assert team.change(by, objective, CHANGES[kind]).status is after
        assert (
            team.harness.expect(ObjectiveView, c.ViewObjective(boss, objective_id=objective.id)).objective.status
            is after
        )


def test_what_is_so_already_is_no_event(team: Team) -> None:
    made = team.create()
    team.forget()
    team.change("bob", made, o.Unblock())
    team.change("ada", made, o.Watch(add=(MemberName("wes"), MemberName("bob"), MemberName("ada"))))
    team.change("ada", made, o.Watch(remove=(MemberName("cy"),)))
    assert team.told("bob") == []
    team.change("bob", made, o.Block("stuck"))
    team.change("bob", made, o.Block("stuck"))
    assert team.told("bob") == ["blocked"]
    assert [o.kind_of(event.what) for event in team.view("bob", made).events] == [
        "assigned",
        "watcher_added",
        "blocked",
    ]


def test_a_new_reason_for_the_block_is_an_event(team: Team) -> None:
    made = team.create()
    team.change("bob", made, o.Block("stuck"))
    assert team.change("bob", made, o.Block("still stuck")).block_reason == "still stuck"
    assert [event.what for event in team.view("bob", made).events[-2:]] == [
        o.Blocked("stuck"),
        o.Blocked("still stuck"),
    ]


def test_an_objective_is_not_reassigned_to_whom_it_belongs(team: Team) -> None:
    team.join("boss", "objectives.reassign")
    assert team.refused("boss", team.create(), o.Reassign(MemberName("bob"))) is Code.INVALID_REQUEST


# Permissions.


@pytest.mark.parametrize("permission", [None, *TEAM_PERMISSIONS])
@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: str(kind.__name__))
def test_whoever_has_no_part_in_it_may_do_what_its_permission_allows_and_no_more(
    team: Team, kind: type[o.Change], permission: str | None
) -> None:
    team.join("sam", *([permission] if permission else []))
    made = team.create()
    command = c.ChangeObjective(team.sessions["sam"], objective_id=made.id, change=CHANGES[kind])
    if permission is not None and permission == RIGHTS[kind].permission:
        team.harness.expect(ObjectiveState, command)
    elif permission is None or permission in ("team.manage", "activity.read"):
        assert team.harness.refused(command).code is Code.UNKNOWN_OBJECTIVE
    else:
        assert team.harness.refused(command).code is Code.FORBIDDEN


@pytest.mark.parametrize(
    ("by", "allowed"),
    [
        ("bob", {o.Block, o.Unblock, o.Complete}),
        ("ada", {o.Cancel, o.Watch}),
        ("wes", set()),
        ("mo", set()),
    ],
)
@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: str(kind.__name__))
def test_each_party_may_do_its_part(team: Team, kind: type[o.Change], by: str, allowed: set[type[o.Change]]) -> None:
    command = c.ChangeObjective(team.sessions[by], objective_id=team.create().id, change=CHANGES[kind])
    if kind in allowed:
        team.harness.expect(ObjectiveState, command)
    else:
        assert team.harness.refused(command).code is Code.FORBIDDEN


@pytest.mark.parametrize("status", o.Status)
@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: str(kind.__name__))
@pytest.mark.parametrize("by", ["ada", "bob", "wes", "boss"])
def test_the_rights_of_a_viewer_are_the_changes_that_make_an_event(
    team: Team, by: str, kind: type[o.Change], status: o.Status
) -> None:
    team.join("boss", *TEAM_PERMISSIONS)
    objective = team.stand(status)
    broker = team.harness.broker
    row, session = broker.objectives.find(objective.id), broker.directory.sessions[team.sessions[by]]
    assert row is not None
    before = len(team.view(by, objective).events)
    team.harness.ask(c.ChangeObjective(team.sessions[by], objective_id=objective.id, change=CHANGES[kind]))
    changed = len(team.view(by, objective).events) > before
    assert (kind.__struct_config__.tag in rights_of(row, session)) == changed


def test_the_operator_has_no_rights_over_an_objective(team: Team) -> None:
    row = team.harness.broker.objectives.find(team.create().id)
    assert row is not None
    assert rights_of(row, team.harness.broker.directory.sessions[team.harness.operator]) == ()


def test_every_answer_says_what_its_asker_may_do(team: Team) -> None:
    team.join("sam", "objectives.create", "objectives.reassign")
    made = team.create()
    for by, rights in (
        ("ada", ("cancel", "watch")),
        ("bob", ("block", "complete")),
        ("wes", ()),
        ("sam", ("reassign",)),
    ):
        (listed,) = team.harness.expect(ObjectiveList, team.query(by)).objectives
        assert (team.view(by, made).objective.may, listed.may) == (rights, rights)
    assert team.change("bob", made, o.Block("stuck")).may == ("block", "unblock", "complete")
    # The same again changes nothing, and is answered all the same.
    assert team.change("bob", made, o.Block("stuck")).may == ("block", "unblock", "complete")
    assert team.change("sam", made, o.Reassign(MemberName("cy"))).may == ("reassign",)
    assert team.view("cy", made).objective.may == ("block", "unblock", "complete")


@pytest.mark.parametrize("permission", [None, *TEAM_PERMISSIONS])
def test_only_who_has_the_permission_creates(team: Team, permission: str | None) -> None:
    session = team.join("sam", *([permission] if permission else []))
    command = c.CreateObjective(session=session, title="t", outcome="o", assignee=MemberName("bob"))
    if permission == "objectives.create":
        team.harness.expect(ObjectiveState, command)
    else:
        assert team.harness.refused(command).code is Code.FORBIDDEN


def test_the_operator_sees_all_objectives_and_changes_none(team: Team) -> None:
    made = team.create()
    seen = replace(made, may=())
    operator = team.harness.operator
    assert team.harness.expect(ObjectiveView, c.ViewObjective(operator, objective_id=made.id)).objective == seen
    assert team.harness.expect(ObjectiveList, c.ListObjectives(operator)).objectives == (seen,)
    assert (
        team.harness.refused(c.ChangeObjective(operator, objective_id=made.id, change=o.Cancel())).code
        is Code.FORBIDDEN
    )


def test_the_operator_creates_no_objective(team: Team) -> None:
    command = c.CreateObjective(team.harness.operator, title="t", outcome="o", assignee=MemberName("bob"))
    assert team.harness.refused(command).code is Code.FORBIDDEN
    assert team.listed("ada") == []


def test_those_without_an_identity_see_no_objective(team: Team) -> None:
    team.create()
    attach = c.Attach(protocol="hub", credential=Unnamed("client-1", "dev"))
    stranger = team.harness.expect(Attached, attach).session
    assert team.harness.refused(c.ListObjectives(stranger)).code is Code.FORBIDDEN


def test_an_objective_is_not_reassigned_to_somebody_unknown(team: Team) -> None:
    made = team.create()
    team.join("sam", "objectives.reassign")
    assert team.refused("sam", made, o.Reassign(MemberName("nobody"))) is Code.UNKNOWN_MEMBER
    assert team.view("ada", made).objective.assignee == "bob"


def test_a_stranger_gets_the_same_answer_for_an_objective_that_is_and_one_that_is_not(team: Team) -> None:
    made = team.create()
    never = o.ObjectiveId(made.id[:-1] + "9")

    def answers(objective_id: o.ObjectiveId) -> list[str]:
        session = team.sessions["cy"]
        commands: list[c.Command] = [
            c.ViewObjective(session, objective_id=objective_id),
            *(c.ChangeObjective(session, objective_id=objective_id, change=change) for change in CHANGES.values()),
            c.ListObjectives(session, before=objective_id),
            c.Send(session, content=content(f"obj:{objective_id}")),
        ]
        refusals = [team.harness.refused(command) for command in commands]
        assert {refusal.code for refusal in refusals} == {Code.UNKNOWN_OBJECTIVE}
        return [refusal.message.replace(objective_id, "") for refusal in refusals]

    assert answers(made.id) == answers(never)
    assert team.listed("cy") == []

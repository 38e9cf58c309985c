"""Objectives: what may follow what, who may do it, who hears of it, and that all of it is kept together."""

from itertools import product
from typing import Any

import msgspec
import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import START_MS, Desk, content
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.event import ObjectiveChanged, Sent
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.contract.message import Attachment, Kind, Message
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, History, ObjectiveList, ObjectiveState, ObjectiveView
from tieline.core.objectives import RIGHTS

CHANGES: dict[type[o.Change], o.AnyChange] = {
    o.Block: o.Block("waiting for review"),
    o.Unblock: o.Unblock(),
    o.Complete: o.Complete("it works"),
    o.Cancel: o.Cancel("not needed"),
    o.Reassign: o.Reassign(MemberName("cy"), "bob is away"),
    o.Watch: o.Watch(add=(MemberName("cy"),)),
}


class Team:
    """ada makes objectives, bob does them, wes watches, cy is not concerned, mo manages members."""

    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.sessions = {
            "ada": desk.join("ada", "objectives.create"),
            "bob": desk.join("bob"),
            "wes": desk.join("wes"),
            "cy": desk.join("cy"),
            "mo": desk.join("mo", "members.manage"),
        }

    def join(self, name: str, *permissions: str) -> SessionId:
        self.sessions[name] = self.desk.join(name, *permissions)
        return self.sessions[name]

    def create(self, by: str = "ada", **fields: Any) -> o.Objective:
        given = {"title": "ship it", "outcome": "users have it", "assignee": "bob", "watchers": ("wes",), **fields}
        command = c.CreateObjective(session=self.sessions[by], **given)
        return self.desk.expect(ObjectiveState, command).objective

    def change(self, by: str, objective: o.Objective, change: o.AnyChange) -> o.Objective:
        return self.desk.expect(ObjectiveState, c.ChangeObjective(self.sessions[by], objective.id, change)).objective

    def refused(self, by: str, objective: o.Objective, change: o.AnyChange) -> Code:
        return self.desk.refused(c.ChangeObjective(self.sessions[by], objective.id, change)).code

    def view(self, by: str, objective: o.Objective) -> ObjectiveView:
        return self.desk.expect(ObjectiveView, c.ViewObjective(self.sessions[by], objective.id))

    def listed(self, by: str, **query: Any) -> list[str]:
        return [found.id for found in self.desk.expect(ObjectiveList, self.query(by, **query)).objectives]

    def query(self, by: str, **query: Any) -> c.ListObjectives:
        return c.ListObjectives(self.sessions[by], **query)

    def inbox(self, name: str) -> list[Message]:
        return [delivery.message for delivery in self.desk.fetch(self.sessions[name])]

    def told(self, name: str) -> list[str]:
        """The kinds of the lifecycle messages in a member's inbox."""
        return [_event(message)["kind"] for message in self.inbox(name)]

    def forget(self) -> None:
        """Acknowledge all that anybody has."""
        for session in self.sessions.values():
            for delivery in self.desk.fetch(session):
                self.desk.advance(session, delivery.key)

    def stand(self, status: o.Status) -> o.Objective:
        """An objective that stands so."""
        objective = self.create()
        steps: dict[o.Status, list[o.AnyChange]] = {
            o.Status.ACTIVE: [],
            o.Status.BLOCKED: [o.Block("stuck")],
            o.Status.DONE: [o.Complete("done")],
            o.Status.CANCELLED: [o.Cancel()],
        }
        for step in steps[status]:
            objective = self.change("ada" if isinstance(step, o.Cancel) else "bob", objective, step)
        return objective


def _event(message: Message) -> dict[str, Any]:
    assert message.content.data is not None
    event = message.content.data["event"]
    assert isinstance(event, dict)
    return event


@pytest.fixture
def team(desk: Desk) -> Team:
    return Team(desk)


# What it is.


def test_a_new_objective_is_active_and_says_who_made_it_and_who_does_it(team: Team) -> None:
    attachment = Attachment("/ada/plan.md", "plan.md", 3, "text/markdown")
    made = team.create(body="all of it", attachments=(attachment,))
    assert made == o.Objective(
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
    )


def test_an_id_is_the_time_and_a_count_in_base_36(team: Team) -> None:
    ids = [team.create().id for _ in range(37)]
    assert ids[0] == "obj-mywpiww0-1"
    assert ids[35:] == ["obj-mywpiww0-10", "obj-mywpiww0-11"]
    assert int("mywpiww0", 36) == START_MS


def test_assignee_and_originator_are_no_watchers_and_nobody_watches_twice(team: Team) -> None:
    assert team.create(watchers=("bob", "wes", "ada", "wes")).watchers == ("wes",)


def test_each_change_leaves_its_mark(team: Team) -> None:
    made = team.create()
    team.desk.pass_ms(1000)
    blocked = team.change("bob", made, o.Block("  waiting "))
    assert (blocked.status, blocked.block_reason, blocked.updated_at_ms) == ("blocked", "waiting", START_MS + 1000)
    active = team.change("bob", made, o.Unblock())
    assert (active.status, active.block_reason) == ("active", None)
    team.change("bob", made, o.Block("again"))
    team.desk.pass_ms(1000)
    done = team.change("bob", made, o.Complete("it works"))
    assert (done.status, done.result, done.block_reason) == ("done", "it works", None)
    assert done.completed_at_ms == done.updated_at_ms == START_MS + 2000
    cancelled = team.change("ada", team.create(), o.Cancel("no"))
    assert (cancelled.status, cancelled.completed_at_ms, cancelled.result) == ("cancelled", None, None)


# What may follow what.


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
        assert team.desk.expect(ObjectiveView, c.ViewObjective(boss, objective.id)).objective.status is after


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


# Who may do it.


@pytest.mark.parametrize("permission", [None, *TEAM_PERMISSIONS])
@pytest.mark.parametrize("kind", CHANGES, ids=lambda kind: str(kind.__name__))
def test_whoever_has_no_part_in_it_may_do_what_its_permission_allows_and_no_more(
    team: Team, kind: type[o.Change], permission: str | None
) -> None:
    team.join("sam", *([permission] if permission else []))
    made = team.create()
    command = c.ChangeObjective(team.sessions["sam"], made.id, CHANGES[kind])
    if permission is not None and permission == RIGHTS[kind].permission:
        team.desk.expect(ObjectiveState, command)
    elif permission is None or permission in ("team.manage", "activity.read"):
        assert team.desk.refused(command).code is Code.UNKNOWN_OBJECTIVE
    else:
        assert team.desk.refused(command).code is Code.FORBIDDEN


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
    command = c.ChangeObjective(team.sessions[by], team.create().id, CHANGES[kind])
    if kind in allowed:
        team.desk.expect(ObjectiveState, command)
    else:
        assert team.desk.refused(command).code is Code.FORBIDDEN


@pytest.mark.parametrize("permission", [None, *TEAM_PERMISSIONS])
def test_only_who_has_the_permission_creates(team: Team, permission: str | None) -> None:
    session = team.join("sam", *([permission] if permission else []))
    command = c.CreateObjective(session=session, title="t", outcome="o", assignee=MemberName("bob"))
    if permission == "objectives.create":
        team.desk.expect(ObjectiveState, command)
    else:
        assert team.desk.refused(command).code is Code.FORBIDDEN


def test_the_operator_sees_all_objectives_and_changes_none(team: Team) -> None:
    made = team.create()
    operator = team.desk.operator
    assert team.desk.expect(ObjectiveView, c.ViewObjective(operator, made.id)).objective == made
    assert team.desk.expect(ObjectiveList, c.ListObjectives(operator)).objectives == (made,)
    assert team.desk.refused(c.ChangeObjective(operator, made.id, o.Cancel())).code is Code.FORBIDDEN


def test_a_stranger_gets_the_same_answer_for_an_objective_that_is_and_one_that_is_not(team: Team) -> None:
    made = team.create()
    never = o.ObjectiveId(made.id[:-1] + "9")

    def answers(objective_id: o.ObjectiveId) -> list[str]:
        session = team.sessions["cy"]
        commands: list[c.Command] = [
            c.ViewObjective(session, objective_id),
            *(c.ChangeObjective(session, objective_id, change) for change in CHANGES.values()),
            c.ListObjectives(session, before=objective_id),
            c.Send(session, content(f"obj:{objective_id}")),
        ]
        refusals = [team.desk.refused(command) for command in commands]
        assert {refusal.code for refusal in refusals} == {Code.UNKNOWN_OBJECTIVE}
        return [refusal.message.replace(objective_id, "") for refusal in refusals]

    assert answers(made.id) == answers(never)
    assert team.listed("cy") == []


# Who hears of it.


def test_everybody_in_the_thread_hears_of_each_step_the_actor_too(team: Team) -> None:
    made = team.create()
    for name in ("ada", "bob", "wes", "mo"):
        assert team.told(name) == ["assigned", "watcher_added"], name
    assert team.told("cy") == []
    team.forget()
    team.change("bob", made, o.Complete("it works"))
    for name in ("ada", "bob", "wes", "mo"):
        (message,) = team.inbox(name)
        assert message.sender == "bob"
        assert (message.content.kind, str(message.content.target)) == (Kind.EVENT, f"obj:{made.id}")


def test_who_leaves_the_thread_hears_of_that_and_of_nothing_later(team: Team) -> None:
    boss = team.join("boss", "objectives.reassign")
    made = team.create()
    team.forget()
    team.change("boss", made, o.Reassign(MemberName("cy"), "bob is away"))
    team.change("ada", made, o.Watch(remove=(MemberName("wes"),)))
    team.change("cy", made, o.Complete("it works"))
    assert team.told("bob") == ["reassigned"]
    assert team.told("wes") == ["reassigned", "watcher_removed"]
    assert team.told("cy") == team.told("ada") == ["reassigned", "watcher_removed", "completed"]
    assert team.desk.fetch(boss) == ()


def test_a_watcher_is_told_by_the_event_that_makes_it_one(team: Team) -> None:
    made = team.create(watchers=())
    team.change("ada", made, o.Watch(add=(MemberName("wes"), MemberName("cy"))))
    assert team.told("wes") == ["watcher_added", "watcher_added"]
    assert [_event(message)["name"] for message in team.inbox("cy")] == ["cy"]


def test_every_kind_carries_the_payload_that_it_is_known_for(team: Team) -> None:
    team.join("boss", *TEAM_PERMISSIONS)
    first, second = team.create(), team.create(watchers=())
    team.change("bob", first, o.Block("stuck"))
    team.change("bob", first, o.Unblock())
    team.change("boss", first, o.Reassign(MemberName("cy"), "bob is away"))
    team.change("ada", first, o.Watch(remove=(MemberName("wes"),)))
    team.change("cy", first, o.Complete("it works"))
    team.change("boss", second, o.Reassign(MemberName("cy")))
    team.change("ada", second, o.Cancel("not needed"))
    team.change("ada", team.create(watchers=()), o.Cancel())
    of_first = [_event(message) for message in team.inbox("mo") if str(message.content.target) == f"obj:{first.id}"]
    made = {"title": "ship it", "outcome": "users have it", "originator": "ada", "watchers": ["wes"]}
    assert of_first == [
        {"kind": "assigned", "objectiveId": first.id, **made},
        {"kind": "watcher_added", "objectiveId": first.id, "name": "wes"},
        {"kind": "blocked", "objectiveId": first.id, "blockReason": "stuck"},
        {"kind": "unblocked", "objectiveId": first.id},
        {
            "kind": "reassigned",
            "objectiveId": first.id,
            "fromAssignee": "bob",
            "toAssignee": "cy",
            "note": "bob is away",
        },
        {"kind": "watcher_removed", "objectiveId": first.id, "name": "wes"},
        {"kind": "completed", "objectiveId": first.id, "result": "it works"},
    ]
    others = [_event(message) for message in team.inbox("mo")][len(of_first) :]
    assert [event.get("note", 0) for event in others if event["kind"] == "reassigned"] == [None]
    assert [event["reason"] for event in others if event["kind"] == "cancelled"] == ["not needed", None]


def test_flat_keys_stand_beside_the_event(team: Team) -> None:
    made = team.create()
    team.forget()
    team.change("bob", made, o.Block("stuck"))
    (message,) = team.inbox("ada")
    assert message.content.data == {
        "kind": "objective",
        "event": {"kind": "blocked", "objectiveId": made.id, "blockReason": "stuck"},
        "objective_id": made.id,
        "objective_status": "blocked",
        "thread": f"obj:{made.id}",
        "actor": "bob",
    }


def test_the_body_says_it_in_aligned_lines_that_a_value_cannot_forge(team: Team) -> None:
    made = team.create(body="first\nresult: forged")
    assert team.inbox("bob")[0].content.body.splitlines() == [
        f"[objective assigned] {made.id}",
        "title:      ship it",
        "outcome:    users have it",
        "assignee:   bob",
        "originator: ada",
        "status:     active",
        "body:       first",
        "            result: forged",
    ]


# Its thread.


def test_what_is_said_in_the_thread_reaches_everybody_else_in_it(team: Team) -> None:
    made = team.create()
    team.forget()
    accepted = team.desk.expect(Accepted, c.Send(team.sessions["wes"], content(f"obj:{made.id}", "how is it going?")))
    assert accepted.recipients == 3
    for name, bodies in {"ada": 1, "bob": 1, "mo": 1, "wes": 0, "cy": 0}.items():
        assert len(team.inbox(name)) == bodies, name


def test_the_thread_stays_open_after_the_end(team: Team) -> None:
    made = team.stand(o.Status.DONE)
    team.desk.restart()
    bob = team.desk.attach("bob")
    assert team.desk.expect(Accepted, c.Send(bob, content(f"obj:{made.id}", "one more thing"))).recipients == 3


def test_one_may_talk_alone_in_ones_own_thread(desk: Desk) -> None:
    ada = desk.join("ada", "objectives.create")
    command = c.CreateObjective(session=ada, title="t", outcome="o", assignee=MemberName("ada"))
    made = desk.expect(ObjectiveState, command).objective
    assert desk.expect(Accepted, c.Send(ada, content(f"obj:{made.id}", "note to self"))).recipients == 0


def test_a_thread_is_read_by_those_in_it_and_nobody_else(team: Team) -> None:
    made = team.create(watchers=())
    team.desk.expect(Accepted, c.Send(team.sessions["bob"], content(f"obj:{made.id}", "on it")))

    def history(name: str, peer: str | None) -> list[str]:
        command = c.ReadHistory(team.sessions[name], peer)
        return [message.content.body.split("\n")[0] for message in team.desk.expect(History, command).messages]

    said = ["on it", f"[objective assigned] {made.id}"]
    for peer in (None, f"obj:{made.id}"):
        for name in ("ada", "bob", "mo"):
            assert history(name, peer) == said, name
        for name in ("wes", "cy"):
            assert history(name, peer) == [], name
    team.change("ada", made, o.Watch(add=(MemberName("wes"),)))
    assert history("wes", None)[1:] == history("wes", f"obj:{made.id}")[1:] == said
    assert history("ada", "obj:never") == []


def test_who_was_taken_out_of_the_thread_cannot_speak_in_it(team: Team) -> None:
    made = team.create()
    team.change("ada", made, o.Watch(remove=(MemberName("wes"),)))
    refused = team.desk.refused(c.Send(team.sessions["wes"], content(f"obj:{made.id}")))
    assert refused.code is Code.UNKNOWN_OBJECTIVE


def test_a_new_member_of_an_old_name_has_no_part_in_it(team: Team) -> None:
    made = team.create()
    team.desk.remove("bob")
    team.sessions["bob"] = team.desk.join("bob")
    assert team.listed("bob") == []
    assert team.refused("bob", made, o.Complete("mine!")) is Code.UNKNOWN_OBJECTIVE
    assert team.view("ada", made).objective.assignee == "bob"
    team.join("boss", "objectives.reassign")
    assert team.change("boss", made, o.Reassign(MemberName("bob"))).assignee == "bob"
    assert team.change("bob", made, o.Complete("now it is")).status is o.Status.DONE


def test_a_watcher_that_was_removed_from_the_hub_can_be_removed_from_the_list(team: Team) -> None:
    made = team.create()
    team.desk.remove("wes")
    team.sessions.pop("wes")
    assert team.change("ada", made, o.Watch(remove=(MemberName("wes"),))).watchers == ()


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
    page = team.desk.expect(ObjectiveList, team.query("ada", limit=3))
    assert not page.complete
    rest = team.desk.expect(ObjectiveList, team.query("ada", limit=3, before=page.objectives[-1].id))
    assert rest.complete
    assert [one.id for one in (*page.objectives, *rest.objectives)] == team.listed("ada")
    assert team.desk.refused(team.query("ada", assignee=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


def test_the_event_log_tells_everything_in_order(team: Team) -> None:
    made = team.create()
    team.desk.pass_ms(5)
    team.change("bob", made, o.Block("stuck"))
    told = team.view("wes", made)
    assert [(event.at_ms - START_MS, event.actor, event.what) for event in told.events] == [
        (0, "ada", o.Assigned("ship it", "users have it", "bob", ("wes",))),
        (0, "ada", o.WatcherAdded("wes")),
        (5, "bob", o.Blocked("stuck")),
    ]
    assert told.complete
    later = team.desk.expect(ObjectiveView, c.ViewObjective(team.sessions["wes"], made.id, told.events[1].offset))
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
    getattr(team.desk, how)()
    for name in team.sessions:
        team.sessions[name] = team.desk.attach(name)
    assert [team.view("ada", objective) for objective in objectives] == before
    assert team.told("bob") == told
    assert team.change("bob", objectives[0], o.Complete("after all")).status is o.Status.DONE
    assert team.create().id not in [objective.id for objective in objectives]


def test_what_was_not_committed_never_was(team: Team) -> None:
    made = team.create()
    before = team.view("ada", made)
    told = team.told("ada")
    team.desk.decide(c.ChangeObjective(team.sessions["bob"], made.id, o.Complete("lost")))
    team.desk.crash()
    for name in team.sessions:
        team.sessions[name] = team.desk.attach(name)
    assert team.view("ada", made) == before
    assert team.told("ada") == told
    assert team.change("bob", made, o.Complete("kept")).result == "kept"


def test_each_step_is_a_link_of_the_chain_followed_by_its_message(team: Team) -> None:
    made = team.create(watchers=())
    team.change("bob", made, o.Complete("it works"))
    events = [event for event in team.desk.events() if isinstance(event, ObjectiveChanged | Sent)]
    assert [type(event) for event in events] == [ObjectiveChanged, Sent, ObjectiveChanged, Sent]
    last = events[-2]
    assert isinstance(last, ObjectiveChanged)
    assert (last.id, last.kind, last.by, last.status, last.assignee) == (made.id, "completed", "bob", "done", "bob")
    offsets = [event.offset for event in team.view("bob", made).events]
    assert offsets == [
        row.offset for row, event in zip(team.desk.log(), team.desk.events(), strict=True) if event in events[::2]
    ]


# Limits.


@pytest.mark.parametrize(
    ("field", "limit"),
    [("title", 200), ("outcome", 2048), ("body", 4096)],
)
def test_texts_of_an_objective_have_a_limit(team: Team, field: str, limit: int) -> None:
    assert len(getattr(team.create(**{field: "x" * limit}), field)) == limit
    too_long: dict[str, Any] = {"title": "t", "outcome": "o", field: "x" * (limit + 1)}
    command = c.CreateObjective(session=team.sessions["ada"], assignee=MemberName("bob"), **too_long)
    assert team.desk.refused(command).code is Code.INVALID_REQUEST


@pytest.mark.parametrize("field", ["title", "outcome"])
def test_title_and_outcome_are_needed(team: Team, field: str) -> None:
    texts: dict[str, Any] = {"title": "t", "outcome": "o", field: "  "}
    command = c.CreateObjective(session=team.sessions["ada"], assignee=MemberName("bob"), **texts)
    assert team.desk.refused(command).code is Code.INVALID_REQUEST


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
        assert team.desk.refused(command).code is Code.UNKNOWN_MEMBER
    assert team.refused("ada", team.create(), o.Watch(add=(MemberName("nobody"),))) is Code.UNKNOWN_MEMBER
    assert team.refused("ada", team.create(), o.Watch(remove=(MemberName("nobody"),))) is Code.UNKNOWN_MEMBER


def _team(make_desk: MakeDesk, **limits: int) -> Team:
    return Team(make_desk(msgspec.structs.replace(DEFAULT_LIMITS, **limits)))


def test_only_so_many_objectives_are_open(make_desk: MakeDesk) -> None:
    team = _team(make_desk, objectives_open_max=2)
    first, _ = team.create(), team.create()
    command = c.CreateObjective(session=team.sessions["ada"], title="t", outcome="o", assignee=MemberName("bob"))
    assert team.desk.refused(command).code is Code.TOO_MANY_OBJECTIVES
    team.change("ada", first, o.Cancel())
    team.create()


def test_only_so_many_watch(make_desk: MakeDesk) -> None:
    team = _team(make_desk, objective_watchers_max=1)
    made = team.create()
    assert team.refused("ada", made, o.Watch(add=(MemberName("cy"),))) is Code.INVALID_REQUEST
    moved = team.change("ada", made, o.Watch(add=(MemberName("cy"),), remove=(MemberName("wes"),)))
    assert moved.watchers == ("cy",)


def test_a_change_that_somebody_has_no_room_for_is_refused_whole(make_desk: MakeDesk) -> None:
    team = _team(make_desk, backlog_max=3)
    made = team.create()
    before = team.view("ada", made)
    assert team.refused("ada", made, o.Watch(add=(MemberName("cy"),), remove=(MemberName("wes"),))) is Code.BACKLOG_FULL
    assert team.view("ada", made) == before
    team.change("ada", made, o.Watch(remove=(MemberName("wes"),)))


def test_long_lists_and_logs_come_in_pages(make_desk: MakeDesk) -> None:
    team = _team(make_desk, page_max=3, page_bytes_max=500)
    objectives = [team.create() for _ in range(4)]
    page = team.desk.expect(ObjectiveList, team.query("ada"))
    assert (0 < len(page.objectives) <= 3, page.complete) == (True, False)
    for _ in range(3):
        team.change("bob", objectives[0], o.Block("stuck"))
        team.change("bob", objectives[0], o.Unblock())
    kinds, after, complete = [], -1, False
    while not complete:
        command = c.ViewObjective(team.sessions["bob"], objectives[0].id, after)
        part = team.desk.expect(ObjectiveView, command)
        assert 0 < len(part.events) <= 3
        kinds += [o.kind_of(event.what) for event in part.events]
        after, complete = part.events[-1].offset, part.complete
    assert kinds == ["assigned", "watcher_added", *["blocked", "unblocked"] * 3]

"""Tests of the thread of an objective: its members get the objective's events, and the messages to the thread."""

from tests.core.doubles import BrokerHarness, content
from tests.core.objective_team import Team, event_of
from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Kind
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, History, ObjectiveState

# Recipients of an objective's events.


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


def test_nothing_waits_for_who_acts_on_a_wire_without_acknowledgement(team: Team) -> None:
    harness = team.harness
    waiting = {name: presence.backlog for name, presence in harness.roster().items()}
    team.sessions["ada"] = harness.attach("ada", "agent-channels", acknowledges=False)
    team.change("ada", team.create(watchers=()), o.Cancel("no"))
    now = {name: presence.backlog - waiting[name] for name, presence in harness.roster().items()}
    assert (now["ada"], now["bob"], now["mo"]) == (0, 2, 2)
    assert team.told("ada") == ["assigned", "cancelled"], "its messages are readable all the same"


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
    assert team.harness.fetch(boss) == ()


def test_a_watcher_is_told_by_the_event_that_makes_it_one(team: Team) -> None:
    made = team.create(watchers=())
    team.change("ada", made, o.Watch(add=(MemberName("wes"), MemberName("cy"))))
    assert team.told("wes") == ["watcher_added", "watcher_added"]
    assert [event_of(message)["name"] for message in team.inbox("cy")] == ["cy"]


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
    of_first = [event_of(message) for message in team.inbox("mo") if str(message.content.target) == f"obj:{first.id}"]
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
    others = [event_of(message) for message in team.inbox("mo")][len(of_first) :]
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
        "objective_event": "blocked",
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
    accepted = team.harness.expect(
        Accepted, c.Send(team.sessions["wes"], content=content(f"obj:{made.id}", "how is it going?"))
    )
    assert accepted.recipients == 3
    for name, bodies in {"ada": 1, "bob": 1, "mo": 1, "wes": 0, "cy": 0}.items():
        assert len(team.inbox(name)) == bodies, name


def test_the_thread_stays_open_after_the_end(team: Team) -> None:
    made = team.stand(o.Status.DONE)
    team.harness.restart()
    bob = team.harness.attach("bob")
    assert (
        team.harness.expect(Accepted, c.Send(bob, content=content(f"obj:{made.id}", "one more thing"))).recipients == 3
    )


def test_one_may_talk_alone_in_ones_own_thread(harness: BrokerHarness) -> None:
    ada = harness.join("ada", "objectives.create")
    command = c.CreateObjective(session=ada, title="t", outcome="o", assignee=MemberName("ada"))
    made = harness.expect(ObjectiveState, command).objective
    assert harness.expect(Accepted, c.Send(ada, content=content(f"obj:{made.id}", "note to self"))).recipients == 0


def test_a_thread_is_read_by_those_in_it_and_nobody_else(team: Team) -> None:
    made = team.create(watchers=())
    team.harness.expect(Accepted, c.Send(team.sessions["bob"], content=content(f"obj:{made.id}", "on it")))

    def history(name: str, peer: str | None) -> list[str]:
        command = c.ReadHistory(team.sessions[name], peer=peer)
        return [message.content.body.split("\n")[0] for message in team.harness.expect(History, command).messages]

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
    refused = team.harness.refused(c.Send(team.sessions["wes"], content=content(f"obj:{made.id}")))
    assert refused.code is Code.UNKNOWN_OBJECTIVE


def test_a_new_member_of_an_old_name_has_no_part_in_it(team: Team) -> None:
    made = team.create()
    team.harness.remove("bob")
    team.sessions["bob"] = team.harness.join("bob")
    assert team.listed("bob") == []
    assert team.refused("bob", made, o.Complete("mine!")) is Code.UNKNOWN_OBJECTIVE
    assert team.view("ada", made).objective.assignee == "bob"
    team.join("boss", "objectives.reassign")
    assert team.change("boss", made, o.Reassign(MemberName("bob"))).assignee == "bob"
    assert team.change("bob", made, o.Complete("now it is")).status is o.Status.DONE


def test_a_watcher_that_was_removed_from_the_hub_can_be_removed_from_the_list(team: Team) -> None:
    made = team.create()
    team.harness.remove("wes")
    team.sessions.pop("wes")
    assert team.change("ada", made, o.Watch(remove=(MemberName("wes"),))).watchers == ()

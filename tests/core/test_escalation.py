"""A delivery that nothing shows to have been seen falls from way to way, and its sender can see where it stands."""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.doubles import START_MS, Desk
from tieline.contract import command as c
from tieline.contract.delivery import State, Step
from tieline.contract.event import Fell, Registered
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.member import MemberKind
from tieline.contract.message import Kind, Priority
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.refusal import Code
from tieline.contract.reply import Progress, ReachState, Receipts
from tieline.stores.sqlite import SqliteStore

MINUTE_MS = 60_000
THREE = Reach((Leg(Way.PUSH, MINUTE_MS), Leg(Way.HOOK, MINUTE_MS), Leg(Way.NOTIFY, 0)), 1000, "ops")


def reach(desk: Desk, name: str, ways: Reach) -> None:
    desk.expect(ReachState, c.SetReach(desk.operator, name=MemberName(name), reach=ways))


def way(desk: Desk, message_id: MessageId, member: str = "bob") -> str:
    return desk.receipts(desk.operator, message_id)[member].way


@pytest.fixture
def ada(desk: Desk) -> SessionId:
    """Ada, who writes; bob has three ways, the last of which is ops."""
    desk.add("ops", kind=MemberKind.HUMAN)
    desk.add("bob")
    reach(desk, "bob", THREE)
    return desk.join("ada")


def test_a_delivery_without_evidence_falls_from_way_to_way(desk: Desk, ada: SessionId) -> None:
    bob = desk.attach("bob")
    sent = desk.send(ada, "@bob", "look")
    assert way(desk, sent.message_id) == "push"
    desk.offered(bob, 1)
    desk.pass_ms(MINUTE_MS - 1)
    assert way(desk, sent.message_id) == "push"
    desk.pass_ms(1001)
    assert way(desk, sent.message_id) == "hook"
    desk.pass_ms(MINUTE_MS + 1000)
    assert way(desk, sent.message_id) == "notify"
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert receipt.state is State.OFFERED
    assert [(step.state, step.way, step.evidence) for step in receipt.steps] == [
        (State.PENDING, "", ""),
        (State.OFFERED, "", ""),
        (State.OFFERED, "hook", "no evidence by push"),
        (State.OFFERED, "notify", "no evidence by hook"),
    ]
    falls = [event for event in desk.events() if isinstance(event, Fell)]
    assert [(event.member, event.keys, event.way, event.after) for event in falls] == [
        ("bob", ((1, 1),), "hook", "push"),
        ("bob", ((1, 1),), "notify", "hook"),
    ]


def test_evidence_ends_it(desk: Desk, ada: SessionId) -> None:
    bob = desk.attach("bob")
    seen, acked = desk.send(ada, "@bob", "one"), desk.send(ada, "@bob", "two")
    desk.advance(bob, 1, State.SEEN, "hook Stop")
    desk.advance(bob, 2)
    desk.pass_ms(10 * MINUTE_MS)
    assert not any(isinstance(event, Fell) for event in desk.events())
    assert (way(desk, seen.message_id), way(desk, acked.message_id)) == ("", "")


def test_evidence_twice_counts_once(desk: Desk, ada: SessionId) -> None:
    bob = desk.attach("bob")
    sent = desk.send(ada, "@bob")
    for evidence in ("hook Stop", "a tool call"):
        desk.advance(bob, 1, State.SEEN, evidence)
    assert [step.evidence for step in desk.receipts(ada, sent.message_id)["bob"].steps] == ["", "hook Stop"]


def test_what_comes_together_falls_together(desk: Desk, ada: SessionId) -> None:
    bob = desk.attach("bob")
    for number in range(100):
        desk.send(ada, "@bob", str(number), kind=Kind.STATUS)
    desk.advance(bob, 50, State.SEEN, "a reply")
    desk.pass_ms(MINUTE_MS + 1000)
    (fall,) = [event for event in desk.events() if isinstance(event, Fell)]
    assert fall.keys == ((1, 49), (51, 100))


def test_an_urgent_one_falls_sooner(desk: Desk, ada: SessionId) -> None:
    calm = desk.send(ada, "@bob", "when you can")
    urgent = desk.send(ada, "@bob", "now", priority=Priority.URGENT)
    desk.pass_ms(1000)
    assert (way(desk, calm.message_id), way(desk, urgent.message_id)) == ("push", "hook")
    desk.pass_ms(1000)
    assert (way(desk, calm.message_id), way(desk, urgent.message_id)) == ("push", "notify")


def test_a_human_is_told_once_of_what_was_not_seen(desk: Desk, ada: SessionId) -> None:
    ops = desk.attach("ops")
    sent = desk.send(ada, "@bob", "the body stays between them", priority=Priority.URGENT)
    desk.pass_ms(1000)
    desk.pass_ms(1000)
    assert [(unseen.member, unseen.message.id) for unseen in desk.outcome.unseen] == [("bob", sent.message_id)]
    desk.pass_ms(10 * MINUTE_MS)
    (told,) = desk.fetch(ops)
    message = told.message
    assert (message.sender, message.verified, message.content.kind) == ("hub@notices", False, Kind.EVENT)
    assert (message.content.data or {})["messages"] == [sent.message_id]
    assert "bob" in message.content.body
    assert sent.message_id in message.content.body
    assert "between them" not in message.content.body


def test_a_held_delivery_waits_from_its_release_on_whatever_its_neighbours_do(desk: Desk, ada: SessionId) -> None:
    cy, ops = desk.join("cy"), desk.attach("ops")
    around = [desk.send(cy, "@bob", "before").message_id]
    desk.ask(c.PauseThread(desk.operator, thread="@ada+@bob"))
    held = desk.send(ada, "@bob", "held").message_id
    around.append(desk.send(cy, "@bob", "after").message_id)
    # Ways that are set anew take up what waits.
    reach(desk, "bob", Reach(THREE.legs, 2000, "ops"))
    desk.pass_ms(MINUTE_MS + 1000)
    assert [way(desk, each) for each in around] == ["hook", "hook"]
    desk.pass_ms(MINUTE_MS - 10_000)
    desk.ask(c.ResumeThread(desk.operator, thread="@ada+@bob"))
    desk.pass_ms(11_000)
    assert [way(desk, each) for each in (*around, held)] == ["notify", "notify", "push"]
    (told,) = desk.fetch(ops)
    assert (told.message.content.data or {})["messages"] == around
    desk.pass_ms(MINUTE_MS - 10_000)
    assert way(desk, held) == "hook"


def test_a_delivery_that_is_released_before_its_neighbours_fall_stays_where_it_is(desk: Desk, ada: SessionId) -> None:
    cy = desk.join("cy")
    desk.send(cy, "@bob", "before")
    desk.ask(c.PauseThread(desk.operator, thread="@ada+@bob"))
    held = desk.send(ada, "@bob", "held").message_id
    after = desk.send(cy, "@bob", "after").message_id
    reach(desk, "bob", Reach(THREE.legs, 2000, "ops"))
    desk.pass_ms(MINUTE_MS - 1000)
    desk.ask(c.ResumeThread(desk.operator, thread="@ada+@bob"))
    desk.pass_ms(2000)
    assert (way(desk, held), way(desk, after)) == ("push", "hook")


def test_two_humans_who_stand_in_for_each_other_are_told_once(desk: Desk, ada: SessionId) -> None:
    for name, other in (("bob", "ops"), ("ops", "bob")):
        reach(desk, name, Reach((Leg(Way.PUSH, 1000), Leg(Way.NOTIFY, 1000)), notify=other))
    desk.send(ada, "@bob")
    for _ in range(10):
        desk.pass_ms(2000)
    assert len(desk.fetch(desk.attach("ops"))) == 1
    assert len(desk.fetch(desk.attach("bob"))) == 1


def test_a_follower_hears_of_a_fall(desk: Desk, ada: SessionId) -> None:
    sent = desk.send(ada, "@bob")
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.pass_ms(MINUTE_MS + 1000)
    step = Progress(
        message_id=sent.message_id,
        member=MemberName("bob"),
        state=State.PENDING,
        at_ms=START_MS + MINUTE_MS + 1000,
        way="hook",
    )
    assert desk.outcome.progress == [(ada, step)]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_where_it_stands_survives(desk: Desk, ada: SessionId, how: str) -> None:
    first = desk.send(ada, "@bob", "one")
    desk.pass_ms(MINUTE_MS + 1000)
    second = desk.send(desk.attach("ada"), "@bob", "two")
    getattr(desk, how)()
    assert (way(desk, first.message_id), way(desk, second.message_id)) == ("hook", "push")
    # Nobody could show evidence while the hub was down, so both are given their way's time again.
    desk.pass_ms(MINUTE_MS - 1)
    assert (way(desk, first.message_id), way(desk, second.message_id)) == ("hook", "push")
    desk.pass_ms(2000)
    assert (way(desk, first.message_id), way(desk, second.message_id)) == ("notify", "hook")
    desk.pass_ms(10 * MINUTE_MS)
    falls = [event for event in desk.events() if isinstance(event, Fell)]
    assert [(event.keys, event.way) for event in falls if event.keys == ((1, 1),)] == [
        (((1, 1),), "hook"),
        (((1, 1),), "notify"),
    ]


def test_a_step_after_a_fall_comes_after_it(desk: Desk, ada: SessionId) -> None:
    sent = desk.send(ada, "@bob")
    desk.pass_ms(MINUTE_MS + 1000)
    desk.advance(desk.attach("bob"), 1, State.SEEN, "hook UserPromptSubmit")
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert receipt.steps[1] == Step(
        State.PENDING, START_MS + MINUTE_MS + 1000, evidence="no evidence by push", way="hook"
    )
    assert (receipt.steps[2].state, receipt.state, receipt.way) == (State.SEEN, State.SEEN, "")


def test_whoever_has_no_ways_falls_nowhere(desk: Desk, ada: SessionId) -> None:
    desk.add("cy")
    sent = desk.send(ada, "@cy")
    desk.pass_ms(10 * MINUTE_MS)
    assert way(desk, sent.message_id, "cy") == ""
    assert not any(isinstance(event, Fell) for event in desk.events())


def test_other_ways_take_up_what_waits(desk: Desk, ada: SessionId) -> None:
    sent = desk.send(ada, "@bob")
    desk.pass_ms(MINUTE_MS + 1000)
    reach(desk, "bob", Reach((Leg(Way.HOOK, 1000), Leg(Way.PULL, 1000))))
    assert way(desk, sent.message_id) == "hook"
    desk.pass_ms(1001)
    assert way(desk, sent.message_id) == "pull"
    # A way that is none any more is left for the first of the others.
    reach(desk, "bob", Reach((Leg(Way.PTY, 1000),)))
    assert way(desk, sent.message_id) == "pty"
    reach(desk, "bob", Reach())
    assert way(desk, sent.message_id) == ""
    desk.pass_ms(10 * MINUTE_MS)
    desk.restart()
    assert desk.expect(ReachState, c.SetReach(desk.operator, name=MemberName("bob"))).reach == Reach()


def test_ways_go_with_their_member(desk: Desk, ada: SessionId) -> None:
    desk.send(ada, "@bob")
    desk.remove("bob")
    desk.pass_ms(10 * MINUTE_MS)
    desk.add("bob")
    desk.restart()
    assert desk.expect(ReachState, c.SetReach(desk.operator, name=MemberName("bob"))).reach == Reach()


def test_a_member_says_its_own_ways_and_nobody_elses(desk: Desk, ada: SessionId) -> None:
    own = Reach((Leg(Way.PULL, 5),))
    assert desk.expect(ReachState, c.SetReach(ada, name=MemberName("ada"), reach=own)).reach == own
    assert desk.refused(c.SetReach(ada, name=MemberName("bob"), reach=own)).code is Code.FORBIDDEN
    assert desk.refused(c.SetReach(ada, name=MemberName("bob"))).code is Code.FORBIDDEN
    assert Registered("ada", "ada", "reach") in desk.events()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (Reach((Leg(Way.PUSH, 1), Leg(Way.PUSH, 1))), Code.INVALID_REQUEST),
        (Reach((Leg(Way.PUSH, -1),)), Code.INVALID_REQUEST),
        (Reach((Leg(Way.PUSH, 1),), urgent_ms=-1), Code.INVALID_REQUEST),
        (Reach((Leg(Way.PUSH, 1),), notify="nobody"), Code.UNKNOWN_MEMBER),
        (Reach((Leg(Way.NOTIFY, 1),)), Code.INVALID_REQUEST),
    ],
)
def test_ways_that_make_no_sense_are_refused(desk: Desk, wrong: Reach, code: Code) -> None:
    desk.add("bob")
    assert desk.refused(c.SetReach(desk.operator, name=MemberName("bob"), reach=wrong)).code is code


def test_an_unknown_member_has_no_ways(desk: Desk) -> None:
    assert desk.refused(c.SetReach(desk.operator, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


def test_a_wire_that_cannot_acknowledge_is_one_way_of_several(desk: Desk, ada: SessionId) -> None:
    desk.attach("bob", "agent-channels", acknowledges=False)
    sent = desk.send(ada, "@bob")
    assert desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id, until=State.SEEN)).receipts[0].way == "push"
    reach(desk, "bob", Reach())
    assert desk.refused(c.Follow(ada, message_id=sent.message_id, until=State.SEEN)).code is Code.NEVER_ACKNOWLEDGED


def test_a_large_backlog_is_taken_up_where_it_stood(desk: Desk, ada: SessionId) -> None:
    bob = desk.attach("bob")
    for _ in range(3):
        for number in range(10):
            desk.send(ada, "@bob", str(number), kind=Kind.STATUS)
        desk.pass_ms(MINUTE_MS // 2)
    desk.pass_ms(1000)
    for key in range(1, 30, 2):
        desk.advance(bob, key, State.SEEN, "a tool call")
    desk.crash()
    desk.pass_ms(MINUTE_MS + 1000)
    ways = {delivery.key: way(desk, delivery.message.id) for delivery in desk.fetch(desk.attach("bob"), unseen=True)}
    assert ways == {key: "notify" if key <= 20 else "hook" for key in range(2, 31, 2)}


def test_only_what_was_not_seen_can_be_asked_for(desk: Desk, ada: SessionId) -> None:
    bob = desk.attach("bob")
    for body in ("one", "two", "three"):
        desk.send(ada, "@bob", body)
    desk.advance(bob, 2, State.SEEN, "a tool call")
    desk.offered(bob, 3)
    assert [delivery.message.content.body for delivery in desk.fetch(bob, unseen=True)] == ["one", "three"]
    assert len(desk.fetch(bob)) == 3


actions = st.one_of(
    st.sampled_from(["send", "send", "urgent", "restart", "crash"]),
    st.tuples(st.sampled_from([State.OFFERED, State.SEEN, State.ACKED]), st.integers(1, 20)),
    st.integers(1, 2 * MINUTE_MS),
)


@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=30))
def test_whatever_happens_each_falls_through_its_ways_in_order_until_it_is_seen(
    script: list[str | tuple[State, int] | int],
) -> None:
    with TemporaryDirectory() as folder:
        _fall_through(Desk(lambda: SqliteStore(Path(folder), synchronous="OFF")), script)


def _fall_through(desk: Desk, script: list[str | tuple[State, int] | int]) -> None:
    for name in ("ada", "bob", "ops"):
        desk.add(name)
    reach(desk, "bob", THREE)
    sent: list[MessageId] = []
    for action in script:
        match action:
            case int():
                desk.pass_ms(action)
            case (State() as state, int() as key):
                bob = desk.attach("bob")
                if state is State.OFFERED:
                    desk.offered(bob, key)
                else:
                    desk.advance(bob, key, state)
            case "restart" | "crash":
                getattr(desk, action)()
            case _:
                priority = Priority.URGENT if action == "urgent" else Priority.NORMAL
                sent.append(desk.send(desk.attach("ada"), "@bob", kind=Kind.STATUS, priority=priority).message_id)
    for _ in THREE.legs:
        desk.pass_ms(2 * MINUTE_MS)
    ways = defaultdict(list)
    for event in desk.events():
        if isinstance(event, Fell):
            for first, last in event.keys:
                for key in range(first, last + 1):
                    ways[key].append((event.after, event.way))
    for place, message_id in enumerate(sent, start=1):
        receipt = desk.receipts(desk.operator, message_id)["bob"]
        fallen = ways.pop(place, [])
        assert fallen == [("push", "hook"), ("hook", "notify")][: len(fallen)]
        assert receipt.way == ("notify" if receipt.state < State.SEEN else "")
        assert len(fallen) == 2 or receipt.state >= State.SEEN
        # Nothing falls that was seen.
        moved = [step for step in receipt.steps if not step.way and step.state >= State.SEEN]
        assert all(step.at_ms <= moved[0].at_ms for step in receipt.steps if step.way and moved)
    assert not ways
    desk.store.close()

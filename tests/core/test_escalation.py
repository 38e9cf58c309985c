"""Tests of escalation: a delivery without evidence that it was seen goes to the next way to reach the member.

The sender can see which way is in use.
"""

from collections import defaultdict
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.core.doubles import START_MS, BrokerHarness
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


def reach(harness: BrokerHarness, name: str, ways: Reach) -> None:
    harness.expect(ReachState, c.SetReach(harness.operator, name=MemberName(name), reach=ways))


def way(harness: BrokerHarness, message_id: MessageId, member: str = "bob") -> str:
    return harness.receipts(harness.operator, message_id)[member].way


@pytest.fixture
def ada(harness: BrokerHarness) -> SessionId:
    """Fixture: the session of ada, who sends messages to bob.

    There are three ways to reach bob. The last way tells the human ops.
    """
    harness.add("ops", kind=MemberKind.HUMAN)
    harness.add("bob")
    reach(harness, "bob", THREE)
    return harness.join("ada")


def test_a_delivery_without_evidence_falls_from_way_to_way(harness: BrokerHarness, ada: SessionId) -> None:
    bob = harness.attach("bob")
    sent = harness.send(ada, "@bob", "look")
    assert way(harness, sent.message_id) == "push"
    harness.offered(bob, 1)
    harness.pass_ms(MINUTE_MS - 1)
    assert way(harness, sent.message_id) == "push"
    harness.pass_ms(1001)
    assert way(harness, sent.message_id) == "hook"
    harness.pass_ms(MINUTE_MS + 1000)
    assert way(harness, sent.message_id) == "notify"
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert receipt.state is State.OFFERED
    assert [(step.state, step.way, step.evidence) for step in receipt.steps] == [
        (State.PENDING, "", ""),
        (State.OFFERED, "", ""),
        (State.OFFERED, "hook", "no evidence by push"),
        (State.OFFERED, "notify", "no evidence by hook"),
    ]
    falls = [event for event in harness.events() if isinstance(event, Fell)]
    assert [(event.member, event.keys, event.way, event.after) for event in falls] == [
        ("bob", ((1, 1),), "hook", "push"),
        ("bob", ((1, 1),), "notify", "hook"),
    ]


def test_evidence_ends_it(harness: BrokerHarness, ada: SessionId) -> None:
    bob = harness.attach("bob")
    seen, acked = harness.send(ada, "@bob", "one"), harness.send(ada, "@bob", "two")
    harness.advance(bob, 1, State.SEEN, "hook Stop")
    harness.advance(bob, 2)
    harness.pass_ms(10 * MINUTE_MS)
    assert not any(isinstance(event, Fell) for event in harness.events())
    assert (way(harness, seen.message_id), way(harness, acked.message_id)) == ("", "")


def test_evidence_twice_counts_once(harness: BrokerHarness, ada: SessionId) -> None:
    bob = harness.attach("bob")
    sent = harness.send(ada, "@bob")
    for evidence in ("hook Stop", "a tool call"):
        harness.advance(bob, 1, State.SEEN, evidence)
    assert [step.evidence for step in harness.receipts(ada, sent.message_id)["bob"].steps] == ["", "hook Stop"]


def test_what_comes_together_falls_together(harness: BrokerHarness, ada: SessionId) -> None:
    bob = harness.attach("bob")
    for number in range(100):
        harness.send(ada, "@bob", str(number), kind=Kind.STATUS)
    harness.advance(bob, 50, State.SEEN, "a reply")
    harness.pass_ms(MINUTE_MS + 1000)
    (fall,) = [event for event in harness.events() if isinstance(event, Fell)]
    assert fall.keys == ((1, 49), (51, 100))


def test_an_urgent_one_falls_sooner(harness: BrokerHarness, ada: SessionId) -> None:
    calm = harness.send(ada, "@bob", "when you can")
    urgent = harness.send(ada, "@bob", "now", priority=Priority.URGENT)
    harness.pass_ms(1000)
    assert (way(harness, calm.message_id), way(harness, urgent.message_id)) == ("push", "hook")
    harness.pass_ms(1000)
    assert (way(harness, calm.message_id), way(harness, urgent.message_id)) == ("push", "notify")


def test_a_human_is_told_once_of_what_was_not_seen(harness: BrokerHarness, ada: SessionId) -> None:
    ops = harness.attach("ops")
    sent = harness.send(ada, "@bob", "the body stays between them", priority=Priority.URGENT)
    harness.pass_ms(1000)
    harness.pass_ms(1000)
    assert [(unseen.member, unseen.message.id) for unseen in harness.outcome.unseen] == [("bob", sent.message_id)]
    harness.pass_ms(10 * MINUTE_MS)
    (told,) = harness.fetch(ops)
    message = told.message
    assert (message.sender, message.verified, message.content.kind) == ("hub@notices", False, Kind.EVENT)
    assert (message.content.data or {})["messages"] == [sent.message_id]
    assert "bob" in message.content.body
    assert sent.message_id in message.content.body
    assert "between them" not in message.content.body


def test_a_held_delivery_waits_from_its_release_on_whatever_its_neighbours_do(
    harness: BrokerHarness, ada: SessionId
) -> None:
    cy, ops = harness.join("cy"), harness.attach("ops")
    around = [harness.send(cy, "@bob", "before").message_id]
    harness.ask(c.PauseThread(harness.operator, thread="@ada+@bob"))
    held = harness.send(ada, "@bob", "held").message_id
    around.append(harness.send(cy, "@bob", "after").message_id)
    # Ways that are set anew take up what waits.
    reach(harness, "bob", Reach(THREE.legs, 2000, "ops"))
    harness.pass_ms(MINUTE_MS + 1000)
    assert [way(harness, each) for each in around] == ["hook", "hook"]
    harness.pass_ms(MINUTE_MS - 10_000)
    harness.ask(c.ResumeThread(harness.operator, thread="@ada+@bob"))
    harness.pass_ms(11_000)
    assert [way(harness, each) for each in (*around, held)] == ["notify", "notify", "push"]
    (told,) = harness.fetch(ops)
    assert (told.message.content.data or {})["messages"] == around
    harness.pass_ms(MINUTE_MS - 10_000)
    assert way(harness, held) == "hook"


def test_a_delivery_that_is_released_before_its_neighbours_fall_stays_where_it_is(
    harness: BrokerHarness, ada: SessionId
) -> None:
    cy = harness.join("cy")
    harness.send(cy, "@bob", "before")
    harness.ask(c.PauseThread(harness.operator, thread="@ada+@bob"))
    held = harness.send(ada, "@bob", "held").message_id
    after = harness.send(cy, "@bob", "after").message_id
    reach(harness, "bob", Reach(THREE.legs, 2000, "ops"))
    harness.pass_ms(MINUTE_MS - 1000)
    harness.ask(c.ResumeThread(harness.operator, thread="@ada+@bob"))
    harness.pass_ms(2000)
    assert (way(harness, held), way(harness, after)) == ("push", "hook")


def test_two_humans_who_stand_in_for_each_other_are_told_once(harness: BrokerHarness, ada: SessionId) -> None:
    for name, other in (("bob", "ops"), ("ops", "bob")):
        reach(harness, name, Reach((Leg(Way.PUSH, 1000), Leg(Way.NOTIFY, 1000)), notify=other))
    harness.send(ada, "@bob")
    for _ in range(10):
        harness.pass_ms(2000)
    assert len(harness.fetch(harness.attach("ops"))) == 1
    assert len(harness.fetch(harness.attach("bob"))) == 1


def test_when_the_human_is_gone_the_hub_is_still_told_of_what_was_not_seen(
    harness: BrokerHarness, ada: SessionId
) -> None:
    harness.remove("ops")
    sent = harness.send(ada, "@bob", priority=Priority.URGENT)
    harness.pass_ms(1000)
    harness.pass_ms(1000)
    told = harness.outcome.unseen
    assert way(harness, sent.message_id) == "notify"
    assert [(unseen.member, unseen.message.id) for unseen in told] == [("bob", sent.message_id)]


def test_a_follower_hears_of_a_fall(harness: BrokerHarness, ada: SessionId) -> None:
    sent = harness.send(ada, "@bob")
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.pass_ms(MINUTE_MS + 1000)
    step = Progress(
        message_id=sent.message_id,
        member=MemberName("bob"),
        state=State.PENDING,
        at_ms=START_MS + MINUTE_MS + 1000,
        way="hook",
    )
    assert harness.outcome.progress == [(ada, step)]


@pytest.mark.parametrize("how", ["restart", "crash"])
def test_where_it_stands_survives(harness: BrokerHarness, ada: SessionId, how: str) -> None:
    first = harness.send(ada, "@bob", "one")
    harness.pass_ms(MINUTE_MS + 1000)
    second = harness.send(harness.attach("ada"), "@bob", "two")
    getattr(harness, how)()
    assert (way(harness, first.message_id), way(harness, second.message_id)) == ("hook", "push")
    # Nobody could show evidence while the hub was down, so both are given their way's time again.
    harness.pass_ms(MINUTE_MS - 1)
    assert (way(harness, first.message_id), way(harness, second.message_id)) == ("hook", "push")
    harness.pass_ms(2000)
    assert (way(harness, first.message_id), way(harness, second.message_id)) == ("notify", "hook")
    harness.pass_ms(10 * MINUTE_MS)
    falls = [event for event in harness.events() if isinstance(event, Fell)]
    assert [(event.keys, event.way) for event in falls if event.keys == ((1, 1),)] == [
        (((1, 1),), "hook"),
        (((1, 1),), "notify"),
    ]


def test_after_a_rollback_what_comes_next_falls_with_what_came_last_also_if_an_older_one_is_due_later(
    harness: BrokerHarness, ada: SessionId
) -> None:
    reach(harness, "bob", Reach((Leg(Way.PUSH, MINUTE_MS), Leg(Way.HOOK, 9 * MINUTE_MS), Leg(Way.PULL, 0))))
    older = harness.send(ada, "@bob", "one").message_id
    harness.pass_ms(MINUTE_MS + 1000)
    harness.send(ada, "@bob", "two")
    harness.broker.roll_back()
    harness.send(ada, "@bob", "three")
    harness.pass_ms(MINUTE_MS + 1000)
    falls = [event for event in harness.events() if isinstance(event, Fell)]
    assert [(event.keys, event.way) for event in falls] == [(((1, 1),), "hook"), (((2, 3),), "hook")]
    harness.pass_ms(8 * MINUTE_MS)
    assert way(harness, older) == "pull"


def test_a_step_after_a_fall_comes_after_it(harness: BrokerHarness, ada: SessionId) -> None:
    sent = harness.send(ada, "@bob")
    harness.pass_ms(MINUTE_MS + 1000)
    harness.advance(harness.attach("bob"), 1, State.SEEN, "hook UserPromptSubmit")
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert receipt.steps[1] == Step(
        State.PENDING, START_MS + MINUTE_MS + 1000, evidence="no evidence by push", way="hook"
    )
    assert (receipt.steps[2].state, receipt.state, receipt.way) == (State.SEEN, State.SEEN, "")


def test_whoever_has_no_ways_falls_nowhere(harness: BrokerHarness, ada: SessionId) -> None:
    harness.add("cy")
    sent = harness.send(ada, "@cy")
    harness.pass_ms(10 * MINUTE_MS)
    assert way(harness, sent.message_id, "cy") == ""
    assert not any(isinstance(event, Fell) for event in harness.events())


def test_other_ways_take_up_what_waits(harness: BrokerHarness, ada: SessionId) -> None:
    sent = harness.send(ada, "@bob")
    harness.pass_ms(MINUTE_MS + 1000)
    reach(harness, "bob", Reach((Leg(Way.HOOK, 1000), Leg(Way.PULL, 1000))))
    assert way(harness, sent.message_id) == "hook"
    harness.pass_ms(1001)
    assert way(harness, sent.message_id) == "pull"
    # A way that is none any more is left for the first of the others.
    reach(harness, "bob", Reach((Leg(Way.PTY, 1000),)))
    assert way(harness, sent.message_id) == "pty"
    reach(harness, "bob", Reach())
    assert way(harness, sent.message_id) == ""
    harness.pass_ms(10 * MINUTE_MS)
    harness.restart()
    assert harness.expect(ReachState, c.SetReach(harness.operator, name=MemberName("bob"))).reach == Reach()


def test_ways_go_with_their_member(harness: BrokerHarness, ada: SessionId) -> None:
    harness.send(ada, "@bob")
    harness.remove("bob")
    harness.pass_ms(10 * MINUTE_MS)
    harness.add("bob")
    harness.restart()
    assert harness.expect(ReachState, c.SetReach(harness.operator, name=MemberName("bob"))).reach == Reach()


def test_a_member_says_its_own_ways_and_nobody_elses(harness: BrokerHarness, ada: SessionId) -> None:
    own = Reach((Leg(Way.PULL, 5),))
    assert harness.expect(ReachState, c.SetReach(ada, name=MemberName("ada"), reach=own)).reach == own
    assert harness.refused(c.SetReach(ada, name=MemberName("bob"), reach=own)).code is Code.FORBIDDEN
    assert harness.refused(c.SetReach(ada, name=MemberName("bob"))).code is Code.FORBIDDEN
    assert Registered("ada", "ada", "reach") in harness.events()


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
def test_ways_that_make_no_sense_are_refused(harness: BrokerHarness, wrong: Reach, code: Code) -> None:
    harness.add("bob")
    assert harness.refused(c.SetReach(harness.operator, name=MemberName("bob"), reach=wrong)).code is code


def test_the_same_ways_again_are_no_event(harness: BrokerHarness, ada: SessionId) -> None:
    count = len(harness.log())
    reach(harness, "bob", THREE)
    reach(harness, "ada", Reach())
    assert len(harness.log()) == count


def test_an_unknown_member_has_no_ways(harness: BrokerHarness) -> None:
    assert harness.refused(c.SetReach(harness.operator, name=MemberName("nobody"))).code is Code.UNKNOWN_MEMBER


def test_a_wire_that_cannot_acknowledge_is_one_way_of_several(harness: BrokerHarness, ada: SessionId) -> None:
    harness.attach("bob", "agent-channels", acknowledges=False)
    sent = harness.send(ada, "@bob")
    assert (
        harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id, until=State.SEEN)).receipts[0].way == "push"
    )
    reach(harness, "bob", Reach())
    assert harness.refused(c.Follow(ada, message_id=sent.message_id, until=State.SEEN)).code is Code.NEVER_ACKNOWLEDGED


def test_a_large_backlog_is_taken_up_where_it_stood(harness: BrokerHarness, ada: SessionId) -> None:
    bob = harness.attach("bob")
    for _ in range(3):
        for number in range(10):
            harness.send(ada, "@bob", str(number), kind=Kind.STATUS)
        harness.pass_ms(MINUTE_MS // 2)
    harness.pass_ms(1000)
    for key in range(1, 30, 2):
        harness.advance(bob, key, State.SEEN, "a tool call")
    harness.crash()
    harness.pass_ms(MINUTE_MS + 1000)
    ways = {
        delivery.key: way(harness, delivery.message.id)
        for delivery in harness.fetch(harness.attach("bob"), unseen=True)
    }
    assert ways == {key: "notify" if key <= 20 else "hook" for key in range(2, 31, 2)}


def test_only_what_was_not_seen_can_be_asked_for(harness: BrokerHarness, ada: SessionId) -> None:
    bob = harness.attach("bob")
    for body in ("one", "two", "three"):
        harness.send(ada, "@bob", body)
    harness.advance(bob, 2, State.SEEN, "a tool call")
    harness.offered(bob, 3)
    assert [delivery.message.content.body for delivery in harness.fetch(bob, unseen=True)] == ["one", "three"]
    assert len(harness.fetch(bob)) == 3


actions = st.one_of(
    st.sampled_from(["send", "send", "urgent", "restart", "crash"]),
    st.tuples(st.sampled_from([State.OFFERED, State.SEEN, State.ACKED]), st.integers(1, 20)),
    st.integers(1, 2 * MINUTE_MS),
)


@pytest.mark.slow
@settings(max_examples=60, deadline=None)
@given(st.lists(actions, max_size=30))
def test_whatever_happens_each_falls_through_its_ways_in_order_until_it_is_seen(
    script: list[str | tuple[State, int] | int],
) -> None:
    with TemporaryDirectory() as folder:
        _fall_through(BrokerHarness(lambda: SqliteStore(Path(folder), synchronous="OFF")), script)


def _fall_through(harness: BrokerHarness, script: list[str | tuple[State, int] | int]) -> None:
    for name in ("ada", "bob", "ops"):
        harness.add(name)
    reach(harness, "bob", THREE)
    sent: list[MessageId] = []
    for action in script:
        match action:
            case int():
                harness.pass_ms(action)
            case (State() as state, int() as key):
                bob = harness.attach("bob")
                if state is State.OFFERED:
                    harness.offered(bob, key)
                else:
                    harness.advance(bob, key, state)
            case "restart" | "crash":
                getattr(harness, action)()
            case _:
                priority = Priority.URGENT if action == "urgent" else Priority.NORMAL
                sent.append(harness.send(harness.attach("ada"), "@bob", kind=Kind.STATUS, priority=priority).message_id)
    for _ in THREE.legs:
        harness.pass_ms(2 * MINUTE_MS)
    ways = defaultdict(list)
    for event in harness.events():
        if isinstance(event, Fell):
            for first, last in event.keys:
                for key in range(first, last + 1):
                    ways[key].append((event.after, event.way))
    for place, message_id in enumerate(sent, start=1):
        receipt = harness.receipts(harness.operator, message_id)["bob"]
        fallen = ways.pop(place, [])
        assert fallen == [("push", "hook"), ("hook", "notify")][: len(fallen)]
        assert receipt.way == ("notify" if receipt.state < State.SEEN else "")
        assert len(fallen) == 2 or receipt.state >= State.SEEN
        # Nothing falls that was seen.
        moved = [step for step in receipt.steps if not step.way and step.state >= State.SEEN]
        assert all(step.at_ms <= moved[0].at_ms for step in receipt.steps if step.way and moved)
    assert not ways
    harness.store.close()

"""Tests of the hub's notices to members: a conversation is held, or a message cannot be delivered."""

import shlex

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness
from tieline.contract.delivery import State
from tieline.contract.limits import Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Kind, Message
from tieline.core import holds
from tieline.core.hub_messages import SPEAKER

LIMITS = Limits(hops_max=4, backlog_max=12)


def told(harness: BrokerHarness, name: str) -> list[Message]:
    """Return the hub's notices to a member."""
    return [one.message for one in harness.fetch(harness.attach(name)) if one.message.sender == SPEAKER]


def loop(harness: BrokerHarness) -> None:
    ada, bob = harness.attach("ada"), harness.attach("bob")
    for turn in range(5):
        harness.send(*((ada, "@bob") if turn % 2 == 0 else (bob, "@ada")))
        harness.advance(bob if turn % 2 == 0 else ada, turn // 2 + 1)
        harness.pass_ms(1000)
    assert harness.send(bob, "@ada").held


def test_those_who_looped_and_the_humans_are_told_once(make_harness: MakeHarness) -> None:
    harness = make_harness(LIMITS)
    for name in ("ada", "bob", "cy"):
        harness.join(name)
    harness.join("hana", kind=MemberKind.HUMAN)
    loop(harness)
    assert harness.send(harness.attach("ada"), "@bob").held
    for name in ("ada", "bob", "hana"):
        (notice,) = told(harness, name)
        assert notice.content.kind is Kind.EVENT
        assert notice.content.data == {"event": "held", "conversation": "@ada+@bob", "by": "bob"}
        assert "tieline resume @ada+@bob" in notice.content.body
        assert notice.content.body.count("tieline allow") == 1
        assert "one message passes every 10 min." in notice.content.body
    assert told(harness, "cy") == []


def loop_in_channel(harness: BrokerHarness, *others: str) -> None:
    """Let bob and ada answer each other in a channel with `others`, until ada's next message would be held."""
    sessions = {name: harness.join(name) for name in ("bob", "ada", *others)}
    for session in sessions.values():
        harness.subscribe(session, "dev")
    for turn in range(5):
        one, other = ("bob", "ada") if turn % 2 == 0 else ("ada", "bob")
        harness.send(sessions[one], "#dev")
        harness.advance(sessions[other], turn // 2 + 1)
        harness.pass_ms(1000)


def test_in_a_channel_only_those_who_looped_are_told(make_harness: MakeHarness) -> None:
    harness = make_harness(LIMITS)
    loop_in_channel(harness, "cy")
    assert harness.send(harness.attach("ada"), "#dev").held
    assert [len(told(harness, name)) for name in ("ada", "bob", "cy")] == [1, 1, 0]


def test_one_who_looped_and_was_removed_is_not_told(make_harness: MakeHarness) -> None:
    harness = make_harness(LIMITS)
    loop_in_channel(harness, "cy", "di")
    harness.remove("bob")
    assert harness.send(harness.attach("ada"), "#dev").held
    assert [len(told(harness, name)) for name in ("ada", "cy", "di")] == [1, 0, 0]


def test_the_command_that_is_named_can_be_entered_whatever_a_conversation_is_called() -> None:
    assert holds.command("resume", "@ada+@bob") == "tieline resume @ada+@bob"
    assert holds.command("resume", "#dev") == "tieline resume '#dev'"
    hostile = "thread:x'; rm -rf ~; '"
    assert shlex.split(holds.command("allow", hostile)) == ["tieline", "allow", hostile]


def test_a_sender_is_told_that_its_message_does_not_fit(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob", "too much")
    harness.advance(bob, 1, State.DEAD, "too_large")
    (notice,) = told(harness, "ada")
    assert notice.content.data == {
        "event": "dead",
        "message": sent.message_id,
        "member": "bob",
        "reason": "too_large",
    }
    harness.advance(bob, 1, State.DEAD, "too_large")
    assert len(told(harness, "ada")) == 1, "a delivery dies once"


def test_nobody_is_told_that_a_notice_does_not_fit(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "too much")
    harness.advance(bob, 1, State.DEAD, "too_large")
    harness.advance(ada, 1, State.DEAD, "too_large")
    assert told(harness, "ada") == told(harness, "bob") == []


def test_one_whose_inbox_is_full_is_not_told(make_harness: MakeHarness) -> None:
    harness = make_harness(LIMITS)
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    harness.send(ada, "@bob", "too much")
    for _ in range(LIMITS.backlog_max):
        harness.send(cy, "@ada")
    harness.advance(bob, 1, State.DEAD, "too_large")
    assert told(harness, "ada") == []

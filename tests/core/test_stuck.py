"""Tests of the list of stuck deliveries: what nobody saw for a while, and what died."""

import pytest

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.keys import one_key
from tieline.contract.message import Content
from tieline.contract.permission import LOG_READ
from tieline.contract.reply import Accepted, Done, Stuck
from tieline.core.dead_letters import DEAD_LETTERS_MAX

MINUTE_MS = 60_000


def stuck(harness: BrokerHarness, session: SessionId, **arguments: int) -> Stuck:
    return harness.expect(Stuck, c.ReadStuck(session, **arguments))


def unseen(harness: BrokerHarness, session: SessionId, **arguments: int) -> list[tuple[str, str]]:
    return [(one.text, one.member) for one in stuck(harness, session, **arguments).unseen]


def die(harness: BrokerHarness, session: SessionId, key: int) -> None:
    harness.ask(c.Advance(session, ranges=one_key(key), state=State.DEAD, evidence="too_large"))


def test_what_nobody_saw_for_a_while_is_listed_oldest_first(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.join("cy")
    harness.send(ada, "@cy", "first")
    harness.send(ada, "@bob", "second")
    harness.pass_ms(6 * MINUTE_MS)
    harness.send(ada, "@cy", "too young")
    assert unseen(harness, harness.operator) == [("first", "cy"), ("second", "bob")]
    assert unseen(harness, harness.operator, limit=1) == [("first", "cy")]
    assert unseen(harness, harness.operator, older_ms=10 * MINUTE_MS) == []
    harness.advance(bob, 1, State.SEEN)
    (one,) = stuck(harness, harness.operator).unseen
    assert (one.sender, one.target, one.member, one.state) == ("ada", "@cy", "cy", State.PENDING)
    assert harness.receipts(harness.operator, one.message_id)["cy"].steps[0].at_ms == one.sent_at_ms
    assert harness.log()[one.offset].at_ms == one.sent_at_ms


def test_the_title_comes_before_the_body(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.join("bob")
    said: Content = content("@bob", "x" * 1000, title="On wind")
    harness.expect(Accepted, c.Send(ada, content=said))
    harness.send(ada, "@bob", "y" * 1000)
    assert unseen(harness, harness.operator, older_ms=0) == [("On wind", "bob"), ("y" * 200, "bob")]


def test_a_wire_without_acknowledgement_and_a_pause_leave_nothing_stuck(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "offered")
    harness.offered(harness.attach("bob", acknowledges=False), 1)
    harness.expect(Done, c.PauseThread(harness.operator, thread="@ada+@bob"))
    harness.send(ada, "@bob", "held")
    assert unseen(harness, harness.operator, older_ms=0) == []


def test_a_member_gets_what_is_stuck_of_its_own_and_the_reader_of_the_log_gets_all(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    eve = harness.join("eve", LOG_READ)
    harness.send(ada, "@bob", "of ada")
    harness.send(bob, "@ada", "of bob")
    assert unseen(harness, ada, older_ms=0) == [("of ada", "bob")]
    assert unseen(harness, bob, older_ms=0, limit=1) == [("of bob", "ada")]
    assert len(unseen(harness, eve, older_ms=0)) == 2
    die(harness, bob, 1)
    assert [len(stuck(harness, one).dead) for one in (ada, bob, eve)] == [1, 0, 1]


@pytest.mark.parametrize("ends", ["restart", "crash"])
def test_dead_letters_are_listed_newest_first_and_outlive_the_hub(harness: BrokerHarness, ends: str) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "first")
    harness.send(ada, "@bob", "second")
    die(harness, bob, 1)
    harness.pass_ms(10)
    die(harness, bob, 2)
    die(harness, bob, 2)
    getattr(harness, ends)()
    dead = stuck(harness, harness.operator).dead
    assert [(one.text, one.member, one.state, one.evidence) for one in dead] == [
        ("second", "bob", State.DEAD, "too_large"),
        ("first", "bob", State.DEAD, "too_large"),
    ]
    assert dead[0].at_ms == dead[1].at_ms + 10


def test_what_waited_for_a_removed_member_is_dead_and_the_list_has_an_end(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.join("bob")
    for number in range(DEAD_LETTERS_MAX + 5):
        harness.send(ada, "@bob", str(number))
    harness.expect(Done, c.RemoveMember(harness.operator, name=MemberName("bob")))
    dead = stuck(harness, harness.operator, limit=1000).dead
    assert [one.text for one in dead] == [str(number + 5) for number in reversed(range(DEAD_LETTERS_MAX))]
    assert {one.evidence for one in dead} == {"member removed"}
    assert len(stuck(harness, harness.operator, limit=3).dead) == 3


def test_a_death_that_is_not_committed_is_forgotten(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.decide(c.Advance(bob, ranges=one_key(1), state=State.DEAD, evidence="too_large"))
    assert len(harness.broker.dead_letters.rows) == 1
    harness.broker.roll_back()
    assert len(harness.broker.dead_letters.rows) == 0


def test_a_death_that_was_published_is_noted_again_after_a_rollback(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.decide(c.Advance(bob, ranges=one_key(1), state=State.DEAD, evidence="too_large"))
    harness.broker.mark_published()
    harness.broker.roll_back()
    assert len(stuck(harness, harness.operator).dead) == 1

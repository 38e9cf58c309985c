"""Tests that superseded and discarded messages expire. The evidence names the member that caused it."""

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Expired
from tieline.contract.identifiers import MessageId
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Done


def test_a_message_takes_the_place_of_an_earlier_one(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    old = harness.send(ada, "@bob", "deploy one")
    new = harness.send(ada, "@bob", "deploy two", supersedes=old.message_id)
    assert harness.bodies(bob) == ["deploy two"]
    receipt = harness.receipts(ada, old.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.EXPIRED, f"superseded by {new.message_id}")
    assert harness.fetch(bob)[0].message.content.supersedes == old.message_id
    (event,) = [event for event in harness.events() if isinstance(event, Expired)]
    assert event.evidence == f"superseded by {new.message_id}"


def test_what_was_handled_stays_handled(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    old = harness.send(ada, "@bob")
    harness.advance(bob, 1)
    harness.send(ada, "@bob", supersedes=old.message_id)
    assert harness.state(old.message_id, "bob") is State.ACKED


def test_whoever_does_not_get_the_new_one_keeps_the_old_one(harness: BrokerHarness) -> None:
    ada, bob, cy = harness.join("ada"), harness.join("bob"), harness.join("cy")
    old = harness.send(ada, "*", "all of you")
    harness.send(ada, "@bob", "you alone", supersedes=old.message_id)
    assert (harness.bodies(bob), harness.bodies(cy)) == (["you alone"], ["all of you"])


def test_only_its_sender_takes_a_message_back(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    old = harness.send(ada, "@bob")
    for session, said in ((bob, old.message_id), (ada, MessageId("never was"))):
        refusal = harness.refused(
            c.Send(session, content=content("@ada" if session == bob else "@bob", supersedes=said))
        )
        assert refusal.code is Code.UNKNOWN_MESSAGE
    assert harness.state(old.message_id, "bob") is State.PENDING


def test_saying_it_again_supersedes_once(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    old = harness.send(ada, "@bob", "one")
    again = c.Send(ada, content=content("@bob", "two", supersedes=old.message_id), wire_id="w")
    first, second = harness.expect(Accepted, again), harness.expect(Accepted, again)
    assert (first.message_id, second.duplicate) == (second.message_id, True)
    assert harness.bodies(bob) == ["two"]


def test_discarding_says_who_and_why(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob", "old news")
    kept = harness.send(ada, "@bob", "news")
    harness.expect(Done, c.Discard(bob, ranges=((1, 1),), reason="two days old"))
    receipt = harness.receipts(ada, sent.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.EXPIRED, "discarded by bob: two days old")
    assert harness.state(kept.message_id, "bob") is State.PENDING
    harness.crash()
    assert harness.bodies(harness.attach("bob")) == ["news"]


def test_discarding_needs_a_reason_and_a_member(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    for session, reason in ((bob, ""), (bob, "x" * 5000), (harness.operator, "why")):
        assert harness.refused(c.Discard(session, ranges=((1, 1),), reason=reason)).code is Code.INVALID_REQUEST
    assert harness.bodies(bob) == ["hello"]


def test_nobody_discards_for_another(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob")
    harness.expect(Done, c.Discard(ada, ranges=((1, 1),), reason="not mine"))
    assert harness.bodies(bob) == ["hello"]

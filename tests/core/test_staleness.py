"""What is superseded or discarded is expired, with the evidence of who made it so."""

from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Expired
from tieline.contract.identifiers import MessageId
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Done


def test_a_message_takes_the_place_of_an_earlier_one(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    old = desk.send(ada, "@bob", "deploy one")
    new = desk.send(ada, "@bob", "deploy two", supersedes=old.message_id)
    assert desk.bodies(bob) == ["deploy two"]
    receipt = desk.receipts(ada, old.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.EXPIRED, f"superseded by {new.message_id}")
    assert desk.fetch(bob)[0].message.content.supersedes == old.message_id
    (event,) = [event for event in desk.events() if isinstance(event, Expired)]
    assert event.evidence == f"superseded by {new.message_id}"


def test_what_was_handled_stays_handled(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    old = desk.send(ada, "@bob")
    desk.advance(bob, 1)
    desk.send(ada, "@bob", supersedes=old.message_id)
    assert desk.state(old.message_id, "bob") is State.ACKED


def test_whoever_does_not_get_the_new_one_keeps_the_old_one(desk: Desk) -> None:
    ada, bob, cy = desk.join("ada"), desk.join("bob"), desk.join("cy")
    old = desk.send(ada, "*", "all of you")
    desk.send(ada, "@bob", "you alone", supersedes=old.message_id)
    assert (desk.bodies(bob), desk.bodies(cy)) == (["you alone"], ["all of you"])


def test_only_its_sender_takes_a_message_back(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    old = desk.send(ada, "@bob")
    for session, said in ((bob, old.message_id), (ada, MessageId("never was"))):
        refusal = desk.refused(c.Send(session, content=content("@ada" if session == bob else "@bob", supersedes=said)))
        assert refusal.code is Code.UNKNOWN_MESSAGE
    assert desk.state(old.message_id, "bob") is State.PENDING


def test_saying_it_again_supersedes_once(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    old = desk.send(ada, "@bob", "one")
    again = c.Send(ada, content=content("@bob", "two", supersedes=old.message_id), wire_id="w")
    first, second = desk.expect(Accepted, again), desk.expect(Accepted, again)
    assert (first.message_id, second.duplicate) == (second.message_id, True)
    assert desk.bodies(bob) == ["two"]


def test_discarding_says_who_and_why(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob", "old news")
    kept = desk.send(ada, "@bob", "news")
    desk.expect(Done, c.Discard(bob, ranges=((1, 1),), reason="two days old"))
    receipt = desk.receipts(ada, sent.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence) == (State.EXPIRED, "discarded by bob: two days old")
    assert desk.state(kept.message_id, "bob") is State.PENDING
    desk.crash()
    assert desk.bodies(desk.attach("bob")) == ["news"]


def test_discarding_needs_a_reason_and_a_member(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    for session, reason in ((bob, ""), (bob, "x" * 5000), (desk.operator, "why")):
        assert desk.refused(c.Discard(session, ranges=((1, 1),), reason=reason)).code is Code.INVALID_REQUEST
    assert desk.bodies(bob) == ["hello"]


def test_nobody_discards_for_another(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob")
    desk.expect(Done, c.Discard(ada, ranges=((1, 1),), reason="not mine"))
    assert desk.bodies(bob) == ["hello"]

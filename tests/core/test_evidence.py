"""Tests that a reply to a message counts as its acknowledgement, if the wire has no acknowledgements."""

from tests.core.doubles import BrokerHarness
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId
from tieline.contract.reply import Done


def test_a_reply_acknowledges_what_was_offered_on_a_wire_that_cannot(harness: BrokerHarness) -> None:
    ada, token = harness.join("ada"), harness.add("bob")
    bob = harness.attach_by_token(token, "ackless", acknowledges=False)
    first, second = harness.send(ada, "@bob", "one"), harness.send(ada, "@bob", "two")
    harness.offered(bob, 1, 2)
    harness.send(bob, "@ada", "to one", reply_to=first.message_id)
    receipt = harness.receipts(ada, first.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence, receipt.steps[-1].protocol) == (State.ACKED, "reply", "ackless")
    assert harness.state(second.message_id, "bob") is State.OFFERED


def test_a_reply_acknowledges_nothing_where_the_wire_can(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob")
    harness.offered(bob, 1)
    harness.send(bob, "@ada", reply_to=sent.message_id)
    assert harness.state(sent.message_id, "bob") is State.OFFERED


def test_a_reply_to_what_others_were_sent_or_nobody_said_changes_nothing(harness: BrokerHarness) -> None:
    ada, cy, token = harness.join("ada"), harness.join("cy"), harness.add("bob")
    bob = harness.attach_by_token(token, "ackless", acknowledges=False)
    sent = harness.send(ada, "@bob")
    harness.offered(bob, 1)
    harness.send(cy, "@ada", reply_to=sent.message_id)
    harness.send(bob, "@ada", reply_to=MessageId("unheard-of"))
    assert harness.state(sent.message_id, "bob") is State.OFFERED


def test_what_is_written_to_the_wire_of_one_who_is_no_member_moves_nothing(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    sent = harness.send(ada, "@bob")
    harness.expect(Done, c.Offered(harness.operator, first=1, last=1))
    assert harness.state(sent.message_id, "bob") is State.PENDING

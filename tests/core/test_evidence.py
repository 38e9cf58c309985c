"""A reply as evidence, where a wire cannot acknowledge."""

from tests.core.doubles import Desk
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId


def test_a_reply_acknowledges_what_was_offered_on_a_wire_that_cannot(desk: Desk) -> None:
    ada, token = desk.join("ada"), desk.add("bob")
    bob = desk.attach_by_token(token, "ackless", acknowledges=False)
    first, second = desk.send(ada, "@bob", "one"), desk.send(ada, "@bob", "two")
    desk.offered(bob, 1, 2)
    desk.send(bob, "@ada", "to one", reply_to=first.message_id)
    receipt = desk.receipts(ada, first.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence, receipt.steps[-1].protocol) == (State.ACKED, "reply", "ackless")
    assert desk.state(second.message_id, "bob") is State.OFFERED


def test_a_reply_acknowledges_nothing_where_the_wire_can(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob")
    desk.offered(bob, 1)
    desk.send(bob, "@ada", reply_to=sent.message_id)
    assert desk.state(sent.message_id, "bob") is State.OFFERED


def test_a_reply_to_what_others_were_sent_or_nobody_said_changes_nothing(desk: Desk) -> None:
    ada, cy, token = desk.join("ada"), desk.join("cy"), desk.add("bob")
    bob = desk.attach_by_token(token, "ackless", acknowledges=False)
    sent = desk.send(ada, "@bob")
    desk.offered(bob, 1)
    desk.send(cy, "@ada", reply_to=sent.message_id)
    desk.send(bob, "@ada", reply_to=MessageId("unheard-of"))
    assert desk.state(sent.message_id, "bob") is State.OFFERED

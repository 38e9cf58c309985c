"""Wire ids that all senders of a protocol share, and acknowledging by them."""

import pytest

from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Done

P = "peerbus"


def send(desk: Desk, session: SessionId, target: str, body: str, wire_id: str) -> Accepted:
    return desk.expect(Accepted, c.Send(session, content=content(target, body), wire_id=wire_id, shared_id=True))


def members(desk: Desk, *names: str) -> list[SessionId]:
    for name in names:
        desk.add(name)
    return [desk.attach(name, P) for name in names]


def acknowledge(desk: Desk, session: SessionId, *ids: str) -> None:
    desk.expect(Done, c.AcknowledgeIds(session, wire_ids=ids, evidence="ack"))


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_an_id_that_another_used_is_refused_and_the_first_message_stands(desk: Desk, how: str | None) -> None:
    ada, bob, _ = members(desk, "ada", "bob", "cy")
    send(desk, ada, "@cy", "the first", "1")
    if how is not None:
        getattr(desk, how)()
        bob = desk.attach("bob", P)
    command = c.Send(bob, content=content("@cy", "the second"), wire_id="1", shared_id=True)
    assert desk.refused(command).code is Code.WIRE_ID_REUSED
    assert desk.bodies(desk.attach("cy", P)) == ["the first"]


def test_another_within_the_same_batch_is_refused_too(desk: Desk) -> None:
    ada, bob, cy = members(desk, "ada", "bob", "cy")
    desk.ask_all(
        c.Send(ada, content=content("@cy", "the first"), wire_id="1", shared_id=True),
        c.Send(bob, content=content("@cy", "the second"), wire_id="1", shared_id=True),
    )
    assert desk.bodies(cy) == ["the first"]


def test_a_batch_finds_all_that_was_said_before(desk: Desk) -> None:
    ada, bob, _ = members(desk, "ada", "bob", "cy")
    first = send(desk, ada, "@cy", "one", "1")
    desk.send(ada, "@cy", "own", wire_id="own")
    replies = desk.ask_all(
        c.Send(ada, content=content("@cy", "one"), wire_id="1", shared_id=True),
        c.Send(bob, content=content("@cy", "new"), wire_id="2", shared_id=True),
        c.Send(ada, content=content("@cy", "own"), wire_id="own"),
        c.Send(bob, content=content("@cy", "bob's own"), wire_id="own"),
        c.Send(bob, content=content("@cy", "reused"), wire_id="2", shared_id=True),
    )
    outcomes = [reply.duplicate if isinstance(reply, Accepted) else reply.code for reply in replies]  # type: ignore[union-attr]
    assert outcomes == [True, False, True, False, Code.WIRE_ID_REUSED]
    assert isinstance(replies[0], Accepted)
    assert replies[0].message_id == first.message_id


def test_the_same_again_is_harmless(desk: Desk) -> None:
    ada, _ = members(desk, "ada", "bob")
    first = send(desk, ada, "@bob", "once", "1")
    assert send(desk, ada, "@bob", "once", "1") == Accepted(
        message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True
    )


def test_ids_of_other_protocols_are_others(desk: Desk) -> None:
    ada, _ = members(desk, "ada", "bob")
    send(desk, ada, "@bob", "here", "1")
    desk.send(desk.attach("ada", "hub"), "@bob", "there", wire_id="1")
    assert desk.bodies(desk.attach("bob", P)) == ["here", "there"]


def test_an_id_outlives_the_member_that_used_it(desk: Desk) -> None:
    ada, bob = members(desk, "ada", "bob")
    send(desk, ada, "@bob", "from the first ada", "1")
    desk.remove("ada")
    (again,) = members(desk, "ada")
    assert (
        desk.refused(c.Send(again, content=content("@bob", "x"), wire_id="1", shared_id=True)).code
        is Code.WIRE_ID_REUSED
    )
    acknowledge(desk, bob, "1")
    assert desk.fetch(bob) == ()


def test_a_delivery_is_acknowledged_by_the_id_that_its_wire_knows(desk: Desk) -> None:
    ada, bob = members(desk, "ada", "bob")
    one = send(desk, ada, "@bob", "one", "1")
    send(desk, ada, "@bob", "two", "2")
    acknowledge(desk, bob, "1")
    assert desk.bodies(bob) == ["two"]
    receipt = desk.receipts(ada, one.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence, receipt.steps[-1].protocol) == (State.ACKED, "ack", P)


def test_what_came_through_another_protocol_is_acknowledged_by_its_message_id(desk: Desk) -> None:
    _, bob = members(desk, "ada", "bob")
    accepted = desk.send(desk.attach("ada", "hub"), "@bob", "translated")
    acknowledge(desk, bob, accepted.message_id)
    assert desk.bodies(bob) == ["translated"]
    desk.expect(Done, c.AcknowledgeIds(bob, message_ids=(accepted.message_id,)))
    assert desk.fetch(bob) == ()


def test_an_unknown_a_settled_and_anothers_id_change_nothing(desk: Desk) -> None:
    ada, bob, cy = members(desk, "ada", "bob", "cy")
    for number in ("1", "2"):
        send(desk, ada, "@bob", number, number)
    acknowledge(desk, bob, "1")
    acknowledge(desk, bob, "1", "never", "")
    acknowledge(desk, cy, "2")
    acknowledge(desk, ada, "2")
    desk.expect(Done, c.AcknowledgeIds(bob, message_ids=(MessageId("2"),)))
    assert desk.bodies(bob) == ["2"]


def test_only_members_acknowledge_and_evidence_has_a_limit(desk: Desk) -> None:
    (ada,) = members(desk, "ada")
    assert desk.refused(c.AcknowledgeIds(desk.operator, wire_ids=("1",))).code is Code.INVALID_REQUEST
    assert desk.refused(c.AcknowledgeIds(SessionId("no"), wire_ids=("1",))).code is Code.UNKNOWN_SESSION
    long = "x" * (Limits().text_bytes_max + 1)
    assert desk.refused(c.AcknowledgeIds(ada, wire_ids=("1",), evidence=long)).code is Code.INVALID_REQUEST

"""Tests of wire ids that must be unique among all senders of a protocol, and of acknowledging messages by these ids."""

import pytest

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code
from tieline.contract.reply import Accepted, Done

P = "peerbus"


def send(harness: BrokerHarness, session: SessionId, target: str, body: str, wire_id: str) -> Accepted:
    return harness.expect(Accepted, c.Send(session, content=content(target, body), wire_id=wire_id, shared_id=True))


def members(harness: BrokerHarness, *names: str) -> list[SessionId]:
    for name in names:
        harness.add(name)
    return [harness.attach(name, P) for name in names]


def acknowledge(harness: BrokerHarness, session: SessionId, *ids: str) -> None:
    harness.expect(Done, c.AcknowledgeIds(session, wire_ids=ids, evidence="ack"))


@pytest.mark.parametrize("how", [None, "restart", "crash"])
def test_an_id_that_another_used_is_refused_and_the_first_message_stands(
    harness: BrokerHarness, how: str | None
) -> None:
    ada, bob, _ = members(harness, "ada", "bob", "cy")
    send(harness, ada, "@cy", "the first", "1")
    if how is not None:
        getattr(harness, how)()
        bob = harness.attach("bob", P)
    command = c.Send(bob, content=content("@cy", "the second"), wire_id="1", shared_id=True)
    assert harness.refused(command).code is Code.WIRE_ID_REUSED
    assert harness.bodies(harness.attach("cy", P)) == ["the first"]


def test_another_within_the_same_batch_is_refused_too(harness: BrokerHarness) -> None:
    ada, bob, cy = members(harness, "ada", "bob", "cy")
    harness.ask_all(
        c.Send(ada, content=content("@cy", "the first"), wire_id="1", shared_id=True),
        c.Send(bob, content=content("@cy", "the second"), wire_id="1", shared_id=True),
    )
    assert harness.bodies(cy) == ["the first"]


def test_a_batch_finds_all_that_was_said_before(harness: BrokerHarness) -> None:
    ada, bob, _ = members(harness, "ada", "bob", "cy")
    first = send(harness, ada, "@cy", "one", "1")
    harness.send(ada, "@cy", "own", wire_id="own")
    replies = harness.ask_all(
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


def test_the_same_again_is_harmless(harness: BrokerHarness) -> None:
    ada, _ = members(harness, "ada", "bob")
    first = send(harness, ada, "@bob", "once", "1")
    assert send(harness, ada, "@bob", "once", "1") == Accepted(
        message_id=first.message_id, offset=first.offset, recipients=1, duplicate=True
    )


def test_ids_of_other_protocols_are_others(harness: BrokerHarness) -> None:
    ada, _ = members(harness, "ada", "bob")
    send(harness, ada, "@bob", "here", "1")
    harness.send(harness.attach("ada", "hub"), "@bob", "there", wire_id="1")
    assert harness.bodies(harness.attach("bob", P)) == ["here", "there"]


def test_an_id_outlives_the_member_that_used_it(harness: BrokerHarness) -> None:
    ada, bob = members(harness, "ada", "bob")
    send(harness, ada, "@bob", "from the first ada", "1")
    harness.remove("ada")
    (again,) = members(harness, "ada")
    assert (
        harness.refused(c.Send(again, content=content("@bob", "x"), wire_id="1", shared_id=True)).code
        is Code.WIRE_ID_REUSED
    )
    acknowledge(harness, bob, "1")
    assert harness.fetch(bob) == ()


def test_a_delivery_is_acknowledged_by_the_id_that_its_wire_knows(harness: BrokerHarness) -> None:
    ada, bob = members(harness, "ada", "bob")
    one = send(harness, ada, "@bob", "one", "1")
    send(harness, ada, "@bob", "two", "2")
    acknowledge(harness, bob, "1")
    assert harness.bodies(bob) == ["two"]
    receipt = harness.receipts(ada, one.message_id)["bob"]
    assert (receipt.state, receipt.steps[-1].evidence, receipt.steps[-1].protocol) == (State.ACKED, "ack", P)


def test_what_came_through_another_protocol_is_acknowledged_by_its_message_id(harness: BrokerHarness) -> None:
    _, bob = members(harness, "ada", "bob")
    accepted = harness.send(harness.attach("ada", "hub"), "@bob", "translated")
    acknowledge(harness, bob, accepted.message_id)
    assert harness.bodies(bob) == ["translated"]
    harness.expect(Done, c.AcknowledgeIds(bob, message_ids=(accepted.message_id,)))
    assert harness.fetch(bob) == ()


def test_an_unknown_a_settled_and_anothers_id_change_nothing(harness: BrokerHarness) -> None:
    ada, bob, cy = members(harness, "ada", "bob", "cy")
    for number in ("1", "2"):
        send(harness, ada, "@bob", number, number)
    acknowledge(harness, bob, "1")
    acknowledge(harness, bob, "1", "never", "")
    acknowledge(harness, cy, "2")
    acknowledge(harness, ada, "2")
    harness.expect(Done, c.AcknowledgeIds(bob, message_ids=(MessageId("2"),)))
    assert harness.bodies(bob) == ["2"]


def test_only_members_acknowledge_and_evidence_has_a_limit(harness: BrokerHarness) -> None:
    (ada,) = members(harness, "ada")
    assert harness.refused(c.AcknowledgeIds(harness.operator, wire_ids=("1",))).code is Code.INVALID_REQUEST
    assert harness.refused(c.AcknowledgeIds(SessionId("no"), wire_ids=("1",))).code is Code.UNKNOWN_SESSION
    long = "x" * (Limits().text_bytes_max + 1)
    assert harness.refused(c.AcknowledgeIds(ada, wire_ids=("1",), evidence=long)).code is Code.INVALID_REQUEST

"""Tests of acknowledgements for senders that ask for them, and of ids that prevent duplicates."""

from tests.protocols.agent_relay.relays import Relay, accepting, texts
from tests.protocols.agent_relay.wire import said


async def test_who_asked_for_it_gets_an_ack_of_each_send(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    await relay.agent("bob")
    sent = await alice.send(said("hi", "bob"))
    ack = await alice.expect("ACK")
    assert ack["payload"]["ack_id"] == sent["id"]
    assert ack["payload"]["message_id"]


async def test_who_asked_for_it_gets_a_nack_of_each_refused_send(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    sent = await alice.send(said("hi", "nobody"))
    nack = await alice.expect("NACK")
    assert (nack["payload"]["ack_id"], nack["payload"]["code"]) == (sent["id"], "NOT_FOUND")


async def test_a_send_repeated_under_its_id_is_delivered_once_and_accepted_again(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    bob = await relay.agent("bob")
    sent = said("once", "bob")
    await alice.send(sent, sent)
    first, second = await alice.expect("ACK"), await alice.expect("ACK")
    assert first["payload"] == second["payload"]
    again = await relay.agent("alice", **accepting())
    await again.send(sent)
    assert (await again.expect("ACK"))["payload"] == first["payload"]
    assert texts(await bob.settled()) == ["once"]


async def test_another_send_under_a_used_id_is_a_conflict(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    sent = await alice.send(said("one", "bob"))
    await alice.send(sent | {"payload": {"body": "two"}})
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (sent["id"], "CONFLICT", False)
    assert await bob.bodies(1) == ["one"]
    await alice.silent()
    await bob.silent()


async def test_two_senders_may_use_the_same_id(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await alice.send(said("from alice", "carol", id="m-001"))
    await alice.silent()
    await bob.send(said("from bob", "carol", id="m-001"))
    assert await carol.bodies(2) == ["from alice", "from bob"]

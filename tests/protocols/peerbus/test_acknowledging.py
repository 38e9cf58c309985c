"""Tests of acks on a real hub: deliveries that an ack settles, and deliveries that it does not."""

import pytest

from tests.protocols.peerbus.evidence import receipts
from tests.protocols.peerbus.peers import (
    Bus,
    register,
)
from tieline.protocols.peerbus import codec


async def test_unacknowledged_messages_come_again_and_acknowledged_ones_do_not(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    for number in range(4):
        await alice.say("bob", number, id=f"m-{number}")
    await bob.deliveries(4)
    await bob.ack("m-0", "m-2")
    await anyhow.leave(bob)
    again = await anyhow.peer("bob")
    assert await again.texts(2) == [1, 3]
    await again.silent()


@pytest.mark.parametrize("key", ["", "never", "m-1|bob", "m-1|", "|", "x" * 10_000, "\u2028<"])
async def test_an_ack_for_an_unknown_id_is_a_graceful_no_op(hub: Bus, key: str) -> None:
    alice, bob = await hub.several("alice", "bob")
    await alice.say("bob", "x", id="m-1")
    await bob.deliveries(1)
    await bob.ack(key)
    await bob.silent()
    assert (await receipts(hub, "m-1"))["bob"][0] == "offered"


async def test_a_late_or_duplicate_ack_is_a_graceful_no_op(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "x", id="m-1")
    await bob.deliveries(1)
    await bob.ack("m-1", "m-1")
    await bob.ack("m-1")
    await bob.silent()
    assert (await receipts(anyhow, "m-1"))["bob"] == ("acked", "ack")


async def test_nobody_settles_what_is_anothers(anyhow: Bus) -> None:
    alice, bob, mallory = await anyhow.several("alice", "bob", "mallory")
    await alice.say("bob", "x", id="m-1")
    await bob.deliveries(1)
    await mallory.ack("m-1")
    await mallory.settled()
    assert (await receipts(anyhow, "m-1"))["bob"][0] == "offered"


async def test_an_ack_counts_on_the_next_connection_too(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "direct", id="m-1")
    await alice.say("*", "broadcast", id="b-1")
    await bob.deliveries(2)
    await anyhow.leave(bob)
    again = await anyhow.dial()
    await again.raw(register("bob"), codec.encode_ack("m-1"), codec.encode_ack("b-1|bob"))
    await again.expect("peers")
    await again.settled()
    again.name = "bob"
    await anyhow.leave(again)
    await (await anyhow.peer("bob")).silent()


async def test_two_deliveries_of_one_key_are_settled_one_by_one(hub: Bus) -> None:
    alice, bob = await hub.several("alice", "bob")
    await alice.say("*", "broadcast", id="m-1")
    await alice.say("bob", "forged key", id="m-1|bob")
    assert [frame["delivery_key"] for frame in await bob.deliveries(2)] == ["m-1|bob"] * 2
    await bob.ack("m-1|bob")
    await hub.leave(bob)
    again = await hub.peer("bob")
    assert await again.texts(1) == ["forged key"]

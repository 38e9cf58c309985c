"""Tests of broadcasts on a real hub: each connected peer gets one copy."""

import json

from tests.protocols.peerbus.evidence import receipts, refusals
from tests.protocols.peerbus.peers import (
    Bus,
    spliced,
)


async def test_a_broadcast_reaches_every_peer_but_the_sender(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    made = await alice.say("*", "all", id="b-1")
    for peer in (bob, carol):
        raw = await peer.receive_raw()
        assert json.loads(raw)["delivery_key"] == f"b-1|{peer.name}"
        assert spliced(raw) == made
    await alice.silent()


async def test_each_copy_is_acknowledged_on_its_own(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    await alice.say("*", "all", id="b-1")
    await bob.deliveries(1, ack=True)
    await carol.deliveries(1)
    await bob.settled()
    states = {name: state for name, (state, _) in (await receipts(anyhow, "b-1|*")).items()}
    assert states == {"bob": "acked", "carol": "offered"}


async def test_acknowledging_a_copy_by_the_envelopes_id_settles_nothing(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("*", "all", id="b-1")
    await bob.deliveries(1)
    await bob.ack("b-1")
    await anyhow.leave(bob)
    assert await (await anyhow.peer("bob")).texts(1) == ["all"]


async def test_there_is_no_backfill(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await anyhow.leave(bob)
    await alice.say("*", "missed")
    await alice.settled()
    await (await anyhow.peer("bob")).silent()
    await (await anyhow.peer("late")).silent()


async def test_a_copy_waits_for_a_peer_that_drops_later(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("*", "all")
    await bob.deliveries(1)
    await anyhow.leave(bob)
    assert await (await anyhow.peer("bob")).texts(1) == ["all"]


async def test_a_broadcast_and_a_direct_message_of_one_id_are_two_messages(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "direct", id="m-1")
    await alice.say("*", "broadcast", id="m-1")
    frames = await bob.deliveries(2, ack=True)
    assert [frame["delivery_key"] for frame in frames] == ["m-1", "m-1|bob"]
    await anyhow.leave(bob)
    await (await anyhow.peer("bob")).silent()


async def test_a_broadcast_to_nobody_is_no_error(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    await alice.say("*", "anybody?")
    await alice.silent()
    await refusals(await anyhow.operator())

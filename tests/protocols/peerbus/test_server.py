"""Tests of the peerbus server on a real hub: order, takeover of names, the list of peers, and shared tokens."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.protocols.peerbus.peers import (
    HTTP,
    LINES,
    OTHER_TOKEN,
    PORT,
    Bus,
    bus,
    envelope,
    new_id,
    register,
    spliced,
    text,
)
from tieline.protocols.peerbus import codec

# Order


async def test_per_sender_fifo(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    for number in range(100):
        await alice.say("carol" if number % 3 else "*", f"alice {number}")
        await bob.say("carol", f"bob {number}")
    heard = await carol.texts(200)
    for name in ("alice", "bob"):
        assert [one for one in heard if one.startswith(name)] == [f"{name} {number}" for number in range(100)]


async def test_what_waited_comes_sender_by_sender(anyhow: Bus) -> None:
    await anyhow.leave(await anyhow.peer("carol"))
    bob, alice = await anyhow.several("bob", "alice")
    for number in range(3):
        await bob.say("carol", f"bob {number}")
        await bob.settled()
        await alice.say("carol", f"alice {number}")
        await alice.settled()
    carol = await anyhow.peer("carol")
    expected = [f"{name} {number}" for name in ("alice", "bob") for number in range(3)]
    assert await carol.texts(6) == expected


@pytest.mark.slow
async def test_the_peers_frame_comes_before_what_waits(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await anyhow.leave(bob)
    for number in range(600):
        await alice.say("bob", number)
    await alice.settled()
    bob = await anyhow.peer("bob")
    assert await bob.texts(600) == list(range(600))


# Takeover


@pytest.mark.slow
async def test_nothing_is_lost_in_the_takeover_window(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    heard: list[Any] = []

    async def talk() -> None:
        for number in range(300):
            await alice.say("bob", number)
            if number % 10 == 0:
                await asyncio.sleep(0)
        await alice.settled()

    talking = asyncio.create_task(talk())
    for _ in range(10):
        heard += await bob.texts(5, ack=True)
        bob = await anyhow.peer("bob")
    await talking
    heard += [text(frame) for frame in await bob.settled()]
    assert sorted(set(heard)) == list(range(300))


async def test_every_carrier_is_the_same_bus(hub: Bus) -> None:
    alice = await hub.peer("alice", door=PORT)
    bob = await hub.peer("bob", door=HTTP)
    carol = await hub.peer("carol", door=LINES)
    made = await alice.say("*", "all")
    for peer in (bob, carol):
        assert spliced(await peer.receive_raw()) == made
    for door in (LINES, PORT, HTTP):
        newer = await hub.peer("bob", door=door)
        assert (await bob.closed())[0] == 1006
        bob = newer
        assert await bob.texts(1) == ["all"]


# Connected peers


async def test_peers_lists_who_is_connected_sorted_with_oneself(anyhow: Bus) -> None:
    _, alice, bob = await anyhow.several("zoe", "alice", "bob")
    await anyhow.leave(bob)
    await alice.raw(b'{"protocol_version":"v1","type":"peers","names":null}')
    assert await alice.receive() == {"protocol_version": "v1", "type": "peers", "names": ["alice", "zoe"]}


async def test_peers_counts_members_that_are_connected_through_any_protocol(hub: Bus) -> None:
    await hub.add("carol", "dan")
    await hub.join("carol")
    alice = await hub.peer("alice")
    assert await alice.peers() == ["alice", "carol"]


async def test_a_peers_reply_leaves_only_after_every_earlier_envelope_is_committed(folder: Path) -> None:
    async with bus(folder / "h", store="sqlite") as hub:
        alice, bob = await hub.several("alice", "bob")
        await hub.leave(bob)
        for number in range(50):
            await alice.say("bob", number, id=f"m-{number}")
        assert await alice.peers() == ["alice"]
        local_hub = hub.hub.local_hub
        assert local_hub is not None
        history = local_hub._broker.store
        assert history._committed_end == history._log_end  # type: ignore[attr-defined]
        operator = await hub.operator()
        assert {one.wire_id for one in await operator.history(limit=100)} == {f"m-{number}" for number in range(50)}


async def test_many_questions_at_once_are_all_answered_in_their_place(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    frames: list[bytes] = []
    for number in range(100):
        frames += [envelope("alice", "alice", number), codec.encode_peers()]
    await alice.raw(*frames)
    found = [await alice.receive() for _ in range(200)]
    said = [text(frame) for frame in found if frame["type"] == "deliver"]
    assert said == list(range(100))
    for number, frame in enumerate(frame for frame in found if frame["type"] == "peers"):
        assert frame["names"] == ["alice"], number


# Manners


async def test_messages_of_a_connection_that_ends_at_once_are_kept(hub: Bus) -> None:
    bob = await hub.peer("bob")
    for door in (PORT, LINES):
        alice = await hub.peer("alice", door=door)
        await alice.raw(*(envelope("alice", "bob", number) for number in range(20)))
        await alice.close()
        assert await bob.texts(20, ack=True) == list(range(20))


async def test_the_protocol_can_be_turned_off(folder: Path) -> None:
    async with bus(folder / "h", peerbus=False) as hub:
        assert hub.running.places["peerbus"] is None
        assert hub.running.places["peerbus_socket"] is None
        with pytest.raises(InvalidStatus):
            await hub.dial(HTTP)


async def test_a_hub_without_tokens_serves_members_alone(folder: Path) -> None:
    async with bus(folder / "h", config="[peerbus]\n") as hub:
        await hub.add("carol")
        await hub.peer("carol", hub.tokens["carol"])
        peer = await hub.dial()
        await peer.raw(register("alice"))
        assert await peer.closed() == (1008, "invalid bearer token")


async def test_sharing_a_token_is_sharing_identity_and_another_token_is_another(hub: Bus) -> None:
    alice = await hub.peer("alice")
    zoe = await hub.peer("zoe", OTHER_TOKEN)
    await zoe.say("alice", "across tokens", id=new_id())
    assert await alice.texts(1) == ["across tokens"]

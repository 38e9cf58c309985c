"""Tests of limits: beyond each, messages are dropped or the connection is closed as documented.

No accepted message is lost.
"""

import asyncio
import json

import pytest

from tests.protocols.peerbus.peers import LINES, SECRET, Bus, LinePeer, envelope, listener
from tests.server.hubs import WAIT_SECONDS
from tieline.protocols.peerbus import codec, connection
from tieline.protocols.peerbus.canonical import NESTING_MAX
from tieline.wire import stream


async def test_an_envelope_at_the_limit_of_levels_arrives_and_one_level_more_is_dropped_and_audited(
    anyhow: Bus,
) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    levels = NESTING_MAX - 1
    made = envelope("alice", "bob", raw="[" * levels + "]" * levels)
    await alice.raw(made, envelope("alice", "bob", raw='{"x":' + "[" * levels + "]" * levels + "}"))
    push = codec.decode_push(await bob.receive_raw())
    assert isinstance(push, codec.Deliver)
    assert push.envelope.raw == made
    assert push.envelope.verify(SECRET.encode())
    await alice.silent()
    await bob.silent()
    operator = await anyhow.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            rows = [json.loads(row.event) for row in (await operator.read_log("main", 0, 1000)).rows]
            if [row["code"] for row in rows if row["event"] == "refuse"] == ["invalid_message"]:
                break


@pytest.mark.slow
async def test_a_peer_may_hold_any_number_of_unacknowledged_messages(hub: Bus, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_KEYS_MAX", 100)
    alice, bob = await hub.several("alice", "bob")
    await alice.raw(*(envelope("alice", "bob", number, id=f"m-{number}") for number in range(1500)))
    assert await bob.texts(1500) == list(range(1500))
    await bob.ack(*(f"m-{number}" for number in range(1500)))
    await bob.settled()
    await hub.leave(bob)
    await (await hub.peer("bob")).silent()


async def test_keys_that_a_peer_does_not_acknowledge_are_remembered_up_to_a_limit_and_late_acks_count(
    hub: Bus,
) -> None:
    async with listener(hub) as server:
        alice, bob = await hub.several("alice", "bob")
        (peer,) = [one for one in server.connections if one.name == "bob"]
        filling = "x" * 4000
        ids = [f"{number}-{filling}" for number in range(200)]
        most = 0
        for start in range(0, len(ids), 10):
            await alice.raw(*(envelope("alice", "bob", "x", id=ident) for ident in ids[start : start + 10]))
            await bob.deliveries(10)
            most = max(most, peer._keys_characters)
            assert peer._keys_characters == sum(map(len, peer._keys)), "what is remembered is counted"
        assert 0 < most <= connection._KEYS_CHARACTERS_MAX < sum(map(len, ids))
        await bob.ack(*ids)
        await bob.settled()
        assert (peer._keys_characters, peer._keys) == (0, {})
        await hub.leave(bob)
        await (await hub.peer("bob")).silent()


async def test_a_slow_reader_keeps_nobody_waiting_and_gets_everything(hub: Bus) -> None:
    alice, bob = await hub.several("alice", "bob")
    slow = await hub.peer("slow", door=LINES)
    filling = "x" * 100_000
    for _ in range(80):
        await alice.say("slow", filling)
    await alice.settled()
    await alice.say("bob", "still served")
    assert await bob.texts(1) == ["still served"]
    assert await slow.texts(80) == [filling] * 80


async def test_a_line_peer_that_is_hung_up_on_and_does_not_read_is_dropped(
    hub: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CLOSE_SECONDS_MAX", 0.05)
    alice = await hub.peer("alice")
    slow = await hub.peer("slow", door=LINES)
    assert isinstance(slow, LinePeer)
    slow.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(20):
        await alice.say("slow", "x" * 200_000)
    await alice.settled()
    await (await hub.operator()).remove_member("slow")
    # A write fails only once the hub has let go of the socket.
    async with asyncio.timeout(WAIT_SECONDS):
        while not slow.writer.transport.is_closing():
            slow.writer.write(b" ")
            await asyncio.sleep(0.01)
    assert await alice.peers() == ["alice"]

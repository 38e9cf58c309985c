"""Tests of the event stream of an agent's messages: its first events, its limits, and its end."""

import asyncio
import json
import os
import time
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.cli.hub_process import HubProcess
from tests.protocols.backchannel.relays import Agent, Room, Stream, own_port, room
from tests.server.hubs import until
from tieline.client import connect
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config


async def test_a_stream_says_what_it_is(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    async with alice.watch() as stream:
        assert stream.status == 200
        assert stream.headers["content-type"] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-cache"


async def test_each_message_is_one_data_event_and_nothing_else(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    async with bob.watch() as stream:
        sent = await alice.send("@bob", "one\n\ndata: two\r\nthree", priority="urgent", refs=["x"])
        block = await stream.block()
    assert block.startswith("data: {")
    assert "\n" not in block
    assert json.loads(block.removeprefix("data: ")) == sent
    assert list(json.loads(block.removeprefix("data: "))) == list(sent)


async def test_all_that_is_unread_comes_first_in_order_and_then_what_is_new(lobby: Room) -> None:
    alice, bob, carol = await lobby.agents("alice", "bob", "carol")
    for number in range(6):
        await (alice, bob)[number % 2].send("@carol", str(number))
    await carol.take((await carol.inbox())[2]["id"])
    async with carol.watch() as stream:
        assert await stream.bodies(5) == ["0", "1", "3", "4", "5"]
        await alice.send("@carol", "new")
        assert await stream.bodies(1) == ["new"]


async def test_receiving_does_not_claim_so_a_crash_in_the_middle_redelivers(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    first = await alice.send("@bob", "first")
    for _ in range(2):
        async with bob.watch() as stream:
            assert await stream.next() == first
    assert await bob.inbox() == [first]
    assert await bob.take(first["id"]) == first
    second = await alice.send("@bob", "second")
    async with bob.watch() as stream:
        assert await stream.next() == second, "what was taken comes no more"


async def test_a_stream_shows_nothing_twice_however_messages_and_readers_meet(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    client = await lobby.client(alice)
    await asyncio.gather(*(client.send("@bob", str(number)) for number in range(300)))
    sending = asyncio.gather(*(client.send("@bob", str(number)) for number in range(300, 900)))
    async with bob.watch() as one, bob.watch() as other:
        await sending
        assert await one.bodies(900) == await other.bodies(900) == [str(number) for number in range(900)]
        await alice.send("@bob", "the end")
        assert await one.bodies(1) == await other.bodies(1) == ["the end"]


async def test_a_message_to_a_channel_comes_to_each_subscribers_stream(lobby: Room) -> None:
    alice, bob, carol = await lobby.agents("alice", "bob", "carol")
    for agent in (alice, bob, carol):
        await agent.post("/v1/subscribe", channel="#dev")
    async with alice.watch() as own, bob.watch() as first, carol.watch() as second:
        sent = await alice.send("#dev")
        assert await first.next() == await second.next() == sent
        to_alice = await bob.send("@alice", "only this")
        assert await own.next() == to_alice, "the sender hears nothing of what it said"


async def test_an_idle_stream_is_kept_alive_by_comments(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    async with own_port(lobby.there, keepalive_seconds=0.05) as url, Agent(url, alice.token, "alice").watch() as stream:
        assert [await stream.block() for _ in range(3)] == [": keepalive"] * 3
        sent = await alice.send("@alice")
        assert await stream.next() == sent


async def test_a_stream_is_a_session_of_its_agent_for_as_long_as_it_is_open(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    operator = await lobby.there.operator()
    async with alice.watch():
        (member,) = await operator.members()
        assert member.sessions == ("backchannel",)
    async with asyncio.timeout(10):
        while (await operator.members())[0].sessions:
            pass


async def test_what_was_written_to_a_stream_is_offered_and_what_was_taken_is_acked(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    client = await lobby.client(alice)
    sent = await client.send("@bob", "look")

    async def state() -> str:
        (receipt,) = await client.receipts(sent.id)
        return receipt.state

    assert await state() == "pending"
    async with bob.watch() as stream:
        await stream.next()
        async with asyncio.timeout(10):
            while await state() != "offered":
                pass
    await bob.take(sent.id)
    assert await state() == "acked"


async def test_a_replaced_token_ends_the_stream_and_opens_no_new_one(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    async with alice.watch() as stream:
        issued = await (await lobby.there.operator()).rotate_token("alice")
        assert await stream.end() == ": the token of alice was replaced\ncomplete"
    assert "agent token required" in await alice.refused(401, "GET", "/v1/events/alice")
    async with Agent(lobby.url, issued.token, "alice").watch() as stream:
        assert stream.status == 200


async def test_a_removed_agents_stream_ends(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    async with alice.watch() as stream:
        await (await lobby.there.operator()).remove_member("alice")
        assert "alice was removed" in await stream.end()


async def test_streams_end_at_once_when_the_hub_stops(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    async with room(folder) as made:
        alice = await made.agent("alice")
        async with alice.watch() as one, alice.watch() as other:
            started = time.monotonic()
            await made.there.hub.stop()
            assert time.monotonic() - started < 5
            for stream in (one, other):
                assert await stream.end() == ": the hub is stopping; connect again later\ncomplete"
    assert caplog.records == []


@pytest.mark.slow
async def test_a_reader_that_does_not_read_cannot_delay_the_end_of_the_hub(
    folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with room(folder) as made:
        alice = await made.agent("alice")
        client = await made.client(alice)
        stream = await Stream.open(alice, "/v1/events/alice", limit=1024)
        for _ in range(40):
            await client.send("@alice", "x" * 500_000)
        started = time.monotonic()
        with capture_logs() as logged:
            await made.there.hub.stop()
        assert time.monotonic() - started < 10
        assert logged == []
        stream.close()
    assert caplog.records == []


async def test_a_slow_reader_holds_back_nobody_but_itself_and_misses_nothing(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    client = await lobby.client(alice)
    slow = await Stream.open(bob, "/v1/events/bob", limit=1024)
    async with bob.watch() as quick:
        for number in range(100):
            await client.send("@bob", f"{number} " + "x" * 100_000)
        numbers = [str(number) for number in range(100)]
        assert [body.split()[0] for body in await quick.bodies(100)] == numbers
    assert [body.split()[0] for body in await slow.bodies(100)] == numbers
    slow.close()


def resident_bytes(pid: int) -> int:
    """Return the memory of a process that is in RAM now, in bytes."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
async def test_a_reader_that_does_not_read_costs_a_bounded_amount_of_memory() -> None:
    with HubProcess() as hub:
        url, body = hub.running.http, "x" * 50_000
        room_token = load_config(hub.home).of(BackchannelSettings).room_token
        bob = Agent(url, (await Agent(url, room_token).register("bob"))["token"], "bob")
        alice = await Agent(url, room_token).register("alice")
        async with await connect(token=alice["token"], home=hub.home) as client:
            for _ in range(50):
                await client.send("@bob", body)
            before = resident_bytes(hub.running.pid)
            streams = [await Stream.open(bob, "/v1/events/bob", limit=1024) for _ in range(4)]
            for _ in range(24):
                await asyncio.gather(*(client.send("@bob", body) for _ in range(50)))
            grown = resident_bytes(hub.running.pid) - before
        assert grown < 120 * 2**20, f"four readers, 60 MB waiting for each, and the hub grew by {grown} bytes"
        assert await streams[0].bodies(1250) == [body] * 1250
        for stream in streams:
            stream.close()
        assert len(await bob.inbox()) > 100, "all of it is still unread"
        assert hub.stop() == 0
        assert hub.stderr == ""


@pytest.mark.slow
async def test_a_hub_that_was_killed_gives_again_what_was_not_taken_and_nothing_that_was() -> None:
    with HubProcess() as hub:
        lobby = Agent(hub.running.http, load_config(hub.home).of(BackchannelSettings).room_token)
        bob = Agent(lobby.url, (await lobby.register("bob"))["token"], "bob")
        sent = [await bob.send("@bob", str(number)) for number in range(4)]
        async with bob.watch() as stream:
            assert [await stream.next() for _ in range(4)] == sent
            assert await bob.take(sent[1]["id"]) == sent[1]
            hub.kill9()
            assert await stream.end() == "cut off"
        hub.start()
        bob.url = hub.running.http
        async with bob.watch() as stream:
            assert [await stream.next() for _ in range(3)] == [sent[0], sent[2], sent[3]]
        assert await bob.take(sent[1]["id"]) is None
        for message in (sent[0], sent[2], sent[3]):
            assert await bob.take(message["id"]) == message


async def test_a_client_that_hangs_up_before_anything_was_said_leaves_nothing_behind(lobby: Room) -> None:
    alice = await lobby.agent("alice")
    for _ in range(20):
        stream = await Stream.open(alice, "/v1/events/alice")
        stream.close()
    local_hub = lobby.there.hub.local_hub
    assert local_hub is not None
    await until(lambda: not local_hub._listeners)

"""Tests of flow control: the limit of unacknowledged deliveries, BUSY, and pauses in reading from a client."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.agent_relay.relays import MIB, Relay, accepting, running, texts
from tests.protocols.agent_relay.wire import Wire, frame, framed, greeting, said
from tests.server.hubs import WAIT_SECONDS, until
from tests.wire.native.fake_hub import FakeHub
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Reply, Roster
from tieline.protocols.agent_relay.connection import RelayConnection
from tieline.protocols.agent_relay.server import RelayServer


@pytest.mark.slow
async def test_at_most_max_inflight_deliveries_are_on_the_way(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob", capabilities={"ack": True, "max_inflight": 3})
    await alice.send(*(said(str(number), "bob") for number in range(7)))
    await alice.silent()
    given = await bob.settled()
    assert texts(given) == ["0", "1", "2"]
    await bob.ack(given[0])
    await bob.ack(given[1])
    assert await bob.bodies(2) == ["3", "4"]
    await bob.silent()


async def test_acknowledging_twice_makes_room_for_one_delivery_more_and_not_for_two(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob", capabilities={"ack": True, "max_inflight": 2})
    await alice.send(*(said(str(number), "bob") for number in range(6)))
    await alice.silent()
    given = await bob.settled()
    for _ in range(3):
        await bob.ack(given[0])
    await bob.send(frame("ACK", {"ack_id": "d-999-nothing", "seq": 1}))
    assert await bob.bodies(1) == ["2"]
    await bob.silent()


@pytest.mark.slow
async def test_who_writes_to_an_agent_far_behind_is_told_that_it_is_busy(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    await alice.send(*(said(str(number), "bob") for number in range(1100)))
    busy = await alice.expect("BUSY")
    assert busy["payload"]["retry_after_ms"] > 0
    assert busy["payload"]["queue_depth"] > 1000
    again = await relay.agent("bob")
    for number in range(1100):
        delivery = await again.expect("DELIVER")
        assert delivery["payload"]["body"] == str(number)
        await again.ack(delivery)


async def test_no_more_than_the_hubs_own_limit_is_on_the_way_whatever_a_client_asks_for(folder: Path) -> None:
    async with running(folder / "h", "[limits]\nwindow_max = 5\n") as relay:
        alice = await relay.agent("alice")
        bob = await relay.agent("bob", capabilities={"ack": True, "max_inflight": 1_000_000})
        await alice.send(*(said(str(number), "bob") for number in range(7)))
        await alice.silent()
        assert texts(await bob.settled()) == ["0", "1", "2", "3", "4"]


async def test_a_message_that_fits_no_frame_of_its_recipient_is_dead_and_comes_no_more(folder: Path) -> None:
    async with running(folder / "h", "[agent_relay]\nframe_bytes_max = 20000\n") as relay:
        await relay.add("nina")
        nina, bob = await relay.join("nina"), await relay.agent("bob")
        accepted = await nina.send("@bob", "x" * 30_000)
        await nina.send("@bob", "small")
        assert await bob.bodies(1) == ["small"]
        async with asyncio.timeout(WAIT_SECONDS):
            while [one.state for one in await nina.receipts(accepted.id)] != ["dead"]:
                pass
        assert await (await relay.agent("bob")).bodies(1) == ["small"]


@pytest.mark.parametrize("kind", ["SEND", "CHANNEL_MESSAGE"])
async def test_a_message_that_would_fit_no_frame_of_its_recipients_is_refused(relay: Relay, kind: str) -> None:
    alice, bob = await relay.agent("alice", **accepting()), await relay.agent("bob")
    said_so: list[int] = []
    for spare in (*range(0, 1200, 100), 2000):
        filled = frame(kind, {"body": "", "channel": "#general"}, to="bob")
        filled["payload"]["body"] = "x" * (MIB - spare - len(json.dumps(filled)))
        await alice.send(filled)
        answer = await alice.expect("ACK", "NACK")
        if answer["type"] == "NACK":
            assert answer["payload"]["code"] == "TOO_LARGE"
            said_so.append(spare)
        else:
            heard = await bob.expect("DELIVER", "CHANNEL_MESSAGE")
            assert heard["payload"]["body"] == filled["payload"]["body"], "what is accepted arrives"
    assert said_so == list(range(0, 100 * len(said_so), 100))
    assert 0 < len(said_so) <= 6


class Counter:
    """Test helper: a relay server with a fake hub, so that the test decides when the hub answers."""

    def __init__(self, folder: Path) -> None:
        self.hub = FakeHub()
        self.server = RelayServer(self.hub, folder / "relay.sock")
        self.wires: list[Wire] = []

    async def dial(self) -> tuple[Wire, RelayConnection]:
        """Open a connection and send nothing. Return the client's end and the server's end."""
        wire = await Wire.dial(self.server.path)
        self.wires.append(wire)
        await until(lambda: len(self.server.connections) == 1)
        (connection,) = self.server.connections
        return wire, connection

    async def agent(self) -> tuple[Wire, RelayConnection]:
        """Open a session as alice. Return the client's end and the server's end of the connection."""
        wire, connection = await self.dial()
        await wire.send(greeting("alice"))
        await self.answer(c.Attach, ATTACHED)
        await wire.expect("WELCOME")
        return wire, connection

    async def answer(self, kind: type[c.Command], reply: Reply) -> None:
        """Wait until the hub gets a command of this kind, and answer it with `reply`."""
        await until(lambda: any(isinstance(commands[0], kind) for commands, _ in self.hub.open))
        (item, *_) = [item for item in self.hub.open if isinstance(item[0][0], kind)]
        self.hub.open.remove(item)
        item[1]((reply,))


ATTACHED = Attached(
    session=SessionId("s"), member=MemberName("alice"), speaker="alice", resume_id="s-1", resume_token="t-1"
)


@pytest.fixture
async def counter(folder: Path) -> AsyncIterator[Counter]:
    """Fixture: a relay server with a fake hub."""
    made = Counter(folder)
    await made.server.start()
    yield made
    await made.server.stop()
    for wire in made.wires:
        wire.writer.transport.abort()


@pytest.mark.slow
async def test_while_the_hub_opens_a_session_little_is_read_and_nothing_is_lost(counter: Counter) -> None:
    wire, connection = await counter.dial()
    many = [frame("SUBSCRIBE", {"padding": "x" * 4096}, topic=f"t-{number}") for number in range(2000)]
    sending = asyncio.create_task(wire.send(greeting("alice"), *many))
    await until(lambda: connection._deaf)
    assert len(connection._buffer._data) < MIB
    assert not sending.done()
    await counter.answer(c.Attach, ATTACHED)
    await wire.expect("WELCOME")
    await until(lambda: len(counter.hub.asked(c.Subscribe)) == 2000)
    await sending
    assert connection._deaf is False


async def test_questions_are_asked_one_at_a_time_and_what_follows_waits_its_turn(counter: Counter) -> None:
    wire, connection = await counter.agent()
    await wire.send(frame("STATUS"), frame("STATUS"), frame("SUBSCRIBE", topic="builds"))
    await until(lambda: connection._deaf)
    for asked in (1, 2):
        assert len(counter.hub.asked(c.ListMembers)) == asked
        assert counter.hub.asked(c.Subscribe) == []
        await counter.answer(c.ListMembers, Roster(()))
        assert (await wire.receive())["type"] == "STATUS_RESPONSE"
    assert len(counter.hub.asked(c.Subscribe)) == 1
    assert connection._deaf is False


async def test_a_client_that_the_hub_does_not_read_is_not_taken_for_dead(counter: Counter) -> None:
    wire, connection = await counter.agent()
    long_after = counter.server.loop.time() + 1000
    await wire.send(frame("STATUS"))
    await until(lambda: connection._deaf)
    connection.check_pulse(long_after)
    assert not connection.closed
    await counter.answer(c.ListMembers, Roster(()))
    assert (await wire.receive())["type"] == "STATUS_RESPONSE"
    connection.check_pulse(long_after + 1000)
    assert connection.closed
    await wire.ended()


async def test_a_flood_of_refused_frames_is_read_no_faster_than_it_is_written_down(counter: Counter) -> None:
    wire, connection = await counter.dial()
    flood = said("x", "bob")
    wire.writer.write(framed(json.dumps(flood).encode()) * 20_000)
    await until(lambda: connection._deaf)
    frames_in_a_chunk = 256 * 1024 // len(json.dumps(flood))
    assert len(counter.hub.asked(c.RecordRefusal)) <= counter.hub.limits.inflight_max + frames_in_a_chunk


async def test_a_client_that_still_takes_bytes_is_not_taken_for_dead(counter: Counter) -> None:
    _, connection = await counter.agent()
    long_after = counter.server.loop.time() + 1000
    # As the transport says it when its buffer is full. There was more in it before.
    connection.pause_writing()
    connection._unsent = 1
    connection.check_pulse(long_after)
    assert not connection.closed
    connection.check_pulse(long_after + 1000)
    assert connection.closed


async def test_a_client_that_was_told_goodbye_and_does_not_read_is_dropped(counter: Counter) -> None:
    wire, connection = await counter.agent()
    await wire.send(frame("STATUS"))
    await until(lambda: connection._deaf)
    # Not read from, and with more to take than it takes.
    connection.send("PADDING", {"x": "x" * 900_000})
    connection.end(Refusal(Code.TAKEN_OVER, "a newer connection took over"))
    connection.check_pulse(counter.server.loop.time() + 1000)
    await until(lambda: not counter.server.connections)

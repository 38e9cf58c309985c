"""The client on real sockets: at a hub, over a cable that is watched and cut, and at a daemon that says odd things."""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_relay.cable import Cable, cable
from tests.protocols.agent_relay.wire import Frame, Wire, frame, framed
from tests.server.hubs import WAIT_SECONDS, House, house, until
from tieline.protocols.agent_relay import client as relay_client
from tieline.protocols.agent_relay.client import (
    Backoff,
    Delivery,
    RelayClient,
    RelayClosed,
    RelayFatal,
    RelayRefused,
    RelayUnreachable,
    State,
)

QUICK = Backoff(initial_ms=10)
"""Comes back soon, so that a test need not wait."""


class Line:
    """A running hub, a cable to it, and the clients at its end."""

    def __init__(self, built: House, wire: Cable) -> None:
        self.house = built
        self.cable = wire
        self._clients: list[RelayClient] = []

    async def client(self, name: str, **options: Any) -> RelayClient:
        """Open a client at the end of the cable."""
        client = RelayClient(self.cable.path, name, **{"backoff": QUICK} | options)
        self._clients.append(client)
        await client.open()
        return client

    async def beside(self, name: str, **options: Any) -> RelayClient:
        """Open a client that reaches the hub without the cable."""
        client = RelayClient(self.cable.hub, name, **{"backoff": QUICK} | options)
        self._clients.append(client)
        await client.open()
        return client

    async def backlog(self, name: str) -> int:
        """What a member has not settled, as the hub sees it."""
        desk = await self.house.operator()
        return next(member.backlog for member in await desk.members() if member.name == name)

    async def settled(self, name: str) -> None:
        """Wait until a member has settled everything."""
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.backlog(name):
                pass

    def said(self, kind: str) -> list[Frame]:
        """Frames of a type that came from clients through the cable."""
        return [one for one in self.cable.said if one["type"] == kind]

    def heard(self, kind: str) -> list[Frame]:
        """Frames of a type that the hub sent through the cable."""
        return [one for one in self.cable.heard if one["type"] == kind]

    async def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            await client.close()


def relay_socket(built: House) -> str:
    assert built.running.relay_socket is not None
    return built.running.relay_socket


@contextlib.asynccontextmanager
async def a_line(folder: Path, configuration: str = "") -> AsyncIterator[Line]:
    home = folder / "h"
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "tieline.toml").write_text(configuration)
    async with house(home, store="sqlite:unsafe") as built, cable(folder / "c", relay_socket(built)) as wire:
        line = Line(built, wire)
        try:
            yield line
        finally:
            await line.close()


@pytest.fixture
async def line(folder: Path) -> AsyncIterator[Line]:
    async with a_line(folder) as made:
        yield made


@pytest.fixture
async def brisk(folder: Path) -> AsyncIterator[Line]:
    """A hub whose heart beats fast."""
    async with a_line(folder, "[agent_relay]\nheartbeat_ms = 250\n") as made:
        yield made


class Daemon:
    """A daemon that a test speaks for, frame by frame."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wires: asyncio.Queue[Wire] = asyncio.Queue()
        self._all: list[Wire] = []
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self._all.append(wire)
        self._wires.put_nowait(wire)

    async def accept(self) -> Wire:
        """Wait for the next connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._wires.get()

    async def welcome(self, heartbeat_ms: int = 5000, **server: int) -> Wire:
        """Wait for the next connection, and for its HELLO, and welcome it."""
        wire = await self.accept()
        await wire.expect("HELLO")
        payload = {"session_id": "s-1", "resume_token": "t-1", "server": {"heartbeat_ms": heartbeat_ms} | server}
        await wire.send(frame("WELCOME", payload))
        return wire

    async def close(self) -> None:
        """Hang up on everybody."""
        for wire in self._all:
            wire.writer.transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


@pytest.fixture
async def daemon(folder: Path) -> AsyncIterator[Daemon]:
    made = Daemon(folder / "d")
    await made.start()
    yield made
    await made.close()


@contextlib.asynccontextmanager
async def opened(daemon: Daemon, **options: Any) -> AsyncIterator[tuple[RelayClient, Wire]]:
    """A client that a daemon has welcomed, and the daemon's end of its connection."""
    heartbeat_ms = options.pop("heartbeat_ms", 5000)
    client = RelayClient(daemon.path, "alice", **{"backoff": QUICK} | options)
    opening = asyncio.create_task(client.open())
    wire = await daemon.welcome(heartbeat_ms)
    await opening
    try:
        yield client, wire
    finally:
        # It says goodbye to a daemon that does not answer.
        client._final = RelayClosed("the test is over")
        if client._link is not None:
            client._link.abort("the test is over")
        await client.close()


async def receive(client: RelayClient, count: int) -> list[Delivery]:
    """Take deliveries, and acknowledge each."""
    taken = []
    async with asyncio.timeout(WAIT_SECONDS):
        for _ in range(count):
            delivery = await client.receive()
            delivery.ack()
            taken.append(delivery)
    return taken


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.body for delivery in deliveries]


def offer(number: int, **fields: Any) -> Frame:
    """Make a DELIVER."""
    delivery = {"seq": number, "session_id": "s-1"}
    body = {"kind": "message", "body": str(number), "data": {}}
    return frame("DELIVER", body, id=f"d-{number}-m", sender="bob", to="alice", delivery=delivery) | fields


# Lifecycle


async def test_a_client_goes_through_its_states_and_says_goodbye(line: Line) -> None:
    seen: list[str] = []
    client = RelayClient(line.cable.path, "alice", on_state=lambda state, _why: seen.append(state.name))
    states = [client.state]
    async with client:
        states.append(client.state)
    states.append(client.state)
    assert states == [State.DISCONNECTED, State.READY, State.DISCONNECTED]
    assert [one["type"] for one in line.cable.said] == ["HELLO", "BYE"]
    assert line.cable.heard[-1]["type"] == "BYE"
    await until(lambda: seen == ["CONNECTING", "HANDSHAKING", "READY", "DISCONNECTED"])


async def test_hello_says_what_the_client_can_do(line: Line) -> None:
    await line.client("alice", max_inflight=7)
    (hello,) = line.said("HELLO")
    assert hello["payload"] == {
        "agent": "alice",
        "capabilities": {"ack": True, "resume": True, "accept": True, "supports_topics": True, "max_inflight": 7},
    }


async def test_a_name_that_belongs_to_a_token_is_given_to_whoever_shows_it(line: Line) -> None:
    await line.house.add("carol")
    carol = await line.client("carol", token=line.house.tokens["carol"])
    with pytest.raises(RelayFatal) as refused:
        await line.client("carol")
    assert refused.value.code == "UNAUTHORIZED"
    line.cable.cut()
    await carol.send("carol", "still me")
    assert bodies(await receive(carol, 1)) == ["still me"]
    assert len(line.said("RESUME")) == 1


async def test_a_client_that_was_closed_is_not_opened_again(line: Line) -> None:
    client = RelayClient(line.cable.path, "alice")
    await client.close()
    with pytest.raises(RelayClosed):
        await client.open()


async def test_a_client_whose_hub_is_not_there_gives_up_after_its_attempts(folder: Path) -> None:
    seen: list[str] = []
    client = RelayClient(
        folder / "nobody",
        "alice",
        backoff=Backoff(initial_ms=1, attempts_max=3),
        on_state=lambda state, _why: seen.append(state.name),
    )
    with pytest.raises(RelayUnreachable, match=r"after 3 attempts to come back.*No such file"):
        await client.open()
    with pytest.raises(RelayUnreachable):
        await client.send("bob", "hello?")
    await until(lambda: seen == [*["CONNECTING", "BACKOFF"] * 3, "CONNECTING", "DISCONNECTED"])


async def test_a_client_that_lost_its_hub_gives_up_after_its_attempts(line: Line) -> None:
    alice = await line.client("alice", backoff=Backoff(initial_ms=1, attempts_max=3))
    line.cable.unplug()
    with pytest.raises(RelayUnreachable):
        await alice.receive()
    with pytest.raises(RelayUnreachable):
        await alice.send("bob", "hello?")
    assert alice.state is State.DISCONNECTED


async def test_a_fatal_error_ends_the_client_for_good(line: Line) -> None:
    old = await line.client("alice")
    await line.client("alice")
    with pytest.raises(RelayFatal) as ended:
        await old.receive()
    assert ended.value.code == "DUPLICATE_CONNECTION"
    with pytest.raises(RelayFatal):
        await old.send("alice", "are you me?")
    assert old.state is State.DISCONNECTED
    await asyncio.sleep(0.1)
    assert line.cable.connections == 2


async def test_what_waits_when_the_client_is_closed_is_told_so(daemon: Daemon) -> None:
    async with opened(daemon) as (client, wire):
        waiting = [asyncio.ensure_future(task) for task in (client.send("bob", "hi"), client.receive())]
        await wire.expect("SEND")
        closing = asyncio.create_task(client.close())
        await wire.expect("BYE")
        await wire.close()
        await closing
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [RelayClosed, RelayClosed]
        assert [delivery async for delivery in client] == []


async def test_a_daemon_that_does_not_answer_the_handshake_is_tried_again(
    daemon: Daemon, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(relay_client, "HANDSHAKE_SECONDS", 0.05)
    client = RelayClient(daemon.path, "alice", backoff=QUICK)
    opening = asyncio.create_task(client.open())
    for _ in range(2):
        await (await daemon.accept()).expect("HELLO")
    monkeypatch.setattr(relay_client, "HANDSHAKE_SECONDS", WAIT_SECONDS)
    wire = await daemon.welcome()
    await opening
    await wire.close()
    await client.close()


async def test_a_daemon_that_sends_garbage_is_left_and_tried_again(daemon: Daemon) -> None:
    async with opened(daemon) as (client, wire):
        await wire.raw(framed(b"[]"))
        again = await daemon.accept()
        await again.expect("RESUME")
        await again.send(frame("SYNC", {"session_id": "s-1", "streams": []}))
        await until(lambda: client.state is State.READY)


# Sending


async def test_send_returns_when_the_message_is_durable(line: Line) -> None:
    alice, _bob = await line.client("alice"), await line.client("bob")
    accepted = await alice.send("bob", "hi")
    desk = await line.house.operator()
    (receipt,) = await desk.receipts(accepted.message_id)
    assert receipt.member == "bob"
    assert accepted.id == line.said("SEND")[0]["id"]


async def test_all_parts_of_a_message_arrive(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    await alice.send(
        "bob", "do it", topic="work", kind="action", data={"n": 1}, thread="t-1", ttl_ms=60_000, requires_ack=True
    )
    (delivery,) = await receive(bob, 1)
    assert (delivery.sender, delivery.body, delivery.topic, delivery.kind) == ("alice", "do it", "work", "action")
    assert (delivery.data, delivery.thread, delivery.seq) == ({"n": 1}, "t-1", 1)
    assert delivery.envelope.payload_meta == {"ttl_ms": 60_000, "requires_ack": True}


async def test_a_refused_send_raises_its_code_and_the_connection_stays(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    with pytest.raises(RelayRefused, match="NOT_FOUND") as refused:
        await alice.send("nobody", "hi")
    assert refused.value.code == "NOT_FOUND"
    await alice.send("bob", "one", wire_id="m-1")
    await alice.send("bob", "one", wire_id="m-1")
    with pytest.raises(RelayRefused) as conflict:
        await alice.send("bob", "another", wire_id="m-1")
    assert conflict.value.code == "CONFLICT"
    await alice.send("bob", "two")
    assert bodies(await receive(bob, 2)) == ["one", "two"]
    assert line.cable.connections == 2


async def test_two_sends_under_one_id_at_the_same_time_are_a_conflict(line: Line) -> None:
    alice, _bob = await line.client("alice"), await line.client("bob")
    outcomes = await asyncio.gather(
        alice.send("bob", "x", wire_id="m-1"), alice.send("bob", "x", wire_id="m-1"), return_exceptions=True
    )
    assert isinstance(outcomes[1], RelayRefused)
    assert outcomes[1].code == "CONFLICT"


async def test_what_fits_no_frame_is_refused_before_the_hub_hangs_up_on_it(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    with pytest.raises(RelayRefused) as refused:
        await alice.send("bob", "x" * 1_048_576)
    assert refused.value.code == "TOO_LARGE"
    body = "x" * (1_048_576 - 300)
    await alice.send("bob", body)
    delivery = await bob.receive()
    assert delivery.body == body
    with pytest.raises(RelayRefused, match="TOO_LARGE"):
        delivery.ack(True, "x" * 1_048_576)
    delivery.ack()
    await line.settled("bob")
    assert line.cable.connections == 2


async def test_sends_at_the_same_time_arrive_in_the_order_of_their_calls(line: Line) -> None:
    alice, bob = await line.client("alice", unanswered_max=16), await line.client("bob")
    sending = [asyncio.create_task(alice.send("bob", str(number))) for number in range(500)]
    assert bodies(await receive(bob, 500)) == [str(number) for number in range(500)]
    await asyncio.gather(*sending)


async def test_callers_wait_while_too_much_is_unanswered(daemon: Daemon) -> None:
    async with opened(daemon, unanswered_max=3) as (client, wire):
        sending = [asyncio.create_task(client.send("bob", str(number))) for number in range(5)]
        sent = [await wire.expect("SEND") for _ in range(3)]
        ping = await wire.send(frame("PING", {"nonce": 1}))
        assert (await wire.receive())["payload"] == ping["payload"], "nothing more was written"
        await wire.send(frame("ACK", {"ack_id": sent[1]["id"], "message_id": "m"}))
        assert (await wire.expect("SEND"))["payload"]["body"] == "3"
        assert [task.done() for task in sending] == [False, True, False, False, False]
        for task in sending:
            task.cancel()


async def test_a_daemon_that_does_not_read_fills_no_more_than_the_sockets(daemon: Daemon) -> None:
    async with opened(daemon, unanswered_max=1000) as (client, _wire):
        sending = [asyncio.create_task(client.send("bob", "x" * 100_000)) for _ in range(200)]
        link = client._link
        assert link is not None
        await until(lambda: not link.writable)
        assert link._transport is not None
        assert link._transport.get_write_buffer_size() < 500_000
        for task in sending:
            task.cancel()


async def test_a_send_that_is_cancelled_is_not_sent_later(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.beside("bob")
    line.cable.unplug()
    await until(lambda: alice.state is not State.READY)
    cancelled, kept = (asyncio.create_task(alice.send("bob", body)) for body in ("not this", "but this"))
    await asyncio.sleep(0)
    cancelled.cancel()
    await line.cable.plug()
    await kept
    assert bodies(await receive(bob, 1)) == ["but this"]


# BUSY


async def test_busy_pauses_sending_twice_as_long_each_time(daemon: Daemon) -> None:
    async with opened(daemon) as (client, wire):
        waits = []
        for number in range(3):
            started = time.monotonic()
            await wire.send(frame("BUSY", {"retry_after_ms": 60, "queue_depth": 1001}), frame("PING"))
            await wire.expect("PONG")
            sending = asyncio.create_task(client.send("bob", str(number)))
            sent = await wire.expect("SEND")
            waits.append(time.monotonic() - started)
            await wire.send(frame("ACK", {"ack_id": sent["id"], "message_id": "m"}))
            await sending
        assert [wait >= least for wait, least in zip(waits, (0.06, 0.12, 0.24), strict=True)] == [True] * 3, waits


async def test_a_sender_that_hears_busy_from_the_hub_gets_everything_through(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    await bob.close()
    await asyncio.gather(*(alice.send("bob", str(number)) for number in range(1300)))
    assert line.heard("BUSY")
    again = await line.client("bob")
    assert bodies(await receive(again, 1300)) == [str(number) for number in range(1300)]


# Requests


async def test_a_request_gives_the_recipients_answer(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")

    async def answer() -> None:
        async for delivery in bob:
            delivery.ack("yes", {"said": delivery.body})

    answering = asyncio.create_task(answer())
    reply = await alice.request("bob", "ready?")
    assert (reply.sender, reply.response, reply.data) == ("bob", "yes", {"said": "ready?"})
    await bob.close()
    await answering


async def test_a_recipient_that_went_on_without_an_answer_answers_that_it_is_done(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    waiting = asyncio.create_task(alice.request("bob", "ready?"))
    deliveries = aiter(bob)
    assert (await anext(deliveries)).correlation is not None
    listening = asyncio.ensure_future(anext(deliveries))
    reply = await waiting
    assert (reply.response, reply.data) == (None, None)
    await bob.close()
    await asyncio.gather(listening, return_exceptions=True)


async def test_a_request_without_an_answer_times_out(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    with pytest.raises(RelayRefused) as late:
        await alice.request("bob", "ready?", timeout_ms=50)
    assert late.value.code == "TIMEOUT"
    (delivery,) = await receive(bob, 1)
    assert delivery.body == "ready?"


async def test_a_request_to_nobody_is_refused(line: Line) -> None:
    alice = await line.client("alice")
    with pytest.raises(RelayRefused) as refused:
        await alice.request("nobody", "ready?")
    assert refused.value.code == "NOT_FOUND"


async def test_a_request_survives_the_askers_lost_connection(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.beside("bob")
    waiting = asyncio.create_task(alice.request("bob", "ready?"))
    delivery = await bob.receive()
    line.cable.cut()
    await until(lambda: len(line.said("SEND")) == 2)
    assert line.said("SEND")[0] == line.said("SEND")[1]
    await alice.ask("STATUS")
    delivery.ack("yes")
    assert (await waiting).response == "yes"


async def test_an_answer_given_without_a_connection_is_given_after_the_next_one(line: Line) -> None:
    alice, bob = await line.beside("alice"), await line.client("bob")
    waiting = asyncio.create_task(alice.request("bob", "ready?"))
    delivery = await bob.receive()
    line.cable.unplug()
    await until(lambda: bob.state is State.BACKOFF)
    delivery.ack("yes", {"n": 1})
    await line.cable.plug()
    reply = await waiting
    assert (reply.response, reply.data) == ("yes", {"n": 1})
    await line.settled("bob")


async def test_the_hub_answers_questions(line: Line) -> None:
    alice = await line.client("alice")
    assert (await alice.ask("LIST_AGENTS"))["agents"] == [{"name": "alice", "idle": False}]
    with pytest.raises(RelayRefused) as refused:
        await alice.ask("INBOX", {"agent": "bob"})
    assert refused.value.code == "FORBIDDEN"


# Receiving


async def test_a_delivery_is_acknowledged_when_the_next_one_is_asked_for(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    for number in range(3):
        await alice.send("bob", str(number))
    seen = []
    async for delivery in bob:
        seen.append((delivery.body, await line.backlog("bob")))
        if len(seen) == 3:
            break
    assert [body for body, _ in seen] == ["0", "1", "2"]
    assert [one["payload"]["ack_id"] for one in line.said("ACK")] == [one["id"] for one in line.heard("DELIVER")[:2]]
    await until(lambda: len(line.said("ACK")) == 2)
    assert await line.backlog("bob") == 1


async def test_whoever_leaves_the_loop_by_an_error_gets_the_delivery_again_in_its_next_session(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    await alice.send("bob", "delicate")

    async def fail() -> None:
        async for _ in bob:
            raise RuntimeError("the application failed")

    with pytest.raises(RuntimeError):
        await fail()
    await bob.close()
    again = await line.client("bob")
    assert bodies(await receive(again, 1)) == ["delicate"]


async def test_several_can_be_handled_at_once_and_acknowledged_in_any_order(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob", max_inflight=3)
    for number in range(5):
        await alice.send("bob", str(number))
    held = [await bob.receive() for _ in range(3)]
    await bob.ask("STATUS")
    assert not bob._deliveries
    held[2].ack()
    assert (await bob.receive()).body == "3"
    held[0].ack()
    held[0].ack()
    assert (await bob.receive()).body == "4"
    assert await line.backlog("bob") == 3


async def test_what_is_not_taken_comes_again_in_the_next_session(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    await alice.send("bob", "not now")
    (await bob.receive()).nack("BUSY", "later")
    await until(lambda: bool(line.said("NACK")))
    assert line.said("NACK")[0]["payload"]["code"] == "BUSY"
    line.cable.cut()
    assert bodies(await receive(bob, 1)) == ["not now"]
    await line.settled("bob")


async def test_a_client_that_does_not_consume_is_given_max_inflight_and_keeps_its_connection(brisk: Line) -> None:
    alice, bob = await brisk.beside("alice"), await brisk.client("bob", max_inflight=4)
    for number in range(10):
        await alice.send("bob", str(number))
    await until(lambda: len(brisk.said("PONG")) >= 3)
    assert len(brisk.heard("DELIVER")) == 4
    assert brisk.cable.connections == 1
    assert bodies(await receive(bob, 10)) == [str(number) for number in range(10)]


async def test_what_needs_no_acknowledgement_is_not_read_beyond_max_inflight_and_the_connection_lives(
    brisk: Line,
) -> None:
    alice, bob = await Wire.dial(brisk.cable.hub), await brisk.client("bob", max_inflight=4)
    await bob.subscribe("dev")
    await alice.hello("alice")
    await alice.send(frame("CHANNEL_JOIN", {"channel": "#dev"}))
    for number in range(40):
        await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": f"{number} {'x' * 100_000}"}))
    link = bob._link
    assert link is not None
    await until(lambda: not link.reading)
    beats = len(brisk.said("PONG"))
    await until(lambda: len(brisk.said("PONG")) >= beats + 10)
    assert len(bob._deliveries) < 20
    assert brisk.cable.connections == 1
    taken = await receive(bob, 40)
    assert [int(delivery.body.partition(" ")[0]) for delivery in taken] == list(range(40))
    assert [delivery.sender for delivery in taken] == ["alice"] * 40
    assert link.reading
    await alice.close()


# Heartbeats


async def test_a_ping_is_answered_by_a_pong_with_its_nonce(daemon: Daemon) -> None:
    async with opened(daemon) as (_client, wire):
        await wire.send(frame("PING", {"nonce": "n-7"}))
        assert (await wire.receive())["payload"] == {"nonce": "n-7"}


async def test_a_hub_that_is_silent_for_two_heartbeats_is_dead(daemon: Daemon) -> None:
    reasons: list[str] = []
    async with opened(daemon, heartbeat_ms=60, on_state=lambda _state, why: reasons.append(why)) as (client, wire):
        started = time.monotonic()
        assert (await wire.receive())["type"] == "PING", "it is asked first"
        again = await daemon.accept()
        assert time.monotonic() - started < 5
        await again.expect("RESUME")
        assert "the hub was silent for 120 ms" in reasons
        assert client.state is State.HANDSHAKING


async def test_an_idle_client_stays_connected(brisk: Line) -> None:
    alice = await brisk.client("alice")
    await until(lambda: len(brisk.said("PONG")) >= 3)
    assert brisk.cable.connections == 1
    assert alice.state is State.READY


# Coming back


async def test_a_client_takes_its_session_up_with_its_exact_positions(line: Line) -> None:
    bob, alice, carol = await line.client("bob"), await line.beside("alice"), await line.beside("carol")
    for topic in (None, "chat", "chat"):
        await alice.send("bob", "x", topic=topic)
    await carol.send("bob", "x", topic="chat")
    await receive(bob, 4)
    line.cable.cut()
    await until(lambda: bool(line.heard("SYNC")))
    (resume,) = line.said("RESUME")
    welcome = line.heard("WELCOME")[0]["payload"]
    assert (resume["payload"]["session_id"], resume["payload"]["agent"]) == (welcome["session_id"], "bob")
    assert resume["payload"]["resume_token"] == welcome["resume_token"]
    assert resume["payload"]["streams"] == {
        "default": {"peers": {"alice": 1}},
        "chat": {"peers": {"alice": 2, "carol": 1}},
    }
    line.cable.cut()
    await until(lambda: len(line.heard("SYNC")) == 2)
    assert line.said("RESUME")[1]["payload"]["resume_token"] == line.heard("SYNC")[0]["payload"]["resume_token"]
    assert len(line.said("HELLO")) == 1


async def test_what_came_and_what_was_sent_while_it_was_away_arrives_once_and_in_order(line: Line) -> None:
    alice, bob = await line.beside("alice"), await line.client("bob", max_inflight=8)
    for number in range(20):
        await alice.send("bob", str(number))
    first = await receive(bob, 5)
    await until(lambda: len(bob._deliveries) == 8)
    line.cable.unplug()
    await until(lambda: bob.state is State.BACKOFF)
    for number in range(20, 40):
        await alice.send("bob", str(number))
    middle = await receive(bob, 3)
    await line.cable.plug()
    last = await receive(bob, 32)
    assert bodies(first + middle + last) == [str(number) for number in range(40)]
    await line.settled("bob")
    assert not bob._deliveries


async def test_a_delivery_whose_acknowledgement_was_lost_is_not_given_again_but_acknowledged_again(line: Line) -> None:
    alice, bob = await line.beside("alice"), await line.client("bob")
    for number in range(5):
        await alice.send("bob", str(number))
    line.cable.on_said = lambda one: one["type"] != "ACK"
    await receive(bob, 5)
    await until(lambda: len(line.said("ACK")) == 5)
    assert await line.backlog("bob") == 5
    line.cable.on_said = None
    line.cable.cut()
    await line.settled("bob")
    await alice.send("bob", "next")
    assert bodies(await receive(bob, 1)) == ["next"]


async def test_a_delivery_that_the_application_holds_is_not_given_again_and_can_be_acknowledged(line: Line) -> None:
    alice, bob = await line.beside("alice"), await line.client("bob")
    await alice.send("bob", "held")
    held = await bob.receive()
    line.cable.cut()
    await until(lambda: len(line.heard("DELIVER")) == 2)
    await bob.ask("STATUS")
    assert not bob._deliveries
    held.ack()
    await line.settled("bob")


async def test_a_send_whose_answer_was_lost_is_sent_again_under_its_id_and_delivered_once(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.beside("bob")
    line.cable.on_heard = lambda one: one["type"] != "ACK"
    sending = [asyncio.create_task(alice.send("bob", str(number))) for number in range(10)]
    await until(lambda: len(line.heard("ACK")) == 10)
    line.cable.on_heard = None
    line.cable.cut()
    accepted = await asyncio.gather(*sending)
    ids = [one["id"] for one in line.said("SEND")]
    assert ids[:10] == ids[10:] == [one.id for one in accepted]
    await alice.send("bob", "last")
    assert bodies(await receive(bob, 11)) == [*map(str, range(10)), "last"]


async def test_what_is_sent_without_a_connection_goes_out_in_order_with_the_next_one(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.beside("bob")
    line.cable.unplug()
    await until(lambda: alice.state is State.BACKOFF)
    sending = [asyncio.create_task(alice.send("bob", str(number))) for number in range(50)]
    await line.cable.plug()
    await asyncio.gather(*sending)
    assert bodies(await receive(bob, 50)) == [str(number) for number in range(50)]


async def test_topics_are_subscribed_again_on_each_connection(line: Line) -> None:
    alice, bob = await line.beside("alice"), await line.client("bob")
    await bob.subscribe("builds")
    await bob.subscribe("news")
    await bob.unsubscribe("news")
    assert bob.topics == {"builds"}
    await alice.send("*", "green", topic="builds")
    await alice.send("*", "boring", topic="news")
    assert bodies(await receive(bob, 1)) == ["green"]
    before = len(line.said("SUBSCRIBE"))
    line.cable.cut()
    await until(lambda: len(line.said("SUBSCRIBE")) > before)
    assert [one["topic"] for one in line.said("SUBSCRIBE")[before:]] == ["builds"]


async def test_a_topic_that_is_refused_is_not_remembered(line: Line) -> None:
    bob = await line.client("bob")
    with pytest.raises(RelayRefused) as refused:
        await bob.subscribe("two words")
    assert refused.value.code == "BAD_REQUEST"
    assert bob.topics == set()


async def test_a_resume_that_fits_no_frame_becomes_a_hello_with_the_token(line: Line) -> None:
    alice, bob = await line.beside("alice"), await line.client("bob")
    await alice.send("bob", "held")
    held = await bob.receive()
    bob._frame_bytes_max = 300
    line.cable.cut()
    await until(lambda: len(line.heard("WELCOME")) == 2)
    first, second = (one["payload"] for one in line.heard("WELCOME"))
    assert line.said("HELLO")[1]["payload"]["session"] == {"resume_token": first["resume_token"]}
    assert second["session_id"] == first["session_id"]
    held.ack()
    await line.settled("bob")


async def test_a_client_finds_a_hub_that_was_stopped_and_started_again(folder: Path) -> None:
    states: list[str] = []
    home = folder / "h"
    async with house(home, store="sqlite:unsafe") as built:
        path = relay_socket(built)
        alice = RelayClient(path, "alice", backoff=QUICK, on_state=lambda state, _why: states.append(state.name))
        bob = RelayClient(path, "bob", backoff=QUICK)
        await alice.open()
        await bob.open()
        await bob.subscribe("builds")
        await alice.send("bob", "before")
        held = await bob.receive()
    await until(lambda: "BACKOFF" in states)
    sending = asyncio.create_task(alice.send("*", "after", topic="builds"))
    async with house(home, store="sqlite:unsafe"):
        await sending
        assert bodies(await receive(bob, 1)) == ["after"]
        held.ack()
        assert (await bob.ask("INBOX", {"unreadOnly": True}))["messages"] == []
        await alice.close()
        await bob.close()


async def test_a_session_that_the_hub_does_not_know_any_more_is_begun_anew_on_the_same_connection(folder: Path) -> None:
    path = folder / "r"
    async with house(folder / "one", store="sqlite:unsafe", relay_socket=path):
        alice, bob = RelayClient(path, "alice", backoff=QUICK), RelayClient(path, "bob", backoff=QUICK)
        await alice.open()
        await bob.open()
        await bob.subscribe("builds")
        await alice.send("bob", "old")
        assert bodies(await receive(bob, 1)) == ["old"]
    async with house(folder / "two", store="sqlite:unsafe", relay_socket=path):
        await until(lambda: alice.state is State.READY)
        await until(lambda: bob.state is State.READY)
        await bob.ask("STATUS")
        await alice.send("*", "new", topic="builds")
        (delivery,) = await receive(bob, 1)
        assert (delivery.body, delivery.seq) == ("new", 1)
        await alice.close()
        await bob.close()


async def test_stale_is_answered_by_a_fresh_hello(daemon: Daemon) -> None:
    async with opened(daemon, max_inflight=2) as (client, wire):
        await wire.send(offer(41))
        assert (await client.receive()).body == "41"
        await wire.close()
        again = await daemon.accept()
        resume = await again.expect("RESUME")
        assert resume["payload"]["streams"] == {"default": {"peers": {"bob": 41}}}
        await again.send(frame("NACK", {"code": "STALE", "message": "not kept"}))
        hello = await again.expect("HELLO")
        assert "session" not in hello["payload"]
        await again.send(frame("WELCOME", {"session_id": "s-2", "resume_token": "t-2"}))
        await again.send(offer(41), offer(42))
        assert (await client.receive()).body == "42", "41 is known"

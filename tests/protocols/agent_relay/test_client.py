"""Tests of the client on real sockets: connecting and closing, messages, requests and deliveries."""

import asyncio
from pathlib import Path

import pytest

from tests.protocols.agent_relay.lines import QUICK, Daemon, Line, bodies, opened, receive
from tests.protocols.agent_relay.wire import Wire, frame, framed
from tests.server.hubs import WAIT_SECONDS, until
from tieline.protocols.agent_relay import client as relay_client
from tieline.protocols.agent_relay.client import (
    Backoff,
    RelayClient,
    RelayClosed,
    RelayFatal,
    RelayRefused,
    RelayUnreachable,
    State,
)

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
    await line.hub.add("carol")
    carol = await line.client("carol", token=line.hub.tokens["carol"])
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
    # That nothing comes can only be seen when its time is over.
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
    operator = await line.hub.operator()
    (receipt,) = await operator.receipts(accepted.message_id)
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


@pytest.mark.slow
async def test_a_client_that_does_not_consume_is_given_max_inflight_and_keeps_its_connection(brisk_line: Line) -> None:
    alice, bob = await brisk_line.beside("alice"), await brisk_line.client("bob", max_inflight=4)
    for number in range(10):
        await alice.send("bob", str(number))
    await until(lambda: len(brisk_line.said("PONG")) >= 3)
    assert len(brisk_line.heard("DELIVER")) == 4
    assert brisk_line.cable.connections == 1
    assert bodies(await receive(bob, 10)) == [str(number) for number in range(10)]


@pytest.mark.slow
async def test_what_needs_no_acknowledgement_is_not_read_beyond_max_inflight_and_the_connection_lives(
    brisk_line: Line,
) -> None:
    alice, bob = await Wire.dial(brisk_line.cable.hub), await brisk_line.client("bob", max_inflight=4)
    await bob.subscribe("dev")
    await alice.hello("alice")
    await alice.send(frame("CHANNEL_JOIN", {"channel": "#dev"}))
    for number in range(40):
        await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": f"{number} {'x' * 100_000}"}))
    link = bob._link
    assert link is not None
    await until(lambda: not link.reading)
    beats = len(brisk_line.said("PONG"))
    await until(lambda: len(brisk_line.said("PONG")) >= beats + 10)
    assert len(bob._deliveries) < 20
    assert brisk_line.cable.connections == 1
    taken = await receive(bob, 40)
    assert [int(delivery.body.partition(" ")[0]) for delivery in taken] == list(range(40))
    assert [delivery.sender for delivery in taken] == ["alice"] * 40
    assert link.reading
    await alice.close()

"""Tests of a client that loses its connection, gets BUSY, or gets no answer."""

import asyncio
import time
from pathlib import Path

import pytest

from tests.protocols.agent_relay.lines import QUICK, Daemon, Line, bodies, offer, opened, receive, relay_socket
from tests.protocols.agent_relay.wire import frame
from tests.server.hubs import running_hub, until
from tieline.protocols.agent_relay.client import (
    RelayClient,
    RelayRefused,
    State,
)

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


@pytest.mark.slow
async def test_a_sender_that_hears_busy_from_the_hub_gets_everything_through(line: Line) -> None:
    alice, bob = await line.client("alice"), await line.client("bob")
    await bob.close()
    await asyncio.gather(*(alice.send("bob", str(number)) for number in range(1300)))
    assert line.heard("BUSY")
    again = await line.client("bob")
    assert bodies(await receive(again, 1300)) == [str(number) for number in range(1300)]


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


@pytest.mark.slow
async def test_an_idle_client_stays_connected(brisk_line: Line) -> None:
    alice = await brisk_line.client("alice")
    await until(lambda: len(brisk_line.said("PONG")) >= 3)
    assert brisk_line.cable.connections == 1
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
    async with running_hub(home, store="sqlite:unsafe") as built:
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
    async with running_hub(home, store="sqlite:unsafe"):
        await sending
        assert bodies(await receive(bob, 1)) == ["after"]
        held.ack()
        assert (await bob.ask("INBOX", {"unreadOnly": True}))["messages"] == []
        await alice.close()
        await bob.close()


async def test_a_session_that_the_hub_does_not_know_any_more_is_begun_anew_on_the_same_connection(folder: Path) -> None:
    path = folder / "r"
    async with running_hub(folder / "one", store="sqlite:unsafe", relay_socket=path):
        alice, bob = RelayClient(path, "alice", backoff=QUICK), RelayClient(path, "bob", backoff=QUICK)
        await alice.open()
        await bob.open()
        await bob.subscribe("builds")
        await alice.send("bob", "old")
        assert bodies(await receive(bob, 1)) == ["old"]
    async with running_hub(folder / "two", store="sqlite:unsafe", relay_socket=path):
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

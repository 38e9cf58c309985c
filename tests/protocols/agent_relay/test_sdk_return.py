"""Tests that the existing TypeScript client connects again after cuts, restarts and kills, and with its name in use."""

from pathlib import Path

import pytest

from tests.clients.tap import FROM_CLIENT, FROM_HUB
from tests.protocols.agent_relay.sdk import (
    Place,
    numbers,
    place,
    until_connected,
)
from tests.server.hubs import until

pytestmark = pytest.mark.slow


# Coming back


async def test_after_a_cut_the_sdk_takes_its_session_up_and_hears_what_was_said_meanwhile_once(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice"), await here.join("Bob", tap=tap)
    await alice.say("Bob", "one")
    await bob.hears("one")
    session, gone_through = await bob.call("currentSessionId"), len(bob.states)

    tap.shut()
    await tap.cut()
    await bob.reaches("BACKOFF")
    await alice.say("Bob", "two", "three")
    await tap.open()
    await bob.reaches("READY", after=gone_through)
    await alice.say("Bob", "four")

    await bob.hears("one", "two", "three", "four")
    assert await bob.call("currentSessionId") == session
    assert numbers(tap.seen(FROM_HUB, "DELIVER"))[-3:] == [2, 3, 4]
    assert tap.seen(FROM_HUB, "ERROR") == []


async def test_a_delivery_that_was_lost_with_its_connection_comes_again(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice"), await here.join("Bob", tap=tap)
    tap.hold(FROM_HUB)
    await alice.say("Bob", "one")
    await until(lambda: bool(tap.seen(FROM_HUB, "DELIVER")))
    tap.shut()
    await tap.cut()
    await tap.open()
    await bob.hears("one")
    lost, again = tap.seen(FROM_HUB, "DELIVER")
    assert (again["id"], again["delivery"]["seq"]) == (lost["id"], lost["delivery"]["seq"])


async def test_a_delivery_whose_acknowledgement_was_lost_comes_again_and_the_agent_hears_it_once(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice"), await here.join("Bob", tap=tap)
    tap.hold(FROM_CLIENT)
    await alice.say("Bob", "one")
    await bob.hears("one")
    await until(lambda: bool(tap.seen(FROM_CLIENT, "ACK")))
    gone_through = len(bob.states)
    tap.shut()
    await tap.cut()
    await tap.open()
    await bob.reaches("READY", after=gone_through)
    await until(lambda: len(tap.seen(FROM_HUB, "DELIVER")) == 2)
    await alice.say("Bob", "two")
    await bob.hears("one", "two")
    first, again, _ = tap.seen(FROM_HUB, "DELIVER")
    assert (again["id"], again["delivery"]["seq"]) == (first["id"], first["delivery"]["seq"])


async def test_after_a_kill_of_the_hub_everybody_comes_back_and_nothing_is_lost_or_doubled(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice"), await here.join("Bob", tap=tap)
    await alice.say("Bob", "one")
    await bob.hears("one")
    await bob.settled()
    session, alices, bobs = await bob.call("currentSessionId"), len(alice.states), len(bob.states)
    # On its way to Bob when the hub dies, and said to Bob while only Alice is back.
    tap.hold(FROM_HUB)
    await alice.say("Bob", "two")
    await until(lambda: len(tap.seen(FROM_HUB, "DELIVER")) == 2)
    tap.shut()
    here.hub.kill()
    await alice.reaches("BACKOFF")
    await bob.reaches("BACKOFF")
    await here.hub.start()
    await alice.reaches("READY", after=alices)
    await alice.say("Bob", "three")
    await tap.open()
    await bob.reaches("READY", after=bobs)
    await alice.say("Bob", "four")

    await bob.hears("one", "two", "three", "four")
    assert await bob.call("currentSessionId") == session
    assert [message["from"] for message in bob.messages] == ["Alice"] * 4
    await bob.say("Alice", "all there")
    await alice.hears("all there")


async def test_after_an_orderly_restart_of_the_hub_the_sdk_comes_back(here: Place) -> None:
    alice = await here.join("Alice")
    gone_through = len(alice.states)
    await here.hub.stop()
    await here.node.until(lambda: len(alice.states) > gone_through, "the end of the connection")
    assert alice.states[gone_through] == "BACKOFF"
    await here.hub.start()
    await alice.reaches("READY", after=gone_through)


async def test_a_client_that_left_can_connect_again(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await bob.call("disconnect")
    await until_connected(alice, "Alice")
    await alice.say("Bob", "one")
    # The SDK's goodbye of before goes out in front of the new HELLO; it comes back by itself after that.
    await bob.call("connect")
    await alice.say("Bob", "two")
    await bob.hears("one", "two")


async def test_an_idle_agent_answers_the_hubs_heartbeat_and_stays(folder: Path) -> None:
    async with place(folder, config="[agent_relay]\nheartbeat_ms = 200\n") as here:
        tap = await here.tap()
        alice = await here.join("Alice", tap=tap)
        await until(lambda: len(tap.seen(FROM_CLIENT, "PONG")) >= 4)
        asked, answered = tap.seen(FROM_HUB, "PING"), tap.seen(FROM_CLIENT, "PONG")
        assert [frame["payload"] for frame in answered[:4]] == [frame["payload"] for frame in asked[:4]]
        assert alice.states == ["CONNECTING", "HANDSHAKING", "READY"]


# One name, several connections


async def test_a_newer_client_takes_the_name_over_and_the_older_does_not_fight(here: Place) -> None:
    tap = await here.tap()
    alice = await here.join("Alice")
    older = await here.join("Bob", label="older", tap=tap)
    newer = await here.join("Bob", label="newer")
    # From DISCONNECTED no timer leads on; a client that comes back goes to BACKOFF.
    await older.reaches("DISCONNECTED")
    assert older.states == ["CONNECTING", "HANDSHAKING", "READY", "DISCONNECTED"]
    [error] = tap.seen(FROM_HUB, "ERROR")
    assert (error["payload"]["code"], error["payload"]["fatal"]) == ("DUPLICATE_CONNECTION", True)

    await alice.say("Bob", "which one?")
    await newer.hears("which one?")
    assert older.messages == []
    assert await newer.call("state") == "READY"


async def test_a_user_may_be_connected_twice_and_hears_everything_at_both(here: Place) -> None:
    alice = await here.join("Alice")
    laptop = await here.join("Una", label="office", entityType="user", displayName="Una")
    phone = await here.join("Una", label="phone", entityType="user", displayName="Una")
    await alice.say("Una", "dinner")
    await laptop.hears("dinner")
    await phone.hears("dinner")
    assert laptop.states == phone.states == ["CONNECTING", "HANDSHAKING", "READY"]

"""Tests of the existing TypeScript client, `@agent-relay/sdk` from npm: it sends, receives, and waits for answers.

The package is unchanged; only its `socketPath` is set. The hub is a process, the SDK runs in Node, and the test checks
its calls and messages. Where a test checks the frames, the agent connects to a tap (a recording proxy) before the hub's
socket.
"""

import asyncio
from pathlib import Path

import pytest

from tests.clients.node import Refused
from tests.clients.tap import FROM_CLIENT, FROM_HUB
from tests.protocols.agent_relay.sdk import (
    Place,
    numbers,
    place,
    until_connected,
)
from tests.protocols.agent_relay.wire import Wire, said
from tests.server.hubs import until

pytestmark = pytest.mark.slow


# Speaking


async def test_a_message_arrives_with_its_sender_and_its_number_and_is_acknowledged(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice"), await here.join("Bob", tap=tap)
    assert alice.states == ["CONNECTING", "HANDSHAKING", "READY"]

    await alice.say("Bob", "one", "zwei — ✓ 🚀\nand a second line")
    sent = await alice.call("sendMessage", "Bob", "three", "action", {"n": [1, None]}, "thread-1", {"importance": 7})
    assert sent is True

    await bob.hears("one", "zwei — ✓ 🚀\nand a second line", "three")
    assert {message["from"] for message in bob.messages} == {"Alice"}
    assert bob.messages[2]["payload"] == {
        "kind": "action",
        "body": "three",
        "data": {"n": [1, None]},
        "thread": "thread-1",
    }
    assert bob.messages[2]["meta"] == {"importance": 7}
    assert "originalTo" not in bob.messages[0]
    delivered = tap.seen(FROM_HUB, "DELIVER")
    assert numbers(delivered) == [1, 2, 3]
    assert {frame["to"] for frame in delivered} == {"Bob"}
    await bob.settled()
    acknowledged = [frame["payload"] for frame in tap.seen(FROM_CLIENT, "ACK")]
    assert acknowledged == [{"ack_id": frame["id"], "seq": frame["delivery"]["seq"]} for frame in delivered]


async def test_the_sdk_sends_objects_as_bodies_to_an_agent_and_to_a_group(here: Place) -> None:
    alice, bob, carol = [await here.join(name) for name in ("Alice", "Bob", "Carol")]
    task = {"type": "task", "steps": [1, {"two": None}]}
    assert await alice.call("sendMessage", "Bob", task) is True
    assert await alice.call("sendChannelMessage", "dm:Alice:Bob:Carol", "to both") is True
    await bob.hears(task, "to both")
    assert bob.messages[0]["payload"] == {"kind": "message", "body": task}
    await carol.hears("to both")
    [heard] = carol.channel_messages
    assert (heard["from"], heard["channel"]) == ("Alice", "dm:Alice:Bob:Carol")


async def test_many_messages_in_one_go_arrive_in_order(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    words = [f"word {number}" for number in range(500)]
    assert all(await asyncio.gather(*(alice.calling("sendMessage", "Bob", word) for word in words)))
    await bob.hears(*words)


async def test_a_message_of_nearly_a_mebibyte_arrives_whole(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    body = "0123456789" * 100_000
    await alice.say("Bob", body, "and on")
    await bob.hears(body, "and on")


async def test_a_broadcast_reaches_everybody_but_its_sender(here: Place) -> None:
    alice, bob, carol = [await here.join(name) for name in ("Alice", "Bob", "Carol")]
    assert await alice.call("broadcast", "to all", "message", {"n": 1}) is True
    for agent in (bob, carol):
        await agent.hears("to all")
        heard = agent.messages[0]
        assert (heard["from"], heard["originalTo"], heard["payload"]["data"]) == ("Alice", "*", {"n": 1})
    await bob.say("Alice", "got it")
    await alice.hears("got it")


async def test_an_agent_that_subscribed_to_a_topic_hears_it_until_it_unsubscribes(here: Place) -> None:
    bob, carol = await here.join("Bob"), await here.join("Carol")
    # The SDK subscribes to topics, and has no way of its own to speak to one.
    speaker = await Wire.dial(here.socket)
    await speaker.hello("Speaker")
    assert await bob.call("subscribe", "builds") is True
    await bob.settled()
    await speaker.send(said("green", "*", topic="builds"))
    await bob.hears("green")
    assert await bob.call("unsubscribe", "builds") is True
    await bob.settled()
    await speaker.send(said("red", "*", topic="builds"), said("end", "Bob"), said("end", "Carol"))
    await bob.hears("green", "end")
    await carol.hears("end")
    await speaker.close()


async def test_channel_messages_reach_the_members_of_the_channel(here: Place) -> None:
    alice, bob, carol = [await here.join(name) for name in ("Alice", "Bob", "Carol")]
    for agent in (alice, bob, carol):
        assert await agent.call("joinChannel", "#dev", f"{agent.label} the agent") is True
        await agent.settled()
    options = {"thread": "t-1", "mentions": ["Bob"], "data": {"n": 1}, "attachments": []}
    assert await alice.call("sendChannelMessage", "#dev", "to the channel", options) is True
    for agent in (bob, carol):
        await agent.hears("to the channel")
        [heard] = agent.channel_messages
        assert (heard["from"], heard["channel"], heard["body"]) == ("Alice", "#dev", "to the channel")
        assert heard["payload"] == {"channel": "#dev", "body": "to the channel"} | options
        # The SDK also gives it to `onMessage`, in a form of its own.
        assert agent.messages[0]["originalTo"] == "#dev"

    assert await carol.call("leaveChannel", "#dev", "enough") is True
    await carol.settled()
    await alice.call("sendChannelMessage", "#dev", "again")
    await alice.say("Carol", "end")
    await bob.hears("to the channel", "again")
    await carol.hears("to the channel", "end")
    assert alice.messages == []


async def test_channel_messages_that_were_heard_do_not_make_a_recipient_busy(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice", tap=tap), await here.join("Bob")
    words = [f"word {number}" for number in range(1100)]
    for start in range(0, len(words), 100):
        await asyncio.gather(*(alice.calling("sendChannelMessage", "#general", word) for word in words[start:][:100]))
        await bob.hears(*words[: start + 100])
    assert tap.seen(FROM_HUB, "BUSY") == []


async def test_everybody_is_in_the_general_channel_from_the_start(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.call("sendChannelMessage", "#general", "hello, all")
    await bob.hears("hello, all")
    assert bob.channel_messages[0]["channel"] == "#general"


async def test_a_message_to_an_agent_that_is_away_arrives_when_it_connects_again(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await bob.call("destroy")
    await until_connected(alice, "Alice")
    await alice.say("Bob", "one", "two")
    bob = await here.join("Bob", label="Bob, later")
    await alice.say("Bob", "three")
    await bob.hears("one", "two", "three")


async def test_a_message_to_a_name_that_nobody_has_leaves_the_connection_as_it_was(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice", tap=tap), await here.join("Bob")
    await alice.say("Nobody", "lost")
    await alice.say("Bob", "found")
    await bob.hears("found")
    [error] = tap.seen(FROM_HUB, "ERROR")
    assert (error["payload"]["code"], error["payload"]["fatal"]) == ("NOT_FOUND", False)
    assert await alice.call("state") == "READY"


async def test_an_agent_that_names_no_path_finds_the_hub_by_relay_socket(folder: Path) -> None:
    async with place(folder, RELAY_SOCKET=str(folder / "home" / "agent-relay.sock")) as here:
        alice = await here.agent("Alice", socketPath=None)
        await alice.call("connect")
        assert await alice.call("state") == "READY"


# Waiting for an answer


async def test_a_blocking_send_is_answered_by_the_other_agents_ack(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    answer = alice.calling("sendAndWait", "Bob", "may I?", {"timeoutMs": 15_000, "data": {"n": 1}})
    await bob.hears("may I?")
    [asked] = bob.messages
    sync = asked["meta"]["sync"]
    assert (sync["blocking"], sync["timeoutMs"]) == (True, 15_000)
    # The SDK acknowledged the delivery before the agent saw it; that answers nothing.
    await bob.settled()
    assert not answer.done()

    given = {"ack_id": asked["messageId"], "seq": 1, "correlationId": sync["correlationId"], "response": "OK"}
    given["responseData"] = {"until": [1, "noon"]}
    assert await bob.call("sendAck", given) is True
    async with asyncio.timeout(10):
        assert await answer == given


async def test_a_blocking_send_that_nobody_answers_times_out_and_harms_nothing(here: Place) -> None:
    tap = await here.tap()
    alice, bob = await here.join("Alice", tap=tap), await here.join("Bob")
    with pytest.raises(Refused, match="ACK timeout after 300ms"):
        await alice.call("sendAndWait", "Bob", "may I?", {"timeoutMs": 300})
    await until(lambda: bool(tap.seen(FROM_HUB, "ERROR")))
    [error] = tap.seen(FROM_HUB, "ERROR")
    assert (error["payload"]["code"], error["payload"]["fatal"]) == ("TIMEOUT", False)

    await bob.hears("may I?")
    [asked] = bob.messages
    late = {"ack_id": asked["messageId"], "seq": 1, "correlationId": asked["meta"]["sync"]["correlationId"]}
    await bob.call("sendAck", late | {"response": "too late"})
    await bob.say("Alice", "still here?")
    await alice.hears("still here?")
    assert await alice.call("state") == "READY"


async def test_a_request_is_answered_by_a_response(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    answer = alice.calling("request", "Bob", "how many?", {"timeout": 15_000, "data": {"of": "sheep"}, "thread": "t"})
    await bob.hears("how many?")
    [asked] = bob.messages
    correlation = asked["payload"]["data"]["_correlationId"]
    assert (asked["payload"]["data"]["of"], asked["payload"]["thread"]) == ("sheep", "t")
    assert asked["meta"]["replyTo"] == correlation

    assert await bob.call("respond", correlation, "Alice", "seven", {"sure": True}) is True
    async with asyncio.timeout(10):
        given = await answer
    assert (given["from"], given["body"], given["correlationId"]) == ("Bob", "seven", correlation)
    assert given["data"] == {"sure": True, "_correlationId": correlation, "_isResponse": True}


async def test_a_request_that_nobody_answers_times_out(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    with pytest.raises(Refused, match="Request timeout after 300ms waiting for response from Bob"):
        await alice.call("request", "Bob", "how many?", {"timeout": 300})
    await bob.hears("how many?")

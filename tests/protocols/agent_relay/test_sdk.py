"""The existing TypeScript client, `@agent-relay/sdk` from npm, unchanged and by its `socketPath` alone.

The hub is a process of its own, the SDK runs in Node, and what it does and hears is judged here. Where the frames
themselves matter, the agent's socket is a tap before the hub's. A test that is expected to fail says what the SDK sends
and what it waits for.
"""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.clients.node import Refused
from tests.clients.tap import FROM_CLIENT, FROM_HUB
from tests.protocols.agent_relay.sdk import (
    AgentInfo,
    Health,
    HistoryMessage,
    InboxMessage,
    Metrics,
    Place,
    Removal,
    Status,
    numbers,
    place,
    until_connected,
)
from tests.protocols.agent_relay.wire import Wire, said
from tests.server.hubs import until

pytestmark = pytest.mark.slow


def misfit(reason: str) -> pytest.MarkDecorator:
    """What the SDK expects and the hub does not do yet. A failure of another kind is a failure."""
    return pytest.mark.xfail(strict=True, raises=(AssertionError, msgspec.ValidationError), reason=reason)


@pytest.fixture
async def here(folder: Path) -> AsyncIterator[Place]:
    """A running hub and a Node process."""
    async with place(folder) as built:
        yield built


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
    desk = await here.join("Una", label="desk", entityType="user", displayName="Una")
    phone = await here.join("Una", label="phone", entityType="user", displayName="Una")
    await alice.say("Una", "dinner")
    await desk.hears("dinner")
    await phone.hears("dinner")
    assert desk.states == phone.states == ["CONNECTING", "HANDSHAKING", "READY"]


# Questions. A structure is what the SDK's own types promise: what is not optional there is required here.


async def test_the_status_of_the_hub(here: Place) -> None:
    alice, _ = await here.join("Alice"), await here.join("Bob")
    status = msgspec.convert(await alice.call("getStatus"), Status)
    assert status.agent_count == 2
    assert status.cloud_connected is False


async def test_the_agents_that_are_known_and_those_that_are_connected(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await here.join("Carol", cli="claude")
    await bob.call("destroy")
    await until_connected(alice, "Alice", "Carol")
    known = msgspec.convert(await alice.call("listAgents"), list[AgentInfo])
    assert {agent.name: agent.idle for agent in known} == {"Alice": False, "Bob": True, "Carol": False}
    present = msgspec.convert(await alice.call("listAgents", {"includeIdle": False}), list[AgentInfo])
    assert {agent.name for agent in present} == {"Alice", "Carol"}
    connected = msgspec.convert(await alice.call("listConnectedAgents"), list[AgentInfo])
    assert {agent.name: agent.idle for agent in connected} == {"Alice": False, "Carol": False}


async def test_the_list_of_agents_tells_the_program_of_each(here: Place) -> None:
    alice = await here.join("Alice", cli="claude")
    [info] = msgspec.convert(await alice.call("listAgents"), list[AgentInfo])
    assert info.cli == "claude"


async def test_the_inbox_has_what_came(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.call("sendMessage", "Bob", "one", "message", {}, "thread-1")
    await alice.say("Bob", "two")
    await bob.hears("one", "two")
    inbox = msgspec.convert(await bob.call("getInbox"), list[InboxMessage])
    assert {message.body for message in inbox} == {"one", "two"}
    assert {message.sender for message in inbox} == {"Alice"}
    assert {message.thread for message in inbox} == {"thread-1", None}


async def test_what_was_heard_is_not_unread(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.say("Bob", "direct")
    await alice.call("sendChannelMessage", "#general", "to all")
    await bob.hears("direct", "to all")
    await bob.settled()
    assert await bob.call("getInbox", {"unreadOnly": True}) == []


async def test_the_inbox_of_one_who_heard_nothing_is_empty(here: Place) -> None:
    alice = await here.join("Alice")
    assert await alice.call("getInbox", {"limit": 5, "unreadOnly": True, "from": "Bob"}) == []


async def test_past_messages_are_found_by_limit_order_thread_and_time(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.call("sendMessage", "Bob", "one", "message", {"n": 1}, "thread-1")
    await alice.say("Bob", "two", "three")
    await bob.hears("one", "two", "three")

    async def found(**options: Any) -> list[HistoryMessage]:
        return msgspec.convert(await bob.call("queryMessages", options), list[HistoryMessage])

    newest_first = await found()
    assert [message.body for message in newest_first] == ["three", "two", "one"]
    assert {message.sender for message in newest_first} == {"Alice"}
    assert newest_first[2].thread == "thread-1"
    assert [message.body for message in await found(order="asc")] == ["one", "two", "three"]
    assert [message.body for message in await found(limit=2)] == ["three", "two"]
    assert [message.body for message in await found(thread="thread-1")] == ["one"]
    assert [message.body for message in await found(sinceTs=newest_first[0].timestamp + 1)] == []


async def test_past_messages_are_found_by_sender_and_by_recipient(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.say("Bob", "question")
    await bob.hears("question")
    await bob.say("Alice", "answer")
    await alice.hears("answer")
    for options, bodies in (
        ({"from": "Alice"}, ["question"]),
        ({"from": "Bob"}, ["answer"]),
        ({"to": "Alice"}, ["answer"]),
        ({"from": "Alice", "to": "Bob"}, ["question"]),
    ):
        found = await alice.call("queryMessages", options)
        assert [message["body"] for message in found] == bodies, options


async def test_a_past_messages_recipient_is_told_by_name(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.say("Bob", "one")
    await bob.hears("one")
    [message] = msgspec.convert(await bob.call("queryMessages"), list[HistoryMessage])
    assert message.to == "Bob"


async def test_the_health_of_the_hub(here: Place) -> None:
    alice = await here.join("Alice")
    health = msgspec.convert(await alice.call("getHealth"), Health)
    assert (health.health_score, health.stats.agent_count) == (100, 1)


async def test_the_metrics_of_the_hub(here: Place) -> None:
    alice, _ = await here.join("Alice"), await here.join("Bob")
    metrics = msgspec.convert(await alice.call("getMetrics"), Metrics)
    assert {agent.name for agent in metrics.agents} == {"Alice", "Bob"}
    narrowed = msgspec.convert(await alice.call("getMetrics", {"agent": "Bob"}), Metrics)
    assert {agent.name for agent in narrowed.agents} == {"Bob"}


async def test_removing_an_agent_is_answered(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await bob.call("destroy")
    await until_connected(alice, "Alice")
    removal = msgspec.convert(await alice.call("removeAgent", "Bob"), Removal)
    assert (removal.success, removal.removed) == (False, False)
    assert removal.message == "Alice lacks the permission members.manage"


# What the SDK can do, and agents rarely need


async def test_an_agent_hears_when_another_is_ready(here: Place) -> None:
    alice = await here.join("Alice")
    ready = alice.calling("waitForAgentReady", "Bob")
    await alice.settled()
    bob = await here.join("Bob", cli="claude", task="test")
    # Who can speak is ready.
    await bob.say("Alice", "here")
    await alice.hears("here")
    assert ready.done()
    assert (ready.result()["name"], ready.result()["cli"], ready.result()["task"]) == ("Bob", "claude", "test")


async def test_a_spawn_that_is_refused_is_answered(here: Place) -> None:
    alice = await here.join("Alice")
    result = await alice.call("spawn", {"name": "Worker", "cli": "claude", "task": "x"})
    assert (result["success"], result["name"]) == (False, "Worker")
    assert "SPAWN" in result["error"]


async def test_a_release_that_is_refused_is_answered(here: Place) -> None:
    alice = await here.join("Alice")
    result = await alice.call("release", "Worker", "done")
    assert (result["success"], result["name"]) == (False, "Worker")
    assert "RELEASE" in result["error"]


@misfit(
    "CHANNEL_JOIN and CHANNEL_LEAVE with payload.member need members.manage, and are refused with ERROR FORBIDDEN: "
    "an agent of the SDK has no way to show the token of a member that may"
)
async def test_an_agent_can_bring_another_into_a_channel_and_out_of_it(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    await alice.call("joinChannel", "#dev")
    await alice.call("adminJoinChannel", "#dev", "Bob")
    await alice.call("sendChannelMessage", "#dev", "one")
    await alice.settled()
    await alice.call("adminRemoveMember", "#dev", "Bob")
    await alice.call("sendChannelMessage", "#dev", "two")
    await alice.say("Bob", "end")
    await bob.hears("one", "end")


async def test_a_channel_of_two_has_both_names_in_its_own(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    for agent in (alice, bob):
        await agent.call("joinChannel", "dm:Alice:Bob")
        await agent.settled()
    await alice.call("sendChannelMessage", "dm:Alice:Bob", "between us")
    await alice.say("Bob", "end")
    await bob.hears("between us", "end")


async def test_a_shadow_hears_what_its_primary_hears(here: Place) -> None:
    alice, bob, shadow = [await here.join(name) for name in ("Alice", "Bob", "Shadow")]
    assert await shadow.call("bindAsShadow", "Bob", {"receiveIncoming": True}) is True
    await shadow.settled()
    await alice.say("Bob", "one")
    await bob.hears("one")
    await alice.say("Shadow", "end")
    await shadow.hears("one", "end")
    assert shadow.messages[0]["payload"]["data"]["_shadowOf"] == "Bob"


async def test_what_the_hub_does_not_offer_leaves_the_connection_as_it_was(here: Place) -> None:
    alice, bob = await here.join("Alice"), await here.join("Bob")
    proposal = {"title": "t", "description": "d", "participants": ["Bob"]}
    assert await alice.call("bindAsShadow", "Bob") is True
    assert await alice.call("unbindAsShadow", "Bob") is True
    assert await alice.call("sendLog", "some output\n") is True
    assert await alice.call("createProposal", proposal) is True
    assert await alice.call("vote", {"proposalId": "p", "value": "approve"}) is True
    await alice.say("Bob", "and on")
    await bob.hears("and on")
    assert alice.states == ["CONNECTING", "HANDSHAKING", "READY"]

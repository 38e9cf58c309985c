"""Tests of requests of the existing TypeScript client (SDK) to the hub, and of features that agents rarely need.

A test that is expected to fail describes the frame that the SDK sends and the answer that it waits for.
"""

from typing import Any

import msgspec
import pytest

from tests.protocols.agent_relay.sdk import (
    AgentInfo,
    Health,
    HistoryMessage,
    InboxMessage,
    Metrics,
    Place,
    Removal,
    Status,
    until_connected,
)

pytestmark = pytest.mark.slow


def misfit(reason: str) -> pytest.MarkDecorator:
    """Return a mark for a test that fails because the hub lacks something that the SDK expects.

    Other kinds of failure, and success, fail the test.
    """
    return pytest.mark.xfail(strict=True, raises=(AssertionError, msgspec.ValidationError), reason=reason)


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


# Features of the SDK that agents rarely need


async def test_an_agent_hears_when_another_is_ready(here: Place) -> None:
    alice = await here.join("Alice")
    ready = alice.calling("waitForAgentReady", "Bob")
    await alice.settled()
    bob = await here.join("Bob", cli="claude", task="test")
    # An agent that can send is ready.
    await bob.say("Alice", "here")
    await alice.hears("here")
    assert ready.done()
    assert (ready.result()["name"], ready.result()["cli"], ready.result()["task"]) == ("Bob", "claude", "test")


async def test_a_tool_of_the_sdk_asks_hears_who_is_ready_and_is_in_no_list(here: Place) -> None:
    tool = await here.join("__status__")
    ready = tool.calling("waitForAgentReady", "Alice")
    await tool.settled()
    # An agent that does not say what it runs.
    alice = await here.join("Alice")
    await alice.say("Alice", "one", "two", "three")
    await alice.hears("one", "two", "three")
    assert (await ready)["name"] == "Alice"
    status = msgspec.convert(await tool.call("getStatus"), Status)
    assert status.agent_count == 1
    for method in ("listAgents", "listConnectedAgents"):
        found = msgspec.convert(await tool.call(method), list[AgentInfo])
        assert [agent.name for agent in found] == ["Alice"]
    assert await tool.call("getInbox") == []

    told = msgspec.convert(await alice.call("queryMessages"), list[HistoryMessage])
    query = {"order": "asc", "sinceTs": told[-1].timestamp, "limit": 2}
    oldest = msgspec.convert(await alice.call("queryMessages", query), list[HistoryMessage])
    assert [message.body for message in oldest] == ["one", "two"]


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

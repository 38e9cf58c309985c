"""Tests of the existing implementation's own tools, which send HELLO with names that no member can have."""

import pytest

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import frame, said
from tieline.contract.refusal import Code
from tieline.protocols.agent_relay import server

NAMES = ["__status__", "__cli_spawner__", "__cli_releaser__", "_DashboardUI"]


async def test_a_tool_asks_and_is_in_no_list(relay: Relay) -> None:
    bob = await relay.agent("bob")
    await bob.send(said("to myself", "bob"))
    await bob.deliveries(1)
    # One name may have several connections.
    for name, tool in [(name, await relay.agent(name)) for name in NAMES * 2]:
        assert tool.welcome["session_id"]
        status = await tool.ask("STATUS")
        assert (status["type"], status["payload"]["agentCount"]) == ("STATUS_RESPONSE", 1)
        for kind in ("LIST_AGENTS", "LIST_CONNECTED_AGENTS", "METRICS"):
            assert [one["name"] for one in (await tool.ask(kind))["payload"]["agents"]] == ["bob"]
        assert (await tool.ask("HEALTH"))["type"] == "HEALTH_RESPONSE"
        assert (await tool.ask("INBOX", {"agent": name}))["payload"] == {"messages": []}
        for kind in ("INBOX", "MESSAGES_QUERY"):
            found = (await tool.ask(kind, {"agent": "bob"}))["payload"]["messages"]
            assert [one["body"] for one in found] == ["to myself"]
        await tool.silent()
    assert [member.name for member in await (await relay.operator()).members()] == ["bob"]
    await bob.silent()
    assert bob.ready == []


@pytest.mark.parametrize("name", ["__status__", "_DashboardUI"])
async def test_a_tool_says_nothing(relay: Relay, name: str) -> None:
    bob, tool = await relay.agent("bob"), await relay.agent(name)
    for wrong in (
        said("x", "bob"),
        said("x", "bob", sender="bob"),
        said("x", "bob", sender="worker"),
        frame("CHANNEL_MESSAGE", {"channel": "#general", "body": "x"}),
        frame("SUBSCRIBE", topic="dev"),
        frame("CHANNEL_JOIN", {"channel": "#dev"}),
        frame("SHADOW_BIND", {"primaryAgent": "bob"}),
        frame("REMOVE_AGENT", {"name": "bob"}),
    ):
        await tool.send(wrong)
        error = await tool.expect("ERROR")
        assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (wrong["id"], "FORBIDDEN", False)
    assert "SEND" in [row.what for row in await relay.refusals(Code.FORBIDDEN)]
    await tool.silent()
    await bob.silent()
    lost = await bob.send(said("x", name))
    assert (await bob.expect("ERROR"))["id"] == lost["id"]


async def test_a_tool_that_starts_agents_hears_that_it_cannot_and_who_is_ready(relay: Relay) -> None:
    spawner = await relay.agent("__cli_spawner__")
    asked = await spawner.send(frame("SPAWN", {"name": "worker", "cli": "claude"}))
    assert (await spawner.expect("ERROR"))["payload"]["code"] == "INTERNAL"
    assert (await spawner.expect("SPAWN_RESULT"))["payload"]["replyTo"] == asked["id"]
    await relay.agent("worker")
    await spawner.until_ready("worker")


async def test_a_tool_resumes_nothing_and_reads_nothing_that_a_token_protects(relay: Relay) -> None:
    await relay.add("carol")
    wire = await relay.dial()
    await wire.send(frame("RESUME", {"agent": "__status__", "session_id": "s-1", "streams": {}}))
    assert (await wire.expect("NACK"))["payload"]["code"] == "STALE"
    await wire.hello("__status__", token=relay.tokens["carol"])
    for kind in ("INBOX", "MESSAGES_QUERY"):
        assert (await wire.ask(kind, {"agent": "carol"}))["payload"]["code"] == "UNAUTHORIZED"
    await wire.send(frame("HELLO", {"agent": "carol", "token": relay.tokens["carol"]}))
    assert (await wire.expect("ERROR"))["payload"]["message"] == "Unexpected HELLO"
    await wire.silent()


async def test_a_tool_that_hangs_up_in_the_middle_of_a_question_leaves_nothing_behind(relay: Relay) -> None:
    tool, bob = await relay.agent("__status__"), await relay.agent("bob")
    await tool.send(frame("INBOX", {"agent": "bob"}))
    await tool.close()
    await bob.silent()
    again = await relay.agent("__status__")
    await again.silent()


async def test_every_agent_that_opens_a_session_is_announced_to_the_others(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob")
    told = (await alice.until_ready("bob"))["payload"]
    assert isinstance(told.pop("connectedAt"), int)
    assert told == {"name": "bob"}
    await bob.silent()
    assert bob.ready == []


async def test_past_a_number_of_connections_only_agents_that_say_what_they_run_are_announced(
    relay: Relay, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_LISTENERS_MAX", 2)
    alice, _, _ = await relay.agents("alice", "bob", "carol")
    await relay.agent("dave", cli="claude")
    await alice.until_ready("dave")
    assert [one["payload"]["name"] for one in alice.ready] == ["bob", "dave"]

"""Tests of queries that clients send but the specification does not describe."""

import asyncio
import json

from tests.protocols.agent_relay.relays import MIB, Relay
from tests.protocols.agent_relay.wire import Frame, Wire, frame, said
from tests.server.hubs import WAIT_SECONDS


async def test_status_health_and_metrics_are_answered_under_the_same_id(relay: Relay) -> None:
    alice, _ = await relay.agents("alice", "bob")
    status = await alice.ask("STATUS")
    assert (status["type"], status["payload"]["agentCount"]) == ("STATUS_RESPONSE", 2)
    assert status["payload"].keys() == {"version", "uptime", "cloudConnected", "agentCount"}
    health = await alice.ask("HEALTH")
    assert (health["type"], health["payload"]["status"]) == ("HEALTH_RESPONSE", "healthy")
    metrics = await alice.ask("METRICS")
    assert metrics["type"] == "METRICS_RESPONSE"
    assert [one["name"] for one in metrics["payload"]["agents"]] == ["alice", "bob"]


async def test_agents_are_listed_and_those_connected_too(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    everybody = await alice.ask("LIST_AGENTS", {"includeIdle": True})
    assert everybody["type"] == "LIST_AGENTS_RESPONSE"
    assert everybody["payload"]["agents"] == [{"name": "alice", "idle": False}, {"name": "bob", "idle": True}]
    connected = await alice.ask("LIST_CONNECTED_AGENTS")
    assert connected["type"] == "LIST_CONNECTED_AGENTS_RESPONSE"
    assert [one["name"] for one in connected["payload"]["agents"]] == ["alice"]


async def test_an_inbox_is_read_by_its_owner_alone(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"))
    await bob.deliveries(1)
    inbox = await bob.ask("INBOX", {"agent": "bob", "limit": 10, "unreadOnly": True})
    assert inbox["type"] == "INBOX_RESPONSE"
    assert [(one["from"], one["body"]) for one in inbox["payload"]["messages"]] == [("alice", "one")]
    assert (await bob.ask("INBOX", {"from": "carol"}))["payload"]["messages"] == []
    refused = await alice.ask("INBOX", {"agent": "bob"})
    assert (refused["type"], refused["payload"]["code"], refused["payload"]["fatal"]) == ("ERROR", "FORBIDDEN", False)


async def test_past_messages_are_queried_newest_first(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await alice.send(said("one", "bob"), said("two", "bob"))
    await bob.deliveries(2)
    found = await bob.ask("MESSAGES_QUERY", {"limit": 10})
    assert found["type"] == "MESSAGES_RESPONSE"
    assert [one["body"] for one in found["payload"]["messages"]] == ["two", "one"]
    found = await bob.ask("MESSAGES_QUERY", {"from": "alice", "order": "asc"})
    assert [one["body"] for one in found["payload"]["messages"]] == ["one", "two"]
    assert (await carol.ask("MESSAGES_QUERY"))["payload"]["messages"] == []


async def test_what_the_hub_does_not_offer_is_refused_by_name(relay: Relay) -> None:
    alice = await relay.agent("alice")
    for kind in ("SPAWN", "RELEASE"):
        asked = await alice.send(frame(kind, {"name": "worker", "cli": "claude", "task": "x"}))
        refused = await alice.expect("ERROR")
        assert (refused["id"], refused["payload"]["code"]) == (asked["id"], "INTERNAL")
        assert refused["payload"]["fatal"] is False
        assert "disabled" in refused["payload"]["message"]
        # The existing client waits for this one.
        result = (await alice.expect(f"{kind}_RESULT"))["payload"]
        assert (result["replyTo"], result["success"], result["name"]) == (asked["id"], False, "worker")
    await alice.silent()


async def test_an_answer_is_never_larger_than_a_frame_may_be(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number) + "x" * (MIB // 3), "bob") for number in range(5)))
    await bob.deliveries(5)
    for kind, first in (("INBOX", "01"), ("INBOX", "43"), ("MESSAGES_QUERY", "43")):
        found = await bob.ask(kind, {"limit": 10, "unreadOnly": first == "01"})
        assert [one["body"][0] for one in found["payload"]["messages"]] == list(first)
        assert len(json.dumps(found)) <= MIB


async def test_only_who_may_manage_members_removes_an_agent(relay: Relay) -> None:
    await relay.add("boss", permissions=("members.manage",))
    alice, bob = await relay.agents("alice", "bob")
    refused = await alice.ask("REMOVE_AGENT", {"name": "bob"})
    assert refused["type"] == "REMOVE_AGENT_RESPONSE"
    assert (refused["payload"]["success"], refused["payload"]["removed"]) == (False, False)
    assert refused["payload"]["code"] == "FORBIDDEN"
    await bob.silent()
    boss = await relay.agent("boss", token=relay.tokens["boss"])
    removed = await boss.ask("REMOVE_AGENT", {"name": "bob"})
    assert removed["payload"] == {"success": True, "removed": True, "name": "bob"}
    assert (await bob.failed())["code"] == "UNAUTHORIZED"
    assert (await boss.ask("REMOVE_AGENT", {"name": "bob"}))["payload"]["code"] == "NOT_FOUND"
    assert (await boss.ask("REMOVE_AGENT"))["payload"]["code"] == "BAD_REQUEST"


async def test_the_list_of_agents_tells_what_each_said_of_itself_while_it_is_connected(relay: Relay) -> None:
    said_of_bob = {"cli": "claude", "model": "m-1", "task": "tests", "team": "red", "parent": "alice", "program": "x"}
    bob = await relay.agent("bob", **said_of_bob, displayName="Bob", avatarUrl="u", workingDirectory=["odd"])
    await relay.agent("Dashboard")
    alice = await relay.agent("alice", cli="x" * 2000, team=7)
    expected = [{"name": "alice", "idle": False}, {"name": "bob", "idle": False, "displayName": "Bob"} | said_of_bob]
    assert (await alice.ask("LIST_AGENTS"))["payload"]["agents"] == expected
    assert (await alice.ask("LIST_CONNECTED_AGENTS"))["payload"]["agents"] == expected
    await relay.leave(bob)
    assert (await alice.ask("LIST_AGENTS"))["payload"]["agents"][1] == {"name": "bob", "idle": True}


async def asked(wire: Wire, kind: str, **payload: object) -> list[str]:
    """Send a query. Return the bodies of the messages in its answer."""
    found: list[Frame] = (await wire.ask(kind, payload))["payload"]["messages"]
    return [one["body"] for one in found]


async def conversation(relay: Relay) -> list[Wire]:
    """Let alice, bob and carol send messages to each other. Return their connections."""
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    for wire in (alice, bob, carol):
        await wire.send(frame("SUBSCRIBE", topic="dev"))
        await wire.silent()
    for wire, body, to, topic in (
        (alice, "a to b", "bob", None),
        (bob, "b to a", "alice", None),
        (carol, "c to b", "bob", None),
        (alice, "a to dev", "*", "dev"),
        (bob, "b to dev", "*", "dev"),
        (alice, "a to all", "*", None),
        (alice, "a to c", "carol", None),
    ):
        await wire.send(said(body, to, topic=topic))
        await wire.settled()
    for wire in (alice, bob, carol):
        await wire.settled()
    return [alice, bob, carol]


async def test_past_messages_are_found_by_sender_and_recipient_each_alone_and_both_at_once(relay: Relay) -> None:
    alice, bob, carol = await conversation(relay)
    heard = ["a to all", "b to dev", "a to dev", "c to b", "b to a", "a to b"]
    assert await asked(bob, "MESSAGES_QUERY") == heard
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "alice"}) == ["a to all", "a to dev", "a to b"]
    assert await asked(bob, "MESSAGES_QUERY", to="bob") == ["c to b", "a to b"]
    assert await asked(bob, "MESSAGES_QUERY", to="alice") == ["b to a"]
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "alice", "to": "bob"}) == ["a to b"]
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "alice", "to": "@bob"}) == ["a to b"]
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "bob", "to": "alice"}) == ["b to a"]
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "alice", "to": "#dev"}) == ["a to dev"]
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "alice", "to": "*"}) == ["a to all"]
    assert await asked(bob, "MESSAGES_QUERY", **{"from": "alice", "to": "carol"}) == []
    assert await asked(carol, "MESSAGES_QUERY", **{"from": "alice", "to": "bob"}) == []
    assert await asked(alice, "MESSAGES_QUERY", to="carol", limit=1) == ["a to c"]


async def test_a_past_message_is_told_with_all_that_is_known_of_it(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(frame("SEND", {"body": "x", "thread": "t-1", "data": {"n": 1}}, to="bob"))
    await bob.deliveries(1)
    (found,) = (await bob.ask("MESSAGES_QUERY", {"thread": "t-1"}))["payload"]["messages"]
    assert isinstance(found.pop("timestamp"), int)
    assert found.pop("id")
    assert found == {
        "from": "alice",
        "to": "bob",
        "body": "x",
        "thread": "t-1",
        "data": {"n": 1},
        "isBroadcast": False,
    }
    assert (await bob.ask("MESSAGES_QUERY", {"thread": "t-2"}))["payload"]["messages"] == []
    assert (await bob.ask("MESSAGES_QUERY", {"sinceTs": 2**53}))["payload"]["messages"] == []


async def test_messages_from_a_time_on_are_queried_oldest_first(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    for number in range(12):
        await alice.send(said(str(number), "bob"))
        await bob.deliveries(1)
    times = {one["body"]: one["timestamp"] for one in (await bob.ask("MESSAGES_QUERY"))["payload"]["messages"]}
    assert await asked(bob, "MESSAGES_QUERY", order="asc") == list(map(str, range(12)))
    assert await asked(bob, "MESSAGES_QUERY", order="asc", limit=3) == ["0", "1", "2"]
    for start in (0, 4, 11):
        since = times[str(start)]
        expected = [body for body, time in sorted(times.items(), key=lambda one: int(one[0])) if time >= since]
        assert await asked(bob, "MESSAGES_QUERY", order="asc", sinceTs=since) == expected
        assert await asked(bob, "MESSAGES_QUERY", order="asc", sinceTs=since, limit=2) == expected[:2]
        assert await asked(bob, "MESSAGES_QUERY", sinceTs=since, limit=2) == expected[::-1][:2]
    assert await asked(bob, "MESSAGES_QUERY", order="asc", sinceTs=2**53) == []
    assert await asked(bob, "MESSAGES_QUERY", order="asc", sinceTs=1, **{"from": "bob"}) == []


async def test_few_messages_among_many_are_found_whatever_the_limit(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await carol.send(said("needle", "bob"))
    await carol.silent()
    await alice.send(*(said(str(number), "bob") for number in range(1100)))
    async with asyncio.timeout(WAIT_SECONDS):
        while (await bob.expect("DELIVER"))["payload"]["body"] != "254":
            pass
    for kind in ("MESSAGES_QUERY", "INBOX"):
        assert await asked(bob, kind, **{"from": "carol", "limit": 5}) == ["needle"]
    assert await asked(bob, "INBOX", limit=3, unreadOnly=True, **{"from": "alice"}) == ["0", "1", "2"]


async def test_an_inbox_has_what_came_and_what_of_it_is_unread(relay: Relay) -> None:
    _, bob, _ = await conversation(relay)
    heard = ["a to all", "a to dev", "c to b", "a to b"]
    assert await asked(bob, "INBOX") == heard
    assert await asked(bob, "INBOX", unreadOnly=True) == heard[::-1]
    assert await asked(bob, "INBOX", channel="#dev") == ["a to dev"]
    assert await asked(bob, "INBOX", channel="dev", **{"from": "carol"}) == []
    again = await relay.agent("bob")
    (first, *_) = await again.deliveries(4)
    await again.ack(first)
    await again.silent()
    assert await asked(again, "INBOX") == heard
    assert await asked(again, "INBOX", unreadOnly=True, limit=2) == ["c to b", "a to dev"]
    assert (await again.ask("INBOX", {"channel": "two words"}))["payload"]["code"] == "BAD_REQUEST"


async def test_what_cannot_be_acknowledged_is_read_once_it_was_given(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#general", "body": "hello"}))
    await bob.expect("CHANNEL_MESSAGE")
    assert await asked(bob, "INBOX") == ["hello"]
    assert await asked(bob, "INBOX", unreadOnly=True) == []


async def test_what_an_agent_prints_is_kept_as_its_activity(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(frame("LOG", {"data": "some output\n", "timestamp": 1734440000123}), frame("LOG", {"data": 7}))
    await alice.silent()
    operator = await relay.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        while not (rows := (await operator.read_log("activity")).rows):
            pass
    (event,) = [json.loads(row.event) for row in rows]
    assert (event["kind"], event["data"], event["ts"]) == ("log", "some output\n", 1734440000123)


async def test_health_and_metrics_have_what_the_existing_client_reads(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    health = (await alice.ask("HEALTH"))["payload"]
    assert health["stats"] == {"totalCrashes24h": 0, "totalAlerts24h": 0, "agentCount": 1}
    assert [health[key] for key in ("issues", "recommendations", "crashes", "alerts")] == [[]] * 4
    metrics = (await alice.ask("METRICS", {"agent": "bob"}))["payload"]
    assert metrics["agents"] == [{"name": "bob", "status": "away", "connected": False, "backlog": 0}]
    assert metrics["system"].keys() == {"totalMemory", "freeMemory", "heapUsed"}
    assert metrics["system"]["heapUsed"] > 0

"""Tests of clients that never send HELLO: the answers to them, and the names that they may not use."""

import asyncio
from pathlib import Path

from tests.protocols.agent_relay.mcp import Mcp
from tests.protocols.agent_relay.relays import Relay, running, texts
from tests.protocols.agent_relay.wire import Frame, frame, greeting, said
from tests.protocols.backchannel.spools import register_as_bch
from tests.server.hubs import WAIT_SECONDS, take
from tieline.contract.refusal import Code


async def members(relay: Relay) -> list[str]:
    """Return the names of all members."""
    return [member.name for member in await (await relay.operator()).members()]


async def refused(wire_frame: Frame, code: str) -> None:
    """Check that a frame is an ERROR with this code that does not end the connection."""
    assert (wire_frame["type"], wire_frame["payload"]["code"], wire_frame["payload"]["fatal"]) == ("ERROR", code, False)


async def test_the_mcp_server_asks_without_hello(relay: Relay) -> None:
    bob = await relay.agent("bob")
    for kind in ("STATUS", "LIST_AGENTS", "LIST_CONNECTED_AGENTS", "HEALTH", "METRICS"):
        answer = await Mcp(relay, "worker").request(kind)
        expected = await bob.ask(kind)
        assert answer["type"] == expected["type"] == f"{kind}_RESPONSE"
        assert answer["payload"].keys() == expected["payload"].keys()
        assert answer["payload"].get("agents") == expected["payload"].get("agents")
    assert await members(relay) == ["bob"]


async def test_the_mcp_server_sends_under_a_new_name_and_hangs_up_at_once(relay: Relay) -> None:
    bob, mcp = await relay.agent("bob"), Mcp(relay, "worker")
    assert await mcp.send("bob", "done") == []
    heard = await bob.expect("DELIVER")
    assert (heard["from"], heard["payload"]) == ("worker", {"kind": "message", "body": "done"})
    # It is a member as after HELLO: it can be answered, and take its session later.
    assert await members(relay) == ["bob", "worker"]
    await bob.send(said("thanks", "worker"))
    await bob.silent()
    assert await mcp.inbox() == ["thanks"]
    assert await (await relay.agent("worker")).bodies(1) == ["thanks"]


async def test_the_mcp_server_sends_to_a_channel_and_to_everybody(relay: Relay) -> None:
    bob, carol = await relay.agents("bob", "carol")
    await bob.send(frame("SUBSCRIBE", topic="dev"))
    await bob.silent()
    mcp = Mcp(relay, "worker")
    await mcp.send("#dev", "to the channel")
    await mcp.send("*", "to all")
    heard = await bob.deliveries(2)
    assert [one["delivery"]["originalTo"] for one in heard] == ["#dev", "*"]
    assert await carol.bodies(1) == ["to all"]


async def test_the_mcp_server_waits_for_an_answer_longer_than_a_client_may_be_silent(folder: Path) -> None:
    config = "[agent_relay]\nheartbeat_ms = 60\n[limits]\nhello_ms = 100\n"
    async with running(folder / "h", config) as relay:
        bob, mcp = await relay.agent("bob"), Mcp(relay, "worker")
        waiting = asyncio.create_task(mcp.send_and_wait("bob", "ready?"))
        delivery = await bob.expect("DELIVER")
        for _ in range(8):
            ping = await bob.expect("PING")
            await bob.send(frame("PONG", ping["payload"]))
        await bob.ack(delivery, correlationId="wait-ready?", response="yes", responseData={"n": 1})
        async with asyncio.timeout(WAIT_SECONDS):
            answer = await waiting
        assert (answer["type"], answer["from"], answer["to"]) == ("ACK", "bob", "worker")
        assert (answer["payload"]["response"], answer["payload"]["responseData"]) == ("yes", {"n": 1})


async def test_the_mcp_server_is_told_at_once_when_nobody_can_answer(relay: Relay) -> None:
    await relay.agent("bob")
    mcp = Mcp(relay, "worker")
    await refused(await mcp.send_and_wait("nobody", "there?"), "NOT_FOUND")
    late = await mcp.send_and_wait("bob", "in time?", timeout_ms=20)
    assert (late["type"], late["payload"]["code"]) == ("ERROR", "TIMEOUT")


async def test_a_reply_from_another_wire_answers_whoever_waits_without_hello(relay: Relay) -> None:
    await relay.add("nina")
    nina, worker = await relay.join("nina", receive=True), await relay.agent("worker")
    waiting = asyncio.create_task(Mcp(relay, "worker").send_and_wait("nina", "ready?"))
    (asked,) = await take(nina, 1, ack=True)
    await nina.send("@worker", "yes", reply_to=asked.message.id)
    async with asyncio.timeout(WAIT_SECONDS):
        answer = (await waiting)["payload"]
    assert (answer["response"], answer["responseData"]["body"]) == (True, "yes")
    assert await worker.bodies(1) == ["yes"]


async def test_to_look_into_an_inbox_without_hello_changes_nothing(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    await alice.send(said("one", "bob"), said("two", "bob"))
    await alice.silent()
    mcp = Mcp(relay, "bob")
    for _ in range(2):
        assert await mcp.inbox() == ["one", "two"]
        assert await mcp.inbox(unreadOnly=False) == ["two", "one"]
    history = await mcp.request("MESSAGES_QUERY", {"agent": "bob", "order": "asc"})
    assert [one["body"] for one in history["payload"]["messages"]] == ["one", "two"]
    again = await relay.agent("bob")
    first, _ = await again.deliveries(2)
    await again.ack(first)
    await again.silent()
    assert await mcp.inbox() == ["two"]


async def test_to_look_into_the_inbox_of_a_new_name_makes_no_member(relay: Relay) -> None:
    for kind in ("INBOX", "MESSAGES_QUERY"):
        for name in ("worker", "two words", "__status__", "x" * 5000):
            assert (await Mcp(relay, name).request(kind, {"agent": name}))["payload"] == {"messages": []}
        await refused(await Mcp(relay, "worker").request(kind), "BAD_REQUEST")
    assert await members(relay) == []


async def test_messages_are_queried_without_hello_under_any_name_that_the_query_has(relay: Relay) -> None:
    alice, _ = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"))
    await alice.silent()
    mcp = Mcp(relay, "worker")
    for payload, bodies in (({"from": "alice"}, ["one"]), ({"to": "bob"}, ["one"]), ({"to": "*", "from": "alice"}, [])):
        found = (await mcp.request("MESSAGES_QUERY", payload))["payload"]["messages"]
        assert [one["body"] for one in found] == bodies
    found = (await mcp.request("MESSAGES_QUERY", sender="bob"))["payload"]["messages"]
    assert [one["body"] for one in found] == ["one"]


async def test_the_mcp_server_of_an_agent_that_is_connected_does_not_disturb_it(relay: Relay) -> None:
    alice, worker = await relay.agents("alice", "worker")
    mcp = Mcp(relay, "worker")
    await mcp.send("alice", "from the tool")
    await worker.send(said("from the wrapper", "alice"))
    assert await alice.bodies(2) == ["from the tool", "from the wrapper"]
    assert await mcp.inbox() == []
    await alice.send(said("still there?", "worker"))
    assert await worker.bodies(1) == ["still there?"]
    assert await mcp.inbox() == ["still there?"]
    await worker.silent()


async def test_many_requests_on_one_connection_are_served_in_order_and_hello_after_them(relay: Relay) -> None:
    bob, wire = await relay.agent("bob"), await relay.dial()
    names = [f"worker-{number % 3}" for number in range(30)]
    sent = [said(str(number), "bob", sender=name) for number, name in enumerate(names)]
    await wire.send(*sent, frame("STATUS"), greeting("alice"), said("with a session", "bob", sender="worker-1"))
    await wire.expect("STATUS_RESPONSE")
    await wire.expect("WELCOME")
    heard = await bob.deliveries(31)
    # Once it has a session, a connection speaks under the name of its session alone.
    assert [(one["from"], one["payload"]["body"]) for one in heard] == [
        *((name, str(number)) for number, name in enumerate(names)),
        ("alice", "with a session"),
    ]
    assert [row.what for row in await relay.refusals(Code.FORBIDDEN)] == ["a frame with the name of another in `from`"]


async def test_requests_do_not_replace_hello_for_a_client_that_stays(folder: Path) -> None:
    async with running(folder / "h", "[limits]\nhello_ms = 100\n") as relay:
        wire, _ = await Mcp(relay, "worker").requesting("STATUS")
        assert (await wire.failed())["code"] == "UNAUTHORIZED"


async def test_every_other_frame_without_hello_is_refused_under_its_id(relay: Relay) -> None:
    bob = await relay.agent("bob")
    others: dict[str, Frame] = {
        "SUBSCRIBE": {"topic": "dev"},
        "CHANNEL_JOIN": {"channel": "#dev"},
        "CHANNEL_MESSAGE": {"channel": "#general", "body": "x"},
        "SHADOW_BIND": {"primaryAgent": "bob"},
        "REMOVE_AGENT": {"name": "bob"},
        "ACK": {"ack_id": "d-1-x"},
        "LOG": {"data": "x"},
        "NEVER_HEARD_OF": {},
    }
    for kind, payload in others.items():
        await refused(await Mcp(relay, "bob").request(kind, payload, sender="bob"), "BAD_REQUEST")
    assert [row.what for row in await relay.refusals(Code.INVALID_REQUEST)] == ["before HELLO"]
    await bob.silent()


async def test_an_agent_is_not_released_and_the_mcp_server_is_told_at_once(relay: Relay) -> None:
    for kind in ("SPAWN", "RELEASE"):
        await refused(await Mcp(relay, "worker").request(kind, {"name": "bob"}), "INTERNAL")


# For whom nobody may speak or look without HELLO.


async def test_without_hello_nobody_speaks_or_looks_under_a_name_that_a_token_protects(relay: Relay) -> None:
    await relay.add("carol")
    carol, bob = await relay.agent("carol", token=relay.tokens["carol"]), await relay.agent("bob")
    await bob.send(said("secret", "carol"))
    await carol.deliveries(1)
    thief = Mcp(relay, "carol")
    (error,) = await thief.send("bob", "it is me")
    await refused(error, "UNAUTHORIZED")
    await refused(await thief.send_and_wait("bob", "it is me, too"), "UNAUTHORIZED")
    for kind in ("INBOX", "MESSAGES_QUERY"):
        await refused(await thief.request(kind, {"agent": "carol"}), "UNAUTHORIZED")
    await refused(await thief.request("MESSAGES_QUERY", {"from": "carol"}), "UNAUTHORIZED")
    # A token in the frame is no HELLO.
    stolen = frame("SEND", {"body": "x", "token": relay.tokens["carol"]}, to="bob", sender="carol")
    await refused(await thief.request("SEND", stolen["payload"], to="bob", sender="carol"), "UNAUTHORIZED")
    (row, *_) = await relay.refusals(Code.NAME_TAKEN)
    assert (row.speaker, row.claimed, row.protocol) == ("", ("carol",), "agent-relay")
    await bob.silent()
    await carol.silent()


async def test_a_name_that_got_a_token_is_not_spoken_for_any_more(relay: Relay) -> None:
    bob, mcp = await relay.agent("bob"), Mcp(relay, "worker")
    await mcp.send("bob", "before")
    assert await bob.bodies(1) == ["before"]
    await (await relay.operator()).rotate_token("worker")
    (error,) = await mcp.send("bob", "after")
    await refused(error, "UNAUTHORIZED")
    await refused(await mcp.request("INBOX", {"agent": "worker"}), "UNAUTHORIZED")
    await bob.silent()


async def test_nobody_speaks_for_a_person_or_a_script_without_hello(relay: Relay) -> None:
    bob, ursula = await relay.agent("bob"), await relay.agent("ursula", entityType="user")
    await relay.agent("cron", entityType="script")
    for name in ("ursula", "cron", "ursula"):
        (error,) = await Mcp(relay, name).send("bob", "do it")
        await refused(error, "UNAUTHORIZED")
        # The next time she is away.
        await relay.leave(ursula)
    assert [row.what for row in await relay.refusals(Code.NAME_TAKEN)] == ["SEND before HELLO"]
    await bob.silent()


async def test_nobody_speaks_for_a_member_that_another_protocol_uses_without_hello(mixed: Relay) -> None:
    bob, worker = await mixed.agents("bob", "worker")
    await mixed.leave(worker)
    _, socket = await asyncio.open_unix_connection(mixed.home / "channels" / "main" / "inbox-worker.sock")
    spool = mixed.running.places["spool"]
    assert spool is not None
    register_as_bch(Path(spool), "writer")
    operator = await mixed.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        while {member.name for member in await operator.members() if member.sessions} != {"bob", "writer", "worker"}:
            pass
    mcp = Mcp(mixed, "worker")
    for one in (mcp, Mcp(mixed, "writer")):
        (error,) = await one.send("bob", "it is me")
        await refused(error, "UNAUTHORIZED")
    # Requests to read the same inbox at that moment are no sessions that said HELLO.
    reader, liar = await mixed.dial(), await mixed.dial()
    await reader.send(*(frame("INBOX", {"agent": "worker"}) for _ in range(60)))
    await liar.send(*(said("it is me", "bob", sender="worker") for _ in range(60)))
    for _ in range(60):
        await reader.expect("INBOX_RESPONSE")
        await refused(await liar.expect("ERROR"), "UNAUTHORIZED")
    await bob.silent()
    # Connected here, too, it is an agent of this protocol as well.
    await mixed.agent("worker")
    assert await mcp.send("bob", "it is me") == []
    assert await bob.bodies(1) == ["it is me"]
    socket.close()


async def test_a_name_that_no_agent_can_have_is_refused_under_the_requests_id(relay: Relay) -> None:
    bob = await relay.agent("bob")
    for name, code in (
        ("BOB", "UNAUTHORIZED"),
        ("hub", "FORBIDDEN"),
        ("users", "FORBIDDEN"),
        ("*", "BAD_REQUEST"),
        ("two words", "BAD_REQUEST"),
        ("_router", "BAD_REQUEST"),
        ("__status__", "FORBIDDEN"),
        ("_DashboardUI", "FORBIDDEN"),
        ("client-1@general", "BAD_REQUEST"),
    ):
        error = await Mcp(relay, name).request("SEND", {"body": "x"}, to="bob", sender=name)
        await refused(error, code)
    await bob.silent()
    assert await members(relay) == ["bob"]


async def test_what_could_not_be_sent_makes_no_member(relay: Relay) -> None:
    bob, mcp = await relay.agent("bob"), Mcp(relay, "worker")
    for wrong, code in (
        (frame("SEND", {}, to="bob"), "BAD_REQUEST"),
        (frame("SEND", {"body": "x"}), "BAD_REQUEST"),
        (frame("SEND", {"body": "x"}, to="_router"), "FORBIDDEN"),
    ):
        (error,) = await mcp.fire("SEND", wrong["payload"], **({"to": wrong["to"]} if "to" in wrong else {}))
        await refused(error, code)
    assert await members(relay) == ["bob"]
    assert texts(await bob.settled()) == []

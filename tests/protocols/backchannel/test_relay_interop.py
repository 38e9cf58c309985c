"""Tests of backchannel with other protocols: messages reach an agent's inbox and stream from them, and the reverse."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.backchannel.relays import Room, room
from tests.server.hubs import MIXED, take
from tieline.client import connect
from tieline.contract.message import Level, Priority
from tieline.protocols.agent_channels import ChannelClient
from tieline.wire.prefix_ids import from_prefix_id, to_prefix_id


async def relay_agent(lobby: Room, name: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect an agent over the Agent Relay Protocol. Return the reader and writer of its connection."""
    reader, writer = await asyncio.open_unix_connection(lobby.there.running.places["relay_socket"])
    say(writer, "HELLO", {"agent": name, "capabilities": {"ack": True, "max_inflight": 9}})
    await hear(reader, "WELCOME")
    return reader, writer


def say(writer: asyncio.StreamWriter, kind: str, payload: dict[str, Any], **fields: Any) -> None:
    envelope = {"v": 1, "type": kind, "id": f"{kind}-{payload.get('body', '')}", "ts": 1, "payload": payload, **fields}
    data = json.dumps(envelope).encode()
    writer.write(len(data).to_bytes(4, "big") + data)


async def hear(reader: asyncio.StreamReader, kind: str) -> dict[str, Any]:
    async with asyncio.timeout(10):
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            envelope: dict[str, Any] = json.loads(await reader.readexactly(size))
            if envelope["type"] == kind:
                return envelope


@pytest.fixture
async def lobby(folder: Path) -> AsyncIterator[Room]:
    """Fixture: a hub that speaks every protocol."""
    async with room(folder, **MIXED) as made:
        yield made


async def test_the_hubs_own_clients_reach_an_agent_with_all_that_they_say(lobby: Room) -> None:
    (bob,) = await lobby.agents("bob")
    await lobby.there.add("native")
    native = await lobby.there.join("native")
    async with bob.watch() as stream:
        accepted = await native.send(
            "@bob",
            "look at this",
            title="Build",
            level=Level.ERROR,
            data={"exit": 1},
            priority=Priority.URGENT,
            scope="org/repo",
            refs=("a.py",),
            reply_to="01a1e196-4191-7000-b105-bb65793ecebd",
        )
        message = await stream.next()
    assert list(message) == ["id", "from", "to", "body", "priority", "scope", "thread", "refs", "ts", "tieline"]
    assert message | {"ts": ""} == {
        "id": to_prefix_id(accepted.id),
        "from": "native",
        "to": "@bob",
        "body": "look at this",
        "priority": "urgent",
        "scope": "org/repo",
        "thread": to_prefix_id("01a1e196-4191-7000-b105-bb65793ecebd"),
        "refs": ["a.py"],
        "ts": "",
        "tieline": {"title": "Build", "level": "error", "data": {"exit": 1}},
    }
    assert await bob.inbox() == [message]
    assert await bob.take(accepted.id) == message
    (receipt,) = await native.receipts(accepted.id)
    assert (receipt.state, receipt.steps[-1].protocol) == ("acked", "backchannel")


async def test_an_agent_reaches_the_hubs_own_clients_with_all_that_it_says(lobby: Room) -> None:
    (alice,) = await lobby.agents("alice")
    await lobby.there.add("native")
    native = await lobby.there.join("native", receive=True)
    first = await alice.send("@native", "hello", priority="urgent", scope="org/repo", refs=["x", "y"])
    await alice.send("@native", "again", thread=first["id"])
    first_id = from_prefix_id(first["id"])
    one, two = [delivery.message for delivery in await take(native, 2, ack=True)]
    assert (one.id, one.sender, one.body, one.protocol) == (first_id, "alice", "hello", "backchannel")
    assert (one.priority, one.scope, one.refs) == ("urgent", "org/repo", ("x", "y"))
    assert (two.thread, two.reply_to) == (first_id, first_id)


async def test_one_member_on_two_protocols_has_one_inbox_and_each_message_is_handled_once(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    native = lobby.there.keep(await connect(token=bob.token, home=lobby.there.home, receive=True))
    async with bob.watch() as stream:
        sent = await alice.send("@bob")
        (delivery,) = await take(native, 1)
        assert await stream.next() == sent
        native.ack(delivery)
        await native.members()
    assert await bob.take(sent["id"]) is None
    assert await bob.inbox() == []


async def test_a_message_to_everybody_is_one_to_everybodys_channel(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    await lobby.there.add("native")
    native = await lobby.there.join("native", receive=True)
    await native.send("*", "all of you")
    assert [(message["from"], message["to"]) for message in await bob.inbox()] == [("native", "#general")]
    sent = await alice.send("#general", "and you")
    assert [delivery.message.id for delivery in await take(native, 1)] == [from_prefix_id(sent["id"])]


async def test_what_is_written_to_an_inbox_socket_is_unread_here_and_its_sender_is_not_taken_for_a_member(
    lobby: Room,
) -> None:
    (bob,) = await lobby.agents("bob")
    folder = lobby.there.running.places["channels_dir"]
    assert folder is not None
    async with bob.watch() as stream, ChannelClient(f"{folder}/inbox-bob.sock") as client:
        client.send({"msg": "from a socket", "data": {"from": "alice", "n": 1}})
        await client.drain()
        message = await stream.next()
    assert message["from"].endswith("@inbox-bob")
    assert (message["to"], message["body"]) == ("@bob", "from a socket")
    assert message["tieline"]["verified"] is False
    assert message["tieline"]["data"]["n"] == 1
    assert await bob.inbox() == [message]


async def test_what_an_agent_says_in_a_channel_is_heard_on_its_socket(lobby: Room) -> None:
    alice, bob = await lobby.agents("alice", "bob")
    await bob.post("/v1/subscribe", channel="#dev")
    folder = lobby.there.running.places["channels_dir"]
    assert folder is not None
    async with ChannelClient(f"{folder}/dev.sock") as client:
        await alice.send("#dev", "to the channel")
        async with asyncio.timeout(10):
            heard = await anext(aiter(client))
    assert (heard.msg, (heard.data or {})["from"]) == ("to the channel", "alice")


async def test_agents_of_the_relay_protocol_and_of_this_one_reach_each_other(lobby: Room) -> None:
    (bob,) = await lobby.agents("bob")
    reader, writer = await relay_agent(lobby, "worker")
    say(writer, "SEND", {"kind": "message", "body": "over the relay", "data": {"n": 1}}, to="bob")
    async with bob.watch() as stream:
        message = await stream.next()
    assert (message["from"], message["to"], message["body"]) == ("worker", "@bob", "over the relay")
    assert message["tieline"]["data"]["n"] == 1
    sent = await bob.send("@worker", "and back", thread=message["id"])
    deliver = await hear(reader, "DELIVER")
    assert (deliver["from"], deliver["payload"]["body"]) == ("bob", "and back")
    assert sent["thread"] == message["id"]
    writer.close()


async def test_the_notice_of_a_message_that_was_not_delivered_names_no_id_that_the_sender_never_gave(
    lobby: Room,
) -> None:
    (alice,) = await lobby.agents("alice")
    _, writer = await relay_agent(lobby, "bob")
    sent = await alice.send("bob", "x" * 2_000_000)
    async with alice.watch() as stream:
        notice = await stream.next()
    assert notice["body"] == f"bob cannot be given your message {from_prefix_id(sent['id'])}: too_large"
    assert "wire_id" not in notice["tieline"]["data"]
    writer.close()

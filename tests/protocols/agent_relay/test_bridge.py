"""Tests of messages between Agent Relay and members of other protocols, in both directions."""

import asyncio
import json

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import frame, said
from tests.server.hubs import WAIT_SECONDS, bodies, take
from tieline.protocols.agent_relay import codec


async def test_a_member_of_another_protocol_and_an_agent_reach_each_other(mixed: Relay) -> None:
    await mixed.add("nina")
    nina = await mixed.join("nina", receive=True)
    alice = await mixed.agent("alice")
    await alice.send(frame("SEND", {"kind": "message", "body": "there", "data": {"n": 1}}, to="nina", topic="chat"))
    (delivery,) = await take(nina, 1, ack=True)
    message = delivery.message
    assert (message.sender, message.body, message.data, message.topic) == ("alice", "there", {"n": 1}, "chat")
    assert message.protocol == codec.PROTOCOL
    await nina.send("@alice", "and back", data={"n": 2}, topic="chat")
    answer = await alice.expect("DELIVER")
    assert (answer["from"], answer["topic"]) == ("nina", "chat")
    assert answer["payload"] == {"kind": "message", "body": "and back", "data": {"n": 2}}


async def test_a_topic_is_a_channel_of_the_hub(mixed: Relay) -> None:
    await mixed.add("nina")
    nina = await mixed.join("nina", receive=True)
    await nina.subscribe("builds")
    alice = await mixed.agent("alice")
    await alice.send(frame("SUBSCRIBE", topic="builds"), said("green", "*", topic="builds"))
    assert bodies(await take(nina, 1, ack=True)) == ["green"]
    await nina.send("#builds", "red")
    assert (await alice.expect("DELIVER"))["delivery"]["originalTo"] == "#builds"


async def test_a_message_to_a_channel_is_to_be_answered_there_whatever_wire_it_came_from(mixed: Relay) -> None:
    await mixed.add("nina")
    nina, (alice, bob) = await mixed.join("nina"), await mixed.agents("alice", "bob")
    await bob.send(frame("SUBSCRIBE", topic="dev"))
    await bob.silent()
    _, socket = await asyncio.open_unix_connection(mixed.home / "channels" / "main" / "dev.sock")
    # From the CLI's wire, from the channel's socket, from a SEND without a topic and from one with it.
    await nina.send("#dev", "one")
    heard = await bob.deliveries(1)
    said_there = json.dumps({"msg": "two"}).encode()
    socket.write(len(said_there).to_bytes(4, "big") + said_there)
    heard += await bob.deliveries(1)
    await alice.send(said("three", "#dev"), said("four", "#dev", topic="dev"), said("five", "*", topic="dev"))
    heard += await bob.deliveries(3)
    assert [(one["payload"]["body"], one["delivery"]["originalTo"], one.get("topic")) for one in heard] == [
        ("one", "#dev", None),
        ("two", "#dev", None),
        ("three", "#dev", None),
        ("four", "#dev", "dev"),
        ("five", "*", "dev"),
    ]
    await nina.send("*", "six")
    (heard_last,) = await bob.deliveries(1)
    assert (heard_last["payload"]["body"], heard_last["delivery"]["originalTo"]) == ("six", "*")
    socket.close()


async def test_what_another_wire_was_offered_without_acknowledging_it_still_comes(mixed: Relay) -> None:
    alice, bob = await mixed.agents("alice", "bob")
    await mixed.leave(bob)
    reader, writer = await asyncio.open_unix_connection(mixed.home / "channels" / "main" / "inbox-bob.sock")
    await alice.send(said("direct", "bob"), frame("CHANNEL_MESSAGE", {"channel": "#general", "body": "to all"}))
    async with asyncio.timeout(WAIT_SECONDS):
        for _ in range(2):
            await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    await alice.silent()
    again = await mixed.agent("bob")
    (delivery,) = await again.deliveries(1)
    assert delivery["payload"]["body"] == "direct"
    # A CHANNEL_MESSAGE is given once, whoever was given it.
    await again.silent()
    unread = (await again.ask("INBOX", {"unreadOnly": True}))["payload"]["messages"]
    assert [one["body"] for one in unread] == ["direct"]
    await again.ack(delivery)
    await again.silent()
    await (await mixed.agent("bob")).silent()
    writer.close()

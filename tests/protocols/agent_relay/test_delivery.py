"""Tests of sending and delivery: the DELIVER of a SEND, its sequence numbers, and repeated deliveries."""

import asyncio
import json

import pytest

from tests.protocols.agent_relay.relays import Relay, accepting, numbers
from tests.protocols.agent_relay.wire import Frame, frame, said
from tests.server.hubs import WAIT_SECONDS, take
from tieline.contract.identifiers import MessageId
from tieline.protocols.agent_relay.codec import JSON_BODY


async def test_send_becomes_deliver(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    payload = {"kind": "action", "body": "Your turn", "data": {"move": [1, 2]}, "thread": "t-1", "extra": {"x": None}}
    meta = {"requires_ack": True, "ttl_ms": 60000, "importance": 7}
    await alice.send(frame("SEND", payload, to="bob", topic="chat", payload_meta=meta))
    delivery = await bob.expect("DELIVER")
    assert delivery.keys() == {"v", "type", "id", "ts", "from", "to", "topic", "payload", "payload_meta", "delivery"}
    assert (delivery["v"], delivery["from"], delivery["to"], delivery["topic"]) == (1, "alice", "bob", "chat")
    assert (delivery["payload"], delivery["payload_meta"]) == (payload, meta)
    assert delivery["delivery"] == {"seq": 1, "session_id": bob.welcome["session_id"]}
    await alice.silent()


async def test_a_body_may_be_any_json(relay: Relay) -> None:
    await relay.add("nina")
    nina, (alice, bob) = await relay.join("nina", receive=True), await relay.agents("alice", "bob")
    for body in ({"task": [1, None]}, ["a"], 7, 1.5, True, None, ""):
        await alice.send(frame("SEND", {"body": body}, to="bob"), frame("SEND", {"body": body}, to="nina"))
        assert (await bob.expect("DELIVER"))["payload"] == {"kind": "message", "body": body}
        (heard,) = await take(nina, 1, ack=True)
        assert (json.loads(heard.message.body), heard.message.notes) == (body, (JSON_BODY,))
        # In a list the body is a text, as its type says.
        (listed, *_) = (await bob.ask("INBOX"))["payload"]["messages"]
        assert json.loads(listed["body"]) == body


async def test_data_comes_if_the_sender_gave_it_and_not_else(relay: Relay) -> None:
    await relay.add("nina")
    nina, (alice, bob) = await relay.join("nina"), await relay.agents("alice", "bob")
    await alice.send(frame("SEND", {"body": "none"}, to="bob"), frame("SEND", {"body": "x", "data": {}}, to="bob"))
    first, second = await bob.deliveries(2)
    assert ("data" in first["payload"], second["payload"]["data"]) == (False, {})
    await nina.send("@bob", "plain")
    assert (await bob.expect("DELIVER"))["payload"] == {"kind": "message", "body": "plain"}


async def test_from_is_stamped_by_the_hub(relay: Relay) -> None:
    mallory, bob = await relay.agents("mallory", "bob")
    await mallory.send(said("trust me", "bob", sender="alice"))
    assert (await bob.expect("DELIVER"))["from"] == "mallory"


@pytest.mark.parametrize(
    "wrong",
    [
        frame("SEND", {"body": "x"}),
        frame("SEND", {}, to="alice"),
        frame("SEND", {"body": "x", "data": []}, to="alice"),
        frame("SEND", {"body": "x", "kind": 1}, to="alice"),
        frame("SEND", {"body": "x", "thread": 1}, to="alice"),
        frame("SEND", {"body": "x"}, to="alice", payload_meta={"ttl_ms": "soon"}),
        frame("SEND", {"body": "x"}, to="alice", payload_meta={"ttl_ms": -1}),
        frame("SEND", {"body": "x"}, to="two words"),
        frame("SEND", {"body": "x"}, to="*", topic="two words"),
        frame("CHANNEL_MESSAGE", {"body": "x"}),
        frame("SUBSCRIBE"),
        frame("CHANNEL_JOIN", {"channel": "two words"}),
    ],
)
async def test_what_makes_no_sense_is_refused_under_its_id_and_the_connection_stays(relay: Relay, wrong: Frame) -> None:
    alice = await relay.agent("alice")
    await alice.send(wrong)
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (wrong["id"], "BAD_REQUEST", False)
    await alice.silent()


async def test_an_unknown_target_is_an_error_under_the_sends_id(relay: Relay) -> None:
    alice = await relay.agent("alice")
    lost = await alice.send(said("anybody?", "nobody"))
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (lost["id"], "NOT_FOUND", False)
    await alice.silent()


async def test_messages_to_a_known_member_wait_while_it_is_away(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    await alice.send(said("one", "bob"), said("two", "bob"))
    await alice.silent()
    assert await (await relay.agent("bob")).bodies(2) == ["one", "two"]


async def test_an_ack_settles_a_delivery(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"), said("two", "bob"))
    first, second = await bob.deliveries(2)
    await bob.ack(first)
    await bob.silent()
    again = await relay.agent("bob")
    (left,) = await again.settled()
    assert (left["id"], left["delivery"]["seq"]) == (second["id"], second["delivery"]["seq"])


async def test_what_was_not_acked_comes_again_with_its_id_and_number(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number), "bob") for number in range(3)))
    first = await bob.deliveries(3)
    await relay.leave(bob)
    again = await (await relay.agent("bob")).deliveries(3)
    assert [one["id"] for one in again] == [one["id"] for one in first]
    assert numbers(again) == numbers(first) == [("alice", None, 1), ("alice", None, 2), ("alice", None, 3)]


async def test_a_nack_leaves_the_delivery_for_the_next_session(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("not now", "bob"))
    (delivery,) = await bob.deliveries(1)
    await bob.send(frame("NACK", {"ack_id": delivery["id"], "code": "BUSY"}))
    await bob.silent()
    assert await (await relay.agent("bob")).bodies(1) == ["not now"]


async def test_an_ack_of_nothing_is_ignored(relay: Relay) -> None:
    alice = await relay.agent("alice")
    for ack_id in ("d-1-x", "d-999999999999999999-x", "d--1", "x", None, 7, "d-9999999999999999999999"):
        await alice.send(frame("ACK", {"ack_id": ack_id}))
    await alice.silent()


async def test_numbers_count_per_topic_sender_and_recipient(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    for topic in ("chat", "work", "chat"):
        await alice.send(said("x", "carol", topic=topic), said("x", "bob", topic=topic))
        await alice.silent()
    await bob.send(said("x", "carol", topic="chat"), said("x", "carol"))
    assert sorted(numbers(await carol.deliveries(5)), key=str) == [
        ("alice", "chat", 1),
        ("alice", "chat", 2),
        ("alice", "work", 1),
        ("bob", "chat", 1),
        ("bob", None, 1),
    ]
    assert numbers(await bob.deliveries(3)) == [("alice", "chat", 1), ("alice", "work", 1), ("alice", "chat", 2)]


async def test_deliveries_of_a_stream_come_in_order(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number), "bob", topic="chat") for number in range(600)))
    for number in range(600):
        delivery = await bob.expect("DELIVER")
        assert (delivery["payload"]["body"], delivery["delivery"]["seq"]) == (str(number), number + 1)
        await bob.ack(delivery)


async def test_a_client_that_does_not_ack_is_given_each_delivery_once(relay: Relay) -> None:
    alice = await relay.agent("alice")
    quiet = {"capabilities": {"ack": False}}
    bob = await relay.agent("bob", **quiet)
    await alice.send(*(said(str(number), "bob") for number in range(300)))
    assert await bob.bodies(300) == list(map(str, range(300)))
    await bob.silent()
    await relay.leave(bob)
    await (await relay.agent("bob", **quiet)).silent()


async def test_ttl_ms_expires_a_delivery(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    bob = await relay.agent("bob")
    await relay.leave(bob)
    await alice.send(said("milk", "bob", payload_meta={"ttl_ms": 1}))
    accepted = await alice.expect("ACK")
    operator = await relay.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        while [one.state for one in await operator.receipts(MessageId(accepted["payload"]["message_id"]))] != [
            "expired"
        ]:
            pass
    await (await relay.agent("bob")).silent()

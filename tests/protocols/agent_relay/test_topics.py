"""Tests of broadcasts and topics: their recipients and their order."""

from tests.protocols.agent_relay.relays import Relay
from tests.protocols.agent_relay.wire import frame, said


async def test_a_broadcast_without_topic_reaches_all_who_are_connected_but_the_sender(relay: Relay) -> None:
    alice, bob, carol, away = await relay.agents("alice", "bob", "carol", "away")
    await relay.leave(away)
    await alice.send(said("hello all", "*"))
    for wire in (bob, carol):
        delivery = await wire.expect("DELIVER")
        assert (delivery["to"], delivery["payload"]["body"]) == (wire.name, "hello all")
        assert delivery["delivery"]["originalTo"] == "*"
    await alice.silent()
    await (await relay.agent("away")).silent()


async def test_a_broadcast_with_a_topic_reaches_its_subscribers_alone(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await bob.send(frame("SUBSCRIBE", topic="builds"))
    await bob.silent()
    await alice.send(said("green", "*", topic="builds"))
    delivery = await bob.expect("DELIVER")
    assert (delivery["topic"], delivery["to"], delivery["delivery"]["originalTo"]) == ("builds", "bob", "*")
    await alice.silent()
    await carol.silent()


async def test_a_broadcast_to_a_topic_without_subscribers_reaches_nobody_and_is_no_error(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("anybody?", "*", topic="empty"))
    await alice.silent()
    await bob.silent()


async def test_whoever_unsubscribed_hears_the_topic_no_more(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await bob.send(frame("SUBSCRIBE", topic="builds"))
    await bob.silent()
    await bob.send(frame("UNSUBSCRIBE", topic="builds"))
    await bob.silent()
    await alice.send(said("green", "*", topic="builds"))
    await alice.silent()
    await bob.silent()


async def test_a_subscription_lasts_beyond_the_connection(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await bob.send(frame("SUBSCRIBE", topic="builds"))
    await bob.silent()
    await relay.leave(bob)
    await alice.send(said("green", "*", topic="builds"))
    await alice.silent()
    assert await (await relay.agent("bob")).bodies(1) == ["green"]


async def test_broadcasts_of_one_sender_come_in_its_order_to_every_recipient(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await alice.send(*(said(str(number), "*") for number in range(100)))
    expected = list(map(str, range(100)))
    assert await bob.bodies(100) == expected
    assert await carol.bodies(100) == expected


async def test_beside_a_name_a_topic_is_any_text_and_names_the_stream(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    topics = ["a*", "#a", "two words", "\N{SNOWMAN}\n\0", "x" * 4096]
    await alice.send(*(said("x", "bob", topic=topic) for topic in topics))
    heard = await bob.deliveries(len(topics))
    assert [(one["topic"], one["delivery"]["seq"]) for one in heard] == [(topic, 1) for topic in topics]
    await alice.send(said("x", "bob", topic="x" * 4097))
    assert (await alice.expect("ERROR"))["payload"]["code"] == "BAD_REQUEST"

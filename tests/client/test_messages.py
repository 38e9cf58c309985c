"""Tests that messages sent with the SDK arrive with all their fields, in order, and once."""

import asyncio

import pytest

from tests.server.hubs import HubHarness, bodies, silent, take
from tieline.client import HubRefused
from tieline.contract.message import Attachment, Kind, Level, Priority
from tieline.contract.refusal import Code
from tieline.wire.json_text import VALUES_MAX


async def test_a_session_knows_who_it_is(there: HubHarness) -> None:
    alice = await there.join("alice", window=7)
    assert alice.welcome is not None
    assert (alice.welcome.member, alice.welcome.speaker, alice.welcome.window) == ("alice", "alice", 7)


async def test_a_message_arrives_with_all_its_parts_and_the_sender_stamped_by_the_hub(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    accepted = await alice.send(
        "@bob",
        "hello ☎",
        data={"from": "carol", "n": [1, 2.5, None]},
        title="a title",
        level=Level.WARNING,
        priority=Priority.URGENT,
        kind=Kind.STATUS,
        topic="build",
        scope="src/",
        thread="t1",
        refs=("a", "b"),
        attachments=(Attachment("/tmp/x", "x", 3, "text/plain"),),
        ttl_ms=60_000,
        wire_id="w1",
    )
    assert (accepted.recipients, accepted.duplicate) == (1, False)
    (delivery,) = await take(bob, 1)
    message = delivery.message
    assert (message.id, message.offset) == (accepted.id, accepted.offset)
    assert (message.sender, message.target, message.protocol) == ("alice", "@bob", "tieline")
    assert message.verified
    assert message.body == "hello ☎"
    assert message.data == {"from": "carol", "n": [1, 2.5, None]}
    assert (message.title, message.level, message.priority) == ("a title", Level.WARNING, Priority.URGENT)
    assert (message.kind, message.topic, message.scope, message.thread) == (Kind.STATUS, "build", "src/", "t1")
    assert (message.refs, message.ttl_ms, message.wire_id) == (("a", "b"), 60_000, "w1")
    assert message.attachments == (Attachment("/tmp/x", "x", 3, "text/plain"),)
    assert (delivery.key, delivery.seq) == (1, 1)


async def test_messages_of_one_sender_arrive_in_order(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    accepted = await asyncio.gather(*(alice.send("@bob", str(number)) for number in range(500)))
    deliveries = await take(bob, 500, ack=True)
    assert bodies(deliveries) == [str(number) for number in range(500)]
    assert [delivery.key for delivery in deliveries] == list(range(1, 501))
    assert [item.offset for item in accepted] == sorted(item.offset for item in accepted)


async def test_what_was_sent_before_the_recipient_came_is_waiting_for_it(there: HubHarness) -> None:
    alice = await there.join("alice")
    for number in range(3):
        await alice.send("@bob", str(number))
    bob = await there.join("bob", receive=True)
    assert bodies(await take(bob, 3)) == ["0", "1", "2"]


async def test_a_channel_and_everybody_reach_all_others(there: HubHarness) -> None:
    alice = await there.join("alice", receive=True)
    bob, carol = await there.join("bob", receive=True), await there.join("carol", receive=True)
    for member in (alice, bob):
        await member.subscribe("#dev")
    assert (await alice.send("#dev", "to the channel")).recipients == 1
    assert (await alice.send("*", "to everybody")).recipients == 2
    assert (await alice.send("#general", "to general")).recipients == 2
    assert bodies(await take(bob, 3)) == ["to the channel", "to everybody", "to general"]
    assert bodies(await take(carol, 2)) == ["to everybody", "to general"]
    await silent(alice)
    await bob.unsubscribe("dev")
    with pytest.raises(HubRefused) as caught:
        await alice.send("#dev", "nobody is left")
    assert caught.value.code is Code.NO_RECIPIENTS
    assert (await alice.send("#dev", "to the record", allow_empty=True)).recipients == 0


@pytest.mark.slow
async def test_the_largest_body_passes_and_one_byte_more_is_refused_alone(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    largest = "x" * (16 * 1024 * 1024)
    await alice.send("@bob", largest)
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", largest + "x")
    assert caught.value.code is Code.MESSAGE_TOO_LARGE
    (delivery,) = await take(bob, 1)
    assert delivery.message.body == largest


@pytest.mark.slow
async def test_more_than_one_frame_of_messages_in_one_turn_is_carried_in_several(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    large = "x" * 1_000_000
    await asyncio.gather(*(alice.send("@bob", f"{number} {large}") for number in range(40)))
    arrived = bodies(await take(bob, 40, ack=True))
    assert [body.partition(" ")[0] for body in arrived] == [str(number) for number in range(40)]


@pytest.mark.slow
async def test_a_backlog_of_large_messages_is_received(there: HubHarness) -> None:
    alice = await there.join("alice")
    large = "x" * 1_000_000
    for number in range(80):
        await alice.send("@bob", f"{number} {large}")
    bob = await there.join("bob", receive=True)
    arrived = bodies(await take(bob, 80))
    assert [body.partition(" ")[0] for body in arrived] == [str(number) for number in range(80)]


async def test_a_request_larger_than_any_frame_is_refused_and_the_session_goes_on(there: HubHarness) -> None:
    alice = await there.join("alice")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", "hello", data={"x": "\x00" * (6 * 1024 * 1024)})
    assert caught.value.code is Code.MESSAGE_TOO_LARGE
    with pytest.raises(HubRefused, match="values") as caught:
        await alice.send("@bob", "hello", data={"x": [0] * VALUES_MAX})
    assert caught.value.code is Code.MESSAGE_TOO_LARGE
    assert (await alice.send("@bob", "small")).recipients == 1


# Sending again


async def test_the_same_words_under_the_same_wire_id_are_a_duplicate_and_arrive_once(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    first = await alice.send("@bob", "hello", wire_id="w1")
    await alice.close()
    alice = await there.join("alice")
    again = await alice.send("@bob", "hello", wire_id="w1")
    assert (again.id, again.offset, again.recipients) == (first.id, first.offset, first.recipients)
    assert again.duplicate
    assert bodies(await take(bob, 1)) == ["hello"]
    await silent(bob)


async def test_other_words_under_a_used_wire_id_are_refused(there: HubHarness) -> None:
    alice, carol = await there.join("alice"), await there.join("carol")
    await alice.send("@bob", "hello", wire_id="w1")
    with pytest.raises(HubRefused) as caught:
        await alice.send("@bob", "good-bye", wire_id="w1")
    assert caught.value.code is Code.WIRE_ID_REUSED
    assert not (await carol.send("@bob", "good-bye", wire_id="w1")).duplicate, "ids belong to their sender"

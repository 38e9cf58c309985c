"""Tests that the SDK receives, acknowledges, claims and follows deliveries.

The number of deliveries in progress is limited by a window.
"""

import asyncio

from tests.client.ladder import reached, state_of
from tests.server.hubs import HubHarness, bodies, silent, take


async def test_a_delivery_moves_up_the_ladder_by_evidence(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    sent = await alice.send("@bob", "hello")
    (delivery,) = await take(bob, 1)
    await reached(alice, sent.id, "offered")
    bob.see(delivery, evidence="a tool call")
    await reached(alice, sent.id, "seen")
    bob.ack(delivery)
    await reached(alice, sent.id, "acked")
    (receipt,) = await alice.receipts(sent.id)
    assert receipt.member == "bob"
    assert [step.state for step in receipt.steps] == ["pending", "offered", "seen", "acked"]
    assert receipt.steps[2].evidence == "a tool call"
    assert {step.protocol for step in receipt.steps} == {"tieline"}
    assert bob.welcome is not None
    assert receipt.steps[3].session == bob.welcome.session


async def test_a_sender_that_follows_hears_of_each_step(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = await alice.send("@bob", "hello")
    (receipt,) = await alice.follow(sent.id)
    assert receipt.state == "pending"
    page = await bob.inbox()
    bob.see(page.items[0], evidence="read")
    bob.ack(page.items[0])
    steps = []
    async with asyncio.timeout(10):
        async for step in alice.progress():
            steps.append((step.id, step.member, step.state))
            if len(steps) == 2:
                break
    assert steps == [(sent.id, "bob", "seen"), (sent.id, "bob", "acked")]


async def test_an_inbox_is_looked_into_without_taking_anything(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = [await alice.send("@bob", str(number)) for number in range(5)]
    page = await bob.inbox(limit=2)
    assert [item.message.id for item in page.items] == [sent[0].id, sent[1].id]
    assert (page.through, page.complete) == (2, False)
    rest = await bob.inbox(after=page.through)
    assert [item.key for item in rest.items] == [3, 4, 5]
    assert rest.complete
    assert {item.state for item in (*page.items, *rest.items)} == {"pending"}


async def test_settling_in_a_session_that_does_not_receive_leaves_the_rest_as_it_was(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    sent = [await alice.send("@bob", str(number)) for number in range(4)]
    bob.ack((await bob.inbox()).items[0])
    assert await bob.claim(sent[1].id) is not None
    await reached(alice, sent[0].id, "acked")
    page = await bob.inbox()
    assert [(item.key, item.state) for item in page.items] == [(3, "pending"), (4, "pending")]
    await silent(bob)


async def test_a_message_is_claimed_by_one_session_and_never_again(there: HubHarness) -> None:
    alice, first, second = await there.join("alice"), await there.join("bob"), await there.join("bob")
    sent = await alice.send("@bob", "hello")
    won = await asyncio.gather(first.claim(sent.id), second.claim(sent.id), first.claim(sent.id))
    winners = [item for item in won if item is not None]
    assert len(winners) == 1
    assert winners[0].message.body == "hello"
    assert await second.claim(sent.id) is None
    assert await state_of(alice, sent.id) == "acked"
    carol = await there.join("carol")
    assert await carol.claim(sent.id) is None, "it never was hers"
    assert await carol.claim("no such message") is None


async def test_two_sessions_of_a_member_are_both_offered_and_the_first_acknowledgement_ends_it(
    there: HubHarness,
) -> None:
    alice = await there.join("alice")
    first, second = await there.join("bob", receive=True), await there.join("bob", receive=True)
    sent = await alice.send("@bob", "hello")
    one, other = (await take(first, 1))[0], (await take(second, 1))[0]
    assert (one.key, one.message.id) == (other.key, other.message.id) == (1, sent.id)
    first.ack(one)
    await reached(alice, sent.id, "acked")
    second.ack(other)
    third = await there.join("bob", receive=True)
    await silent(third)
    (receipt,) = await alice.receipts(sent.id)
    assert [step.state for step in receipt.steps] == ["pending", "offered", "acked"]
    assert first.welcome is not None
    assert receipt.steps[2].session == first.welcome.session


async def test_acknowledging_twice_or_what_never_was_is_no_error(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    await alice.send("@bob", "one")
    (delivery,) = await take(bob, 1)
    for _ in range(3):
        bob.ack(delivery)
    await alice.send("@bob", "two")
    assert bodies(await take(bob, 1)) == ["two"]


# The window


async def test_a_recipient_that_does_not_acknowledge_gets_only_its_window(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True, window=3)
    for number in range(10):
        await alice.send("@bob", str(number))
    held = await take(bob, 3)
    await silent(bob)
    bob.ack(held[0])
    assert bodies(await take(bob, 1)) == ["3"]
    await silent(bob)
    for delivery in held[1:]:
        bob.ack(delivery)
    assert bodies(await take(bob, 2)) == ["4", "5"]
    await silent(bob)


async def test_a_window_of_one_passes_everything_one_by_one(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True, window=1)
    sending = asyncio.gather(*(alice.send("@bob", str(number)) for number in range(50)))
    assert bodies(await take(bob, 50, ack=True)) == [str(number) for number in range(50)]
    await sending


async def test_after_a_reconnect_what_was_not_acknowledged_comes_again_under_the_same_id_and_key(
    there: HubHarness,
) -> None:
    alice, bob = await there.join("alice"), await there.join("bob", receive=True)
    for number in range(6):
        await alice.send("@bob", str(number))
    before = await take(bob, 6)
    for delivery in (before[0], before[1], before[4]):
        bob.ack(delivery)
    await bob.close()
    await reached(alice, before[4].message.id, "acked")
    again = await take(await there.join("bob", receive=True), 3)
    left = (before[2], before[3], before[5])
    assert [(item.key, item.seq, item.message) for item in again] == [
        (item.key, item.seq, item.message) for item in left
    ]


async def test_a_recipient_that_does_not_read_holds_up_nobody_and_gets_everything_later(there: HubHarness) -> None:
    alice, carol = await there.join("alice"), await there.join("carol", receive=True)
    slow = await there.join("bob", receive=True, window=1024)
    body = "x" * 100_000
    for _ in range(100):
        await alice.send("*", body)
    assert len(await take(carol, 100, ack=True)) == 100
    assert len(await take(slow, 100, ack=True)) == 100

"""Tests that a client gets each delivery once, in any order of the keys."""

import asyncio
from collections.abc import AsyncIterator

from hypothesis import given
from hypothesis import strategies as st

from tests.server.hubs import HubHarness
from tieline.client import Delivery, Item
from tieline.wire.native import arrivals as arriving
from tieline.wire.native.arrivals import DeliveredKeys, arrivals


@given(st.lists(st.integers(1, 30)), st.integers(1, 30))
def test_the_keys_that_were_given_are_known_in_whatever_order_they_came(keys: list[int], other: int) -> None:
    known = DeliveredKeys()
    for key in keys:
        known.add(key)
    assert [key for key in range(40) if key in known] == sorted(set(keys))
    assert known.last == max(keys, default=0)
    copy = known.copy()
    copy.add(other)
    assert (other in known) == (other in keys)


def test_of_very_many_gaps_the_oldest_are_forgotten() -> None:
    known = DeliveredKeys()
    for key in range(1, 5000, 2):
        known.add(key)
    assert 2 in known
    assert 4998 not in known
    assert known.last == 4999


async def bodies(coming: AsyncIterator[Delivery | Item], count: int) -> list[str]:
    async with asyncio.timeout(20):
        return [(await anext(coming)).message.body for _ in range(count)]


async def test_what_was_held_arrives_when_it_is_released_also_in_a_later_session(home: HubHarness) -> None:
    alice, operator = await home.join("alice"), await home.operator()
    await home.add("carol")
    carol = await home.join("carol")
    await operator.pause_thread("@alice+@bob")
    for body in ("held 1", "held 2"):
        await alice.send("@bob", body)
    await carol.send("@bob", "meanwhile")
    known = DeliveredKeys()
    bob = await home.join("bob", receive=True)
    coming = arrivals(bob, known)
    assert await bodies(coming, 1) == ["meanwhile"]
    known.add(3)
    await operator.resume_thread("@alice+@bob")
    assert await bodies(coming, 2) == ["held 1", "held 2"]
    await coming.aclose()
    later = await home.join("bob", receive=True)
    assert await bodies(arrivals(later, known), 2) == ["held 1", "held 2"]


async def test_what_is_released_arrives_also_while_the_hub_may_push_no_more(home: HubHarness) -> None:
    arriving._POLL_SECONDS, before = 0.02, arriving._POLL_SECONDS
    try:
        alice, operator = await home.join("alice"), await home.operator()
        await home.add("carol")
        carol = await home.join("carol")
        await operator.pause_thread("@alice+@bob")
        await alice.send("@bob", "held")
        await carol.send("@bob", "one")
        bob = await home.join("bob", receive=True, window=1)
        coming = arrivals(bob, DeliveredKeys())
        assert await bodies(coming, 1) == ["one"]
        await carol.send("@bob", "two")
        assert await bodies(coming, 1) == ["two"]
        await operator.resume_thread("@alice+@bob")
        assert await bodies(coming, 1) == ["held"]
    finally:
        arriving._POLL_SECONDS = before

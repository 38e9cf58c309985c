"""Tests of a live view: it has everything that a member may see, once and in order, also after interruptions."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import pytest

from tests.server.hubs import ALONE, WEBSOCKET, HubHarness, running_hub
from tieline.client import Client, HubRefused
from tieline.contract.message import Message
from tieline.contract.refusal import Code
from tieline.core.store import DiskError, HistoryQuery


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe", **ALONE) as built:
        await built.add("alice", "bob", "carol")
        yield built


async def look(client: Client, count: int, after: int = -1, *, everything: bool = False) -> list[str]:
    """Return the next `count` messages of a live view, each as `sender: body`."""
    return [f"{sender}: {body}" for sender, body, _ in await seen(client, count, after, everything=everything)]


async def seen(client: Client, count: int, after: int = -1, *, everything: bool = False) -> list[tuple[str, str, int]]:
    found: list[tuple[str, str, int]] = []
    async with asyncio.timeout(10):
        async for message in client.tail(after, everything=everything):
            found.append((message.sender, message.body, message.offset))
            if len(found) == count:
                break
    return found


async def test_a_live_view_has_what_was_said_and_then_what_is_said(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    await alice.send("@bob", "before")
    found = []
    async with asyncio.timeout(10):
        async for message in bob.tail():
            found.append(f"{message.sender}: {message.body}")
            if len(found) == 1:
                await alice.send("@bob", "now")
                await alice.send("*", "to all")
            if len(found) == 3:
                break
    assert found == ["alice: before", "alice: now", "alice: to all"]


async def test_a_live_view_shows_what_history_would_show_and_nothing_of_others(there: HubHarness) -> None:
    alice, bob, carol = await there.join("alice"), await there.join("bob"), await there.join("carol")
    looking = asyncio.create_task(look(carol, 1))
    await alice.send("@bob", "not for carol")
    await bob.send("@carol", "for carol")
    assert await looking == ["bob: for carol"]


async def test_one_sees_what_one_said_oneself(there: HubHarness) -> None:
    alice = await there.join("alice")
    await alice.send("@bob", "mine")
    assert await look(alice, 1) == ["alice: mine"]


async def test_looking_at_everything_needs_the_permission_to_read_the_log(there: HubHarness) -> None:
    await there.add("chief", permissions=("log.read",))
    alice, chief = await there.join("alice"), await there.join("chief")
    await alice.send("@bob", "between two")
    with pytest.raises(HubRefused) as refused:
        await look(alice, 1, everything=True)
    assert refused.value.code is Code.FORBIDDEN
    assert await look(chief, 1, everything=True) == ["alice: between two"]


async def test_who_comes_back_misses_nothing_and_gets_nothing_twice(there: HubHarness) -> None:
    alice = await there.join("alice")
    bob = await there.join("bob", carrier=WEBSOCKET)
    for number in range(5):
        await alice.send("@bob", str(number))
    first = await seen(bob, 3)
    await bob.close()
    for number in range(5, 8):
        await alice.send("@bob", str(number))
    again = await there.join("bob", carrier=WEBSOCKET)
    rest = await seen(again, 5, after=first[-1][2])
    assert [body for _, body, _ in first + rest] == [str(number) for number in range(8)]


async def test_a_thousand_at_once_come_in_order(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    looking = asyncio.create_task(seen(bob, 1000))
    await asyncio.gather(*(alice.send("@bob", str(number)) for number in range(1000)))
    found = await looking
    assert [body for _, body, _ in found] == [str(number) for number in range(1000)]
    offsets = [offset for _, _, offset in found]
    assert offsets == sorted(set(offsets))


async def test_a_second_view_takes_the_place_of_the_first(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    await alice.send("@bob", "one")
    assert await look(bob, 1) == ["alice: one"]
    await alice.send("@bob", "two")
    # Nobody can see that the first view was told of it.
    await asyncio.sleep(0.1)
    # A message that the first view has shown meanwhile is not shown twice.
    assert await look(bob, 2) == ["alice: one", "alice: two"]


async def test_history_after_an_offset_is_what_came_since(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    for number in range(4):
        await alice.send("@bob", str(number))
    newest, *_ = await bob.history()
    assert [message.body for message in await bob.history(after=newest.offset - 2)] == ["3", "2"]


async def test_history_of_everything_is_newest_first_too(there: HubHarness) -> None:
    await there.add("chief", permissions=("log.read",))
    alice, chief = await there.join("alice"), await there.join("chief")
    for number in range(3):
        await alice.send("@bob", str(number))
    assert [message.body for message in await chief.history(everything=True)] == ["2", "1", "0"]
    with pytest.raises(HubRefused):
        await alice.history(everything=True)


async def test_whoever_may_see_no_more_is_told_so_and_no_session_of_it_stays_behind(there: HubHarness) -> None:
    await there.add("chief", permissions=("log.read",))
    alice, chief, operator = await there.join("alice"), await there.join("chief"), await there.operator()
    looking = asyncio.create_task(look(chief, 2, everything=True))
    await alice.send("@bob", "between two")
    await operator.update_member("chief", permissions=())
    await alice.send("@bob", "not for chief any more")
    with pytest.raises(HubRefused) as refused:
        await looking
    assert refused.value.code is Code.FORBIDDEN
    assert next(member.sessions for member in await operator.members() if member.name == "chief") == ()


@pytest.mark.slow
async def test_a_live_view_goes_on_when_the_store_could_not_be_read_for_a_while(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    assert there.hub.local_hub is not None
    store = there.hub.local_hub._broker.store
    reads, history = 0, store.history

    def failing(history_query: HistoryQuery) -> Sequence[Message]:
        nonlocal reads
        reads += 1
        if reads == 2:
            raise DiskError("the disk is not there")
        return history(history_query)

    store.history = failing  # type: ignore[method-assign]
    looking = asyncio.create_task(look(bob, 1))
    await alice.send("@bob", "now")
    assert await looking == ["alice: now"]


async def test_a_message_that_is_redacted_comes_again_to_those_who_may_see_it(there: HubHarness) -> None:
    alice, bob, carol = await there.join("alice"), await there.join("bob"), await there.join("carol")
    leaked = await alice.send("@bob", "a secret")
    others = asyncio.create_task(look(carol, 1))
    found = []
    async with asyncio.timeout(10):
        async for message in bob.tail():
            found.append((message.id, message.body))
            if len(found) == 2:
                break
            await (await there.operator()).redact(leaked.id, "a password")
    assert found == [(leaked.id, "a secret"), (leaked.id, "redacted by operator: a password")]
    await alice.send("@carol", "for carol")
    assert await others == ["alice: for carol"]

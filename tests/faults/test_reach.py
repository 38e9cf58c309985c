"""Tests with kill -9 at any moment: a delivery that was perhaps not seen is offered again, and falls once per way.

A delivery falls when the hub escalates it to the next way (method to show a message to a member).
"""

import asyncio
import json
import random
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import SOAK, HubProcess, seed_of_the_day
from tests.faults.test_kill import audit
from tieline.client import Client, Leg, Reach, Way, connect

ROUNDS = 20 if SOAK else 4
WAYS = Reach((Leg(Way.PUSH, 50), Leg(Way.HOOK, 50), Leg(Way.NOTIFY, 0)), notify="ops")

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def add_members(hub: HubProcess) -> None:
    async with await connect(home=hub.home) as operator:
        for name in ("alice", "bob", "ops"):
            await operator.add_member(name)
        await operator.reach("bob", WAYS)


async def next_delivery(client: Client) -> str:
    async with asyncio.timeout(20):
        async for delivery in client:
            return delivery.message.id
    raise AssertionError("the deliveries ended")


async def falls(hub: HubProcess) -> list[dict[str, object]]:
    async with await connect(home=hub.home) as operator:
        rows = (await operator.read_log(limit=10_000)).rows
    events = [json.loads(row.event) for row in rows]
    return [event for event in events if event["event"] == "fall"]


async def test_what_was_pushed_and_not_seen_is_offered_again_and_evidence_counts_once(hub: HubProcess) -> None:
    await hub.start()
    await add_members(hub)
    async with await connect(home=hub.home, member="alice") as alice:
        sent = await alice.send("@bob", "did you see this?")
    for kill in (False, True):
        agent = await connect(home=hub.home, member="bob", receive=True)
        assert await next_delivery(agent) == sent.id
        if kill:
            hub.kill()
            await hub.start()
        await agent.close()
    async with await connect(home=hub.home, member="bob", receive=True) as agent:
        assert await next_delivery(agent) == sent.id
        for evidence in ("a tool call", "hook Stop of codex"):
            (item,) = (await agent.inbox()).items
            agent.see(item, evidence=evidence)
        (receipt,) = await agent.receipts(sent.id)
        assert [step.evidence for step in receipt.steps if step.state == "seen"] == ["a tool call"]
    assert await hub.stop() == 0
    assert audit(hub.home).intact


async def test_each_delivery_falls_to_each_way_once_through_any_number_of_deaths(hub: HubProcess) -> None:
    chance = random.Random(seed_of_the_day())
    await hub.start()
    await add_members(hub)
    sent: list[str] = []
    for _ in range(ROUNDS):
        async with await connect(home=hub.home, member="alice") as alice:
            for number in range(5):
                sent.append((await alice.send("@bob", str(number))).id)
                await asyncio.sleep(chance.uniform(0, 0.02))
        await asyncio.sleep(chance.uniform(0, 0.5))
        hub.kill()
        await hub.start()
    async with await connect(home=hub.home, member="alice") as alice, asyncio.timeout(30):
        for message_id in sent:
            while (await alice.receipts(message_id))[0].way != "notify":  # noqa: ASYNC110 - the hub knows, nobody here
                await asyncio.sleep(0.05)
    ways = Counter(
        (key, event["way"])
        for event in await falls(hub)
        for first, last in event["keys"]  # type: ignore[attr-defined]  # a list of ranges
        for key in range(first, last + 1)
    )
    assert ways == Counter({(key, way): 1 for key in range(1, len(sent) + 1) for way in ("hook", "notify")})
    async with await connect(home=hub.home, member="ops") as ops:
        told = [item.message.data or {} for item in (await ops.inbox()).items]
    assert sorted(message for data in told for message in data["messages"]) == sorted(sent), "each was told of once"
    assert await hub.stop() == 0
    assert audit(hub.home).intact

"""Tests of the SDK's functions to supersede and discard messages, and to set the ways to reach a member."""

import asyncio
from pathlib import Path

import pytest

from tests.server.hubs import UNIX, WAIT_SECONDS, WEBSOCKET, running_hub
from tieline.client import HubRefused, Leg, Reach, Way
from tieline.contract.refusal import Code


@pytest.mark.slow
@pytest.mark.parametrize("carrier", [UNIX, WEBSOCKET])
async def test_what_is_not_needed_any_more_is_said_to_its_sender(folder: Path, carrier: str) -> None:
    async with running_hub(folder / "home", carrier, store="memory") as there:
        await there.add("ada", "bob")
        ada, bob = await there.join("ada"), await there.join("bob")
        first = await ada.send("@bob", "one")
        second = await ada.send("@bob", "two", supersedes=first.id)
        (item,) = (await bob.inbox()).items
        assert (item.message.id, item.message.supersedes) == (second.id, first.id)
        await bob.discard(item, reason="too late")
        await bob.discard(reason="nothing to discard")
        (receipt,) = await ada.receipts(second.id)
        assert (receipt.state, receipt.steps[-1].evidence) == ("expired", "discarded by bob: too late")
        with pytest.raises(HubRefused) as refused:
            await bob.send("@ada", "three", supersedes=first.id)
        assert refused.value.code is Code.UNKNOWN_MESSAGE


@pytest.mark.slow
@pytest.mark.parametrize("carrier", [UNIX, WEBSOCKET])
async def test_a_fall_is_told_to_who_follows(folder: Path, carrier: str) -> None:
    async with running_hub(folder / "home", carrier, store="memory") as there:
        await there.add("ada", "bob")
        ada, bob = await there.join("ada"), await there.join("bob")
        ways = Reach((Leg(Way.PUSH, 50), Leg(Way.HOOK, 60_000)))
        assert await bob.reach("bob", ways) == await bob.reach("bob") == ways
        sent = await ada.send("@bob", "hello")
        (receipt,) = await ada.follow(sent.id, "seen")
        assert receipt.way == "push"
        async with asyncio.timeout(WAIT_SECONDS):
            async for step in ada.progress():
                assert (step.member, step.state, step.way) == ("bob", "pending", "hook")
                break
        (unseen,) = (await bob.inbox(unseen=True)).items
        bob.see(unseen, evidence="hook Stop of codex")
        assert (await bob.inbox(unseen=True)).items == ()
        assert [item.state for item in (await bob.inbox()).items] == ["seen"]
        assert (await ada.receipts(sent.id))[0].way == ""

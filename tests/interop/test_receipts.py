"""Tests of receipts: the acknowledgement of each protocol changes the state of a delivery, with its own evidence."""

import asyncio
from pathlib import Path

import pytest

from tests.interop.drivers import BY_PROTOCOL, mixed_hub
from tests.server.hubs import WAIT_SECONDS
from tieline.client import HubRefused
from tieline.contract.refusal import Code

ACKNOWLEDGING = [protocol for protocol, driver in BY_PROTOCOL.items() if driver.acknowledges]
ACKLESS = [protocol for protocol, driver in BY_PROTOCOL.items() if not driver.acknowledges]


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ACKNOWLEDGING)
async def test_the_protocols_own_acknowledgement_is_the_last_step(folder: Path, protocol: str) -> None:
    async with mixed_hub(folder / "h") as place:
        reader = await place.driver(protocol, "reader")
        await place.there.add("sender")
        sender = await place.there.join("sender")
        sent = await sender.send("@reader", "hello")
        await sender.follow(sent.id, "acked")
        assert (await reader.hear()).body == "hello"
        async for step in sender.progress():
            if step.state == "acked":
                break
        (receipt,) = await sender.receipts(sent.id)
        assert [step.state for step in receipt.steps] == ["pending", "offered", "acked"]
        assert [step.protocol for step in receipt.steps] == ["tieline", protocol, protocol]
        assert receipt.steps[-1].evidence
        assert receipt.steps[-1].session


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ACKLESS)
async def test_on_a_wire_without_acknowledgement_it_is_offered_and_waiting_for_more_is_refused(
    folder: Path, protocol: str
) -> None:
    async with mixed_hub(folder / "h") as place:
        reader = await place.driver(protocol, "reader")
        await place.there.add("sender")
        sender = await place.there.join("sender")
        sent = await sender.send("@reader", "hello")
        assert (await reader.hear()).body == "hello"
        (receipt,) = await sender.receipts(sent.id)
        assert (receipt.state, receipt.steps[-1].protocol) == ("offered", protocol)
        again = await sender.send("@reader", "and again")
        with pytest.raises(HubRefused) as caught:
            await sender.follow(again.id, "acked")
        assert caught.value.code is Code.NEVER_ACKNOWLEDGED


@pytest.mark.slow
@pytest.mark.parametrize("protocol", ACKLESS)
async def test_what_a_wire_without_acknowledgement_carried_does_not_wait_for_ever(folder: Path, protocol: str) -> None:
    async with mixed_hub(folder / "h") as place:
        reader = await place.driver(protocol, "reader")
        await place.there.add("sender")
        sender = await place.there.join("sender")

        async def waiting() -> int:
            """The number that `tieline members` shows as WAITING."""
            return next(one.backlog for one in await sender.members() if one.name == "reader")

        for body in ("one", "two"):
            await sender.send("@reader", body)
        await reader.hear_several(2)
        # A wire tells the hub what it has written a moment later.
        async with asyncio.timeout(WAIT_SECONDS):
            while await waiting():
                pass
        await reader.leave()
        await sender.send("@reader", "while nobody listens")
        assert await waiting() == 1


@pytest.mark.slow
async def test_a_reply_that_names_it_is_the_acknowledgement_where_the_wire_has_none(folder: Path) -> None:
    async with mixed_hub(folder / "h") as place:
        reader = await place.driver("ac7", "reader")
        await place.there.add("sender")
        sender = await place.there.join("sender")
        first, second = [await sender.send("@reader", body) for body in ("one", "two")]
        await reader.hear_several(2)
        await reader.send("@sender", "seen", data={"reply_to": first.id})
        (receipt,) = await sender.receipts(first.id)
        assert (receipt.state, receipt.steps[-1].evidence, receipt.steps[-1].protocol) == ("acked", "reply", "ac7")
        (receipt,) = await sender.receipts(second.id)
        assert receipt.state == "offered"

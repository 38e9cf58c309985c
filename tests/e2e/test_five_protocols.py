"""Tests that the pages of the console show members on all five protocols alike, while these talk to a real hub.

What a page shows is in the tests of that page. Here is what a protocol could make different: who spoke, over what, what
became of it for whom, and that a person reads, finds, answers and exports it.
"""

import json
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.e2e.browsers import Office, faults, office
from tests.e2e.test_home import SPEAKERS
from tests.e2e.test_phone import PHONE
from tests.e2e.test_reading import EVIDENCE, until
from tests.interop.drivers import CONFIG, Driver, MixedHub
from tieline.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PROTOCOLS = sorted(SPEAKERS.values())
UNNAMED = "eli"
"""The member whose protocol has no names of senders."""


class Floor(Office):
    """Test data: a hub in which a member on each protocol has spoken to everybody, and has heard the person."""

    speakers: dict[str, Driver]
    root: Client

    async def furnish(self, mixed: MixedHub) -> None:
        """Let the person ask, and each member hear it and answer."""
        self.speakers = {name: await mixed.driver(protocol, name) for name, protocol in SPEAKERS.items()}
        self.root = await self.there.join("root")
        asked = await self.root.send("*", "who is **here**?")
        for name, speaker in self.speakers.items():
            assert (await speaker.hear()).body == "who is **here**?"
            # Peerbus has no channels.
            await speaker.send("*" if name == "dina" else "#general", f"{name} is here")
        self.asked = asked.id

        async def all_are_accepted() -> bool:
            # On some wires a sender does not hear of it.
            return len(await self.said()) == len(self.speakers)

        await until(all_are_accepted)

    async def said(self) -> list[str]:
        """Return the ids of the members' messages."""
        return [one.id for one in await self.root.history(everything=True) if one.body.endswith("is here")]


@pytest_asyncio.fixture(loop_scope="session")
async def floor(folder: Path, browser: Browser) -> AsyncIterator[Floor]:
    # The hub checks the signatures of peerbus.
    (folder / "tieline.toml").write_text(CONFIG, encoding="utf-8")
    async with office(folder, browser) as there:
        built = Floor(there.there, browser)
        mixed = MixedHub(there.there)
        try:
            await built.furnish(mixed)
            yield built
        finally:
            await mixed.close()
            await built.close()
    assert built.complaints == []


async def spoke(page: Page, kind: str) -> None:
    """Check that each member's line of this kind is on the page, with its protocol, its sender and its life."""
    for name, protocol in SPEAKERS.items():
        line = page.locator(kind, has_text=f"{name} is here")
        await expect(line.locator(".wire")).to_have_text(protocol)
        sender = r"client-\d+@general \(unverified\)" if name == UNNAMED else name
        await expect(line.locator(".who")).to_have_text(re.compile(f"^{sender}$"))
        await expect(line.locator(".bar-of-life")).to_be_visible()


async def test_every_page_shows_members_on_five_protocols_alike(floor: Floor) -> None:
    page = await floor.enter(path="#/live")
    await spoke(page, ".row")
    await expect(page.get_by_label("Protocol").locator("option")).to_have_text(
        ["any protocol", *sorted([*PROTOCOLS, "tieline"])]
    )
    # Each recipient's part in the life of the person's own message, with its way.
    await page.locator(".row", has_text="who is here?").click()
    aside = page.get_by_label("Message", exact=True)
    receipts = {one.member: one for one in await floor.root.receipts(floor.asked)}
    for name, protocol in SPEAKERS.items():
        receipt = aside.get_by_label(f"Receipt of {name}")
        await expect(receipt.locator("li .wire").last).to_have_text(protocol)
        await expect(receipt.locator("h3 .state")).to_have_text(receipts[name].state)
    await page.goto(f"{floor.url}/#/members")
    for name, protocol in SPEAKERS.items():
        line = page.get_by_role("row").filter(has=page.get_by_role("link", name=name, exact=True))
        await expect(line.locator(".wire").first).to_have_text(protocol)
    for name, protocol in SPEAKERS.items():
        # The hub itself says on ac7 who has joined a channel.
        await page.goto(f"{floor.url}/#/search/here%20protocol%3A{protocol}")
        await expect(page.locator(".found")).to_have_count(1)
        await expect(page.locator(".found .says")).to_have_text(f"{name} is here")
    assert await faults(page) == []


async def test_what_was_said_on_five_protocols_is_read_answered_and_exported(floor: Floor) -> None:
    said = await floor.said()
    page = await floor.enter(path="#/talk/%23general", **PHONE)
    await spoke(page, ".turn:not(.goes-on)")

    async def are_read() -> bool:
        receipts = [one for message in said for one in await floor.root.receipts(message) if one.member == "root"]
        return [one.steps[-1].evidence for one in receipts] == [EVIDENCE] * len(SPEAKERS)

    await until(are_read)
    for name, speaker in floor.speakers.items():
        await page.goto(f"{floor.url}/#/talk/%40{name}")
        await page.get_by_label(f"Say something to @{name}").fill(f"good, {name}")
        await page.get_by_role("button", name="Send").tap()
        heard = await speaker.hear()
        while not heard.body.startswith("good"):
            heard = await speaker.hear()
        assert heard.body == f"good, {name}"
        await expect(page.locator(".turn").last.get_by_title(re.compile("offered 1 of 1"))).to_be_visible()
    await page.goto(f"{floor.url}/#/talk/%23general")
    await page.locator("summary", has_text="Share").tap()
    async with page.expect_download() as waiting:
        await page.get_by_role("button", name="Export as JSON").tap()
    saved = json.loads((await (await waiting.value).path()).read_text())
    assert sorted(one["protocol"] for one in saved["messages"]) == sorted([*PROTOCOLS, "tieline"])

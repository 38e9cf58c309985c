"""Tests of every page of the console: the keyboard, a hub that restarts, and the time to load."""

import gzip
import sys
import time
from pathlib import Path

import pytest
from playwright.async_api import Browser, expect

from tests.e2e.browsers import Office, office
from tests.server.hubs import running_hub
from tieline.console.report_page import STATIC

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_everything_is_reached_from_the_keyboard(there: Office) -> None:
    page = await there.enter()
    palette = page.get_by_role("combobox", name="Go to")
    await page.keyboard.press("Control+k")
    await expect(palette).to_be_focused()
    await page.keyboard.type("members page")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Members")).to_be_visible()
    await page.keyboard.press("/")
    await expect(palette).to_be_focused()
    await page.keyboard.type("@alice")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="@alice")).to_be_visible()


async def test_a_hub_that_goes_and_comes_back_is_caught_up_with_exactly(folder: Path, browser: Browser) -> None:
    async with office(folder, browser) as there:
        port = there.url.rpartition(":")[2]
        page = await there.enter()
        alice = await there.there.join("alice")
        for number in range(5):
            await alice.send("@root", f"before {number}")
        await expect(page.locator(".row")).to_have_count(5)
        await there.there.hub.stop()
        await expect(page.get_by_text("Connection lost")).to_be_visible()
        async with running_hub(folder, store="sqlite:unsafe", http=f"127.0.0.1:{port}") as again:
            again.tokens.update(there.there.tokens)
            bob = await again.join("bob")
            for number in range(5):
                await bob.send("@root", f"after {number}")
            await expect(page.get_by_role("status").filter(has_text="5 messages came meanwhile")).to_be_visible()
            await expect(page.locator(".row")).to_have_count(10)
            texts = await page.locator(".row .says").all_text_contents()
            expected = [f"{when} {number}" for when in ("before", "after") for number in range(5)]
            assert texts == expected


async def test_the_page_is_small_and_there_soon(there: Office) -> None:
    packed = sum(len(gzip.compress(file.read_bytes(), 9)) for file in (STATIC / "assets").iterdir())
    known = await (await there.enter()).context.storage_state()
    # Logged in, but with nothing of the console kept from before.
    page = await there.page(storage_state=known)
    started = time.monotonic()
    await page.goto(f"{there.url}/")
    await page.get_by_text("Connected", exact=True).wait_for()
    seconds = time.monotonic() - started
    sys.stdout.write(f"{packed / 1000:.1f} KB gzipped; connected {seconds:.2f} s after a first load\n")
    assert packed < 150_000

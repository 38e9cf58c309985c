"""Tests that axe (a checker of accessibility) finds no serious faults in parts of the console that are rarely shown.

These parts are the login, the command palette, alarms, devices, and charts on a narrow screen.
"""

import httpx2 as httpx
import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office, serious
from tests.e2e.reports import REPORT, leave

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_axe_finds_nothing_serious_on_the_way_in(there: Office) -> None:
    page = await there.page(color_scheme="dark")
    await page.goto(f"{there.url}/")
    await page.get_by_role("textbox", name="Token").fill("123456")
    await page.get_by_label("Name, with a code").fill("root")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await serious(page) == []


async def test_axe_finds_nothing_serious_in_an_objective_the_palette_and_under_an_alarm(there: Office) -> None:
    root, alice = await there.there.join("root"), await there.there.join("alice")
    made = await root.create_objective("Ship it", "it is shipped", "alice", body="**soon**", watchers=("bob",))
    await alice.send(f"obj:{made.id}", "I begin")
    await alice.record_activity({"kind": "llm_exchange", "entry": {"request": {"model": "m-1"}}})
    page = await there.enter(path=f"#/objectives/{made.id}")
    await page.locator(".exchange summary").click()
    await expect(page.locator(".turn").first).to_be_visible()
    assert await serious(page) == []
    await root.pause_thread("@alice+@bob")
    await page.emulate_media(color_scheme="dark")
    await page.goto(f"{there.url}/#/live")
    await page.reload()
    await expect(page.get_by_role("alert")).to_contain_text("is paused")
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Go to").fill("ali")
    await expect(page.get_by_role("listbox").get_by_role("option").first).to_be_visible()
    # A dialog hides what is under it from axe as from everybody, so that is looked at after it.
    assert await serious(page) == []
    await page.keyboard.press("Escape")
    await page.set_viewport_size({"width": 420, "height": 800})
    assert await serious(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0


async def test_axe_finds_nothing_serious_where_a_device_waits(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as device:
        await device.post("/enroll", json={"labelHint": "laptop"})
    page = await there.enter(path="#/members", color_scheme="dark")
    await expect(page.get_by_role("button", name="Approve")).to_be_visible()
    assert await serious(page) == []


async def test_axe_finds_nothing_serious_in_dark_and_narrow_insights(there: Office) -> None:
    leave(there.there.home, REPORT)
    page = await there.enter(path="#/insights", color_scheme="dark")
    await page.set_viewport_size({"width": 420, "height": 800})
    await page.locator("figure details").first.locator("summary").click()
    await expect(page.locator("figure details tbody tr")).to_have_count(10)
    assert await serious(page) == []
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0

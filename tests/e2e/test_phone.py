"""Tests of the console on a phone: tabs, alarms, the box to write in, the number in the title, and the installed page.

All tests share one hub, because most of their time would be its start.
"""

import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from playwright.async_api import Browser, FloatRect, Locator, Page, expect

from tests.e2e.browsers import Office, office, until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PHONE: dict[str, Any] = {"viewport": {"width": 390, "height": 844}, "has_touch": True, "is_mobile": True}
KEYBOARD = 336
"""Height of a phone's keyboard."""
ONE_LINE = 44
"""Height of a line that has a button."""
TOUCH = 40
"""Height that a finger hits without looking twice."""


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hub(program: Browser) -> AsyncIterator[Office]:
    """Fixture: a hub in which alice talks, and a conversation is paused."""
    home = Path(tempfile.mkdtemp(prefix="tieline-"))
    async with office(home, program) as built:
        alice, root = await built.there.join("alice"), await built.there.join("root")
        for number in range(30):
            await alice.send("*", f"number {number}")
        await root.create_objective("Ship it", "it is shipped", "alice")
        await root.pause_thread("@alice+@bob")
        yield built
    shutil.rmtree(home)


@pytest.fixture
def there(hub: Office, browser: Browser) -> Office:
    """Fixture: the shared hub, with a browser whose pages are closed after the test."""
    assert browser is hub.browser
    return hub


async def box_of(one: Locator) -> FloatRect:
    """Return the place of an element on the screen."""
    found = await one.bounding_box()
    assert found is not None
    return found


async def test_pages_are_tabs_at_the_bottom_and_the_others_are_behind_more(there: Office) -> None:
    page = await there.enter(path="#/home", **PHONE)
    side = page.get_by_role("navigation", name="Pages")
    for name in ("Home", "Conversations", "Members", "Objectives"):
        tab = side.get_by_role("link", name=name)
        box = await box_of(tab)
        assert box["y"] + box["height"] <= 844
        assert box["y"] > 844 - 80
        assert box["height"] >= TOUCH
        await tab.tap()
        await expect(tab).to_have_attribute("aria-current", "page")
    more = side.get_by_role("button", name="More")
    for name in ("Live", "Search", "Insights"):
        await more.tap()
        await side.get_by_role("link", name=name).tap()
        await expect(page.get_by_role("heading", name=name, level=1)).to_be_visible()
        await expect(side.get_by_role("link", name=name)).to_have_count(0)
    await more.tap()
    await side.get_by_role("link", name="Live").focus()
    await page.keyboard.press("Escape")
    await expect(more).to_be_focused()
    await more.tap()
    await page.get_by_role("heading", name="Insights", level=1).tap()
    await expect(more).to_have_attribute("aria-expanded", "false")
    # Everything else that stands at the side of a wide window is there too.
    await more.tap()
    await side.get_by_label("Theme").select_option("dark")
    assert await page.evaluate("getComputedStyle(document.body).backgroundColor") == "rgb(20, 23, 26)"
    await side.get_by_role("button", name="Go to…").tap()
    await expect(page.get_by_role("combobox", name="Go to")).to_be_focused()


async def test_an_alarm_is_one_line_that_is_put_away_and_the_first_message_is_in_sight(there: Office) -> None:
    page = await there.enter(path="#/talk/%23general", **PHONE)
    alarm = page.get_by_role("alert")
    await expect(alarm).to_contain_text("alice ↔ bob is paused for 10 min more. No messages wait.")
    assert (await box_of(alarm))["height"] <= ONE_LINE
    for path, first in (("#/talk/%23general", ".turn"), ("#/live", ".row")):
        await page.goto(f"{there.url}/{path}")
        # Some messages are whole between the bars, and nothing was scrolled by hand.
        await until(
            page,
            """first => [...document.querySelectorAll(first)].filter((one) => {
                const { top, bottom, left } = one.getBoundingClientRect();
                const hit = document.elementFromPoint(left + 20, (top + bottom) / 2);
                return top >= 0 && bottom <= innerHeight && one.contains(hit);
            }).length >= 5""",
            arg=first,
        )
    await alarm.get_by_role("button", name="Dismiss").tap()
    await expect(alarm).to_have_count(0)
    root = await there.there.join("root")
    await root.pause_thread("#general")
    await expect(alarm).to_contain_text("#general is paused")
    await root.resume_thread("#general")


async def test_the_box_to_write_in_stays_above_the_keyboard(there: Office) -> None:
    page = await there.enter(path="#/talk/%40alice", **PHONE)
    box = page.get_by_label("Say something to @alice")
    await box.tap()
    # Chromium's keyboard makes the page less high.
    await page.set_viewport_size({"width": 390, "height": 844 - KEYBOARD})
    await above(page, box, 844 - KEYBOARD)
    await page.set_viewport_size({"width": 390, "height": 844})
    # Safari's keyboard covers a part of the page, and only the visible part becomes less high.
    await page.evaluate(
        """height => {
            Object.defineProperty(visualViewport, "height", { value: height, configurable: true });
            visualViewport.dispatchEvent(new Event("resize"));
        }""",
        844 - KEYBOARD,
    )
    assert await page.evaluate("innerHeight") == 844
    await above(page, box, 844 - KEYBOARD)
    await box.fill("from a phone")
    await page.get_by_role("button", name="Send").tap()
    await expect(page.locator(".turn").last).to_contain_text("from a phone")
    shown = await box_of(page.locator(".turn").last)
    assert shown["y"] + shown["height"] <= 844 - KEYBOARD


async def above(page: Page, box: Locator, height: int) -> None:
    """Wait until the box to write in and its button are above this height."""
    for one in (box, page.get_by_role("button", name="Send")):
        await expect(one).to_be_visible()
        await until(
            page,
            "([one, height]) => one.getBoundingClientRect().top >= 0 && one.getBoundingClientRect().bottom <= height",
            arg=[await one.element_handle(), height],
        )


async def test_the_title_and_the_icon_have_the_number_of_what_waits(there: Office) -> None:
    page = await there.page(**PHONE)
    await page.add_init_script("navigator.setAppBadge = async (count) => { window.badge = count; };")
    await page.goto(f"{there.url}/")
    await page.get_by_label("Token").fill(there.there.tokens["bob"])
    await page.get_by_role("button", name="Sign in").click()
    await expect(page).to_have_title("(30) Tieline")
    alice = await there.there.join("alice")
    await alice.send("@bob", "one more")
    await expect(page).to_have_title("(31) Tieline")
    await until(page, "window.badge === 31")


async def test_a_phone_can_install_the_page(there: Office) -> None:
    page = await there.enter(**PHONE)
    session = await page.context.new_cdp_session(page)
    found = await session.send("Page.getAppManifest")
    assert found["errors"] == []
    assert found["url"] == f"{there.url}/manifest.webmanifest"
    errors = await session.send("Page.getInstallabilityErrors")
    assert errors["installabilityErrors"] == []
    for icon in ("/icon.svg", "/icon-192.png", "/icon-512.png"):
        answer = await page.request.get(f"{there.url}{icon}")
        assert answer.ok, icon
        assert answer.headers["content-type"].startswith("image/"), icon

"""Tests that everybody can use the console: axe (a checker of accessibility) finds no faults on any page.

Each page is looked at light and dark, on a wide screen, on a phone, and enlarged to 200 %. So are the way in, the
palette and the keys. No page moves by itself, no page is wider than its window, and long names fit.
"""

import re
import shutil
import tempfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Page, expect

from tests.e2e.browsers import Office, faults, office, until
from tests.e2e.reports import REPORT, leave
from tests.server.hubs import HubHarness
from tieline.contract.message import Priority
from tieline.contract.objective import Block

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LONG = "a-member-with-a-name-as-long-as-names-of-members-get-in-hubs"
"""A member's name of 60 characters."""
WINDOWS = [
    *[(scheme, width, height, 1) for scheme in ("light", "dark") for width, height in ((1440, 900), (390, 844))],
    *[(scheme, 640, 400, 2) for scheme in ("light", "dark")],
]
"""Colours, width, height and pixels per point of windows: of a screen, of a phone, and enlarged to 200 %."""
MOVING = """() => {
    const parts = [...document.querySelectorAll("*")].flatMap((one) =>
        [null, "::before", "::after", "::backdrop"].map((part) => [one, getComputedStyle(one, part)]));
    const moving = parts.filter(([, { animationName, transitionDuration, scrollBehavior }]) =>
        animationName !== "none" || !/^(0s(, )?)+$/.test(transitionDuration) || scrollBehavior !== "auto");
    return [...new Set(moving.map(([one]) => one.outerHTML)), ...document.getAnimations().map(String)];
}"""
"""Script that returns what moves on a page by itself, or when something is pressed or scrolled to."""


class Furnished(Office):
    """Test data: a hub with something on every page, and the addresses of all pages."""

    def __init__(self, there: HubHarness, browser: Browser) -> None:
        super().__init__(there, browser)
        # A text of each page, by its address. When it is there, all of the page is drawn.
        self.pages: dict[str, str] = {}
        self.objective = ""

    async def furnish(self) -> None:
        """Let members talk, work, wait and be held."""
        await self.there.add(LONG)
        root, alice, long = [await self.there.join(name) for name in ("root", "alice", LONG)]
        sent = await alice.send("@root", "hello, **look** at `this`", priority=Priority.URGENT, thread="paint-job")
        await alice.send("*", "hello everybody")
        await long.send("@root", "hello from far away " + "x" * 200, title="y" * 80)
        await long.subscribe("c" * 60)
        made = await root.create_objective("Ship it", "it is shipped", LONG, body="**soon**", watchers=("bob",))
        await root.create_objective("z" * 60, "Z" * 200, "alice")
        await long.send(f"obj:{made.id}", "I begin")
        await long.change_objective(made.id, Block("the key is missing"))
        await long.record_activity({"kind": "llm_exchange", "entry": {"request": {"model": "m-1"}}})
        await root.pause_thread(f"@alice+@{LONG}")
        leave(self.there.home, REPORT)
        async with httpx.AsyncClient(base_url=self.url) as device:
            code = (await device.post("/enroll", json={"labelHint": "laptop " * 8})).json()["userCode"]
        self.objective = f"#/objectives/{made.id}"
        self.pages = {
            "#/home": "the key is missing",
            f"#/live?m={sent.id}&at={sent.offset}": "seen by",
            "#/live": "hello everybody",
            "#/talk/%23general": "hello everybody",
            "#/talk/%40alice": "hello",
            f"#/talk/%40{LONG}": "from far away",
            "#/talk/thread%3Apaint-job": "hello",
            "#/talk/%40nobody": "No member is called",
            "#/members": "New member",
            f"#/members/{LONG}": "Nothing falls to another way",
            "#/objectives": "z" * 60,
            self.objective: "I begin",
            "#/search/hello": "everybody",
            "#/insights": "time to live passed",
            f"#/devices/{code}": "laptop laptop",
            "#/nowhere": "Nothing here",
        }


@pytest_asyncio.fixture(scope="module", loop_scope="session")
async def hub(program: Browser) -> AsyncIterator[Furnished]:
    """Fixture: a hub with something on every page, for all tests, because most of their time would be its start."""
    home = Path(tempfile.mkdtemp(prefix="tieline-"))
    async with office(home, program) as empty:
        built = Furnished(empty.there, program)
        await built.furnish()
        yield built
        await built.close()
    assert built.complaints == []
    shutil.rmtree(home)


@pytest.fixture
def there(hub: Furnished, browser: Browser) -> Furnished:
    """Fixture: the shared hub, with a browser whose pages are closed after the test."""
    assert browser is hub.browser
    return hub


async def every(there: Furnished, page: Page) -> AsyncIterator[str]:
    """Open one page of the console after the other. Yield each address when all of its page is drawn."""
    for path, text in there.pages.items():
        await page.goto(f"{there.url}/{path}")
        await expect(page.get_by_role("main").or_(page.get_by_label("Message")).get_by_text(text).first).to_be_visible()
        yield path


@pytest.mark.parametrize(("scheme", "width", "height", "scale"), WINDOWS)
async def test_axe_finds_nothing_and_every_page_fits(
    there: Furnished, scheme: str, width: int, height: int, scale: int
) -> None:
    size: dict[str, Any] = {"viewport": {"width": width, "height": height}, "device_scale_factor": scale}
    page = await there.enter(color_scheme=scheme, **size)
    async for path in every(there, page):
        assert await faults(page) == [], path
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, f"{path} is too wide"
        heights = await page.locator(".list").evaluate_all("all => all.map((one) => one.clientHeight)")
        assert [height for height in heights if height < 100] == [], f"{path} has no room for its messages"


async def test_no_page_moves_by_itself(there: Furnished) -> None:
    # For readers who asked for less motion there is nothing to take away, and everybody else sees the same.
    page = await there.enter()
    async for path in every(there, page):
        assert await page.evaluate(MOVING) == [], path
    # What would move is found.
    for rule in ("h1 { transition: color 1s }", "h1::before { animation: a 1s }", "html { scroll-behavior: smooth }"):
        await page.evaluate(
            "rule => { const one = new CSSStyleSheet(); one.replaceSync(rule); document.adoptedStyleSheets = [one]; }",
            rule,
        )
        assert await page.evaluate(MOVING) != [], rule


async def test_times_have_the_form_of_the_readers_locale_and_all_of_them_in_a_tooltip(there: Furnished) -> None:
    page = await there.enter(locale="de-DE")
    seen = 0
    async for path in every(there, page):
        assert re.findall(r"(?i)\d\s?[ap]m\b", await page.locator("body").inner_text()) == [], path
        moments = page.locator("time")
        titles = await moments.evaluate_all("all => all.map((one) => one.title)")
        assert [title for title in titles if not re.search(r"\b20\d\d\b", title)] == [], path
        seen += len(titles)
    assert seen > len(there.pages)


async def test_axe_finds_nothing_on_the_way_in(there: Furnished) -> None:
    page = await there.page(color_scheme="dark")
    await page.goto(f"{there.url}/")
    await page.get_by_role("textbox", name="Token").fill("123456")
    await page.get_by_label("Name, with a code").fill("root")
    await page.get_by_role("button", name="Sign in").click()
    await expect(page.get_by_role("alert")).to_be_visible()
    assert await faults(page) == []


async def test_axe_finds_nothing_in_what_opens_over_a_page_and_nothing_moves_there(there: Furnished) -> None:
    page = await there.enter(color_scheme="dark", path="#/insights")

    async def look() -> None:
        assert await faults(page) == []
        assert await page.evaluate(MOVING) == []

    await page.locator("figure details").first.locator("summary").click()
    await expect(page.locator("figure details tbody tr")).to_have_count(10)
    await look()
    await page.keyboard.press("Control+k")
    await page.get_by_role("combobox", name="Go to").fill("ali")
    await expect(page.get_by_role("listbox").get_by_role("option").first).to_be_visible()
    # A dialog hides what is under it from axe as from everybody, so that is looked at after it.
    await look()
    await page.keyboard.press("Escape")
    await page.keyboard.press("?")
    await expect(page.get_by_role("dialog", name="Keys")).to_be_visible()
    await look()
    await page.keyboard.press("Escape")
    await page.get_by_role("main").get_by_text("Share", exact=True).click()
    await expect(page.get_by_role("button", name="Copy link")).to_be_visible()
    await look()
    await page.set_viewport_size({"width": 390, "height": 844})
    await page.get_by_role("button", name="More").click()
    await expect(page.get_by_role("link", name="Live")).to_be_visible()
    await look()
    await page.goto(f"{there.url}/{there.objective}")
    await page.locator(".exchange summary").click()
    await look()
    await page.get_by_role("button", name="Reassign").click()
    await expect(page.get_by_role("dialog")).to_be_visible()
    await look()


async def test_the_theme_is_the_persons_choice(there: Furnished) -> None:
    page = await there.enter(color_scheme="light")
    back = "getComputedStyle(document.body).backgroundColor"
    assert await page.evaluate(back) == "rgb(255, 255, 255)"
    await page.get_by_label("Theme").select_option("dark")
    assert await page.evaluate(back) == "rgb(20, 23, 26)"
    await page.reload()
    await page.get_by_text("Connected", exact=True).wait_for()
    assert await page.evaluate(back) == "rgb(20, 23, 26)"
    await page.get_by_label("Theme").select_option("system")
    assert await page.evaluate(back) == "rgb(255, 255, 255)"
    await page.emulate_media(color_scheme="dark")
    await until(page, f"{back} === 'rgb(20, 23, 26)'")

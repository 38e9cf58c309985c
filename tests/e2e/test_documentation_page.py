"""Tests of the documentation in a browser: a reader finds a page by its search, on any screen, without other hosts."""

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office, faults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

INDEX_MS = 60_000
"""Timeout of the first search: a worker of the page loads the index of all pages before it."""


async def test_a_reader_searches_and_opens_what_was_found(there: Office) -> None:
    """A violation of the content security policy, or a request to another host, is a complaint of the office."""
    page = await there.page()
    await page.goto(f"{there.url}/docs/")
    # The theme's script makes the field. A click before that does nothing, and what is typed before it has the focus
    # is lost.
    field = page.locator("input[aria-label=Search]")
    await field.wait_for(state="attached")
    await page.get_by_role("button", name="Search").first.click()
    await expect(field).to_be_focused()
    await page.keyboard.type("redact")
    found = page.get_by_role("option", name="tieline redact").first
    await expect(found).to_be_visible(timeout=INDEX_MS)
    await found.click()
    await expect(page).to_have_url(f"{there.url}/docs/reference/cli/?h=redact#tieline-redact")
    await expect(page.get_by_role("heading", name="tieline redact")).to_be_visible()


async def test_the_first_pages_fit_a_phone_and_axe_finds_nothing_that_is_not_the_themes(there: Office) -> None:
    page = await there.page(viewport={"width": 390, "height": 844})
    for path in ("", "start/", "security/"):
        await page.goto(f"{there.url}/docs/{path}")
        assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path
        # The theme makes wide tables scroll. Browsers let the keyboard scroll them, but axe does not know that. And its
        # buttons that copy have a landmark each.
        themes = ("scrollable-region-focusable", 'landmark-unique: <nav class="md-code__nav"')
        assert [one for one in await faults(page) if not one.startswith(themes)] == [], path


async def test_the_console_links_the_documentation_also_on_a_phone(there: Office) -> None:
    page = await there.enter(viewport={"width": 390, "height": 844})
    assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    await page.get_by_role("button", name="More").click()
    await page.get_by_role("link", name="Docs").click()
    await expect(page).to_have_url(f"{there.url}/docs/")
    await expect(page.get_by_role("heading", level=1)).to_contain_text("Tieline")

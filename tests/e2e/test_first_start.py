"""Tests of the login links to the console that a hub prints at its first start, and that `tieline login` prints."""

import re

import pytest
from playwright.async_api import Browser, Page, expect

from tests.cli.hub_process import HubProcess, wait_until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

LINK = re.compile(r"http://\S+/#/enter/(\S+)")


def link_in(text: str) -> tuple[str, str]:
    """Return the login link in a text, and the secret in the link."""
    found = LINK.search(text)
    assert found is not None, text
    return found[0], found[1]


async def opened(browser: Browser, link: str) -> Page:
    """Open a link in a new browser context. Return the page."""
    page = await (await browser.new_context()).new_page()
    await page.goto(link)
    return page


async def test_the_link_of_a_first_start_opens_the_console_once_and_so_does_that_of_login(browser: Browser) -> None:
    with HubProcess() as hub:
        wait_until(lambda: LINK.search(hub.stdout), "the link of a first start")
        first, secret = link_in(hub.stdout)
        page = await opened(browser, first)
        await expect(page.get_by_text("Connected", exact=True)).to_be_visible()
        assert secret not in page.url
        await expect(page.get_by_role("link", name="Insights")).to_be_visible()
        again = await opened(browser, first)
        await expect(again.get_by_role("alert")).to_be_visible()
        assert hub.cli("member", "add", "carol").returncode == 0
        printed = hub.cli("login", "carol")
        assert "once, within ten minutes" in printed.stdout, printed.stderr
        link, secret = link_in(printed.stdout)
        page = await opened(browser, link)
        await expect(page.get_by_text("Connected", exact=True)).to_be_visible()
        await expect(page.locator(".foot")).to_contain_text("carol")
        assert secret not in page.url
        again = await opened(browser, link)
        await expect(again.get_by_role("alert")).to_be_visible()
        await expect(again.get_by_role("textbox", name="Token")).to_be_visible()
        assert hub.stop() == 0

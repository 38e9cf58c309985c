"""Tests that the console is complete on a hub that does not speak ac7."""

import re
import time
from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, FilePayload, expect

from tests.e2e.browsers import Office, office
from tieline.services.totp import code_at

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest_asyncio.fixture(loop_scope="session")
async def there(folder: Path, browser: Browser) -> AsyncIterator[Office]:
    """Fixture: a running hub without the protocol ac7, and a browser."""
    async with office(folder, browser, ac7=False) as built:
        assert "ac7" not in built.there.hub.servers
        yield built


async def test_a_person_comes_in_by_link_and_by_code_and_goes(there: Office) -> None:
    root = await there.there.join("root")
    link = (await root.issue_token("root", label="login link")).token
    page = await there.page()
    await page.goto(f"{there.url}/#/enter/{link}")
    await page.get_by_text("Connected", exact=True).wait_for()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    async with httpx.AsyncClient(base_url=there.url) as client:
        headers = {"authorization": f"Bearer {there.there.tokens['root']}"}
        secret = (await client.post("/api/members/root/authenticator", headers=headers)).json()["secret"]
    await page.get_by_label("Token").fill(code_at(secret, int(time.time() * 1000)))
    await page.get_by_label("Name, with a code").fill("root")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_browser_is_let_in_and_sends_work_with_a_file(there: Office) -> None:
    page = await there.page()
    await page.goto(f"{there.url}/")
    await page.get_by_role("button", name="Ask for access").click()
    code = await page.locator("code.code").text_content()
    other = await there.enter(path="#/members")
    form = other.get_by_label("Devices").locator("form", has_text=code or "")
    await form.get_by_role("combobox").select_option("bob")
    await form.get_by_role("button", name="Approve").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await other.goto(f"{there.url}/#/objectives")
    await other.get_by_role("button", name="New objective").click()
    dialog = other.get_by_role("dialog")
    for label, words in (("Title", "Tidy up"), ("Outcome", "all is tidy")):
        await dialog.get_by_label(label).fill(words)
    await dialog.get_by_label("Assignee").select_option("bob")
    listed = FilePayload(name="list.txt", mimeType="text/plain", buffer=b"dust")
    await dialog.get_by_label("Files").set_input_files([listed])
    await dialog.get_by_role("button", name="Create").click()
    await page.goto(f"{there.url}/#/talk/%40root")
    await page.get_by_label("Attach").set_input_files([listed])
    await expect(page.locator(".compose .mark")).to_have_count(1)
    await page.get_by_label("Say something to @root").fill("this list?")
    await page.get_by_role("button", name="Send").click()
    turn = page.locator(".turn", has_text="this list?")
    await expect(turn).to_contain_text("1 attached")
    await turn.hover()
    await turn.get_by_role("link", name="Receipts").click()
    async with page.expect_download() as waiting:
        await page.get_by_label("Message", exact=True).get_by_role("link", name=re.compile("list")).click()
    assert (await (await waiting.value).path()).read_bytes() == b"dust"
    bob = await there.there.join("bob")
    (given,) = (await bob.objectives()).objectives
    assert (given.title, [one.name for one in given.attachments]) == ("Tidy up", ["list.txt"])

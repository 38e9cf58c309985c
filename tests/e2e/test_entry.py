"""Tests of the login to the console, and of the logout, in a real browser."""

import asyncio
import time

import httpx2 as httpx
import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office, faults
from tieline.services import totp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_person_logs_in_with_a_code_and_out(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as client:
        headers = {"authorization": f"Bearer {there.there.tokens['root']}"}
        secret = (await client.post("/members/root/enroll-totp", headers=headers)).json()["totpSecret"]
    page = await there.page()
    await page.goto(f"{there.url}/")
    await page.get_by_label("Token").fill(totp.code_at(secret, int(time.time() * 1000)))
    await page.get_by_label("Name, with a code").fill("root")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()


async def test_a_login_link_lets_one_in_and_leaves_the_address(there: Office) -> None:
    root = await there.there.join("root")
    link = (await root.issue_token("root", label="login link")).token
    page = await there.page()
    await page.goto(f"{there.url}/#/enter/{link}")
    await page.get_by_text("Connected", exact=True).wait_for()
    assert link not in page.url
    # It is in no link of the page either, nor behind "back".
    alice = await there.there.join("alice")
    await alice.send("@root", "to look at")
    await page.goto(f"{there.url}/#/live")
    await page.locator(".row").first.click()
    await expect(page.get_by_label("Message", exact=True)).to_be_visible()
    assert link not in await page.content()
    assert link not in page.url
    other = await there.page()
    await other.goto(f"{there.url}/#/enter/{link}")
    await expect(other.get_by_role("alert")).to_be_visible()


async def test_a_link_that_is_opened_by_who_is_in_leaves_the_address_and_stays_good(there: Office) -> None:
    page = await there.enter()
    root = await there.there.join("root")
    link = (await root.issue_token("root", label="login link")).token
    await page.goto(f"{there.url}/#/enter/{link}")
    await expect(page.get_by_role("status").filter(has_text="You are in already")).to_be_visible()
    await expect(page).to_have_url(f"{there.url}/#/home")
    other = await there.page()
    await other.goto(f"{there.url}/#/enter/{link}")
    await other.get_by_text("Connected", exact=True).wait_for()


async def test_who_asks_to_be_let_in_comes_in_when_somebody_says_who_it_is(there: Office) -> None:
    page = await there.page()
    await page.goto(f"{there.url}/")
    await page.get_by_role("button", name="Ask for access").click()
    code = await page.locator("code.code").text_content()
    assert code is not None
    assert await faults(page) == []
    other = await there.enter(path="#/members")
    form = other.get_by_label("Devices").locator("form", has_text=code)
    await expect(form).to_contain_text("a browser, for the console")
    await form.get_by_role("combobox").select_option("bob")
    await form.get_by_role("button", name="Approve").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await expect(page.locator(".foot")).to_contain_text("bob")
    bob = await there.there.join("bob")
    async with asyncio.timeout(10):
        # Its first token, and that of the browser.
        while True:
            labels = sorted([view.label for view in await bob.tokens("bob")])
            if labels == ["", "console"]:
                break
            await asyncio.sleep(0.1)


async def test_who_asks_to_be_let_in_and_is_refused_is_told(there: Office) -> None:
    page = await there.page()
    await page.goto(f"{there.url}/")
    await page.get_by_role("button", name="Ask for access").click()
    code = await page.locator("code.code").text_content()
    assert code is not None
    other = await there.enter(path="#/members")
    form = other.get_by_label("Devices").locator("form", has_text=code)
    await form.get_by_role("button", name="Refuse").click()
    await expect(page.get_by_role("alert")).to_have_text("You were refused.")
    await expect(page.get_by_role("button", name="Ask for access")).to_be_visible()


async def test_a_code_after_a_session_that_was_revoked_lets_one_in(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as client:
        headers = {"authorization": f"Bearer {there.there.tokens['alice']}"}
        secret = (await client.post("/members/alice/enroll-totp", headers=headers)).json()["totpSecret"]
    page = await there.enter()
    root = await there.there.join("root")
    (session,) = [view for view in await root.tokens("root") if view.label == "console"]
    await root.revoke_token("root", session.id)
    await page.get_by_label("Token").fill(totp.code_at(secret, int(time.time() * 1000)))
    await page.get_by_label("Name, with a code").fill("alice")
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await expect(page.locator(".foot")).to_contain_text("alice")


async def test_who_logs_out_is_out(there: Office) -> None:
    page = await there.enter()
    await page.get_by_role("button", name="Sign out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()

"""Getting into the console, and out."""

import time

import httpx2 as httpx
import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office
from tieline.protocols.ac7 import totp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_person_logs_in_with_a_code_and_out(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as client:
        headers = {"authorization": f"Bearer {there.there.tokens['root']}"}
        secret = (await client.post("/members/root/enroll-totp", headers=headers)).json()["totpSecret"]
    page = await there.page()
    await page.goto(f"{there.url}/")
    await page.get_by_label("Token").fill(totp.code_at(secret, int(time.time() * 1000)))
    await page.get_by_label("Name, with a code").fill("root")
    await page.get_by_role("button", name="Come in").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await page.get_by_role("button", name="Log out").click()
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
    other = await there.page()
    await other.goto(f"{there.url}/#/enter/{link}")
    await expect(other.get_by_role("alert")).to_be_visible()


async def test_who_logs_out_is_out(there: Office) -> None:
    page = await there.enter()
    await page.get_by_role("button", name="Log out").click()
    await expect(page.get_by_label("Token")).to_be_visible()
    await page.reload()
    await expect(page.get_by_label("Token")).to_be_visible()

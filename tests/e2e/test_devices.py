"""Tests of devices that ask for a token: one device is refused, and the link of another one leads to its approval."""

import httpx2 as httpx
import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_device_that_nobody_knows_is_refused(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as device:
        started = (await device.post("/enroll", json={"labelHint": "somebody's laptop"})).json()
        page = await there.enter(path="#/members")
        form = page.get_by_label("Devices").locator("form")
        await expect(form).to_contain_text(f"{started['userCode']} somebody's laptop from 127.0.0.1")
        await form.get_by_role("button", name="Refuse").click()
        await expect(page.get_by_role("status").filter(has_text="Refused.")).to_be_visible()
        await expect(form).to_have_count(0)
        told = await device.post("/enroll/poll", json={"deviceCode": started["deviceCode"]})
    assert told.status_code == 400
    assert told.json()["error"] == "access_denied"


async def test_the_link_of_a_device_leads_to_its_approval_with_the_code_filled_in(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as device:
        started = (await device.post("/enroll", json={"labelHint": "a runner"})).json()
        page = await there.page()
        await page.goto(there.url + started["verificationUriComplete"])
        # The way in keeps the address.
        await page.get_by_label("Token").fill(there.there.tokens["root"])
        await page.get_by_role("button", name="Sign in").click()
        form = page.get_by_label("Device", exact=True)
        await expect(form.get_by_label("Code")).to_have_value(started["userCode"])
        await expect(form).to_contain_text("a runner from 127.0.0.1")
        await form.get_by_label("for").select_option("alice")
        await form.get_by_role("button", name="Approve").click()
        await expect(page.get_by_role("status").filter(has_text="It has its token now.")).to_be_visible()
        told = await device.post("/enroll/poll", json={"deviceCode": started["deviceCode"]})
    assert told.json()["member"]["name"] == "alice"

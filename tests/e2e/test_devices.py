"""Devices that ask for a token and do not get one."""

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

"""Tests of the live tail (the list of new messages) of the console, in a real browser."""

import asyncio
import re
from datetime import UTC, datetime, timedelta

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_what_agents_say_on_three_protocols_is_seen_as_it_happens(there: Office) -> None:
    page = await there.enter()
    alice = await there.there.join("alice")
    await alice.send("@bob", "on the hub's own protocol")
    await there.over_ac7("bob", "alice", "on ac7", level="warning")
    await there.over_channels("root", "on agent-channels")
    rows = page.locator(".row")
    await expect(rows).to_have_count(3)
    await expect(rows.nth(0)).to_contain_text("alice → @bob")
    await expect(rows.nth(1)).to_contain_text("warning")
    await expect(rows.nth(2)).to_contain_text("(unverified)")
    await expect(rows.locator(".wire")).to_have_text(["tieline", "ac7", "agent-channels"])
    # A long name of the sender leaves room for the place.
    assert await rows.nth(2).locator(".to").evaluate("one => one.scrollWidth - one.clientWidth") <= 0


async def test_the_tail_can_be_paused_and_filtered_and_goes_on_where_it_was(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@bob", "the first")
    await there.over_ac7("bob", "alice", "the second", level="error")
    page = await there.enter()
    rows = page.locator(".row")
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Pause").click()
    await alice.send("@bob", "the third")
    await page.get_by_role("button", name="Resume (1 new)").wait_for()
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Resume").click()
    await expect(rows).to_have_count(3)
    await page.get_by_label("Filter").fill("bob SECOND")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Filter").fill("")
    await page.get_by_label("Protocol").select_option("ac7")
    await expect(rows).to_contain_text(["the second"])
    await page.get_by_label("Protocol").select_option("")
    await page.get_by_label("Level").select_option("warning")
    await expect(rows).to_contain_text(["the second"])


async def test_what_was_said_before_is_read_back_while_the_tail_stands_still(there: Office) -> None:
    alice = await there.there.join("alice")
    # More than the page has at first.
    await asyncio.gather(*(alice.send("@bob", f"number {number}.") for number in range(230)))
    page = await there.enter()
    await expect(page.locator(".row").last).to_contain_text("number")
    await page.get_by_role("button", name="Pause").click()
    await alice.send("@bob", "one more")
    await page.get_by_role("button", name="Resume (1 new)").wait_for()
    await page.locator(".list").evaluate("(list) => { list.scrollTop = 0; }")
    await expect(page.get_by_text("230 messages")).to_be_visible()
    await page.locator(".list").evaluate("(list) => { list.scrollTop = 0; }")
    await expect(page.locator(".row").first).to_contain_text("number 0.")
    await page.get_by_role("button", name="Resume (1 new)").click()
    await expect(page.get_by_text(re.compile("2[03]1 messages"))).to_be_visible()


async def test_a_line_names_its_sender_before_the_protocol_without_the_signs_of_markdown_below_its_day(
    there: Office,
) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "# Plan\n\nI will **mend** `parse()`, see [it](https://example.org)")
    await alice.send("@root", "and then rest")
    page = await there.enter()
    rows, days = page.locator(".row"), page.locator(".between-turns")
    await expect(rows.first.locator(".says")).to_have_text("Plan I will mend parse(), see it")
    texts = await rows.first.inner_text()
    assert texts.index("alice") < texts.index("tieline") < texts.index("Plan")
    await expect(days).to_have_text(["Today"])
    # The same, one day later.
    await page.clock.set_fixed_time(datetime.now(UTC) + timedelta(days=1))
    await page.reload()
    await expect(rows).to_have_count(2)
    await expect(days).to_have_text(["Yesterday"])
    await page.goto(f"{there.url}/#/talk/%40alice")
    await expect(page.locator(".turn .who")).to_have_text(["alice"])
    await expect(page.locator(".turn.goes-on .prose")).to_have_text(["and then rest"])
    await expect(days.first).to_have_text("Yesterday")

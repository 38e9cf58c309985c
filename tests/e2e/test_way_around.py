"""Tests of links in the console: from the live tail to a thread, from a message to its conversation, to a channel."""

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_the_tail_is_narrowed_to_a_thread_and_leads_to_where_something_was_said(there: Office) -> None:
    alice, bob = await there.there.join("alice"), await there.there.join("bob")
    await alice.send("@bob", "which colour?", thread="paint-job")
    await bob.send("@root", "how much time?", thread="schedule")
    await bob.send("@alice", "green", thread="paint-job")
    for number in range(40):
        await alice.send("@root", f"meanwhile {number}")
    page = await there.enter()
    rows = page.locator(".row")
    await expect(rows.last).to_contain_text("meanwhile 39")
    await page.get_by_label("Filter").fill("paint-job")
    await expect(rows.locator(".says")).to_have_text(["which colour?", "green"])
    await page.get_by_label("Filter").fill("schedule")
    await rows.filter(has_text="how much time?").click()
    aside = page.get_by_label("Message", exact=True)
    await expect(aside.locator("dt:text-is('Thread') + dd")).to_contain_text("schedule")
    await aside.locator("dt:text-is('In') + dd").get_by_role("link", name="@bob").click()
    await expect(page.get_by_role("heading", name="@bob", exact=True)).to_be_visible()
    await expect(page.locator(".turn.chosen")).to_contain_text("how much time?")
    await expect(aside).to_contain_text("how much time?")


async def test_a_link_to_an_early_message_shows_it_among_many(there: Office) -> None:
    alice = await there.there.join("alice")
    first = await alice.send("@root", "the very first")
    for number in range(60):
        await alice.send("@root", f"later {number}")
    page = await there.enter(path=f"#/live?m={first.id}")
    await expect(page.locator(".row.chosen")).to_be_in_viewport()
    await expect(page.locator(".row.chosen")).to_contain_text("the very first")
    await page.get_by_label("Message", exact=True).get_by_role("link", name="@alice").click()
    await expect(page.locator(".turn.chosen")).to_be_in_viewport()
    await expect(page.locator(".turn.chosen")).to_contain_text("the very first")


async def test_a_channel_is_named_by_its_first_letters(there: Office) -> None:
    alice = await there.there.join("alice", receive=True)
    for channel in ("deploys", "design"):
        await alice.subscribe(channel)
    page = await there.enter(path="#/talk/%40alice")
    box = page.get_by_label("Say something to @alice")
    await box.press_sequentially("look at #de")
    names = page.get_by_role("listbox", name="Names").get_by_role("option")
    await expect(names).to_have_text(["#deploys", "#design"])
    await box.press("ArrowDown")
    await expect(names.last).to_have_attribute("aria-selected", "true")
    await box.press("Enter")
    await expect(box).to_have_value("look at #design ")
    await expect(names).to_have_count(0)
    await box.press_sequentially("please")
    await box.press("Enter")
    assert (await anext(aiter(alice))).message.body == "look at #design please"

"""Tests of links in the console: from the live tail to a thread, from a message to its conversation, to a channel."""

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office
from tieline.contract.objective import Complete

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


async def test_an_address_of_nothing_says_so_and_leads_back(there: Office) -> None:
    root = await there.there.join("root")
    await root.create_objective("Ship it", "it is shipped", "alice")
    page = await there.enter()
    for path, words in (
        ("#/nowhere", "There is no page “nowhere”."),
        ("#/constructor", "There is no page “constructor”."),
        ("#/talk/%40nobody", "No member is called “nobody”."),
        ("#/talk/%23nothing", "There is no channel “nothing”."),
        ("#/talk/obj%3Anone", "There is no such objective that you may see."),
        ("#/talk/what", "There is no conversation “what”."),
        ("#/members/nobody", "No member is called nobody."),
        ("#/objectives/none", "There is no objective “none” that you may see."),
        ("#/live?m=none&at=1", "There is no such message that you may see."),
    ):
        await page.goto(f"{there.url}/{path}")
        await expect(page.get_by_text(words)).to_be_visible()
        await expect(page.get_by_role("textbox", name="Say something")).to_have_count(0)
    await page.goto(f"{there.url}/#/talk/%40nobody")
    await page.get_by_role("link", name="Go to #general").click()
    await expect(page.get_by_role("textbox", name="Say something to #general")).to_be_visible()


async def test_the_list_of_conversations_folds_and_has_the_newest_first_and_no_ended_objective(there: Office) -> None:
    root, alice, bob = [await there.there.join(name) for name in ("root", "alice", "bob")]
    await bob.send("@root", "first")
    await alice.send("@root", "second")
    ended = await root.create_objective("Ended work", "it is done", "root")
    await root.create_objective("Open work", "it is done", "alice")
    page = await there.enter(path="#/home")
    places = page.get_by_role("navigation", name="Conversations")
    direct = places.locator("details", has=page.get_by_role("heading", name="Direct"))
    await expect(direct.locator("a .name")).to_have_text(["@alice", "@bob"])
    await bob.send("@root", "third")
    await expect(direct.locator("a .name")).to_have_text(["@bob", "@alice"])
    await expect(places.get_by_role("link", name="Ended work")).to_be_visible()
    await root.change_objective(ended.id, Complete("done"))
    await expect(places.get_by_role("link", name="Ended work")).to_have_count(0)
    await expect(places.get_by_role("link", name="Open work")).to_be_visible()
    await expect(places.get_by_role("link", name="1 ended")).to_be_visible()
    # A folded group still says how much is unread in it, and stays folded.
    await direct.get_by_role("heading").click()
    await expect(direct.locator("summary")).to_contain_text("3 unread")
    await page.reload()
    await expect(direct.locator("summary")).to_contain_text("3 unread")
    await expect(places.get_by_role("link", name="@bob")).to_have_count(0)
    await direct.get_by_role("heading").click()
    await expect(places.get_by_role("link", name="@bob")).to_be_visible()

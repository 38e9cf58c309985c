"""Tests of the console's page Search, in a real browser: filters, marked words, and links to the place of a message."""

from urllib.parse import quote

import pytest
from playwright.async_api import FilePayload, Page, expect

from tests.e2e.browsers import Office, faults

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def finds(page: Page, there: Office, query: str, *bodies: str) -> None:
    """Search by address. Check that exactly these bodies are found, the newest first."""
    await page.goto(f"{there.url}/#/search/{quote(query, safe='')}")
    await expect(page.get_by_role("main").get_by_role("status")).to_have_text(f"{len(bodies)} found")
    await expect(page.locator(".found .says")).to_have_text(list(bodies))


async def test_filters_narrow_what_is_found(there: Office) -> None:
    alice, bob, root = [await there.there.join(name) for name in ("alice", "bob", "root")]
    await alice.subscribe("dev")
    await root.subscribe("dev")
    await alice.send("#dev", "the elephant is **green**", thread="paint job")
    await bob.send("@root", "an elephant, `privately`")
    await there.over_ac7("alice", "root", "elephant over ac7")
    page = await there.enter()
    await finds(page, there, "elephant from:alice", "elephant over ac7", "the elephant is green")
    await finds(page, there, "elephant in:#dev", "the elephant is green")
    await finds(page, there, 'elephant in:"paint job"', "the elephant is green")
    await finds(page, there, "elephant in:@bob", "an elephant, privately")
    await finds(page, there, "elephant protocol:ac7", "elephant over ac7")
    await finds(page, there, "from:bob since:1h", "an elephant, privately")
    await finds(page, there, "from:bob since:2999-01-01")
    await expect(page.get_by_text("Nothing that you may see matches.")).to_be_visible()


async def test_fields_write_the_filters_and_files_are_found(there: Office) -> None:
    page = await there.enter(path="#/talk/%40alice")
    box = page.get_by_label("Say something to @alice")
    await page.get_by_label("Attach").set_input_files(
        [FilePayload(name="list.txt", mimeType="text/plain", buffer=b"dust")]
    )
    await expect(page.get_by_text("list.txt")).to_be_visible()
    await box.fill("the purple list")
    await box.press("Enter")
    await expect(page.locator(".turn", has_text="the purple list")).to_be_visible()
    await box.fill("a purple word")
    await box.press("Enter")
    await expect(page.locator(".turn", has_text="a purple word")).to_be_visible()
    await page.goto(f"{there.url}/#/search/purple")
    found = page.locator(".found")
    await expect(found).to_have_count(2)
    await page.get_by_role("checkbox", name="with files").check()
    await expect(found).to_have_count(1)
    await expect(found).to_contain_text("1 file")
    words = page.get_by_role("searchbox", name="Words to look for")
    await expect(words).to_have_value("purple has:file")
    await page.get_by_label("From", exact=True).select_option("root")
    await page.get_by_label("Since").select_option("7d")
    await expect(words).to_have_value("purple from:root since:7d has:file")
    await expect(found).to_have_count(1)
    assert await faults(page) == []
    await page.get_by_label("From", exact=True).select_option("bob")
    await expect(found).to_have_count(0)


async def test_found_words_are_marked_and_lead_to_where_they_were_said(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", f"{'long ago ' * 80}an Elephant came <b>in</b>")
    for number in range(40):
        await alice.send("@root", f"meanwhile {number}")
    page = await there.enter(path="#/search/elephant%20in%3A%40alice")
    found = page.locator(".found")
    await expect(found.locator("mark")).to_have_text("Elephant")
    await expect(found.locator(".says")).to_contain_text("came <b>in</b>")
    await expect(found.get_by_role("link", name="alice", exact=True)).to_have_attribute("href", "#/members/alice")
    await found.get_by_role("link", name="@alice").click()
    await expect(page.locator(".turn.chosen")).to_be_in_viewport()
    await expect(page.locator(".turn.chosen")).to_contain_text("an Elephant came")


async def test_a_filter_that_finds_nothing_is_explained(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "hello")
    page = await there.enter(path=f"#/search/{quote('hello from:nobody has:wings in:#nowhere', safe='')}")
    for words in ("No member is called “nobody” now.", "“has:wings” is no filter", "There is no “#nowhere” now."):
        await expect(page.get_by_text(words)).to_be_visible()
    assert await faults(page) == []


async def test_more_than_a_page_is_read_when_it_is_asked_for(there: Office) -> None:
    alice = await there.there.join("alice")
    for number in range(120):
        await alice.send("@root", f"elephant {number}")
    page = await there.enter(path="#/search/elephant")
    await expect(page.locator(".found")).to_have_count(50)
    for count in (100, 120):
        await page.get_by_role("button", name="Show older").click()
        await expect(page.locator(".found")).to_have_count(count)
    await expect(page.get_by_role("button", name="Show older")).to_have_count(0)
    await expect(page.get_by_text("120 found")).to_be_visible()

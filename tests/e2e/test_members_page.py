"""Tests of the console's page of members, in a real browser."""

import asyncio
import re

import httpx2 as httpx
import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office
from tieline.contract.objective import Complete
from tieline.contract.reach import Leg, Reach, Way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_members_are_made_get_tokens_and_lose_them(there: Office) -> None:
    page = await there.enter(path="#/members")
    await page.get_by_label("New member").fill("carol")
    await page.get_by_role("button", name="Add").click()
    aside = page.get_by_label("carol", exact=True)
    token = await aside.locator("code.token").text_content()
    assert token is not None
    there.there.tokens["carol"] = token
    carol = await there.there.join("carol")
    await aside.get_by_role("button", name="Issue a token").click()
    await expect(aside.get_by_role("listitem")).to_have_count(2)
    await aside.get_by_role("button", name="Revoke").last.click()
    await expect(aside.get_by_role("listitem")).to_have_count(1)
    assert (await carol.members())[0].name == "alice"
    await aside.get_by_role("button", name="Rotate").click()
    await page.get_by_role("dialog").get_by_role("button", name="Rotate").click()
    await expect(aside.locator("code.token")).not_to_have_text(token)
    await expect(aside.get_by_role("listitem")).to_have_count(1)
    await aside.get_by_role("button", name="Remove member").click()
    await page.get_by_role("dialog", name="Remove carol").get_by_role("button", name="Remove member").click()
    await expect(page.get_by_role("link", name="carol")).to_have_count(0)


async def test_a_member_is_shown_with_what_it_is_reached_by_and_what_waits(there: Office) -> None:
    operator = await there.there.operator()
    legs = (Leg(Way.HOOK, 90_000), Leg(Way.NOTIFY, 0))
    await operator.reach("alice", Reach(legs, urgent_ms=5000, notify="root"))
    alice = await there.there.join("alice", carrier="websocket")
    await alice.set_busy()
    await alice.send("@root", "may I?")
    await alice.send("@bob", "one")
    page = await there.enter(path="#/members/alice")
    aside = page.get_by_label("alice", exact=True)
    for words in ("tieline", "hook: shown by its program between two turns for 1 min, then", "(root)"):
        await expect(aside).to_contain_text(words)
    await expect(aside).to_contain_text("What is urgent gives each way 5 s.")
    await expect(page.get_by_role("region", name="Now")).to_contain_text("working for")
    await page.get_by_role("link", name="All members").click()
    first = page.locator("tbody tr").first
    await expect(first).to_contain_text(re.compile("alice.*working for.*tieline.*an answer"))
    bob = page.locator("tbody tr", has_text="bob")
    await expect(bob).to_contain_text(re.compile("away.*1"))
    await page.goto(f"{there.url}/#/talk/%40alice")
    await page.get_by_label("Say something to @alice").fill("yes")
    await page.get_by_role("button", name="Send").click()
    await page.goto(f"{there.url}/#/members")
    await expect(page.get_by_role("link", name="an answer")).to_have_count(0)


async def test_a_timeline_goes_back_to_the_first_message_however_busy_the_hub_is(there: Office) -> None:
    root, alice, bob = [await there.there.join(name) for name in ("root", "alice", "bob")]
    made = await root.create_objective("Find the key", "it is found", "bob")
    for number in range(150):
        await bob.send("#general", f"word {number}")
    await bob.change_objective(made.id, Complete("under the mat"))
    for _ in range(20):
        await asyncio.gather(*(alice.send("#general", "noise") for _ in range(100)))
    page = await there.enter(path="#/members/bob")
    timeline = page.get_by_role("region", name="Timeline")
    lines = timeline.get_by_role("listitem")
    await expect(lines.first).to_contain_text("bob objective completed: under the mat (Find the key)")
    await expect(lines.nth(1)).to_contain_text("→ #general word 149")
    await expect(timeline).not_to_contain_text("noise")
    await expect(lines).to_have_count(100)
    await timeline.get_by_role("button", name="Older").click()
    await expect(lines).to_have_count(152)
    await expect(lines.last).to_contain_text("root objective assigned: it is found (Find the key)")
    await bob.send("#general", "one more")
    await expect(lines.first).to_contain_text("one more")
    await expect(timeline.get_by_role("button", name="Older")).to_have_count(0)


async def test_a_member_that_did_nothing_says_so_and_home_says_what_waits_for_it(there: Office) -> None:
    await there.there.add("carol")
    page = await there.enter(path="#/members/carol")
    timeline = page.get_by_role("region", name="Timeline")
    await expect(timeline).to_contain_text("It has said and done nothing yet.")
    await timeline.get_by_role("button", name="Tool calls").click()
    await expect(timeline).to_contain_text("Nothing of this kind yet.")
    root, carol = await there.there.join("root"), await there.there.join("carol")
    await root.send("@carol", "hello")
    await root.create_objective("Find the key", "it is found", "carol")
    await carol.close()
    await page.goto(f"{there.url}/#/home")
    row = page.get_by_role("region", name="Who is here").get_by_role("listitem").filter(has_text="carol")
    await expect(row).to_contain_text(re.compile(r"away\s*for \d+ s.*Find the key.*2 messages waiting"))


async def test_those_who_need_somebody_come_first_and_then_who_is_here(there: Office) -> None:
    await there.there.add("carol", "dave", "erin")
    alice = await there.there.join("alice")
    await there.there.join("erin")
    await alice.send("@root", "may I?")
    await alice.send("@dave", "one")
    for number in range(3):
        await alice.send("@carol", f"one of {number}")
    page = await there.enter(path="#/members")
    names = page.locator("tbody tr td:first-child a")
    await expect(names).to_have_text(["alice", "carol", "dave", "root", "erin", "bob"])


async def test_a_token_is_shown_this_once(there: Office) -> None:
    page = await there.enter(path="#/members/bob")
    aside = page.get_by_label("bob", exact=True)
    await aside.get_by_role("button", name="Issue a token").click()
    await expect(aside.locator("code.token")).to_be_visible()
    await page.goto(f"{there.url}/#/members")
    await expect(aside).to_have_count(0)
    await page.goto(f"{there.url}/#/members/bob")
    await expect(aside.get_by_role("listitem")).to_have_count(2)
    await expect(aside.locator("code.token")).to_have_count(0)


async def test_a_device_gets_its_token_when_a_person_says_whose_it_is(there: Office) -> None:
    async with httpx.AsyncClient(base_url=there.url) as device:
        started = (await device.post("/enroll", json={"labelHint": "laptop"})).json()
        page = await there.enter(path="#/members")
        form = page.get_by_label("Devices").locator("form")
        await expect(form).to_contain_text(started["userCode"])
        await form.get_by_role("combobox").select_option("bob")
        await form.get_by_role("button", name="Approve").click()
        await expect(form).to_have_count(0)
        given = await device.post("/enroll/poll", json={"deviceCode": started["deviceCode"]})
    assert given.json()["member"]["name"] == "bob"


async def test_who_may_not_sees_neither_the_data_nor_the_button(there: Office) -> None:
    alice = await there.there.join("alice")
    await there.there.add("carol")
    await alice.send("@bob", "between two")
    await alice.send("@carol", "for carol")
    page = await there.enter("carol")
    await expect(page.locator(".row")).to_have_count(1)
    await expect(page.locator("body")).not_to_contain_text("between two")
    await page.goto(f"{there.url}/#/members/bob")
    await expect(page.get_by_label("bob", exact=True)).to_be_visible()
    for name in ("Add", "Issue a token", "Remove member", "Revoke"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await page.goto(f"{there.url}/#/objectives")
    await expect(page.get_by_role("button", name="New objective")).to_have_count(0)

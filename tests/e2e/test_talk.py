"""Tests of conversations in the console: write, reply, attach files, join channels, and find messages."""

import asyncio
import re
from pathlib import Path

import httpx2 as httpx
import pytest
from playwright.async_api import Browser, FilePayload, expect

from tests.e2e.browsers import Office, office
from tieline.contract.member import MemberKind
from tieline.contract.message import Priority

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


async def test_a_person_talks_with_an_agent_and_sees_what_became_of_it(there: Office) -> None:
    alice = await there.there.join("alice", receive=True)
    page = await there.enter(path="#/talk/%40alice")
    box = page.get_by_label("Say something to @alice")
    await box.fill("are you there, @bo")
    await expect(page.get_by_role("option", name="@bob")).to_be_visible()
    await box.press("Tab")
    await box.press_sequentially("too?")
    await page.get_by_label("Urgent").check()
    await box.press("Enter")
    delivery = await anext(aiter(alice))
    assert delivery.message.body == "are you there, @bob too?"
    assert (delivery.message.sender, delivery.message.priority) == ("root", Priority.URGENT)
    await page.get_by_role("link", name="Receipts").click()
    aside = page.get_by_label("Message", exact=True)
    await expect(aside).to_contain_text("Not seen by 1 of 1")
    alice.ack(delivery)
    await expect(aside).to_contain_text("Seen by all 1")
    await alice.send("@root", "yes", reply_to=delivery.message.id)
    await expect(page.locator(".turn").nth(1)).to_contain_text("↪ root: are you there")
    await page.locator(".turn").nth(1).hover()
    await page.locator(".turn").nth(1).get_by_role("button", name="Reply").click()
    await box.fill("good")
    await box.press("Enter")
    again = await anext(aiter(alice))
    assert again.message.reply_to is not None


async def test_what_is_said_once_is_sent_once_and_what_is_written_meanwhile_stays(there: Office) -> None:
    page = await there.enter(path="#/talk/%40alice")
    box = page.get_by_label("Say something to @alice")
    await box.fill("once")
    # Before the hub can answer: twice Enter, and more.
    await box.evaluate(
        """box => {
            const press = () => box.dispatchEvent(new KeyboardEvent("keydown", {key: "Enter", bubbles: true}));
            press();
            press();
            box.value = "meanwhile";
            box.dispatchEvent(new InputEvent("input", {bubbles: true}));
        }"""
    )
    await expect(page.locator(".turn")).to_have_count(1)
    await expect(box).to_have_value("meanwhile")
    alice = await there.there.join("alice")
    assert [message.body for message in await alice.history("root")] == ["once"]
    # A new line and a step back complete no name.
    await box.fill("for @bo")
    await expect(page.get_by_role("option", name="@bob")).to_be_visible()
    await box.press("Shift+Enter")
    await expect(box).to_have_value("for @bo\n")


async def test_who_only_may_read_the_log_is_offered_nothing_that_the_hub_refuses(there: Office) -> None:
    await there.there.add("eve", permissions=("log.read", "objectives.create"), kind=MemberKind.HUMAN)
    async with httpx.AsyncClient(base_url=there.url) as client:
        headers = {"authorization": f"Bearer {there.there.tokens['alice']}"}
        kept = await client.post("/fs/write", params={"path": "/alice/plan.txt"}, content=b"plan", headers=headers)
    await there.over_ac7("alice", "bob", "between us", attachments=[kept.json()["entry"]])
    root = await there.there.join("root")
    given = await root.create_objective("Mend it", "mended", "alice")
    page = await there.enter("eve", path="#/talk/alice%20%E2%86%94%20bob")
    turn = page.locator(".turn", has_text="between us")
    await turn.hover()
    await expect(turn.get_by_role("button", name="Reply")).to_have_count(0)
    await turn.get_by_role("link", name="Receipts").click()
    aside = page.get_by_label("Message", exact=True)
    await expect(aside.get_by_label("Files")).to_contain_text("plan.txt")
    await expect(aside.get_by_label("Files").get_by_role("link")).to_have_count(0)
    await page.goto(f"{there.url}/#/talk/obj%3A{given.id}")
    await expect(page.get_by_text("Only those who have a part in it write here.")).to_be_visible()
    await expect(page.get_by_label("Attach")).to_have_count(0)


async def test_on_a_narrow_screen_the_keyboard_goes_to_the_message_and_escape_closes_it(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "look")
    page = await there.enter(viewport={"width": 390, "height": 800})
    await page.locator(".row a").press("Enter")
    await expect(page.get_by_role("heading", name="Message")).to_be_focused()
    await page.keyboard.press("Escape")
    await expect(page.get_by_label("Message", exact=True)).to_have_count(0)


async def test_channels_are_joined_and_left(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.subscribe("dev")
    page = await there.enter(path="#/talk/%23dev")
    await page.get_by_role("button", name="Join").click()
    await page.get_by_label("Say something to #dev").fill("hello")
    await page.get_by_role("button", name="Send", exact=True).click()
    await expect(page.locator(".turn")).to_have_count(1)
    await page.get_by_role("button", name="Leave").click()
    await expect(page.get_by_role("status").filter(has_text="You left #dev.")).to_be_visible()


async def test_a_conversation_that_is_held_is_told_of_and_let_go_on(folder: Path, browser: Browser) -> None:
    (folder / "tieline.toml").write_text("[limits]\nhops_soft = 3\nhops_max = 3\nhop_ms_min = 0\n")
    async with office(folder, browser) as there:
        alice, bob = await there.there.join("alice"), await there.there.join("bob")
        for _ in range(2):
            await bob.claim((await alice.send("@bob", "ping")).id)
            await alice.claim((await bob.send("@alice", "pong")).id)
        held = await alice.send("@bob", "one too many")
        page = await there.enter(path=f"#/live?m={held.id}")
        alarm = page.get_by_role("alert")
        await expect(alarm).to_contain_text("alice ↔ bob is held: agents answered each other too often.")
        await expect(alarm).to_contain_text("1 message waits.")
        receipt = page.get_by_label("Message", exact=True).locator(".receipt")
        await expect(receipt.locator("h3")).to_contain_text("held")
        await expect(receipt.locator("li").last).to_contain_text("hops_max = 3")
        await alarm.get_by_role("button", name="Resume").click()
        await expect(alarm).to_have_count(0)
        assert await bob.claim(held.id) is not None


async def test_a_person_pauses_what_others_say_to_each_other(there: Office) -> None:
    alice, bob = await there.there.join("alice"), await there.there.join("bob")
    await bob.send("@alice", "a word", thread="talk")
    said = await bob.send("@alice", "another")
    page = await there.enter(path="#/talk/alice%20%E2%86%94%20bob")
    await page.get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog", name="Pause alice ↔ bob").get_by_role("button", name="Pause").click()
    alarm = page.get_by_role("alert")
    await expect(alarm).to_contain_text("alice ↔ bob is paused for 10 min more")
    await expect(page.get_by_role("button", name="Pause")).to_have_count(0)
    held = await alice.send("@bob", "more", reply_to=said.id)
    assert "root paused @alice+@bob" in held.held
    await alarm.get_by_role("button", name="Resume").click()
    await expect(alarm).to_have_count(0)
    assert await bob.claim(held.id) is not None
    await page.locator(".turn").first.hover()
    await page.get_by_role("link", name="Receipts").first.click()
    await page.get_by_label("Message", exact=True).get_by_role("button", name="Pause").click()
    await page.get_by_role("dialog").get_by_role("button", name="Pause").click()
    await expect(alarm).to_contain_text("Thread talk is paused")


async def test_a_file_is_attached_and_only_its_recipients_read_it(there: Office) -> None:
    page = await there.enter(path="#/talk/%40alice")
    hostile = b"<script>window.hacked=1</script>"
    report = FilePayload(name="<b>report</b>.txt", mimeType="text/html", buffer=hostile)
    await page.get_by_label("Attach").set_input_files([report])
    await expect(page.locator(".compose .mark")).to_have_count(1)
    await page.get_by_label("Say something to @alice").fill("see this")
    await page.get_by_role("button", name="Send", exact=True).click()
    turn = page.locator(".turn", has_text="see this")
    await expect(turn).to_contain_text("1 attached")
    await turn.hover()
    await turn.get_by_role("link", name="Receipts").click()
    async with page.expect_download() as waiting:
        await page.get_by_label("Message", exact=True).get_by_role("link", name=re.compile("report")).click()
    assert (await (await waiting.value).path()).read_bytes() == hostile
    alice = await there.there.join("alice")
    (message, *_) = await alice.history("root")
    (file,) = message.attachments
    async with httpx.AsyncClient(base_url=there.url) as client:
        for name, status in (("alice", 200), ("bob", 403)):
            headers = {"authorization": f"Bearer {there.there.tokens[name]}"}
            assert (await client.get(f"/fs/read{file.path}", headers=headers)).status_code == status


async def test_a_reply_with_a_file_can_be_urgent(there: Office) -> None:
    alice = await there.there.join("alice", receive=True)
    await alice.subscribe("dev")
    root = await there.there.join("root")
    await root.subscribe("dev")
    asked = await alice.send("@root", "where is the log?", thread="logs")
    page = await there.enter(path="#/talk/%40alice")
    await page.locator(".turn").hover()
    await page.get_by_role("button", name="Reply").click()
    log = FilePayload(name="hub.log", mimeType="text/plain", buffer=b"all is well")
    await page.get_by_label("Attach").set_input_files([log])
    await expect(page.locator(".compose .mark")).to_have_text("hub.log")
    await page.get_by_label("Urgent").check()
    await page.get_by_label("Say something to @alice").fill("here")
    await page.get_by_role("button", name="Send", exact=True).click()
    said = (await anext(aiter(alice))).message
    assert (said.body, said.priority, said.reply_to, said.thread) == ("here", Priority.URGENT, asked.id, "logs")
    assert [file.name for file in said.attachments] == ["hub.log"]
    await expect(page.locator(".turn").nth(1)).to_contain_text("urgent")
    await expect(page.locator(".turn").nth(1)).to_contain_text("↪ alice: where is the log?")
    await page.goto(f"{there.url}/#/talk/%23dev")
    await page.get_by_label("Attach").set_input_files([log])
    await expect(page.locator(".compose .mark")).to_have_count(1)
    await page.get_by_label("Urgent").check()
    await page.get_by_label("Say something to #dev").fill("for all")
    await page.get_by_role("button", name="Send", exact=True).click()
    again = (await anext(aiter(alice))).message
    assert (str(again.target), again.priority, len(again.attachments)) == ("#dev", Priority.URGENT, 1)


async def test_search_finds_and_shows(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "the purple elephant")
    await alice.send("@root", "something else")
    page = await there.enter(path="#/search")
    await page.get_by_label("Words to look for").fill("eleph*")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.locator(".found")).to_have_count(1)
    await page.locator(".found").click()
    await expect(page.get_by_label("Message", exact=True)).to_contain_text("the purple elephant")


async def test_an_old_message_is_found_and_its_conversation_goes_back_to_it(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "the purple elephant")
    # More than the page has at first, and than a conversation reads at once.
    await asyncio.gather(*(alice.send("@root", f"number {number}") for number in range(320)))
    page = await there.enter(path="#/search/elephant")
    await page.locator(".found").click()
    aside = page.get_by_label("Message", exact=True)
    await expect(aside).to_contain_text("the purple elephant")
    await aside.get_by_role("link", name="@alice").click()
    turn = page.locator(".turn.chosen")
    await expect(turn).to_contain_text("the purple elephant")
    await expect(turn).to_be_in_viewport()
    # Its address can be passed on.
    address = page.url
    await page.reload()
    await expect(aside).to_contain_text("the purple elephant")
    await expect(turn).to_be_in_viewport()
    # An address that was tampered with shows no other message, and neither does one of somebody else.
    await page.goto(address.replace("?m=", "?m=x"))
    await expect(aside).to_contain_text("There is no such message that you may see.")
    bob = await there.enter("bob")
    await bob.goto(address)
    await expect(bob.get_by_label("Message", exact=True)).to_contain_text("There is no such message that you may see.")
    await expect(bob.locator("body")).not_to_contain_text("elephant")


async def test_what_concerns_a_person_is_not_lost_among_what_others_say(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "may I?")
    await alice.send("*", "for all")
    await asyncio.gather(*(alice.send("@bob", f"number {number}") for number in range(230)))
    page = await there.enter(path="#/members")
    link = page.get_by_label("Conversations").get_by_role("link", name=re.compile("@alice"))
    await expect(link).to_contain_text("1 unread")
    await expect(page.get_by_role("row").filter(has_text="alice").first).to_contain_text("an answer")
    await page.goto(f"{there.url}/#/talk/%23general")
    await expect(page.locator(".turn")).to_contain_text(["for all"])

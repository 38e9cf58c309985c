"""The console in a real browser, with a real hub and agents on several protocols behind it."""

import asyncio
import gzip
import json
import os
import re
import sys
import time
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
from playwright.async_api import FilePayload, expect

from tests.e2e.browsers import Office, chromium, office, serious
from tests.server.hubs import house
from tieline.client import HubRefused
from tieline.console.site import STATIC
from tieline.contract.message import Priority
from tieline.contract.objective import Unblock
from tieline.protocols.ac7 import totp

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

PAGES = ("#/live", "#/talk/%23general", "#/talk/%40alice", "#/members/bob", "#/objectives", "#/search/hello")


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


async def test_the_tail_can_be_paused_and_filtered_and_goes_on_where_it_was(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@bob", "the first")
    await there.over_ac7("bob", "alice", "the second", level="error")
    page = await there.enter()
    rows = page.locator(".row")
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Pause").click()
    await alice.send("@bob", "the third")
    await page.get_by_role("button", name="Go on (1 new)").wait_for()
    await expect(rows).to_have_count(2)
    await page.get_by_role("button", name="Go on").click()
    await expect(rows).to_have_count(3)
    await page.get_by_label("Filter").fill("bob SECOND")
    await expect(rows).to_have_count(1)
    await page.get_by_label("Filter").fill("")
    await page.get_by_label("Protocol").select_option("ac7")
    await expect(rows).to_contain_text(["the second"])
    await page.get_by_label("Protocol").select_option("")
    await page.get_by_label("Level").select_option("warning")
    await expect(rows).to_contain_text(["the second"])


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


async def test_unread_is_marked_until_it_is_looked_at(there: Office) -> None:
    page = await there.enter()
    alice = await there.there.join("alice")
    await alice.send("@root", "one")
    await alice.send("@root", "two")
    link = page.get_by_label("Conversations").get_by_role("link", name=re.compile("@alice"))
    await expect(link).to_contain_text("2 unread")
    await link.click()
    await expect(page.locator(".turn")).to_have_count(2)
    await expect(page.get_by_role("link", name="Conversations")).to_have_text("Conversations")
    await page.reload()
    await expect(page.get_by_label("Conversations").get_by_role("link", name="@alice")).to_have_text("@alice")


async def test_channels_are_joined_and_left(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.subscribe("dev")
    page = await there.enter(path="#/talk/%23dev")
    await page.get_by_role("button", name="Join").click()
    await page.get_by_label("Say something to #dev").fill("hello")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".turn")).to_have_count(1)
    await page.get_by_role("button", name="Leave").click()
    await expect(page.get_by_role("status").filter(has_text="You left #dev.")).to_be_visible()


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
    page.on("dialog", lambda dialog: dialog.accept())
    await aside.get_by_role("button", name="Remove member").click()
    await expect(page.get_by_role("link", name="carol")).to_have_count(0)


async def test_an_objective_goes_over_the_board(there: Office) -> None:
    page = await there.enter(path="#/objectives")
    await page.get_by_role("button", name="New objective").click()
    await page.get_by_label("Title").fill("Ship it")
    await page.get_by_label("Outcome").fill("it is shipped")
    await page.get_by_label("Assignee").select_option("alice")
    await page.get_by_role("button", name="Create").click()
    await expect(page.get_by_role("heading", name="Ship it").first).to_be_visible()
    page.on("dialog", lambda dialog: dialog.accept("waiting for review"))
    await page.get_by_role("button", name="Block").click()
    await expect(page.locator(".status.blocked")).to_be_visible()
    await expect(page.locator(".story")).to_contain_text("waiting for review")
    await page.get_by_label(re.compile("Say something to obj:")).fill("who reviews?")
    await page.get_by_role("button", name="Send").click()
    await expect(page.locator(".turn", has_text="who reviews?")).to_be_visible()
    alice = await there.there.join("alice")
    (objective,) = (await alice.objectives()).objectives
    event = {"kind": "llm_exchange", "entry": {"request": {"model": "m-1"}, "response": {"usage": {"inputTokens": 7}}}}
    await alice.record_activity(event)
    await alice.change_objective(objective.id, Unblock())
    await expect(page.locator(".status.active")).to_be_visible()
    await expect(page.locator(".exchange")).to_contain_text("m-1")
    await page.get_by_role("link", name="All objectives").click()
    await expect(page.get_by_label("active", exact=True)).to_contain_text("Ship it")


async def test_a_looping_conversation_is_told_of_and_let_go_on(there: Office) -> None:
    alice, bob = await there.there.join("alice"), await there.there.join("bob")

    async def chat() -> None:
        for _ in range(40):
            await bob.claim((await alice.send("@bob", "ping")).id)
            await alice.claim((await bob.send("@alice", "pong")).id)

    with pytest.raises(HubRefused, match="paused"):
        await chat()
    page = await there.enter()
    alarm = page.get_by_role("alert")
    await expect(alarm).to_contain_text("@alice+@bob")
    await alarm.get_by_role("button", name="Let it go on").click()
    await expect(alarm).to_have_count(0)
    await alice.send("@bob", "again")


async def test_a_file_is_attached_and_only_its_recipients_read_it(there: Office) -> None:
    page = await there.enter(path="#/talk/%40alice")
    hostile = b"<script>window.hacked=1</script>"
    report = FilePayload(name="<b>report</b>.txt", mimeType="text/html", buffer=hostile)
    await page.get_by_label("Attach").set_input_files([report])
    await expect(page.locator(".compose .mark")).to_have_count(1)
    await page.get_by_label("Say something to @alice").fill("see this")
    await page.get_by_role("button", name="Send").click()
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


async def test_everything_is_reached_from_the_keyboard(there: Office) -> None:
    page = await there.enter()
    await page.keyboard.press("Control+k")
    await page.keyboard.type("members page")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="Members")).to_be_visible()
    await page.keyboard.press("/")
    await page.keyboard.type("@alice")
    await page.keyboard.press("ArrowDown")
    await page.keyboard.press("ArrowUp")
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="@alice")).to_be_visible()


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


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 420])
async def test_axe_finds_nothing_serious_on_any_page(there: Office, scheme: str, width: int) -> None:
    alice = await there.there.join("alice")
    sent = await alice.send("@root", "hello, **look** at `this`", priority=Priority.URGENT)
    await alice.send("*", "hello everybody")
    page = await there.enter(color_scheme=scheme)
    await page.set_viewport_size({"width": width, "height": 800})
    for path in (*PAGES, f"#/live?m={sent.id}"):
        await page.goto(f"{there.url}/{path}")
        await page.get_by_role("heading").first.wait_for()
        assert await serious(page) == [], path


HOSTILE = (
    "<script>window.hacked = 1</script>",
    "<img src=x onerror='window.hacked=1'>",
    "![x](http://127.0.0.1:1/beacon.png) [click](javascript:window.hacked=1)",
    '"><svg onload=window.hacked=1>',
    "</div></article></main><h1>forged</h1>",
    "[a](data:text/html,<script>window.hacked=1</script>)",
    "\u202eright to left\u202c and \x1b[31mred\x1b[0m",
)


async def test_hostile_bodies_titles_data_and_names_stay_text(there: Office) -> None:
    alice = await there.there.join("alice")
    await there.there.add("eve", permissions=("objectives.create",))
    eve = await there.there.join("eve")
    ids = []
    for text in HOSTILE:
        sent = await alice.send("@root", text, title=text, data={text: text}, thread=text, refs=(text,), topic="x")
        ids.append(sent.id)
        await alice.send("*", text)
    await eve.create_objective(HOSTILE[1], HOSTILE[0], "alice", body=HOSTILE[2])
    page = await there.enter()
    for path in ("#/live", "#/talk/%40alice", "#/talk/%23general", "#/objectives", "#/members", "#/search/script"):
        await page.goto(f"{there.url}/{path}")
        await page.get_by_role("heading").first.wait_for()
        await page.wait_for_timeout(100)
    for message_id in ids:
        await page.goto(f"{there.url}/#/live?m={message_id}")
        await expect(page.locator(".receipt")).to_be_visible()
    objective = (await eve.objectives()).objectives[0]
    await page.goto(f"{there.url}/#/objectives/{objective.id}")
    await expect(page.locator(".story")).to_be_visible()
    assert await page.evaluate("window.hacked") is None
    assert await page.locator("main img, main svg, main script, aside img, aside svg").count() == 0
    assert await page.get_by_role("heading", name="forged", exact=True).count() == 0
    links = await page.evaluate("[...document.querySelectorAll('a')].map(a => a.protocol)")
    assert set(links) <= {"http:", "https:"}


async def test_a_hub_that_goes_and_comes_back_is_caught_up_with_exactly(folder: Path) -> None:
    async with chromium() as browser, office(folder, browser) as there:
        port = there.url.rpartition(":")[2]
        page = await there.enter()
        alice = await there.there.join("alice")
        for number in range(5):
            await alice.send("@root", f"before {number}")
        await expect(page.locator(".row")).to_have_count(5)
        await there.there.hub.stop()
        await expect(page.get_by_text("Connection lost")).to_be_visible()
        async with house(folder, store="sqlite:unsafe", http=f"127.0.0.1:{port}") as again:
            again.tokens.update(there.there.tokens)
            bob = await again.join("bob")
            for number in range(5):
                await bob.send("@root", f"after {number}")
            await expect(page.get_by_role("status").filter(has_text="5 messages came meanwhile")).to_be_visible()
            await expect(page.locator(".row")).to_have_count(10)
            texts = await page.locator(".row .says").all_text_contents()
            expected = [f"{when} {number}" for when in ("before", "after") for number in range(5)]
            assert texts == expected


@pytest.mark.timeout(300)
async def test_a_long_conversation_and_a_fast_tail_stay_smooth(there: Office) -> None:
    count = 50_000 if os.environ.get("TIELINE_SOAK") else 5_000
    alice = await there.there.join("alice")
    for start in range(0, count, 500):
        await asyncio.gather(*(alice.send("@root", f"message {number}") for number in range(start, start + 500)))
    page = await there.enter(path="#/talk/%40alice")
    await expect(page.locator(".turn").last).to_contain_text(f"message {count - 1}")
    await page.evaluate(
        """() => {
            window.long = [];
            new PerformanceObserver((list) => {
                for (const entry of list.getEntries()) if (entry.duration > 200) window.long.push(entry.duration);
            }).observe({entryTypes: ["longtask"]});
        }"""
    )
    for _ in range(20):
        await page.mouse.move(700, 400)
        await page.mouse.wheel(0, -4000)
        await page.wait_for_timeout(50)
    assert await page.locator(".turn").count() < 100
    await page.goto(f"{there.url}/#/live")
    seconds = 4
    for _ in range(seconds * 10):
        await asyncio.gather(*(alice.send("@root", f"fast {number}") for number in range(50)), asyncio.sleep(0.1))
    await expect(page.locator(".row").last).to_contain_text("fast 49")
    assert await page.locator(".row").count() < 100
    long = await page.evaluate("window.long")
    heap = await page.evaluate("performance.memory.usedJSHeapSize")
    told = f"{count} messages and {seconds * 500} live: {len(long)} tasks over 200 ms, {heap / 1e6:.0f} MB of heap"
    sys.stdout.write(f"{told}\n")
    assert heap < 300e6


REPORT: dict[str, Any] = {
    "totals": {"messages": 3, "deliveries": 4, "acked": 2, "expired": 1, "dead": 0, "waiting": 1, "cost_usd": 1.25},
    "edges": [{"from": "<b>alice", "to": "bob", "messages": 3, "answers": 1, "response_p50_ms": 5000}],
    "latency": [
        {"member": "bob", "protocol": "ac7", "p50_ms": 5, "p99_ms": 50, "deliveries": 4, "measured": "offered"}
    ],
    "latency_series": [{"at_ms": 60_000 * at, "acked": 1, "p50_ms": 5, "p99_ms": 50 + at} for at in range(10)],
    "backlog": [{"member": "bob", "waiting": 1, "arrived": 2, "departed": 1}],
    "backlog_series": [{"at_ms": 60_000 * at, "waiting": at, "arrived": 1, "departed": 0} for at in range(10)],
    "objectives": [],
    "llm": [
        {"model": "m-1", "member": "bob", "exchanges": 2, "input_tokens": 9, "output_tokens": 1, "cost_usd": 1.25,
         "unpriced": 1},
    ],
    "llm_by_hour": [{"hour_ms": 0, "model": "m-1", "exchanges": 2, "input_tokens": 9, "output_tokens": 1}],
    "loops": [{"conversation": "@alice+@bob", "members": ["alice", "bob"], "messages": 70, "hops": 64, "last_ms": 1}],
    "audit": {"verified_rows": 9, "intact": False, "findings": [{"kind": "break", "offset": 5, "what": "row 5"}]},
    "refreshed_at_ms": 0,
}  # fmt: skip


async def test_insights_say_what_the_pipeline_found_or_how_to_run_it(there: Office) -> None:
    page = await there.enter(path="#/insights")
    await expect(page.get_by_text("tieline pipeline run")).to_be_visible()
    lake = there.there.home / "lake"
    lake.mkdir()
    (lake / "report.json").write_text(json.dumps(REPORT))
    await page.reload()
    await expect(page.locator(".chart canvas")).to_have_count(3)
    await expect(page.locator(".graph path")).to_have_count(1)
    await expect(page.locator(".totals")).to_contain_text("broken")
    for heading in ("Who writes to whom", "Latency by member", "Waiting now", "Tokens and cost", "Loops"):
        await expect(page.get_by_role("heading", name=heading)).to_be_visible()
    await expect(page.get_by_role("heading", name="Audit findings")).to_be_visible()
    await expect(page.locator("td", has_text="<b>alice")).to_be_visible()
    assert await serious(page) == []


async def test_the_page_is_small_and_there_soon(there: Office) -> None:
    packed = sum(len(gzip.compress(file.read_bytes(), 9)) for file in (STATIC / "assets").iterdir())
    page = await there.enter()
    await page.reload()
    started = time.monotonic()
    await page.reload()
    await page.get_by_text("Connected", exact=True).wait_for()
    seconds = time.monotonic() - started
    sys.stdout.write(f"{packed / 1000:.1f} KB gzipped; connected {seconds:.2f} s after a load\n")
    assert packed < 150_000

"""Tests that reading is evidence: a message counts as seen only if it was in view for a moment, and somebody looked."""

import asyncio
import re
from collections.abc import Awaitable, Callable, Sequence

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.browsers import Office
from tests.e2e.test_restart import Gate
from tests.server.hubs import take
from tieline.client import Client

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

EVIDENCE = "it was in view in the console"
LONG_MS = 5000
"""Time on the page's clock after which everything that is in view would be acknowledged."""
HIDDEN = """hidden => {
    Object.defineProperty(document, "hidden", {get: () => hidden, configurable: true});
    document.dispatchEvent(new Event("visibilitychange"));
}"""
"""Script that tells a page, as a browser does, that its tab is hidden or shown."""
FITTING = """(list, count) => {
    const turns = [...list.querySelectorAll(".turn")].map((turn) => turn.parentElement);
    const first = turns.findIndex((turn) => turn.querySelector(".new"));
    const rows = turns.slice(first, first + count + 1).map((turn) => turn.offsetHeight);
    const fitting = rows.slice(0, count).reduce((sum, height) => sum + height, 0) + rows[count] / 2;
    return innerHeight - list.clientHeight + Math.round(fitting);
}"""
"""Script that returns the height of a window in which so many rows fit, from the line "New" on."""
IN_VIEW = """(list) => {
    const box = list.getBoundingClientRect();
    return [...list.querySelectorAll(".turn")].filter((turn) => {
        const { top, bottom } = turn.getBoundingClientRect();
        return top >= box.top - 1 && bottom <= box.bottom + 1;
    }).map((turn) => turn.querySelector(".prose").innerText.trim());
}"""
"""Script that returns the bodies of the messages that are in view."""


def at_conversation(page: Page, name: str) -> Locator:
    """Return the link to a conversation at the side of a page."""
    return page.get_by_label("Conversations").get_by_role("link", name=re.compile(re.escape(name)))


def unread(page: Page) -> Locator:
    """Return the link to the conversations, with the number of all unread messages."""
    return page.get_by_label("Pages").get_by_role("link", name=re.compile("^Conversations"))


async def acked(sender: Client, messages: Sequence[str]) -> list[str]:
    """Return those of these messages that root has acknowledged."""
    receipts = [(message, await sender.receipts(message)) for message in messages]
    return [message for message, (*_, one) in receipts if one.member == "root" and one.state == "acked"]


async def until(condition: Callable[[], Awaitable[bool]]) -> None:
    """Wait until a condition is true."""
    async with asyncio.timeout(30):
        while True:
            if await condition():
                return
            await asyncio.sleep(0.05)


async def until_acked(sender: Client, *messages: str) -> None:
    """Wait until root has acknowledged these messages."""

    async def are_acked() -> bool:
        return await acked(sender, messages) == list(messages)

    await until(are_acked)


async def shows(box: Locator, bodies: list[str]) -> bool:
    """Return true if exactly these messages are in view."""
    return bool(await box.evaluate(IN_VIEW) == bodies)


async def test_of_43_unread_messages_ten_come_into_view_and_exactly_ten_are_acknowledged(there: Office) -> None:
    root, alice = await there.there.join("root", receive=True), await there.there.join("alice")
    await root.subscribe("dev")
    for number in range(20):
        await alice.send("#dev", f"old {number}")
    await take(root, 20, ack=True)
    await root.close()
    sent = {f"new {number}": (await alice.send("#dev", f"new {number}")).id for number in range(43)}
    page = await there.enter()
    await expect(at_conversation(page, "#dev")).to_contain_text("43 unread")
    # Nobody looks at a hidden tab while its window gets the right height.
    await page.evaluate(HIDDEN, True)
    await page.goto(f"{there.url}/#/talk/%23dev")
    line = page.get_by_role("separator")
    await expect(line).to_have_text("New")
    await expect(line).to_be_in_viewport()
    await expect(page.get_by_text("old 19")).to_be_in_viewport()
    await expect(page.get_by_text("new 0", exact=True)).to_be_in_viewport()
    await expect(page.get_by_text("new 42")).not_to_be_in_viewport()
    box = page.get_by_role("log")
    await page.set_viewport_size({"width": 1280, "height": await box.evaluate(FITTING, 10)})
    await box.evaluate("(list) => { list.scrollTop = list.querySelector('.new').parentElement.offsetTop; }")
    ten = [f"new {number}" for number in range(10)]
    await until(lambda: shows(box, ten))
    assert await acked(alice, [*sent.values()]) == []
    await page.evaluate(HIDDEN, False)
    await until_acked(alice, *(sent[body] for body in ten))
    assert await acked(alice, [*sent.values()]) == [sent[body] for body in ten]
    (receipt,) = await alice.receipts(sent["new 0"])
    assert receipt.steps[-1].evidence == EVIDENCE
    # The others are still unread, also after the last ones were looked at.
    await expect(page.get_by_role("button", name="↓ 33 unread")).to_be_visible()
    await page.get_by_role("button", name="↓ 33 unread").click()
    await until_acked(alice, sent["new 42"])
    seen = await box.evaluate(IN_VIEW)
    await until_acked(alice, *(sent[body] for body in seen))
    done = await acked(alice, [*sent.values()])
    assert set(done) == {sent[body] for body in (*ten, *seen)}
    # The first of them is one click away.
    await page.get_by_role("button", name=f"↑ {33 - len(seen)} unread").click()
    await expect(page.get_by_text("new 10", exact=True)).to_be_in_viewport()


async def test_what_came_to_a_hidden_tab_or_a_window_behind_others_or_below_the_end_is_not_read(there: Office) -> None:
    root, alice = await there.there.join("root", receive=True), await there.there.join("alice")
    for number in range(30):
        await alice.send("@root", f"line {number}\n\nof many")
    await take(root, 30, ack=True)
    await root.close()
    page = await there.enter(path="#/talk/%40alice")
    await page.clock.install()
    await expect(page.get_by_text("line 29")).to_be_visible()
    badge = unread(page)
    await expect(badge).to_have_text("Conversations")
    box = page.get_by_role("log")
    await box.evaluate("box => box.scrollTo(0, 0)")
    below = (await alice.send("@root", "below the end")).id
    await expect(page.get_by_role("button", name="↓ 1 unread")).to_be_visible()
    # The page is drawn again before the event of the scrolling comes.
    await box.evaluate(f"box => {{ box.scrollTo(0, box.scrollHeight); ({HIDDEN})(true); }}")
    await expect(page.get_by_text("below the end")).to_be_visible()
    await page.clock.run_for(LONG_MS)
    await expect(badge).to_contain_text("1 unread")
    await page.evaluate("window.dispatchEvent(new Event('blur'))")
    await page.evaluate(HIDDEN, False)
    await page.clock.run_for(LONG_MS)
    await expect(badge).to_contain_text("1 unread")
    assert await acked(alice, [below]) == []
    await page.evaluate("window.dispatchEvent(new Event('focus'))")
    await expect(page.get_by_role("separator")).to_have_text("New")
    await expect(badge).to_have_text("Conversations")
    await until_acked(alice, below)


async def test_a_message_under_something_else_is_not_read(there: Office) -> None:
    alice = await there.there.join("alice")
    page = await there.enter(path="#/talk/%40alice")
    await page.clock.install()
    await page.keyboard.press("Control+k")
    await expect(page.get_by_role("combobox", name="Go to")).to_be_visible()
    under = (await alice.send("@root", "under the dialog")).id
    await expect(page.get_by_text("under the dialog")).to_have_count(1)
    await page.clock.run_for(LONG_MS)
    await expect(unread(page)).to_contain_text("1 unread")
    assert await acked(alice, [under]) == []
    await page.keyboard.press("Escape")
    await until_acked(alice, under)


async def test_unread_is_marked_until_it_is_looked_at_here_or_elsewhere(there: Office) -> None:
    page = await there.enter()
    alice = await there.there.join("alice")
    await alice.send("@root", "one")
    await alice.send("@root", "two")
    link = at_conversation(page, "@alice")
    await expect(link).to_contain_text("2 unread")
    await link.click()
    await expect(page.locator(".turn")).to_have_count(2)
    await expect(unread(page)).to_have_text("Conversations")
    await page.reload()
    await expect(at_conversation(page, "@alice")).to_have_text("@alice")
    # Another program of the same person handles the next one.
    root = await there.there.join("root", receive=True)
    await page.goto(f"{there.url}/#/live")
    three = await alice.send("@root", "three")
    await take(root, 1, ack=True)
    await until_acked(alice, three.id)
    await page.reload()
    await expect(page.locator(".row").last).to_contain_text("three")
    await alice.send("@root", "four")
    await expect(at_conversation(page, "@alice")).to_contain_text("1 unread")


async def test_who_writes_to_a_person_hears_that_it_was_looked_at(there: Office) -> None:
    alice = await there.there.join("alice")
    sent = [await alice.send("@root", "for you"), await alice.send("*", "for all")]
    page = await there.enter(path="#/live")
    await expect(page.locator(".row")).to_have_count(2)
    assert [one.state for one in await alice.follow(sent[0].id)] == ["pending"]
    await page.goto(f"{there.url}/#/talk/%40alice")
    async with asyncio.timeout(30):
        async for step in alice.progress():
            if step.state == "acked":
                break
    assert (await alice.receipts(sent[0].id))[0].steps[-1].evidence == EVIDENCE
    assert {one.member: one.state for one in await alice.receipts(sent[1].id)}["root"] == "pending"


async def test_every_conversation_that_was_read_is_acknowledged_however_fast_one_goes_on(there: Office) -> None:
    await there.there.add("carol")
    senders = [await there.there.join(name) for name in ("alice", "bob", "carol")]
    sent = [(one, (await one.send("@root", "for you")).id) for one in senders]
    page = await there.enter(path="#/live")
    await expect(page.locator(".row")).to_have_count(3)
    for name, left in (
        ("alice", "Conversations2 unread"),
        ("bob", "Conversations1 unread"),
        ("carol", "Conversations"),
    ):
        await page.goto(f"{there.url}/#/talk/%40{name}")
        # It was in view for a moment when its mark is gone. The hub is told after that.
        await expect(unread(page)).to_have_text(left)
    await page.goto(f"{there.url}/#/live")
    for sender, message in sent:
        await until_acked(sender, message)


async def test_what_was_seen_while_the_hub_was_away_is_acknowledged_when_it_is_back(there: Office) -> None:
    alice = await there.there.join("alice")
    sent = await alice.send("@root", "for you")
    page = await there.enter(path="#/live")
    gate = await Gate.before(page)
    await expect(unread(page)).to_contain_text("1 unread")
    await gate.cut(page)
    await page.goto(f"{there.url}/#/talk/%40alice")
    await expect(unread(page)).to_have_text("Conversations")
    assert await acked(alice, [sent.id]) == []
    await gate.join(page)
    await until_acked(alice, sent.id)


async def test_who_looks_over_an_agents_shoulder_takes_nothing_out_of_its_inbox(there: Office) -> None:
    bob = await there.there.join("bob")
    sent = await bob.send("@alice", "for the agent")
    page = await there.enter("alice", path="#/talk/%40bob")
    await page.clock.install()
    await expect(page.locator(".turn")).to_have_count(1)
    await expect(unread(page)).to_have_text("Conversations")
    await page.clock.run_for(LONG_MS)
    assert (await bob.receipts(sent.id))[0].state == "pending"
    alice = await there.there.join("alice", receive=True)
    assert (await anext(aiter(alice))).message.body == "for the agent"

"""Tests of an open console page when the hub is killed, or when its session or permissions end."""

import asyncio
import re
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, BrowserContext, Page, WebSocketRoute, expect

from tests.e2e.browsers import ALL, Office, until
from tests.faults.processes import SOAK, HubProcess
from tieline.client import connect
from tieline.contract.member import MemberKind

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if SOAK else 240)]

BEFORE = 130
MISSED = 6_000 if SOAK else 250
"""Number of messages that a page misses: more than a page of history, and more than the hub sends at once."""
RACING = 40
AFTER = 5
DRAWN = "() => new Promise((drawn) => requestAnimationFrame(() => requestAnimationFrame(drawn)))"
"""Script that ends when a page was drawn after what was done before."""
AT_BEGINNING = """([of, first]) => {
    const list = document.querySelector(".list");
    list.scrollTop = 0;
    return list.querySelector(`[data-key] ${of}`)?.textContent.trim() === first;
}"""
"""Script that scrolls to the top of a list, and returns true if its first entry has this text."""


class Street:
    """Test helper: a hub in a separate process, and a person who has the console open in several tabs."""

    def __init__(self, hub: HubProcess, tokens: dict[str, str], context: BrowserContext, url: str) -> None:
        self.hub = hub
        self.url = url
        self.complaints: list[str] = []
        self._tokens = tokens
        self._context = context

    async def tab(self, path: str) -> Page:
        """Open the console at `path` in another tab of the same browser, and log in if necessary."""
        page = await self._context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.set_default_timeout(30_000)
        await page.goto(f"{self.url}/{path}")
        if (
            await page.get_by_label("Token").or_(page.get_by_role("navigation").first).get_attribute("type")
            == "password"
        ):
            await page.get_by_label("Token").fill(self._tokens["root"])
            await page.get_by_role("button", name="Sign in").click()
            await page.get_by_text("Connected", exact=True).wait_for()
            await page.goto(f"{self.url}/{path}")
        await page.get_by_text("Connected", exact=True).wait_for()
        return page

    async def say(self, name: str, *texts: str) -> None:
        """Send messages to root as the member `name`, over a connection that is not the page's."""
        async with await connect(token=self._tokens[name], home=self.hub.home) as client:
            for start in range(0, len(texts), 200):
                await asyncio.gather(*(client.send("@root", text) for text in texts[start : start + 200]))


@pytest_asyncio.fixture(loop_scope="session")
async def street(folder: Path, browser: Browser) -> AsyncIterator[Street]:
    hub = HubProcess(folder / "home")
    hub.home.mkdir()
    try:
        running = await hub.start()
        tokens = {}
        async with await connect(home=hub.home) as operator:
            tokens["root"] = (await operator.add_member("root", permissions=ALL, kind=MemberKind.HUMAN)).token
            for name in ("alice", "bob"):
                tokens[name] = (await operator.add_member(name)).token
        context = await browser.new_context(viewport={"width": 1280, "height": 800})
        built = Street(hub, tokens, context, running.http)
        yield built
        await context.close()
        assert built.complaints == []
    finally:
        hub.kill()


async def whole(page: Page, of: str, first: str) -> list[str]:
    """Scroll through a long list. Return the texts of all its entries, in order.

    `of` is the CSS selector of the text in an entry, `first` the text of the first entry.
    """
    box = page.locator(".list")
    # Older messages are read when the list is scrolled to the top.
    await until(page, AT_BEGINNING, [of, first])
    keys: dict[str, str] = {}
    while True:
        await page.evaluate(DRAWN)
        keys |= {key: text for key, text in (await _drawn(page, of)).items() if key not in keys}
        at, end = await box.evaluate("(list) => [list.scrollTop + list.clientHeight, list.scrollHeight]")
        if at >= end - 2:
            return list(keys.values())
        await box.evaluate("(list) => list.scrollBy(0, 0.9 * list.clientHeight)")


async def _drawn(page: Page, of: str) -> dict[str, str]:
    rows: list[list[str]] = await page.locator(".list [data-key]").evaluate_all(
        "(all, of) => all.map((row) => [row.dataset.key, row.querySelector(of).textContent.trim()])", of
    )
    assert len({key for key, _ in rows}) == len(rows), "a row is there twice"
    return {row[0]: row[1] for row in rows}


async def at_top(page: Page) -> str:
    """Return the text of the first visible message of a conversation."""
    text: str = await page.locator(".list").evaluate(
        """(list) => [...list.querySelectorAll("[data-key]")]
            .find((row) => row.getBoundingClientRect().bottom > list.getBoundingClientRect().top + 1)
            .querySelector(".prose").textContent.trim()"""
    )
    return text


async def test_pages_catch_up_exactly_with_a_hub_that_was_killed(street: Street) -> None:
    before = [f"before {number}" for number in range(BEFORE)]
    await street.say("alice", *before)
    live = await street.tab("#/live")
    paused = await street.tab("#/live")
    reading = await street.tab("#/talk/%40alice")
    await expect(live.locator(".row").last).to_contain_text(before[-1])
    await paused.get_by_role("button", name="Pause").click()
    held = await paused.locator(".row .says").all_inner_texts()
    await reading.bring_to_front()
    # A conversation opens at the first unread message.
    await expect(reading.locator(".turn").first).to_contain_text(before[0])
    await reading.locator(".list").evaluate("(list) => list.scrollBy(0, 3 * list.clientHeight)")
    await reading.evaluate(DRAWN)
    seen = await at_top(reading)
    assert seen not in (before[0], before[-1])

    street.hub.kill()
    for page in (live, paused, reading):
        await expect(page.get_by_text("Connection lost")).to_be_visible()
    # The hub is back where nobody looks for it, so all of this is said while the pages are away; then it dies again.
    await street.hub.start()
    missed = [f"missed {number}" for number in range(MISSED)]
    await street.say("alice", *missed)
    street.hub.kill()
    street.hub.http = street.url.removeprefix("http://")
    await street.hub.start()
    # And this while they come back.
    racing = [f"racing {number}" for number in range(RACING)]
    await asyncio.gather(street.say("alice", *racing), live.get_by_text("Connected", exact=True).wait_for())
    said = re.compile(r"Connected again; (\d+) messages came meanwhile")
    notice = live.get_by_role("status").filter(has_text=said)
    await expect(notice).to_be_visible(timeout=30_000)
    found = said.search(await notice.inner_text())
    assert found is not None
    assert MISSED <= int(found[1]) <= MISSED + RACING
    after = [f"after {number}" for number in range(AFTER)]
    await street.say("bob", *after)

    everything = [*before, *missed, *racing, *after]
    await live.bring_to_front()
    await expect(live.locator(".row").last).to_contain_text(after[-1])
    assert await whole(live, ".says", before[0]) == everything
    await paused.bring_to_front()
    await expect(paused.get_by_role("button", name=f"Resume ({len(everything) - BEFORE} new)")).to_be_visible()
    assert await paused.locator(".row .says").all_inner_texts() == held
    await paused.get_by_role("button", name="Resume").click()
    await expect(paused.locator(".row").last).to_contain_text(after[-1])
    assert await whole(paused, ".says", before[0]) == everything
    # Messages that were read stay in place; new messages come after them.
    await reading.bring_to_front()
    await expect(reading.get_by_text("Connected", exact=True)).to_be_visible()
    assert await at_top(reading) == seen
    assert await whole(reading, ".prose", before[0]) == [*before, *missed, *racing]


async def test_a_session_that_is_over_when_the_hub_is_back_is_shown_the_door(street: Street) -> None:
    await street.say("alice", "for root alone")
    page = await street.tab("#/live")
    await expect(page.locator(".row")).to_have_count(1)
    street.hub.kill()
    await expect(page.get_by_text("Connection lost")).to_be_visible()
    await street.hub.start()
    async with await connect(home=street.hub.home) as operator:
        (session,) = [view for view in await operator.tokens("root") if view.label == "console"]
        await operator.revoke_token("root", session.id)
    street.hub.kill()
    street.hub.http = street.url.removeprefix("http://")
    await street.hub.start()
    await expect(page.get_by_label("Token")).to_be_visible(timeout=30_000)
    await expect(page.locator("body")).not_to_contain_text("for root alone")


class Gate:
    """Proxy for tests between a page and the hub. It can cut the connection, or keep it open without any data."""

    def __init__(self) -> None:
        self.shut = False
        self.silent = False
        self._ends: list[WebSocketRoute] = []

    @classmethod
    async def before(cls, page: Page) -> "Gate":
        """Load a page again, with its connection through a new `Gate`. Return the gate."""
        gate = cls()
        await page.route_web_socket(re.compile("/api/stream"), gate.opened)
        await page.reload()
        await page.get_by_text("Connected", exact=True).wait_for()
        return gate

    async def opened(self, route: WebSocketRoute) -> None:
        """Connect a page to the hub, or close its connection if the gate is shut."""
        if self.shut:
            await route.close()
            return
        server = route.connect_to_server()
        server.on_message(lambda frames: None if self.silent else route.send(frames))
        self._ends += [route, server]

    async def cut(self, page: Page) -> None:
        """Cut every connection, and accept no new one. Wait until the page shows that."""
        self.shut = True
        for end in self._ends:
            await end.close()
        self._ends.clear()
        await page.get_by_text("Connection lost").wait_for()

    async def join(self, page: Page) -> None:
        """Accept connections again. Wait until the page is connected."""
        self.shut = False
        await page.get_by_text("Connected", exact=True).wait_for()


async def test_a_permission_that_is_taken_away_while_the_connection_is_lost_takes_away_what_it_showed(
    there: Office,
) -> None:
    alice, root = await there.there.join("alice"), await there.there.join("root")
    await there.there.add("carol", permissions=("log.read",))
    await alice.send("@bob", "between two")
    await alice.send("@carol", "for carol")
    page = await there.enter("carol")
    gate = await Gate.before(page)
    rows = page.locator(".row .says")
    await expect(rows).to_have_text(["between two", "for carol"])
    # Nor does a tail that stands still go on showing it.
    await page.get_by_role("button", name="Pause").click()
    await gate.cut(page)
    await root.update_member("carol", permissions=())
    await gate.join(page)
    await expect(rows).to_have_text(["for carol"])
    await expect(page.locator("body")).not_to_contain_text("between two")
    await alice.send("@carol", "and this")
    await expect(rows).to_have_text(["for carol", "and this"])


async def test_whoever_came_in_by_another_tab_meanwhile_finds_nothing_of_who_was_there_before(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "for root alone")
    await alice.send("@bob", "for bob")
    page = await there.enter()
    gate = await Gate.before(page)
    await expect(page.locator(".row")).to_have_count(2)
    await gate.cut(page)
    other = await page.context.new_page()
    await other.goto(there.url)
    await other.get_by_role("button", name="Sign out").click()
    await other.get_by_label("Token").fill(there.there.tokens["bob"])
    await other.get_by_role("button", name="Sign in").click()
    await other.get_by_text("Connected", exact=True).wait_for()
    await page.bring_to_front()
    await gate.join(page)
    await expect(page.locator(".row .says")).to_have_text(["for bob"])
    await expect(page.locator("body")).not_to_contain_text("for root alone")


async def test_words_that_are_typed_while_the_connection_is_lost_stay(there: Office) -> None:
    alice = await there.there.join("alice")
    await alice.send("@root", "the purple elephant")
    page = await there.enter(path="#/search")
    gate = await Gate.before(page)
    words = page.get_by_label("Words to look for")
    await words.fill("eleph*")
    await gate.cut(page)
    await gate.join(page)
    await expect(words).to_have_value("eleph*")
    await page.get_by_role("button", name="Search", exact=True).click()
    await expect(page.locator(".found")).to_contain_text("the purple elephant")


async def test_a_connection_on_which_nobody_answers_is_given_up(there: Office) -> None:
    page = await there.enter()
    await page.clock.install()
    gate = await Gate.before(page)
    gate.silent = True
    # The first asks, and after a while another finds that nobody answered.
    await page.clock.run_for(6_000)
    await expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    await page.clock.run_for(25_000)
    await expect(page.get_by_text("Connection lost")).to_be_visible()
    gate.silent = False
    await page.clock.run_for(13_000)
    await expect(page.get_by_text("Connected", exact=True)).to_be_visible()
    alice = await there.there.join("alice")
    await alice.send("@root", "heard again")
    await page.clock.run_for(1_000)
    await expect(page.locator(".row")).to_contain_text(["heard again"])


async def test_a_permission_that_is_taken_away_takes_away_what_it_showed(there: Office) -> None:
    alice, root = await there.there.join("alice"), await there.there.join("root")
    await there.there.add("carol", permissions=("log.read", "members.manage"))
    await alice.send("@bob", "between two")
    await alice.send("@carol", "for carol")
    page = await there.enter("carol")
    rows = page.locator(".row .says")
    await expect(rows).to_have_text(["between two", "for carol"])
    await expect(page.get_by_role("link", name="Insights")).to_be_visible()
    await root.update_member("carol", permissions=())
    await expect(rows).to_have_text(["for carol"], timeout=30_000)
    await expect(page.get_by_role("link", name="Insights")).to_have_count(0)
    await alice.send("@bob", "no more of this")
    await alice.send("@carol", "but this")
    await expect(rows).to_have_text(["for carol", "but this"])
    await page.goto(f"{there.url}/#/members/bob")
    for name in ("Add", "Issue a token", "Remove member"):
        await expect(page.get_by_role("button", name=name)).to_have_count(0)
    await root.update_member("carol", permissions=("log.read",))
    await page.goto(f"{there.url}/#/live")
    await expect(rows).to_have_count(4, timeout=30_000)


async def test_whoever_comes_in_next_finds_nothing_of_who_was_there_before(there: Office) -> None:
    alice, root = await there.there.join("alice"), await there.there.join("root")
    await there.there.add("carol")
    await alice.send("@root", "for root alone")
    page = await there.enter()
    await expect(page.locator(".row")).to_have_count(1)
    (session,) = [view for view in await root.tokens("root") if view.label == "console"]
    await root.revoke_token("root", session.id)
    await page.get_by_label("Token").fill(there.there.tokens["carol"])
    await page.get_by_role("button", name="Sign in").click()
    await page.get_by_text("Connected", exact=True).wait_for()
    await alice.send("@carol", "for carol")
    await expect(page.locator(".row")).to_have_count(1)
    await expect(page.locator("body")).not_to_contain_text("for root alone")

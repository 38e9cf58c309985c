"""Tests of the console's first page: what needs the viewer, who is here, what is stuck, and what today costs.

Members on all five protocols talk to a real hub. Each fact appears on the page, and leads to its place.
"""

import asyncio
import contextlib
import re
import time
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.e2e.browsers import Office, faults, office
from tests.interop.drivers import MixedHub
from tieline.contract.objective import Block, Unblock
from tieline.contract.reach import Leg, Reach, Way

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

SPEAKERS = {
    "ada": "ac7",
    "ben": "agent-relay",
    "cleo": "backchannel",
    "dina": "peerbus",
    "eli": "agent-channels",
}
"""Members and the protocols that they speak."""
LONG_S = 12 * 60


@contextlib.contextmanager
def earlier(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let the hub live some minutes ago, as if the test had begun then. Both of its clocks go on as usual."""
    wall, steady = time.time_ns, time.clock_gettime_ns
    ago = LONG_S * 1_000_000_000

    def back(clock: Callable[..., int]) -> Callable[..., int]:
        return lambda *which: clock(*which) - ago

    monkeypatch.setattr(time, "time_ns", back(wall))
    monkeypatch.setattr(time, "clock_gettime_ns", back(steady))
    yield
    monkeypatch.setattr(time, "time_ns", wall)
    monkeypatch.setattr(time, "clock_gettime_ns", steady)


def exchange(model: str, **usage: int) -> dict[str, Any]:
    """Return a captured model call of the present moment."""
    said = [{"role": "assistant", "content": [{"type": "tool_use", "name": "run_tests", "input": {"path": "tests"}}]}]
    return {
        "kind": "llm_exchange",
        "ts": int(time.time() * 1000),
        "duration": 2500,
        "entry": {"request": {"model": model}, "response": {"model": model, "messages": said, "usage": usage}},
    }


class Scene(Office):
    """Test data: a hub with members on five protocols, and one of everything that the first page shows."""

    objective = ""
    device = ""

    async def furnish(self, mixed: MixedHub) -> None:
        """Let the members talk, ask, get stuck and spend."""
        speakers = {name: await mixed.driver(protocol, name) for name, protocol in SPEAKERS.items()}
        root = await self.there.join("root")
        for name, speaker in speakers.items():
            # Peerbus has no channels.
            await speaker.send("*" if name == "dina" else "#general", f"{name} is here")
        await speakers["ada"].send("@root", "May I **merge** the parser?")
        await self._work(root)
        await root.pause_thread("@ben+@cleo")
        await speakers["ben"].send("@cleo", "held back")
        async with httpx.AsyncClient(base_url=self.url) as device:
            self.device = (await device.post("/enroll", json={"labelHint": "a laptop"})).json()["userCode"]

    async def get_stuck(self) -> None:
        """Send a message that nobody sees, and one that dies."""
        operator, alice = await self.there.operator(), await self.there.join("alice")
        await self.there.add("fred")
        await alice.send("@bob", "nobody reads this")
        await alice.send("@bob", "nor this")
        await alice.send("@fred", "he is gone")
        await operator.remove_member("fred")

    async def _work(self, root: Any) -> None:
        ben, dina = await self.there.join("ben"), await self.there.join("dina")
        made = await root.create_objective("Port the parser", "it runs on ARM", "ben")
        await ben.change_objective(made.id, Block("the **key** of the board is missing"))
        self.objective = made.id
        await root.create_objective("Write the manual", "everybody understands it", "dina")
        await dina.set_busy()
        await dina.record_activity(exchange("claude-opus-4", inputTokens=100_000, outputTokens=20_000))
        await ben.record_activity(exchange("gpt-5", inputTokens=1_000_000), exchange("mine", inputTokens=5))
        await root.reach("dina", Reach((Leg(Way.HOOK, 90_000), Leg(Way.NOTIFY, 0)), notify="root"))
        for item in (await dina.inbox()).items:
            dina.see(item, evidence="its hook showed it")


@pytest_asyncio.fixture(loop_scope="session")
async def scene(folder: Path, browser: Browser, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Scene]:
    past = earlier(monkeypatch)
    past.__enter__()
    async with office(folder, browser) as there:
        built = Scene(there.there, browser)
        await built.get_stuck()
        past.__exit__(None, None, None)
        mixed = MixedHub(there.there)
        try:
            await built.furnish(mixed)
            yield built
        finally:
            await mixed.close()
            await built.close()
    assert built.complaints == []


def part(page: Page, name: str) -> Locator:
    """Return the part of the page with this heading."""
    return page.get_by_role("region", name=name, exact=False)


async def test_each_fact_of_home_is_there_and_leads_to_its_place(scene: Scene) -> None:
    page = await scene.enter(path="#/home")
    for name, text, more, place in (
        ("Needs you", "blocked ben Port the parser: the key of the board is missing", "blocked for", "objectives/"),
        ("Needs you", "question ada May I merge the parser?", "waiting for your answer, ", r"talk/%40ada\?m="),
        ("Needs you", f"device {scene.device} a laptop from 127.0.0.1", "approval", f"devices/{scene.device}"),
        ("Needs you", "held ben ↔ cleo paused by root", "1 message waits", "talk/ben.*cleo"),
        ("Stuck", "not seen bob has not seen “nobody reads this” from alice", "12 min, and 1 more", r"talk/.*\?m="),
        ("Stuck", "held cleo does not get 1 message yet", "paused by root", "members/cleo"),
        ("Stuck", "dead fred never gets “he is gone” from alice: member removed", "12 min ago", r"talk/.*\?m="),
        ("Today", "ben", "1,000,005 tokens $1.75", "members/ben"),
        ("Today", "dina", "120,000 tokens $1.00", "members/dina"),
    ):
        link = part(page, name).get_by_role("link").filter(has_text=re.compile(re.escape(text).replace(r"\ ", r"\s*")))
        await expect(link).to_contain_text(re.compile(re.escape(more).replace(r"\ ", r"\s*")))
        await link.click()
        await expect(page).to_have_url(re.compile(f"#/{place}"))
        await expect(page.get_by_role("heading", level=1).first).to_be_visible()
        await page.goto(f"{scene.url}/#/home")
    await expect(part(page, "Today").locator("dd")).to_have_text(["$2.75", "1,120,005", "3"])
    await expect(page.get_by_text("4 things need you")).to_be_visible()
    for line, words in (
        ("ben", (r"blocked\s*for \d", "Port the parser", "agent-relay")),
        ("dina", (r"working\s*for \d", "Write the manual", "peerbus", "reached by hook, then notify")),
        ("dina", (r"seen: its hook showed it, (just now|\d)",)),
        ("alice", (r"idle\s*for 12 min", "tieline")),
        *(
            (name, (r"idle\s*for \d", protocol))
            for name, protocol in SPEAKERS.items()
            if name in ("ada", "cleo", "eli")
        ),
    ):
        row = part(page, "Who is here").get_by_role("listitem").filter(has=page.get_by_role("link", name=line))
        for word in words:
            await expect(row).to_contain_text(re.compile(word))
        await expect(row.get_by_role("link", name=line)).to_have_attribute("href", f"#/members/{line}")
    work = part(page, "Who is here").get_by_role("link", name="Port the parser")
    await expect(work).to_have_attribute("href", f"#/objectives/{scene.objective}")
    await expect(part(page, "Who is here").get_by_role("listitem").first).to_contain_text("ben")
    await part(page, "Who is here").get_by_role("link", name="1 more member").click()
    await expect(page.get_by_role("heading", name="Members", level=1)).to_be_visible()


async def test_home_and_a_member_are_accessible_and_fit(scene: Scene) -> None:
    page = await scene.enter(path="#/home", color_scheme="dark")
    for width, height in ((1440, 900), (390, 844)):
        await page.set_viewport_size({"width": width, "height": height})
        for path, text in (("#/home", "May I merge"), ("#/members/dina", "run_tests"), ("#/members", "New member")):
            await page.goto(f"{scene.url}/{path}")
            await expect(page.get_by_text(text).first).to_be_visible()
            assert await faults(page) == [], path
            assert await page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0, path


async def test_a_members_timeline_has_all_that_it_did_and_is_told_and_grows(scene: Scene) -> None:
    page = await scene.enter(path="#/members/ben")
    timeline = part(page, "Timeline").locator("ol > li")
    for kind, words in (
        ("message", "→ #general ben is here"),
        ("message", "→ @cleo held back"),
        ("objective", "ben objective blocked: the key of the board is missing (Port the parser)"),
        ("call", "gpt-5 1,000,000 → ? tokens, 2.5 s, called run_tests"),
    ):
        line = timeline.filter(has_text=re.compile(re.escape(words).replace(r"\ ", r"\s*")))
        await expect(line).to_have_count(1)
        await expect(line).to_have_class(kind)
    figures, models = part(page, "Today").locator("dd"), part(page, "Today").get_by_role("listitem")
    await expect(figures).to_have_text(["$1.75", "1,000,005", "2"])
    await expect(models).to_have_text(
        [re.compile(r"gpt-5\s*1,000,000 in, 0 out\s*\$1.75"), re.compile("mine.*no price")]
    )
    await page.get_by_role("button", name="Model calls").click()
    await expect(timeline).to_have_count(2)
    call = timeline.filter(has_text="gpt-5")
    await call.locator("summary").click()
    await expect(call.locator("pre")).to_contain_text('"inputTokens": 1000000')
    # What it does meanwhile comes by itself.
    ben = await scene.there.join("ben", receive=True)
    await ben.set_busy()
    opened = {"kind": "objective_open", "ts": int(time.time() * 1000), "objectiveId": scene.objective}
    await ben.record_activity(opened, exchange("gpt-5-mini", inputTokens=7, outputTokens=3))
    await expect(timeline).to_have_count(3)
    await expect(timeline.first).to_contain_text("gpt-5-mini")
    await expect(part(page, "Now")).to_contain_text(
        re.compile("working.*Port the parser.*1 model call, 10 tokens, 1 tool call")
    )
    await expect(figures).to_have_text(["$1.75", "1,000,015", "3"])
    await expect(part(page, "Now")).to_contain_text('Last tool: run_tests {"path":"tests"}')
    await page.get_by_role("button", name="Tool calls").click()
    await expect(timeline).to_have_count(3)
    await expect(timeline.first).to_contain_text('run_tests {"path":"tests"}')
    await page.get_by_role("button", name="Objectives").click()
    await expect(timeline).to_have_count(3)
    mark = timeline.first.get_by_role("link", name="Port the parser")
    await expect(mark).to_have_attribute("href", f"#/objectives/{scene.objective}")
    await page.get_by_role("button", name="Everything").click()
    await page.get_by_label("Say something to @ben").fill("the key is under the mat")
    await page.keyboard.press("Enter")
    await expect(timeline.first).to_contain_text("the key is under the mat")
    async with asyncio.timeout(15):
        async for delivery in ben:
            if delivery.message.body == "the key is under the mat":
                break
    await timeline.first.get_by_role("link").click()
    await expect(page.get_by_role("heading", name="@ben")).to_be_visible()


async def test_home_is_used_with_the_keyboard_alone(scene: Scene) -> None:
    page = await scene.enter(path="#/home")
    await expect(page.get_by_text("May I merge")).to_be_visible()
    await page.locator("#main").focus()
    seen: list[str | bool] = []
    for _ in range(12):
        await page.keyboard.press("Tab")
        seen.append(await page.evaluate("document.activeElement.matches('a') && document.activeElement.textContent"))
        if "May I merge" in str(seen[-1]):
            break
    assert "May I merge" in str(seen[-1]), seen
    await page.keyboard.press("Enter")
    await expect(page.get_by_role("heading", name="@ada")).to_be_visible()


async def test_home_follows_what_happens(scene: Scene) -> None:
    page = await scene.enter(path="#/home")
    needs, here = part(page, "Needs you"), part(page, "Who is here").get_by_role("listitem")
    await expect(needs.get_by_role("listitem")).to_have_count(4)
    root, ben, dina = [await scene.there.join(name) for name in ("root", "ben", "dina")]
    for words in ("working\\s*for \\d+ s", "Write the manual"):
        await expect(here.filter(has_text="dina")).to_contain_text(re.compile(words))
    await dina.set_busy(False)
    await expect(here.filter(has_text="dina")).to_contain_text(re.compile("idle\\s*for \\d+ s"))
    await root.send("@ada", "Yes.")
    await expect(needs.get_by_text("May I merge")).to_have_count(0)
    await ben.change_objective(scene.objective, Unblock())
    await expect(needs.get_by_text("Port the parser")).to_have_count(0)
    await root.resume_thread("@ben+@cleo")
    await expect(needs.get_by_text("ben ↔ cleo")).to_have_count(0)
    await needs.get_by_role("link").click()
    await page.get_by_role("form", name="Device").get_by_role("combobox").select_option("eli")
    await page.get_by_role("button", name="Approve").click()
    await expect(page.get_by_role("heading", name="Members", level=1)).to_be_visible()
    await page.goto(f"{scene.url}/#/home")
    await expect(page.get_by_text("Nothing needs you now.")).to_be_visible()
    bob = await scene.there.join("bob")
    for item in (await bob.inbox()).items:
        bob.ack(item)
    await expect(part(page, "Stuck").get_by_text("nobody reads this")).to_have_count(0, timeout=30_000)


async def test_a_conversation_that_the_loop_rule_holds_needs_a_person(folder: Path, browser: Browser) -> None:
    (folder / "tieline.toml").write_text("[limits]\nhops_soft = 3\nhops_max = 3\nhop_ms_min = 0\n")
    async with office(folder, browser) as there:
        alice, bob = await there.there.join("alice"), await there.there.join("bob")
        for _ in range(2):
            await bob.claim((await alice.send("@bob", "ping")).id)
            await alice.claim((await bob.send("@alice", "pong")).id)
        held = await alice.send("@bob", "one too many")
        page = await there.enter(path="#/home")
        await expect(part(page, "Needs you")).to_contain_text(
            re.compile(r"held\s*alice ↔ bob agents answered each other too often\s*1 message waits")
        )
        stuck = part(page, "Stuck")
        await expect(stuck).to_contain_text(re.compile(r"bob does not get 1 message yet\s*held by the loop rule$"))
        await part(page, "Needs you").get_by_role("link", name="alice ↔ bob").click()
        await expect(page.get_by_text("one too many").first).to_be_visible()
        await page.get_by_role("alert").get_by_role("button", name="Resume").click()
        await page.goto(f"{there.url}/#/home")
        await expect(page.get_by_text("Nothing needs you now.")).to_be_visible()
        await expect(stuck.get_by_text("does not get")).to_have_count(0)
        assert await bob.claim(held.id) is not None


async def test_who_may_not_sees_neither_devices_nor_costs_nor_what_is_stuck_of_others(scene: Scene) -> None:
    await scene.there.add("carol")
    page = await scene.enter("carol", path="#/home")
    await expect(part(page, "Who is here").get_by_role("link", name="dina", exact=True)).to_be_visible()
    await expect(page.get_by_text("Nothing needs you now.")).to_be_visible()
    await expect(page.get_by_role("heading", name="Today")).to_have_count(0)
    await expect(part(page, "Stuck").get_by_text("nobody reads this")).to_have_count(0)
    await page.goto(f"{scene.url}/#/members/dina")
    await expect(page.get_by_role("heading", name="Timeline")).to_be_visible()
    await expect(page.locator(".exchange")).to_have_count(0)

"""Tests that a long conversation and many new messages do not make the console slow, and do not fill its memory."""

import asyncio
import os
import re
import sys
import time
from typing import Any

import pytest
from msgspec import Struct
from playwright.async_api import CDPSession, Page, expect

from tests.e2e.browsers import Office
from tieline.client import Client

SOAK = bool(os.environ.get("TIELINE_SOAK"))
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if SOAK else 300)]

RATE = 500
"""Number of messages that are sent in a second."""

WATCH = """() => {
    window.long = [];
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.long.push(Math.round(entry.duration));
    }).observe({entryTypes: ["longtask"]});
}"""


class Figures(Struct):
    """Performance figures of a page, measured by the browser."""

    heap: float
    """Size of the JavaScript heap in megabytes, after garbage collection."""
    nodes: int
    long: list[int]
    """Durations in milliseconds of the tasks that took more than 50 ms since the last measurement."""

    def __str__(self) -> str:
        longer = sum(task > 200 for task in self.long)
        worst = max(self.long, default=0)
        return (
            f"{len(self.long)} tasks over 50 ms, {longer} over 200 ms, the longest {worst} ms; "
            f"{self.heap:.1f} MB of heap, {self.nodes} nodes"
        )


class Gauge:
    """Measures the memory and the long tasks of a page."""

    def __init__(self, page: Page, session: CDPSession) -> None:
        self._page = page
        self._session = session

    @classmethod
    async def on(cls, page: Page) -> "Gauge":
        """Begin to measure a page. Return the gauge."""
        session = await page.context.new_cdp_session(page)
        await session.send("Performance.enable")
        await page.evaluate(WATCH)
        return cls(page, session)

    async def read(self, what: str) -> Figures:
        """Measure now. Print the figures under the name `what`, and return them."""
        long = await self._page.evaluate("window.long.splice(0)")
        # Twice, because what is freed by the first may hold something.
        for _ in range(2):
            await self._session.send("HeapProfiler.collectGarbage")
        metrics = (await self._session.send("Performance.getMetrics"))["metrics"]
        values: dict[str, Any] = {metric["name"]: metric["value"] for metric in metrics}
        figures = Figures(values["JSHeapUsedSize"] / 1e6, int(values["Nodes"]), long)
        sys.stdout.write(f"{what}: {figures}\n")
        return figures


async def fill(alice: Client, count: int) -> None:
    """Send `count` messages from alice to root, for a long conversation."""
    for start in range(0, count, 500):
        await asyncio.gather(*(alice.send("@root", f"message {number}") for number in range(start, start + 500)))


async def stream(alice: Client, seconds: float, start: int) -> tuple[int, float]:
    """Send `RATE` messages a second from alice to root, for some seconds.

    The messages are numbered from `start`. Return the number after the last message, and the real rate.
    """
    began = time.monotonic()
    number = start
    while (passed := time.monotonic() - began) < seconds:
        due = start + int(passed * RATE) + 1
        if due > number:
            await asyncio.gather(*(alice.send("@root", f"fast {one}") for one in range(number, due)))
            number = due
        await asyncio.sleep(0.01)
    return number, (number - start) / (time.monotonic() - began)


async def test_a_long_conversation_is_scrolled_through_smoothly(there: Office) -> None:
    count = 50_000 if SOAK else 5_000
    alice = await there.there.join("alice")
    await fill(alice, count)
    page = await there.enter(path="#/talk/%40alice")
    turns = page.locator(".turn")
    await expect(turns.last).to_contain_text(f"message {count - 1}")
    gauge = await Gauge.on(page)
    before = await gauge.read(f"a conversation of {count}")
    # To its very first message, page by page, as somebody would who holds the key down.
    reached = count
    async with asyncio.timeout(600 if SOAK else 120):
        while reached > 0:
            await page.locator(".list").evaluate("(list) => list.scrollBy(0, -8 * list.clientHeight)")
            await page.evaluate("() => new Promise(requestAnimationFrame)")
            assert await turns.count() < 100
            said = await turns.first.locator(".prose").inner_text()
            reached = int(said.removeprefix("message "))
    after = await gauge.read("and scrolled to its beginning")
    # In order, without a gap and without a double, wherever one looks.
    shown = await turns.locator(".prose").all_inner_texts()
    assert shown == [f"message {number}" for number in range(len(shown))]
    assert after.nodes < 2 * before.nodes + 2000
    # A message costs a few hundred bytes, and nothing that was drawn stays.
    assert after.heap < before.heap + 5 + count * 0.002


async def test_a_fast_tail_is_shown_smoothly_and_does_not_fill_the_memory(there: Office) -> None:
    seconds = 60 if SOAK else 4
    alice = await there.there.join("alice")
    page = await there.enter()
    await fill(alice, 500)
    gauge = await Gauge.on(page)
    await gauge.read("before")
    number, rate = await stream(alice, seconds, 0)
    await expect(page.locator(".row").last).to_contain_text(f"fast {number - 1}", timeout=30_000)
    half = await gauge.read(f"{number} live at {rate:.0f} a second")
    number, rate = await stream(alice, seconds, number)
    await expect(page.locator(".row").last).to_contain_text(f"fast {number - 1}", timeout=30_000)
    whole = await gauge.read(f"{number} live at {rate:.0f} a second")
    rows = await page.locator(".row .says").all_inner_texts()
    assert len(rows) < 100
    assert rows == [f"fast {one}" for one in range(number - len(rows), number)]
    assert whole.heap < 1.5 * half.heap
    assert whole.nodes < 1.5 * half.nodes
    assert len(whole.long) < 10 * seconds
    # It answers while it is told so much.
    telling = asyncio.create_task(stream(alice, 3, number))
    await page.get_by_label("Filter").fill("fast 7")
    await expect(page.locator(".row").first).to_contain_text(re.compile("fast .*7"))
    await page.get_by_label("Filter").fill("")
    await page.get_by_role("button", name="Pause").click()
    await expect(page.get_by_role("button", name="Resume")).to_be_visible()
    await telling
    await page.get_by_role("button", name="Resume").click()
    await gauge.read("filtered and paused meanwhile")

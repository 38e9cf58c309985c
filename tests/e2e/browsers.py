"""Test helpers for tests in a real browser: a hub, members on several protocols, and a person with a browser."""

import asyncio
import contextlib
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
from playwright.async_api import Browser, BrowserContext, Page, async_playwright

from tests.server.hubs import HubHarness, running_hub
from tieline.contract.member import MemberKind
from tieline.contract.permission import LOG_READ, TEAM_PERMISSIONS
from tieline.protocols.agent_channels import ChannelClient

ALL = (*TEAM_PERMISSIONS, LOG_READ)
AXE = Path(__file__).resolve().parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"


@contextlib.asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start Debian's headless Chromium, which takes half the processor time of the whole browser.

    Close it at the end.
    """
    program = shutil.which("chromium-headless-shell")
    assert program is not None, "these tests need Chromium: apt-get install chromium-headless-shell"
    async with async_playwright() as playwright:
        browser = await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            await browser.close()


class Office:
    """Test helper: a running hub with the agents alice and bob, and a person with a browser.

    The person is the member `root`, who may do everything.
    """

    def __init__(self, there: HubHarness, browser: Browser) -> None:
        self.there = there
        self.browser = browser
        self.url = there.running.http
        # Errors in pages; the list must stay empty.
        self.complaints: list[str] = []
        self._contexts: list[BrowserContext] = []

    async def page(self, **options: Any) -> Page:
        """Open an empty page in a new browser context, which shares no cookies with other pages.

        Errors of the page are added to `complaints`.
        """
        context = await self.browser.new_context(**{"viewport": {"width": 1280, "height": 800}, **options})
        self._contexts.append(context)
        page = await context.new_page()
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("console", self._said)
        page.on("request", self._asked)
        page.set_default_timeout(15_000)
        return page

    def _said(self, said: Any) -> None:
        # A browser reports what the page asks to find out: whether somebody is logged in, whether the pipeline ran.
        expected = ("status of 401", "status of 404", "ERR_CONNECTION")
        # And that a browser that asked to be let in still waits.
        if said.location["url"].endswith("/api/devices/poll"):
            return
        if said.type == "error" and not any(words in said.text for words in expected):
            self.complaints.append(said.text)

    def _asked(self, request: Any) -> None:
        if not request.url.startswith((self.url, self.url.replace("http", "ws"), "data:")):
            self.complaints.append(f"asked for {request.url}")

    async def enter(self, name: str = "root", path: str = "#/live", **options: Any) -> Page:
        """Open the console in a new browser context and log a member in. Return the page, at `path`."""
        page = await self.page(**options)
        await page.goto(f"{self.url}/")
        await page.get_by_label("Token").fill(self.there.tokens[name])
        await page.get_by_role("button", name="Sign in").click()
        await page.get_by_text("Connected", exact=True).wait_for()
        await page.goto(f"{self.url}/{path}")
        return page

    async def over_ac7(self, name: str, to: str | None, body: str, **more: Any) -> None:
        """Send a message as the member `name`, with the protocol ac7. `more` are other fields of the request."""
        async with httpx.AsyncClient(base_url=self.url) as client:
            headers = {"authorization": f"Bearer {self.there.tokens[name]}"}
            answer = await client.post("/push", json={"to": to, "body": body, **more}, headers=headers)
            assert answer.status_code == 200, answer.text

    async def over_channels(self, to: str, body: str) -> None:
        """Send a message to a member with the protocol agent-channels, without a sender's name."""
        folder = self.there.running.places["channels_dir"]
        assert folder is not None
        async with ChannelClient(Path(folder) / f"inbox-{to}.sock") as client:
            client.send({"msg": body})
            await client.drain()

    async def close(self) -> None:
        """Close every page that was opened here."""
        for context in self._contexts:
            await context.close()


async def until(page: Page, expression: str, arg: Any = None) -> Any:
    """Evaluate an expression of JavaScript until it is true. Return its last value.

    Playwright's own `wait_for_function` does it inside the page, where the console's security policy forbids it.
    """
    async with asyncio.timeout(30):
        while True:
            if value := await page.evaluate(expression, arg):
                return value
            await page.wait_for_timeout(20)


@contextlib.asynccontextmanager
async def office(home: Path, browser: Browser, **options: Any) -> AsyncIterator[Office]:
    """Start a hub with the members root, alice and bob. Check at the end that no page had an error."""
    async with running_hub(home, store="sqlite:unsafe", **options) as there:
        await there.add("root", permissions=ALL, kind=MemberKind.HUMAN)
        await there.add("alice", "bob")
        built = Office(there, browser)
        try:
            yield built
        finally:
            await built.close()
    assert built.complaints == []


async def faults(page: Page) -> list[str]:
    """Run axe (a checker of accessibility) on a page. Return what it finds."""
    # A page that changes only the part of its address after the `#` still has axe.
    if not await page.evaluate("'axe' in window"):
        await page.evaluate(await asyncio.to_thread(AXE.read_text))
    found = await page.evaluate("axe.run({resultTypes: ['violations']})")
    return [f"{one['id']}: {node['html']}" for one in found["violations"] for node in one["nodes"]]

"""Screenshots of every page of the console, and of the first pages of the documentation, for a person to look at.

    python -m scripts.shots [--out FOLDER] [--images]

Used by: `make shots`, before a release and after a change of a page's style. Uses: the demo's traffic, the pipeline's
report about a generated log, hubs in this process, and Debian's Chromium. Each page is taken light and dark, on a
screen and on a phone. A page that is wider than its window, or has an error, is named at the end, and the exit code
is 1. `--images` also writes the pictures of the documentation, compressed.
"""

import argparse
import asyncio
import base64
import getpass
import json
import shutil
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, StorageState, async_playwright

from tieline.client import connect
from tieline.contract.objective import Block
from tieline.server.hub import Options, RunningHub

ROOT = Path(__file__).resolve().parents[1]
TIELINE = Path(sys.executable).with_name("tieline")
PHONE = 390
WIDTHS = {1440: 900, PHONE: 844}
"""Width and height of a screen, and of a phone."""
SCHEMES = ("light", "dark")
CONSOLE = ("home", "live", "talk", "members", "objectives", "search/parser", "devices", "nowhere")
SPOKEN = "It is the byte order of the header."
"""A message of the demo, which is shown with its receipts."""
TASK = """The parser reads the header in the byte order of the machine.

- read it as **big-endian**
- add a test for each of the `12` kinds of header
"""
REPORTED = 30_000
"""Events of the log that the pictures of the pipeline's report are about."""
IMAGES = {
    "console-home": "home-1440-light",
    "console-live": "message-1440-light",
    "console-member": "member-1440-dark",
    "console-objective": "objective-1440-light",
    "console-insights": "insights-1440-light",
    "console-phone": "talk-390-dark",
}
"""Pictures of the documentation, and the pictures of the console that they are."""
IMAGES_FOLDER = ROOT / "docs" / "images"
_QUALITY = 80
"""Quality of the documentation's pictures: text stays sharp, and no picture has more than 150 KB."""
DOCS = ("", "start/", "howto/team/", "reference/cli/", "security/", "troubleshooting/")
_SETTLED_MS = 600
"""Time after the last request, in which a page draws what came. The pictures are for people, who look again."""


def demo_home() -> Path:
    """Run the demo. Return the home with its traffic."""
    done = subprocess.run([TIELINE, "demo", "--fast", "--keep", "--json"], check=True, capture_output=True)
    return Path(json.loads(done.stdout)["home"])


def reported_home(folder: Path) -> Path:
    """Generate the log of a busy team, and run the pipeline over it. Return the home."""
    home = folder / "busy"
    generate = [sys.executable, "-m", "bench.synth", "--out", str(home), "--events", str(REPORTED)]
    subprocess.run(generate, check=True, capture_output=True, cwd=ROOT)
    subprocess.run([TIELINE, "pipeline", "run", "--home", home], check=True, capture_output=True)
    return home


def login_link(home: Path) -> str:
    """Return the link by which the hub's owner logs in to the console."""
    done = subprocess.run([TIELINE, "login", "--json", "--home", home], check=True, capture_output=True)
    link: str = json.loads(done.stdout)["url"]
    return link


@asynccontextmanager
async def running(home: Path) -> AsyncIterator[str]:
    """Run a hub in the home. Yield its address."""
    hub = RunningHub(Options(home=home, http="127.0.0.1:0"))
    try:
        yield (await hub.start()).http
    finally:
        await hub.stop()


@asynccontextmanager
async def chromium() -> AsyncIterator[Browser]:
    """Start Debian's headless Chromium, and yield it."""
    async with async_playwright() as playwright:
        program = shutil.which("chromium-headless-shell")
        yield await playwright.chromium.launch(executable_path=program, args=["--no-sandbox"])


def call(model: str, tool: str, tokens: int) -> dict[str, Any]:
    """Return a model call of this moment, as a program reports it."""
    said = [{"role": "assistant", "content": [{"type": "tool_use", "name": tool, "input": {"path": "src/parser"}}]}]
    usage = {"inputTokens": tokens, "outputTokens": tokens // 9}
    entry = {"request": {"model": model}, "response": {"model": model, "messages": said, "usage": usage}}
    return {"kind": "llm_exchange", "ts": int(time.time() * 1000), "duration": tokens // 8, "entry": entry}


@asynccontextmanager
async def at_work(home: Path, person: str) -> AsyncIterator[None]:
    """Let the members of the demo work, ask and wait for the person, until the pictures are taken."""
    async with AsyncExitStack() as stack:
        operator = await stack.enter_async_context(await connect(home=home))
        clients = {}
        for name in (person, "ada", "ben", "cleo", "dina"):
            token = (await operator.issue_token(name)).token
            clients[name] = await stack.enter_async_context(await connect(home=home, token=token))
        mine, ada, ben, cleo, dina = clients.values()
        port = await mine.create_objective(
            "Port the parser to ARM", "all tests pass on ARM", "ben", body=TASK, watchers=("cleo",)
        )
        await mine.create_objective("Write the manual", "a newcomer finishes the first chapter alone", "dina")
        await ben.set_busy()
        await ben.record_activity(
            call("claude-opus-4", "read_file", 41_000), call("claude-opus-4", "run_tests", 58_300)
        )
        await ben.send(f"obj:{port.id}", "Two of 96 tests fail: both read the header. I look at the byte order.")
        await cleo.send(f"obj:{port.id}", "The board in the lab is free from 14:00.")
        await ben.change_objective(port.id, Block("the key of the lab is missing"))
        await dina.set_busy()
        await dina.record_activity(call("gpt-5", "write_file", 120_000))
        await dina.send("*", "The first chapter is written: `docs/start.md`. Please **read it** and tell me.")
        await dina.send("*", "It takes 10 minutes.")
        await ada.send("*", "I read it now.")
        await cleo.send("*", "Nightly build: 96 tests, 2 fail on ARM, see #release.")
        await ada.send(f"@{person}", "May I merge the parser? The two failures are only on ARM.")
        await ada.send(f"@{person}", "The header is the last open point of 1.1.", title="Release 1.1")
        yield


class Camera:
    """Takes pictures of pages, and notes the pages that look wrong to a program."""

    def __init__(self, out: Path, images: Path | None = None) -> None:
        self._out = out
        # Folder of the documentation's pictures, if they are written too.
        self._images = images
        # Sentences about pages that are too wide or have an error.
        self.complaints: list[str] = []

    async def take(self, page: Page, name: str) -> None:
        """Take a picture of the page in its window, as `name`."""
        await page.wait_for_load_state("networkidle")
        await page.wait_for_timeout(_SETTLED_MS)
        beyond = await page.evaluate("document.documentElement.scrollWidth - innerWidth")
        if beyond > 0:
            self.complaints.append(f"{name} is {beyond} px wider than its window")
        await page.screenshot(path=self._out / f"{name}.png")
        for image, taken in IMAGES.items():
            if self._images and name == f"console-{taken}":
                await self._compress(page, self._images / f"{image}.webp")

    async def _compress(self, page: Page, path: Path) -> None:
        """Write a picture of the page in a form that is small."""
        session = await page.context.new_cdp_session(page)
        found = await session.send("Page.captureScreenshot", {"format": "webp", "quality": _QUALITY})
        await asyncio.to_thread(path.write_bytes, base64.b64decode(found["data"]))

    def watch(self, page: Page, name: str) -> None:
        """Note the errors of a page."""
        page.on("pageerror", lambda error: self.complaints.append(f"{name}: {error}"))


async def console_pages(page: Page, camera: Camera, url: str, name: str) -> None:
    """Take every page of the console, and one message with its receipts."""
    for one in CONSOLE:
        await page.goto(f"{url}/#/{one}")
        await camera.take(page, f"console-{one.partition('/')[0]}-{name}")
    await page.goto(f"{url}/#/members")
    await page.get_by_role("main").get_by_role("link", name="ben", exact=True).first.click()
    await camera.take(page, f"console-member-{name}")
    await page.goto(f"{url}/#/objectives")
    await page.get_by_role("main").get_by_role("link", name="Port the parser").click()
    await camera.take(page, f"console-objective-{name}")
    await page.goto(f"{url}/#/live")
    await page.locator("main").get_by_text(SPOKEN).first.click()
    await camera.take(page, f"console-message-{name}")
    await page.goto(f"{url}/#/home")
    await page.keyboard.press("?")
    await camera.take(page, f"console-keys-{name}")


async def report_page(page: Page, camera: Camera, url: str, name: str) -> None:
    """Take the page with the pipeline's report."""
    await page.goto(f"{url}/#/insights")
    await page.locator("figure").first.wait_for()
    await camera.take(page, f"console-insights-{name}")


async def docs_pages(page: Page, camera: Camera, url: str, name: str) -> None:
    """Take the first pages of the documentation."""
    for one in DOCS:
        await page.goto(f"{url}/docs/{one}")
        await camera.take(page, f"docs-{one.strip('/').replace('/', '-') or 'index'}-{name}")


async def log_in(browser: Browser, home: Path, url: str) -> StorageState:
    """Log the owner of a hub in. Return the cookies."""
    page = await browser.new_page()
    link = await asyncio.to_thread(login_link, home)
    await page.goto(f"{url}/#{urlsplit(link).fragment}")
    await page.get_by_text("Connected", exact=True).wait_for()
    return await page.context.storage_state()


async def in_each_window(
    browser: Browser, session: StorageState | None, camera: Camera, take: Callable[[Page, str], Awaitable[None]]
) -> None:
    """Call `take` with a page of each size, light and dark, and with the name of its kind."""
    for width, height in WIDTHS.items():
        for scheme in SCHEMES:
            page = await browser.new_page(
                viewport={"width": width, "height": height},
                color_scheme="dark" if scheme == "dark" else "light",
                is_mobile=width == PHONE,
                has_touch=width == PHONE,
                storage_state=session,
            )
            camera.watch(page, f"{width}-{scheme}")
            await take(page, f"{width}-{scheme}")
            await page.close()


async def take_all(home: Path, reported: Path, camera: Camera) -> None:
    """Take all pictures."""
    async with chromium() as browser:
        async with running(home) as url:

            async def entry(page: Page, name: str) -> None:
                await page.goto(url)
                await camera.take(page, f"console-entry-{name}")

            async def everything(page: Page, name: str) -> None:
                await console_pages(page, camera, url, name)
                await docs_pages(page, camera, url, name)

            await in_each_window(browser, None, camera, entry)
            session = await log_in(browser, home, url)
            async with at_work(home, getpass.getuser()):
                await in_each_window(browser, session, camera, everything)
        async with running(reported) as url:
            session = await log_in(browser, reported, url)

            async def report(page: Page, name: str) -> None:
                await report_page(page, camera, url, name)

            await in_each_window(browser, session, camera, report)


def main() -> int:
    """Take all pictures, and print where they are and what is wrong. Return the exit code."""
    parser = argparse.ArgumentParser(description="Take screenshots of the console and of the documentation.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "shots", help="folder of the pictures")
    parser.add_argument("--images", action="store_true", help="also write the pictures of the documentation")
    options = parser.parse_args()
    out: Path = options.out
    out.mkdir(parents=True, exist_ok=True)
    camera = Camera(out, IMAGES_FOLDER if options.images else None)
    home = demo_home()
    try:
        asyncio.run(take_all(home, reported_home(home.parent), camera))
    finally:
        shutil.rmtree(home.parent)
    for complaint in camera.complaints:
        print(complaint)
    print(f"{len(list(out.iterdir()))} pictures are in {out}")
    return 1 if camera.complaints else 0


if __name__ == "__main__":
    sys.exit(main())

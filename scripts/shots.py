"""Screenshots of every page of the console, and of the first pages of the documentation, for a person to look at.

    python -m scripts.shots [--out FOLDER]

Used by: `make shots`, before a release and after a change of a page's style. Uses: the demo's traffic, a hub in this
process, and Debian's Chromium. Each page is taken light and dark, on a screen and on a phone. A page that is wider than
its window, or has an error, is named at the end, and the exit code is 1.
"""

import argparse
import asyncio
import json
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import urlsplit

from playwright.async_api import Browser, Page, async_playwright

from tieline.server.hub import Options, RunningHub

ROOT = Path(__file__).resolve().parents[1]
TIELINE = Path(sys.executable).with_name("tieline")
WIDTHS = {1440: 900, 390: 844}
"""Width and height of a screen, and of a phone."""
SCHEMES = ("light", "dark")
CONSOLE = ("home", "live", "talk", "members", "objectives", "search", "insights")
SPOKEN = "It is the byte order of the header."
"""A message of the demo, which is shown with its receipts."""
DOCS = ("", "start/", "howto/team/", "reference/cli/", "security/", "troubleshooting/")
_SETTLED_MS = 600
"""Time after the last request, in which a page draws what came. The pictures are for people, who look again."""


def demo_home() -> Path:
    """Run the demo. Return the home with its traffic."""
    done = subprocess.run([TIELINE, "demo", "--fast", "--keep", "--json"], check=True, capture_output=True)
    return Path(json.loads(done.stdout)["home"])


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


class Camera:
    """Takes pictures of pages, and notes the pages that look wrong to a program."""

    def __init__(self, out: Path) -> None:
        self._out = out
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

    def watch(self, page: Page, name: str) -> None:
        """Note the errors of a page."""
        page.on("pageerror", lambda error: self.complaints.append(f"{name}: {error}"))


async def console_pages(page: Page, camera: Camera, url: str, name: str) -> None:
    """Take every page of the console, and one message with its receipts."""
    for one in CONSOLE:
        await page.goto(f"{url}/#/{one}")
        await camera.take(page, f"console-{one}-{name}")
    await page.goto(f"{url}/#/live")
    await page.locator("main").get_by_text(SPOKEN).first.click()
    await camera.take(page, f"console-message-{name}")


async def docs_pages(page: Page, camera: Camera, url: str, name: str) -> None:
    """Take the first pages of the documentation."""
    for one in DOCS:
        await page.goto(f"{url}/docs/{one}")
        await camera.take(page, f"docs-{one.strip('/').replace('/', '-') or 'index'}-{name}")


async def take_all(home: Path, out: Path) -> list[str]:
    """Take all pictures into the folder `out`. Return complaints about pages."""
    camera = Camera(out)
    async with running(home) as url, chromium() as browser:
        entry = await browser.new_page()
        await entry.goto(url)
        await camera.take(entry, "console-entry")
        link = await asyncio.to_thread(login_link, home)
        await entry.goto(f"{url}/#{urlsplit(link).fragment}")
        await entry.get_by_text("Connected", exact=True).wait_for()
        session = await entry.context.storage_state()
        for width, height in WIDTHS.items():
            for scheme in SCHEMES:
                name = f"{width}-{scheme}"
                page = await browser.new_page(
                    viewport={"width": width, "height": height},
                    color_scheme="dark" if scheme == "dark" else "light",
                    storage_state=session,
                )
                camera.watch(page, name)
                await console_pages(page, camera, url, name)
                await docs_pages(page, camera, url, name)
                await page.close()
    return camera.complaints


def main() -> int:
    """Take all pictures, and print where they are and what is wrong. Return the exit code."""
    parser = argparse.ArgumentParser(description="Take screenshots of the console and of the documentation.")
    parser.add_argument("--out", type=Path, default=ROOT / "build" / "shots", help="folder of the pictures")
    out: Path = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    home = demo_home()
    try:
        complaints = asyncio.run(take_all(home, out))
    finally:
        shutil.rmtree(home.parent)
    for complaint in complaints:
        print(complaint)
    print(f"{len(list(out.iterdir()))} pictures are in {out}")
    return 1 if complaints else 0


if __name__ == "__main__":
    sys.exit(main())

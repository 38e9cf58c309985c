"""Tests of Share in the console: links, commands and requests that show the same, and a conversation as a file."""

import asyncio
import json
import os
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from playwright.async_api import Locator, Page, expect

from tests.e2e.browsers import Office
from tests.e2e.reports import REPORT, leave
from tests.e2e.test_reading import until

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]

COMMAND, CURL = "Copy as tieline command", "Copy as curl"


def menu(within: Locator) -> Locator:
    """Return the menu Share of a page, or of the message beside it."""
    return within.locator("details.menu").first


async def copied(page: Page, within: Locator, choice: str) -> str:
    """Click an entry of a menu Share. Return the text that is in the clipboard then."""
    await page.evaluate("navigator.clipboard.writeText('')")
    await menu(within).locator("summary").click()
    await menu(within).get_by_role("button", name=choice).click()
    await expect(menu(within)).not_to_have_attribute("open", "")
    await until(lambda: page.evaluate("navigator.clipboard.readText().then((text) => text !== '')"))
    return str(await page.evaluate("navigator.clipboard.readText()"))


async def run(there: Office, command: str, **env: str) -> str:
    """Run a command in a shell that finds the hub. Return the output."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    home = str(there.there.home)
    shell = await asyncio.create_subprocess_exec(
        "bash",
        "-c",
        f"set -o pipefail; {command}",
        env={**os.environ, "PATH": path, "TIELINE_HOME": home, **env},
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    said, wrong = await shell.communicate()
    assert shell.returncode == 0, f"{command}: {wrong.decode()}"
    return said.decode()


async def shares(there: Office, page: Page, path: str, *, has: str, lacks: str, beside: bool = False) -> None:
    """Run the command and the request of a page as root. Check a text that both must have, and one that they must not.

    With `beside`, they are those of the message beside the page.
    """
    await page.goto(f"{there.url}/{path}")
    within = page.get_by_label("Message", exact=True) if beside else page.get_by_role("main")
    await expect(menu(within)).to_be_visible()
    token = there.there.tokens["root"]
    command = await copied(page, within, COMMAND)
    # An operator's command names the member as which it reads, and a token is of one member.
    said = await run(there, command, **({} if "--as=" in command else {"TIELINE_TOKEN": token}))
    asked = await copied(page, within, CURL)
    assert token not in asked
    answered = await run(there, asked, TIELINE_TOKEN=token)
    for output in (said, answered):
        assert has in output, (path, command, asked, output)
        assert lacks not in output, (path, command, asked)


async def test_every_view_is_copied_as_a_command_and_as_a_request_that_show_the_same(there: Office) -> None:
    root, alice, bob = [await there.there.join(name) for name in ("root", "alice", "bob")]
    await root.subscribe("dev")
    await alice.send("#dev", "the plan is ready")
    await there.over_ac7("alice", "root", "an elephant", thread="zoo")
    await alice.send("#dev", "and a lion", thread="zoo")
    await alice.send("@bob", "between us")
    sent = await bob.send("@root", "it's done")
    work = await root.create_objective("Ship it", "it is shipped", "alice")
    await root.create_objective("Plan it", "a plan is there", "bob")
    page = await there.enter()
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])

    async def check(path: str, has: str, lacks: str) -> None:
        await shares(there, page, path, has=has, lacks=lacks)

    await check("#/live", "it's done", "nobody said this")
    await check("#/talk/%23dev", "the plan is ready", "it's done")
    await check("#/talk/%40bob", "it's done", "the plan is ready")
    await check(f"#/talk/{quote('alice ↔ bob')}", "between us", "the plan is ready")
    await check("#/talk/thread%3Azoo", "and a lion", "the plan is ready")
    await check(f"#/search/{quote('eleph* from:alice since:1d')}", "an elephant", "and a lion")
    await check(f"#/search/{quote('plan in:#dev protocol:tieline')}", "the plan is ready", "and a lion")
    await check(f"#/search/{quote('from:alice in:zoo')}", "and a lion", "the plan is ready")
    await check("#/objectives", "Plan it", "an elephant")
    await check(f"#/objectives/{work.id}", "it is shipped", "Plan it")
    await check("#/home", "alice", "an elephant")
    await check("#/members", "alice", "an elephant")
    await check("#/members/alice", "alice", "an elephant")
    link = f"#/live?m={sent.id}&at={sent.offset}"
    await shares(there, page, link, has="root", lacks="elephant", beside=True)
    # The board of one assignee.
    await page.goto(f"{there.url}/#/objectives")
    await page.get_by_label("Assignee").select_option("alice")
    await check("#/objectives", "Ship it", "Plan it")


async def test_insights_are_copied_as_a_command_and_as_a_request(there: Office) -> None:
    leave(there.there.home, REPORT)
    page = await there.enter(path="#/insights")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    main = page.get_by_role("main")
    assert await copied(page, main, COMMAND) == "tieline pipeline report --window 7d"
    asked = await copied(page, main, CURL)
    answered = json.loads(await run(there, asked, TIELINE_TOKEN=there.there.tokens["root"]))
    assert answered["totals"] == REPORT["totals"]


async def test_a_conversation_is_saved_as_a_file_whole(there: Office) -> None:
    alice = await there.there.join("alice")
    # More than the page has at first.
    for start in range(0, 250, 50):
        await asyncio.gather(*(alice.send("@root", f"**number** {one}") for one in range(start, start + 50)))
    page = await there.enter(path="#/talk/%40alice")
    await expect(page.locator(".turn").first).to_be_visible()
    files = {}
    for form, ending in (("Markdown", "md"), ("JSON", "json")):
        await menu(page.get_by_role("main")).locator("summary").click()
        async with page.expect_download() as waiting:
            await page.get_by_role("button", name=f"Export as {form}").click()
        download = await waiting.value
        assert download.suggested_filename == f"tieline-alice.{ending}"
        files[ending] = (await download.path()).read_text()
    assert files["md"].startswith("# @alice\n\n250 messages, exported at ")
    assert [line for line in files["md"].splitlines() if line.startswith(">")] == [
        f"> **number** {one}" for one in range(250)
    ]
    saved = json.loads(files["json"])
    assert (saved["conversation"], saved["whole"]) == ("@alice", True)
    assert [one["body"] for one in saved["messages"]] == [f"**number** {one}" for one in range(250)]


async def test_a_thread_has_an_address_that_can_be_passed_on(there: Office) -> None:
    alice, bob = await there.there.join("alice"), await there.there.join("bob")
    await bob.subscribe("dev")
    await alice.send("@root", "for root", thread="plan")
    await alice.send("#dev", "for all of us", thread="plan")
    await alice.send("#dev", "something else")
    page = await there.enter(path="#/talk/%40alice")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    turn = page.locator(".turn")
    await turn.hover()
    await turn.get_by_role("link", name="Thread").click()
    await expect(page.get_by_role("heading", name="Thread plan")).to_be_visible()
    await expect(turn.locator(".prose")).to_have_text(["for root", "for all of us"])
    link = await copied(page, page.get_by_role("main"), "Copy link")
    assert link.startswith(f"{there.url}/#/talk/thread%3Aplan")
    # Another member sees of it what it may see.
    other = await there.enter("bob")
    await other.goto(link)
    await expect(other.locator(".turn .prose")).to_have_text(["for all of us"])


async def test_a_page_that_came_without_tls_from_another_machine_copies_too(there: Office) -> None:
    page = await there.enter(path="#/talk/%40alice")
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', {value: undefined})")
    await menu(page.get_by_role("main")).locator("summary").click()
    await page.get_by_role("button", name=COMMAND).click()
    await expect(page.get_by_text("Copied.")).to_be_visible()
    box = page.get_by_label("Say something to @alice")
    await box.press("Control+v")
    await expect(box).to_have_value("tieline history @alice")

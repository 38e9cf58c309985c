"""Tests of the first steps on an empty hub: a person copies each command of the page, runs it, and sees its mark.

The commands, the hub, the browser and the MCP server are real. A script stands for Claude Code: it starts the MCP
server of its settings, as Claude Code does.
"""

import asyncio
import contextlib
import json
import re
import shlex
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, Locator, Page, expect

from tests.cli.hub_process import TIELINE, environment
from tests.e2e.browsers import Office, faults, office, until
from tieline.agents.mcp_client import McpClient, open_server

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

CLAUDE = """#!/usr/bin/env python3
import json, os, pathlib, sys
if sys.argv[1:] == ["--version"]:
    print("2.1.197 (Claude Code)")
else:
    server = json.loads((pathlib.Path.home() / ".claude.json").read_text())["mcpServers"]["tieline"]
    os.execve(server["command"], [server["command"], *server["args"]], {**os.environ, **server.get("env", {})})
"""


class Terminal:
    """Test helper: a terminal of a user who has installed `tieline` and `claude`."""

    def __init__(self, folder: Path, home: Path) -> None:
        programs, self.user = folder / "programs", folder / "user"
        programs.mkdir()
        self.user.mkdir()
        (programs / "claude").write_text(CLAUDE, encoding="utf-8")
        (programs / "claude").chmod(0o700)
        (programs / "tieline").symlink_to(TIELINE)
        self.variables = environment(home, {"HOME": str(self.user), "PATH": f"{programs}:/usr/bin:/bin"})

    async def run(self, command: str) -> None:
        """Run a command, which must succeed."""
        process = await asyncio.create_subprocess_exec("/bin/sh", "-c", command, env=self.variables)
        assert await process.wait() == 0

    async def happens(self, event: str) -> None:
        """Run the hooks of an event, as Claude Code runs those of its settings."""
        groups = json.loads((self.user / ".claude" / "settings.json").read_text(encoding="utf-8"))["hooks"][event]
        said = shlex.quote(json.dumps({"hook_event_name": event}))
        for hook in (hook for group in groups for hook in group["hooks"] if "--wait" not in hook["command"]):
            await self.run(f"echo {said} | {hook['command']}")

    @contextlib.asynccontextmanager
    async def program(self, command: str, errors: Path) -> AsyncIterator[McpClient]:
        """Run a command that speaks MCP. Yield the client."""
        with errors.open("wb") as file:
            async with open_server(("/bin/sh", "-c", command), self.variables, file) as client:
                yield client


@pytest_asyncio.fixture(loop_scope="session")
async def empty(folder: Path, browser: Browser) -> AsyncIterator[Office]:
    """Fixture: a hub whose only member is the person with the browser."""
    async with office(folder / "home", browser) as there:
        operator = await there.there.operator()
        for name in ("alice", "bob"):
            await operator.remove_member(name)
        yield there


def steps_of(page: Page) -> Locator:
    return page.get_by_role("region", name="Connect your first agent").get_by_role("listitem")


async def copied(page: Page, step: Locator) -> str:
    """Copy the command of a step with its button. Return the command."""
    # The page still says that it copied the command before.
    await page.evaluate("navigator.clipboard.writeText('')")
    await step.get_by_role("button", name="Copy").click()
    return str(await until(page, "navigator.clipboard.readText()"))


async def test_the_three_commands_connect_an_agent_and_each_mark_comes_when_it_is_done(
    empty: Office, folder: Path
) -> None:
    terminal = Terminal(folder, folder / "home")
    page = await empty.enter(path="#/home")
    await page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    steps = steps_of(page)
    marks = steps.locator(".check")
    await expect(marks).to_have_text(["", "", ""])
    assert await faults(page) == []
    await page.get_by_label("Name of the agent").fill("mo")
    connect = await copied(page, steps.nth(0))
    assert connect == "tieline connect claude-code --as mo"
    await terminal.run(f"{connect} --yes")
    await expect(marks).to_have_text(["✓", "", ""])
    async with terminal.program(await copied(page, steps.nth(1)), folder / "errors") as claude:
        await expect(marks).to_have_text(["✓", "✓", ""])
        await terminal.run(await copied(page, steps.nth(2)))
        answer = await claude.call_tool("drain", {})
        assert "Hello. Who are you?" in str(answer)
        await expect(marks).to_have_text(["✓", "✓", "✓"])
        await expect(page.get_by_text("mo has joined, and got your message.")).to_be_attached()
        await claude.call_tool("send", {"to": "@root", "body": "I am mo."})
        await expect(page.get_by_role("region", name="Needs you")).to_contain_text("I am mo.")
        mo = page.get_by_role("region", name="Who is here").get_by_role("listitem").filter(has_text="mo")
        await terminal.happens("UserPromptSubmit")
        await expect(mo).to_contain_text(re.compile(r"working\s*for \d"))
        await terminal.happens("Stop")
        await expect(mo).to_contain_text(re.compile(r"idle\s*for \d"))
        # The steps stay while the page is open, and are gone when it is opened again.
        await expect(marks).to_have_text(["✓", "✓", "✓"])
        await page.reload()
        await expect(page.get_by_role("region", name="Who is here")).to_contain_text("mo")
        await expect(steps).to_have_count(0)


async def test_the_commands_follow_the_program_and_the_name(empty: Office) -> None:
    page = await empty.enter(path="#/home")
    commands = steps_of(page).locator("code")
    greeting = '"Hello. Who are you?" --as root'
    await expect(commands).to_have_text(
        ["tieline connect claude-code --as claude", "claude", f"tieline send @claude {greeting}"]
    )
    await page.get_by_label("Program").select_option("Codex")
    await expect(commands).to_have_text(
        ["tieline connect codex --as codex", "codex", f"tieline send @codex {greeting}"]
    )
    await page.get_by_label("Name of the agent").fill("a b;$(c)")
    await expect(commands.first).to_have_text("tieline connect codex --as abc")
    # Without https, a browser has no clipboard for pages of another machine.
    await page.evaluate("Object.defineProperty(navigator, 'clipboard', { value: undefined })")
    await steps_of(page).first.get_by_role("button", name="Copy").click()
    await expect(page.get_by_role("status").filter(has_text="Copied.")).to_be_visible()
    await page.get_by_label("Name of the agent").fill("")
    await page.get_by_label("Name of the agent").press("Control+V")
    # The name keeps only signs that a name may have.
    await expect(commands.first).to_have_text("tieline connect codex --as tielineconnectcodex--asabc")

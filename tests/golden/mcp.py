"""Golden tests of `tieline mcp`, an agent's MCP server: each set of tools, each tool, and pushed messages."""

import asyncio
import contextlib
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator
from functools import partial
from pathlib import Path
from typing import Any

from tests.agents.mcp_agent import WAIT_SECONDS, RawProgram
from tests.cli.hub_process import environment
from tests.golden.recorder import Recorder
from tests.golden.shell import NOW_MS
from tests.golden.stage import Stage, stage
from tests.server.hubs import ALONE
from tieline.client import Client
from tieline.contract.message import Kind, Level, Priority

Json = dict[str, Any]

_COMMAND = f"import time; time.time_ns = lambda: {NOW_MS * 1_000_000}; from tieline.cli.main import main; main()"
"""Python code that runs the command on a clock that stands still, because its output contains the age of messages."""


class Program(RawProgram):
    """Test client: an agent's program that uses `tieline mcp`, with every line in the transcript."""

    def __init__(self, there: Stage, process: asyncio.subprocess.Process) -> None:
        super().__init__(process)
        self._stage = there

    async def say(self, message: Json) -> None:
        """Write a JSON-RPC message as a line."""
        await self._stage.turn()
        line = json.dumps({"jsonrpc": "2.0", **message}, separators=(",", ":"))
        self._stage.recorder.said("program", line)
        self.write(line.encode())

    async def hear(self, count: int = 1) -> list[Json]:
        """Wait for `count` lines.

        Return them decoded, the answer before the notifications, because they may come in any order.
        """
        assert self.process.stdout is not None
        async with asyncio.timeout(WAIT_SECONDS):
            lines = [(await self.process.stdout.readline()).decode().removesuffix("\n") for _ in range(count)]
        lines.sort(key=lambda line: ("id" not in json.loads(line), line.partition('"params"')[0]))
        for line in lines:
            self._stage.recorder.heard("program", line)
        return [json.loads(line) for line in lines]

    async def call(self, method: str, params: Json | None = None, also: int = 0) -> Json:
        """Send a request. Wait for its answer, and for `also` notifications. Return the answer."""
        self._numbers += 1
        await self.say({"id": self._numbers, "method": method, "params": params or {}})
        return (await self.hear(1 + also))[0]

    async def tool(self, name: str, /, *, also: int = 0, **arguments: Any) -> str:
        """Call a tool. Wait for its answer, and for `also` notifications. Return the text of the answer."""
        answer = await self.call("tools/call", {"name": name, "arguments": arguments}, also)
        text: str = answer["result"]["content"][0]["text"]
        return text

    async def open(self) -> None:
        """Open a session with the handshake of the older MCP version."""
        about = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}}
        await self.call("initialize", about)
        await self.say({"method": "notifications/initialized"})


@contextlib.asynccontextmanager
async def program(there: Stage, *options: str) -> AsyncIterator[Program]:
    """Start `tieline mcp` as the member bob, with these options, and yield the client."""
    there.recorder.section(" ".join(("tieline mcp", *options)))
    command = (sys.executable, "-c", _COMMAND, "mcp", "--as", "bob", *options)
    env = environment(there.there.home, {"TIELINE_RUNNER_SOCKET": "", "AC7_RUNNER_SOCKET": ""})
    process = await asyncio.create_subprocess_exec(*command, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=env)
    try:
        yield Program(there, process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()


@contextlib.asynccontextmanager
async def team(folder: Path, recorder: Recorder) -> AsyncIterator[tuple[Stage, Client]]:
    """Start a hub with the members ada, bob and eve. Yield the hub and a client of ada."""
    async with stage(folder, recorder, **ALONE) as there:
        more = ("objectives.create", "objectives.cancel", "objectives.watch", "objectives.reassign")
        await there.there.add("ada", permissions=more)
        await there.there.add("bob", permissions=more)
        await there.there.add("eve")
        ada = await there.there.join("ada")
        await ada.subscribe("builds")
        yield there, ada


async def play(folder: Path, recorder: Recorder, tools: str) -> None:
    """Call each tool of one set without pushes: the agent fetches its messages by a tool."""
    async with team(folder, recorder) as (there, ada), program(there, "--tools", tools, "--no-push") as bob:
        await bob.open()
        await bob.call("tools/list")
        await _SCRIPTS[tools](bob, ada)


async def play_pushed(folder: Path, recorder: Recorder) -> None:
    """Let `tieline mcp` push messages to the agent, with the older MCP version."""
    async with team(folder, recorder) as (there, ada), program(there) as bob:
        await bob.open()
        await _pushed(bob, ada)


async def play_newer(folder: Path, recorder: Recorder) -> None:
    """Let `tieline mcp` push messages, with the newer MCP version: every request contains version and client name."""
    named = "io.modelcontextprotocol"
    about = {"protocolVersion": "2026-07-28", "clientInfo": {"name": "raw", "version": "1"}, "clientCapabilities": {}}
    meta = {"_meta": {f"{named}/{key}": value for key, value in about.items()}}
    async with team(folder, recorder) as (there, ada), program(there) as bob:
        await bob.call("server/discover", meta)
        await bob.call("tools/call", {"name": "members", "arguments": {}, **meta})
        await ada.send("@bob", "hello <bob>", title="Hello", data={"branch": "main", "deep": {"k": 1}})
        await bob.hear()
        listen = {"notifications": {"toolsListChanged": True}, **meta}
        await bob.call("subscriptions/listen", listen)
        await ada.create_objective("Fix it", "It works", "bob")
        await bob.hear(2)
        await bob.call("tools/call", {"name": "dance", "arguments": {}, **meta})


async def _pushed(bob: Program, ada: Client) -> None:
    sent = await ada.send("@bob", "hello <bob>", title="Hello", data={"branch": "main", "deep": {"k": 1}})
    await bob.hear()
    await bob.tool("send", to="@ada", body="yes", reply_to=sent.id)
    made = await ada.create_objective("Fix it", "It works", "bob")
    await bob.hear(2)
    await bob.call("tools/list")
    await bob.tool("objective", do="block", id=made.id, text="no key", also=2)
    await bob.tool("objective", do="complete", id=made.id, text="it works", also=2)
    await ada.send("*", "to everybody", kind=Kind.STATUS, level=Level.ERROR, priority=Priority.URGENT)
    await bob.hear()
    await bob.tool("drain")
    await bob.call("ping")
    await bob.call("resources/list")


async def _lean(bob: Program, ada: Client) -> None:
    sent = await ada.send("@bob", "hello <bob>", title="Hello", data={"branch": "main", "deep": {"k": 1}})
    said = await bob.tool("send", to="@ada", body="yes", reply_to=sent.id, title="T", level="notice", urgent=True)
    await bob.tool("receipts", id=said.split()[1])
    await bob.tool("members")
    await bob.tool("channels", join="builds")
    await ada.send("#builds", "to a channel")
    await ada.send("@bob", "one more")
    await bob.tool("drain", limit=1)
    await bob.tool("drain")
    await bob.tool("drain")
    await bob.tool("history", limit=3)
    await bob.call("tools/call", {"name": "history", "arguments": {"with": "#builds"}})
    await bob.tool("history", query="channel")
    await bob.tool("channels", leave="builds")
    await bob.tool("objectives")
    made = await ada.create_objective("Fix it", "It works", "bob")
    await bob.hear()
    await bob.tool("objectives", id=made.id)
    for do, more in (("block", {"text": "no key"}), ("unblock", {}), ("complete", {"text": "it works"})):
        await bob.tool("objective", do=do, id=made.id, also=1, **more)
    await bob.tool("objective", do="create", title="Other", text="Done", to="ada")
    other = (await ada.objectives()).objectives[0].id
    await bob.tool("objective", do="watch", id=other, to="eve")
    await bob.tool("objective", do="unwatch", id=other, to="eve")
    await bob.tool("objective", do="reassign", id=other, to="bob", text="mine", also=1)
    await bob.tool("objective", do="cancel", id=other, text="no time", also=1)
    await bob.tool("send", to="@nobody", body="x")
    await bob.tool("send", to=1)
    await bob.tool("receipts", id="none")
    await bob.tool("objective", do="complete", id="obj-0", text="x")
    await bob.call("tools/call", {"name": "dance", "arguments": {}})


async def _ac7(bob: Program, ada: Client) -> None:
    await bob.tool("roster")
    await bob.tool("broadcast", body="to everybody", title="T", level="notice")
    await bob.tool("send", to="ada", body="to ada")
    await bob.tool("channels_list")
    await bob.tool("channels_post", channel="builds", body="to a channel")
    await ada.send("@bob", "hello")
    await bob.tool("recent", limit=2)
    await bob.tool("recent", peer="ada")
    await bob.tool("recent", channel="general")
    made = await ada.create_objective("Fix it", "It works", "bob")
    await bob.hear()
    await bob.tool("objectives_list", status="active")
    await bob.tool("objectives_view", id=made.id)
    await bob.tool("objectives_update", id=made.id, status="blocked", blockReason="no key", also=1)
    await bob.tool("objectives_update", id=made.id, status="active", also=1)
    await bob.tool("objectives_discuss", id=made.id, body="in the thread")
    await bob.tool("objectives_watchers", id=made.id, add=["ada"])
    await bob.tool("objectives_complete", id=made.id, result="it works", also=1)
    await bob.tool("objectives_create", title="Other", outcome="Done", assignee="ada")
    other = (await ada.objectives()).objectives[0].id
    await bob.tool("objectives_reassign", id=other, to="bob", note="mine", also=1)
    await bob.tool("objectives_cancel", id=other, reason="no time", also=1)
    await bob.tool("team_get")
    await bob.tool("send", to="nobody", body="x")


async def _backchannel(bob: Program, ada: Client) -> None:
    await bob.tool("bch_subscribe", channel="#builds")
    await bob.tool("bch_agents")
    await bob.tool("bch_send", target="@ada", body="hello", priority="urgent", scope="s", thread="t", refs=["r"])
    await bob.tool("bch_send", target="#builds", body="to a channel")
    await ada.send("@bob", "hello", scope="github.com/x/y")
    await ada.send("@bob", "without a scope", title="T")
    await bob.tool("bch_inbox", match="else")
    await bob.tool("bch_inbox", match="github.com/x/y")
    await bob.tool("bch_send", target="@nobody", body="x")


async def _peerbus(bob: Program, ada: Client) -> None:
    await bob.tool("bus.peers")
    await bob.tool("bus.send", to="ada", body={"text": "hello", "k": 1})
    await bob.tool("bus.broadcast", body="to everybody")
    await ada.send("@bob", "hello", data={"k": 1})
    await bob.tool("bus.drain")
    await bob.tool("bus.send", to="nobody", body="x")


_SCRIPTS = {"tieline": _lean, "ac7": _ac7, "backchannel": _backchannel, "peerbus": _peerbus}

SETS = {f"mcp_{tools}": partial(play, tools=tools) for tools in _SCRIPTS}
"""Golden tests by name: one function for each set of tools."""

"""Test clients for MCP servers. They stand for an agent's program and connect to `tieline mcp` or to a hub's `/mcp`.

`McpAgent` uses the client of the official MCP SDK. `RawProgram` reads and writes lines itself.
"""

import asyncio
import contextlib
import json
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncIterator, Sequence
from pathlib import Path
from typing import Any

import mcp_types
import psutil  # type: ignore[import-untyped]  # it has no types of its own
from mcp import Client
from mcp.client import Transport
from mcp.client.extension import ClientExtension, NotificationBinding
from mcp.client.session import IncomingMessage
from mcp.client.stdio import StdioServerParameters, stdio_client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from pydantic import BaseModel

from tests.cli.hub_process import TIELINE, environment
from tieline.agents.runner_frames import SOCKET_VARIABLE

LEGACY = "legacy"
MODERN = "auto"
"""Mode in which the SDK's client asks the server for its protocol version, and so uses the newer version of MCP."""
ERAS = (LEGACY, MODERN)
WAIT_SECONDS = 60


class ChannelParams(BaseModel):
    """Parameters of the notification `notifications/claude/channel`, which pushes a message to an agent's program."""

    content: str
    meta: dict[str, str]


class Pushes(ClientExtension):
    """Extension of the MCP client that collects pushed messages in `seen`."""

    identifier = "org.example/pushes"

    def __init__(self) -> None:
        self.seen: list[ChannelParams] = []

    def notifications(self) -> Sequence[NotificationBinding[Any]]:
        """Return the binding for the notification that pushes a message."""

        async def note(params: ChannelParams) -> None:
            self.seen.append(params)

        return [NotificationBinding(method="notifications/claude/channel", params_type=ChannelParams, handler=note)]


class McpAgent:
    """Test client that is connected to an MCP server with the official SDK."""

    def __init__(self, client: Client, pushes: Pushes, incoming: list[IncomingMessage]) -> None:
        self.client = client
        self._pushes = pushes
        self._incoming = incoming

    @property
    def pushed(self) -> list[ChannelParams]:
        """Messages that the MCP server pushed to this client."""
        return self._pushes.seen

    @property
    def bodies(self) -> list[str]:
        """Contents of the messages that the MCP server pushed to this client."""
        return [one.content for one in self.pushed]

    @property
    def refreshes(self) -> int:
        """Number of notifications to this client that the list of tools has changed."""
        return sum(isinstance(one, mcp_types.ToolListChangedNotification) for one in self._incoming)

    async def call(self, name: str, **arguments: Any) -> str:
        """Call a tool, which must not fail. Return the text of its result."""
        result = await self.client.call_tool(name, arguments)
        (content,) = result.content
        assert isinstance(content, mcp_types.TextContent)
        assert not result.is_error, content.text
        return content.text

    async def description(self, name: str = "objectives") -> str:
        """Return the current description of the tool `name`, as a model reads it."""
        tools = (await self.client.list_tools()).tools
        return next(tool.description or "" for tool in tools if tool.name == name)


@contextlib.asynccontextmanager
async def mcp_agent(
    home: Path, era: str, *options: str, member: str = "bob", env: dict[str, str] | None = None
) -> AsyncIterator[McpAgent]:
    """Start `tieline mcp` as a member, and connect to it as an agent's program does.

    `era` is the mode of the SDK's client: `LEGACY` or `MODERN`, the older or newer version of MCP.
    """
    server = StdioServerParameters(
        command=str(TIELINE), args=["mcp", "--as", member, *options], env={"TIELINE_HOME": str(home), **(env or {})}
    )
    with (home.parent / "mcp-stderr").open("a") as errors:
        async with _agent(stdio_client(server, errlog=errors), era) as agent:
            yield agent


@contextlib.asynccontextmanager
async def http_agent(url: str, token: str, era: str) -> AsyncIterator[McpAgent]:
    """Connect to the MCP server of a hub over HTTP.

    `era` is the mode of the SDK's client: `LEGACY` or `MODERN`, the older or newer version of MCP.
    """
    async with (
        create_mcp_http_client(headers={"Authorization": f"Bearer {token}"}) as client,
        _agent(streamable_http_client(f"{url}/mcp", http_client=client), era) as agent,
    ):
        yield agent


@contextlib.asynccontextmanager
async def _agent(transport: Transport, era: str) -> AsyncIterator[McpAgent]:
    pushes, incoming = Pushes(), list[IncomingMessage]()

    async def note(message: IncomingMessage) -> None:
        incoming.append(message)

    async with Client(transport, mode=era, extensions=[pushes], message_handler=note) as client:
        yield McpAgent(client, pushes, incoming)


def mcp_server_processes() -> list[psutil.Process]:
    """Return the running MCP servers that this test process has started."""
    return [child for child in psutil.Process().children() if "mcp" in child.cmdline()]


class RawProgram:
    """Test client of `tieline mcp` that writes and reads lines itself, to send input that the SDK would not send."""

    def __init__(self, process: Process) -> None:
        self.process = process
        self._numbers = 0

    def write(self, line: bytes) -> None:
        """Write one line to the stdin of `tieline mcp`."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + b"\n")

    def notify(self, method: str) -> None:
        """Send a JSON-RPC notification, which gets no answer."""
        self.write(json.dumps({"jsonrpc": "2.0", "method": method}).encode())

    async def read(self, *, seconds: float = WAIT_SECONDS) -> Any:
        """Return the next line from `tieline mcp`, decoded from JSON."""
        assert self.process.stdout is not None
        async with asyncio.timeout(seconds):
            return json.loads(await self.process.stdout.readline())

    async def ask(self, method: str, params: dict[str, Any] | None = None) -> Any:
        """Send a JSON-RPC request and return its answer. Skip the lines before the answer."""
        self._numbers += 1
        request = {"jsonrpc": "2.0", "id": self._numbers, "method": method, "params": params or {}}
        self.write(json.dumps(request).encode())
        while (answer := await self.read()).get("id") != self._numbers:
            pass
        return answer

    async def initialize(self) -> Any:
        """Send the request `initialize` of the older MCP version, without the notification that follows it.

        Return the answer.
        """
        return await self.ask(
            "initialize",
            {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "raw", "version": "1"}},
        )


@contextlib.asynccontextmanager
async def raw_program(home: Path, *options: str, env: dict[str, str] | None = None) -> AsyncIterator[RawProgram]:
    """Start `tieline mcp` with pipes, without a runner. Kill it at the end if it still runs."""
    # Under no runner, whoever runs the tests, unless the test says so.
    alone = {SOCKET_VARIABLE: "", "AC7_RUNNER_SOCKET": "", **(env or {})}
    process = await asyncio.create_subprocess_exec(
        TIELINE, "mcp", *options, stdin=PIPE, stdout=PIPE, stderr=PIPE, env=environment(home, alone)
    )
    try:
        yield RawProgram(process)
    finally:
        if process.returncode is None:
            process.kill()
        await process.communicate()

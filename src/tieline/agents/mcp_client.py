"""The client side of MCP on stdio: starts an MCP server as a child, lists its tools and calls them.

Used by: `tieline connect`, which tests a server as an agent's program starts it. Uses: the codec of MCP, and a child
process. The client uses a handshake version of MCP. It sends one request at a time, and ignores the notifications of
the server. The official SDK is not used, because it is installed only for tests (docs/adr/0013-mcp-on-stdio.md).
"""

import asyncio
import contextlib
import os
import signal
from collections.abc import AsyncIterator, Mapping, Sequence
from typing import IO, Any

import msgspec
from msgspec import UnsetType

from tieline import __version__
from tieline.agents.stdio import LINE_BYTES_MAX
from tieline.protocols.mcp import codec
from tieline.protocols.mcp.codec import Invalid, Message

END_SECONDS = 2.0
"""Longest time, in seconds, that a server may take to end after its stdin is closed. Then it is killed."""
KILL_SECONDS = 2.0
"""Longest time, in seconds, that the client waits for the end of a killed server, and of its stdout."""


class ServerFailed(Exception):
    """Raised if an MCP server ends, refuses a request, or writes something that is not MCP."""


class McpClient:
    """Client of one MCP server, which is a child process. Only one task may use it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        assert process.stdin is not None, "the server is started with pipes"
        assert process.stdout is not None, "the server is started with pipes"
        self._writing, self._reading = process.stdin, process.stdout
        self._requests = 0

    async def initialize(self) -> dict[str, Any]:
        """Open the session, and return the server's description of itself. Raises `ServerFailed` if that fails."""
        params = {
            "protocolVersion": codec.HANDSHAKE_VERSIONS[-1],
            "capabilities": {},
            "clientInfo": {"name": codec.NAME, "title": codec.TITLE, "version": __version__},
        }
        result = await self._request("initialize", params)
        await self._write(codec.notification("notifications/initialized", None))
        return result

    async def list_tools(self) -> list[dict[str, Any]]:
        """Return the descriptions of the server's tools. Raises `ServerFailed` if the server lists none, or fails."""
        tools = (await self._request("tools/list", {})).get("tools")
        if not isinstance(tools, list):
            raise ServerFailed("the answer to tools/list has no tools")
        return tools

    async def call_tool(self, name: str, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Call a tool, and return the result. Its `isError` is true if the tool failed.

        Raises `ServerFailed` if the server itself fails or refuses the call.
        """
        return await self._request("tools/call", {"name": name, "arguments": arguments})

    async def _request(self, method: str, params: Mapping[str, Any]) -> dict[str, Any]:
        self._requests += 1
        number = self._requests
        await self._write(msgspec.json.encode({"jsonrpc": "2.0", "id": number, "method": method, "params": params}))
        while True:
            message = await self._read()
            if not message.named and message.id == number:
                return _result_of(message)

    async def _write(self, line: bytes) -> None:
        # If the server has ended, the next read says so.
        with contextlib.suppress(ConnectionError):
            self._writing.write(line + b"\n")
            await self._writing.drain()

    async def _read(self) -> Message:
        try:
            line = await self._reading.readline()
            if not line:
                raise ServerFailed("the server has ended")
            (message,) = codec.decode(line)
        except (Invalid, ValueError) as error:
            raise ServerFailed(f"the server wrote a line that is no message of MCP: {error}") from error
        return message


@contextlib.asynccontextmanager
async def open_server(
    command: Sequence[str], variables: Mapping[str, str], errors: IO[Any]
) -> AsyncIterator[McpClient]:
    """Start an MCP server by its command, open a session with it, and yield the client. At the end, end the server.

    The environment of the server has only the `variables`. The server writes its error output into the file `errors`.
    Raises `OSError` if the command cannot be run, and `ServerFailed` if the session cannot be opened.
    """
    process = await asyncio.create_subprocess_exec(
        *command,
        env=variables,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        limit=LINE_BYTES_MAX,
        start_new_session=True,  # Ctrl-C reaches only this process, which then ends the server
    )
    try:
        client = McpClient(process)
        await client.initialize()
        yield client
    finally:
        await _end(process)


async def _end(process: asyncio.subprocess.Process) -> None:
    """Close the server's stdin, which ends the server. Kill it and the processes it started if it does not end soon."""
    assert process.stdin is not None, "the server is started with pipes"
    process.stdin.close()
    ended = False
    try:
        ended = await _wait(process, END_SECONDS)
    finally:
        if not ended:
            await _kill(process)


async def _kill(process: asyncio.subprocess.Process) -> None:
    # A process that the server started may have the server's stdout open, and asyncio waits for the end of that too.
    # The server is the leader of its own process group.
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    try:
        await _wait(process, KILL_SECONDS)
    finally:
        # A process that left the group is not killed. Without this, its end of the pipe keeps the transport open.
        process._transport.close()  # type: ignore[attr-defined]  # asyncio has no public way


async def _wait(process: asyncio.subprocess.Process, seconds: float) -> bool:
    """Wait for the end of the server and of its stdout. Return false if that takes too long."""
    try:
        async with asyncio.timeout(seconds):
            await process.wait()
    except TimeoutError:
        return False
    return True


def _result_of(answer: Message) -> dict[str, Any]:
    """Return the result in the answer of a server. Raises `ServerFailed` if the answer is an error or has no result."""
    if not isinstance(answer.error, UnsetType):
        refusal = msgspec.json.decode(answer.error)
        raise ServerFailed(str(refusal.get("message") if isinstance(refusal, dict) else refusal))
    result = None if isinstance(answer.result, UnsetType) else msgspec.json.decode(answer.result)
    if not isinstance(result, dict):
        raise ServerFailed("the server's answer has no result")
    return result

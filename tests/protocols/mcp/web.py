"""Test client of `/mcp` that writes requests itself: any header, any body, and streams that are read event by event."""

import asyncio
import contextlib
import json
from typing import Any
from urllib.parse import urlsplit

from tests.server.hubs import WAIT_SECONDS, HubHarness

VERSION = "2025-11-25"
STATELESS = "2026-07-28"
META = {
    "io.modelcontextprotocol/protocolVersion": STATELESS,
    "io.modelcontextprotocol/clientCapabilities": {},
}
ABOUT = {"protocolVersion": VERSION, "capabilities": {}, "clientInfo": {"name": "test", "version": "1"}}


class Reply:
    """Answer to one request: status, headers, and a body, which may be a stream without an end."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}

    async def begin(self) -> None:
        """Read the status and the headers of the answer."""
        async with asyncio.timeout(WAIT_SECONDS):
            self.status = int((await self._reader.readline()).split()[1])
            while line := (await self._reader.readline()).strip():
                name, _, value = line.decode().partition(":")
                self.headers[name.lower()] = value.strip()

    async def json(self) -> Any:
        """Read the whole body. Return it decoded as JSON, or `None` if it is empty. Close the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            body = await self._reader.readexactly(int(self.headers["content-length"]))
        self.close()
        return json.loads(body) if body else None

    async def event(self, *, comments: bool = False) -> dict[str, Any] | None:
        """Return the next event of a stream: the message, with its id as `event_id`.

        Return `None` at the end of the stream.
        """
        found: dict[str, Any] = {}
        async with asyncio.timeout(WAIT_SECONDS):
            while line := await self._reader.readline():
                text = line.decode().strip()
                if text.startswith("id: "):
                    found["event_id"] = text[4:]
                elif text.startswith("data: "):
                    return {**found, **json.loads(text[6:])}
                elif comments and text.startswith(": "):
                    return {"comment": text[2:]}
                elif text == "0":
                    return None
        return None

    def close(self) -> None:
        """Close the connection."""
        self._writer.close()

    async def closed(self) -> None:
        """Close the connection, and wait until it is closed."""
        self._writer.close()
        with contextlib.suppress(OSError):
            await self._writer.wait_closed()


class Web:
    """Test client of `/mcp` that writes its requests itself."""

    def __init__(self, place: HubHarness, token: str) -> None:
        self._address = urlsplit(place.running.http)
        self._token = token
        self.session: str | None = None
        self._replies: list[Reply] = []

    async def close(self) -> None:
        """Close the connections of all requests."""
        for reply in self._replies:
            await reply.closed()

    async def ask(self, method: str = "POST", body: Any = None, **headers: str | None) -> Reply:
        """Make a request and return its answer.

        A header with the value `None` is left out; `_` in a name stands for `-`.
        """
        reader, writer = await asyncio.open_connection(self._address.hostname, self._address.port, limit=1 << 22)
        payload = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        said: dict[str, str | None] = {
            "host": self._address.netloc,
            "authorization": f"Bearer {self._token}",
            "accept": "application/json, text/event-stream",
            "content-type": "application/json",
            "content-length": str(len(payload)),
            "mcp-session-id": self.session,
            **{name.replace("_", "-"): value for name, value in headers.items()},
        }
        lines = [f"{name}: {value}" for name, value in said.items() if value is not None]
        writer.write("\r\n".join([f"{method} /mcp HTTP/1.1", *lines, "", ""]).encode() + payload)
        reply = Reply(reader, writer)
        self._replies.append(reply)
        await reply.begin()
        return reply

    async def initialize(self, version: str = VERSION) -> Any:
        """Open a session with `initialize`. Return the result of `initialize`."""
        reply = await self.ask(body=request("initialize", {**ABOUT, "protocolVersion": version}))
        assert reply.status == 200, await reply.json()
        self.session = reply.headers["mcp-session-id"]
        done = await self.ask(body={"jsonrpc": "2.0", "method": "notifications/initialized"})
        assert done.status == 202
        return (await reply.json())["result"]

    async def listen(self, **headers: str | None) -> Reply:
        """Open the stream of the session. Return it as an answer."""
        reply = await self.ask("GET", **headers)
        assert reply.status == 200
        return reply

    async def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool. Return the text of its answer."""
        reply = await self.ask(body=call(tool, **arguments))
        return text_of(await reply.json())

    async def stateless(self, method: str, params: Any = None, **headers: str | None) -> Reply:
        """Make a request in the stateless version of MCP. Return its answer."""
        body = request(method, {"_meta": META, **(params or {})})
        said: dict[str, str | None] = {"mcp_protocol_version": STATELESS, "mcp_method": method, **headers}
        return await self.ask("POST", body, **said)


def request(method: str, params: Any = None, number: int | str = 1) -> dict[str, Any]:
    """Return a JSON-RPC request."""
    return {"jsonrpc": "2.0", "id": number, "method": method, "params": params or {}}


def call(tool: str, *, number: int | str = 1, progress: str | None = None, **arguments: Any) -> dict[str, Any]:
    """Return the JSON-RPC request that calls a tool. `progress` is its progress token."""
    meta = {"_meta": {"progressToken": progress}} if progress else {}
    return request("tools/call", {"name": tool, "arguments": arguments, **meta}, number)


def text_of(answer: Any) -> str:
    """Return the text in a tool's answer."""
    return str(answer["result"]["content"][0]["text"])

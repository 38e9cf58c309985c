"""A small client of MCP over HTTP. It calls the hub's tools, and reads the messages that the hub pushes.

Used by: programs, and the puppet (test client) of this folder. Uses: the HTTP port of a hub. The client uses the newest
version of MCP that opens a session with a handshake. Programs may use the official SDK instead.
"""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from itertools import count
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tieline.protocols.mcp import codec
from tieline.wire.tls import client_context, open_http

ANSWER_SECONDS = 10.0
"""Longest time to wait for an answer. A hub under load may answer slowly."""

_LINE_BYTES_MAX = 1 << 20  # a frame is cut to far fewer characters
_ACCEPT = "application/json, text/event-stream"
_PATH = "/mcp"
_NOT_FOUND = 404
_REFUSED = 400

Json = dict[str, Any]


class NoRoute(ConnectionError):
    """Raised if the hub has no route `/mcp`, so it does not serve MCP."""


class ToolFailed(Exception):
    """Raised if the answer of a tool says that the call failed."""


class McpClient:
    """Client of MCP over HTTP that acts as one member, with the member's token."""

    def __init__(self, url: str, token: str) -> None:
        self._url = url
        self._address = urlsplit(url)
        self._headers = {
            "authorization": f"Bearer {token}",
            "accept": _ACCEPT,
            "content-type": "application/json",
            "mcp-protocol-version": codec.HANDSHAKE_VERSIONS[-1],
        }
        self._numbers = count(1)
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def open(self) -> None:
        """Open an MCP session.

        Raises `NoRoute` if the hub does not serve MCP, and `ConnectionError` if the hub refuses for another reason.
        """
        version = codec.HANDSHAKE_VERSIONS[-1]
        about = {"name": "tieline", "version": "1"}
        await self._ask("initialize", {"protocolVersion": version, "capabilities": {}, "clientInfo": about})
        await self._post({"jsonrpc": "2.0", "method": "notifications/initialized"})

    async def call(self, tool: str, **arguments: Any) -> str:
        """Call a tool and return the text of its answer. Raises `ToolFailed` if the call failed."""
        result = await self._ask("tools/call", {"name": tool, "arguments": arguments})
        text = str(result["content"][0]["text"])
        if result.get("isError"):
            raise ToolFailed(text)
        return text

    async def listen(self) -> None:
        """Open the stream of pushed messages. Raises `ConnectionError` if the hub refuses."""
        address = self._address
        self._reader, self._writer = await asyncio.open_connection(
            address.hostname, address.port, limit=_LINE_BYTES_MAX, ssl=client_context(self._url)
        )
        lines = [f"{name}: {value}" for name, value in {"host": address.netloc, **self._headers}.items()]
        self._writer.write("\r\n".join([f"GET {_PATH} HTTP/1.1", *lines, "", ""]).encode())
        async with asyncio.timeout(ANSWER_SECONDS):
            status = await self._reader.readline()
        if b" 200 " not in status:
            await self.hang_up()
            raise ConnectionError(f"the hub answered {status.decode(errors='replace').strip()!r}")

    async def messages(self) -> AsyncIterator[Json]:
        """Yield the messages that the hub pushes, each with `content` and `meta`. Call `listen` first.

        Raises `ConnectionError` when the connection ends.
        """
        assert self._reader is not None, "listen first"
        while line := await self._reader.readline():
            if line.startswith(b"data: "):
                said = msgspec.json.decode(line.removeprefix(b"data: "))
                if said.get("method") == codec.CHANNEL_METHOD:
                    yield said["params"]
        raise ConnectionError("the hub hung up")

    async def hang_up(self) -> None:
        """Close the stream of pushed messages."""
        if self._writer is not None:
            self._writer.close()
            with contextlib.suppress(OSError):
                await self._writer.wait_closed()

    async def close(self) -> None:
        """Close the stream of pushed messages, and end the MCP session."""
        await self.hang_up()
        with contextlib.suppress(OSError):
            await asyncio.to_thread(self._request, "DELETE", b"")

    async def _ask(self, method: str, params: Json) -> Json:
        answer = await self._post({"jsonrpc": "2.0", "id": next(self._numbers), "method": method, "params": params})
        if "error" in answer:
            raise ConnectionError(f"{method}: {answer['error']['message']}")
        result: Json = answer["result"]
        return result

    async def _post(self, message: Json) -> Json:
        return await asyncio.to_thread(self._request, "POST", msgspec.json.encode(message))

    def _request(self, method: str, body: bytes) -> Json:
        connection = open_http(self._url, ANSWER_SECONDS)
        with contextlib.closing(connection):
            connection.request(method, _PATH, body, self._headers)
            response = connection.getresponse()
            session = response.getheader("mcp-session-id")
            if session is not None:
                self._headers["mcp-session-id"] = session
            said = response.read()
        if response.getheader("content-type", "").startswith("application/json") and said:
            answer: Json = msgspec.json.decode(said)
            return answer
        if response.status >= _REFUSED:
            kind = NoRoute if response.status == _NOT_FOUND else ConnectionError
            raise kind(f"the hub answered {response.status}")
        return {}

"""Test clients of ac7: plain HTTP, and streams of server-sent events and WebSocket frames."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from msgspec import Struct
from websockets.asyncio.client import ClientConnection, connect

from tests.protocols.ac7.conformance import strict
from tests.server.hubs import ALONE, WAIT_SECONDS, HubHarness, running_hub

Json = dict[str, Any]


class Reply(Struct, frozen=True):
    """Answer to an HTTP request."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def value(self) -> Any:
        """Return the body decoded as JSON."""
        return json.loads(self.text)


def request(url: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
    """Make one request on a new connection. Return the answer."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
    finally:
        connection.close()


class Seat:
    """Test client of ac7: a member with its token, or somebody without a token."""

    def __init__(self, url: str, name: str = "", token: str | None = None) -> None:
        self.url = url
        self.name = name
        self.token = token

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers of each request."""
        shown = {"authorization": f"Bearer {self.token}"} if self.token is not None else {}
        return {"content-type": "application/json", "x-ac7-protocol": "1", **shown}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Make a request, check that clients of ac7 can decode the answer, and return it.

        Bytes are sent unchanged, the rest as JSON.
        """
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        reply = await asyncio.to_thread(request, self.url, method, path, data, {**self.headers, **headers})
        self.read(method, path, reply)
        return reply

    def read(self, method: str, path: str, reply: Reply) -> None:
        """Check that clients of ac7 can decode the answer."""
        strict.read(method, path, reply.status, reply.text)

    async def get(self, path: str) -> Any:
        """Make a GET request that must succeed. Return the decoded answer."""
        reply = await self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.value

    async def do(self, method: str, path: str, expected: int = 200, **body: Any) -> Any:
        """Make a request that must get the status `expected`. Return the decoded answer."""
        reply = await self.ask(method, path, body)
        assert reply.status == expected, reply
        return reply.value if reply.text else None

    async def refused(self, status: int, method: str, path: str, body: Any = None) -> str:
        """Make a request that must be refused. Return the error text."""
        reply = await self.ask(method, path, body)
        assert reply.status == status, reply
        text: str = reply.value["error"]
        return text

    async def push(self, body: str, **fields: Any) -> Json:
        """Send a message by `POST /push`. Return the answer."""
        result: Json = await self.do("POST", "/push", body=body, **fields)
        return result

    async def history(self, query: str = "") -> list[Json]:
        """Return the messages of the history, oldest first. `query` is the query part of the path."""
        messages: list[Json] = (await self.get(f"/history{query}"))["messages"]
        return messages[::-1]

    async def said(self, query: str = "") -> list[str]:
        """Return the bodies of the history, oldest first, without the hub's own messages."""
        return [message["body"] for message in await self.history(query) if message["from"] != "ac7"]


def subscription(seat: Seat) -> str:
    """Return the path of a member's own stream."""
    return f"/subscribe?name={quote(seat.name)}"


class EventReader:
    """Test client: a stream of server-sent events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, seat: Seat, path: str = "", **headers: str) -> Self:
        """Open a stream, by default the member's own. The request must succeed."""
        address = urlsplit(seat.url)
        reader, writer = await asyncio.open_connection(address.hostname, address.port)
        head = [f"GET {path or subscription(seat)} HTTP/1.1", f"host: {address.netloc}"]
        head += [f"{name}: {value}" for name, value in (seat.headers | headers).items()]
        writer.write("\r\n".join((*head, "", "")).encode())
        status = await reader.readline()
        assert b" 200 " in status, status
        while (await reader.readline()).strip():
            pass
        return cls(reader, writer)

    async def line(self) -> str:
        """Wait for the next line with data or a comment, and return it. Raises `EOFError`."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                line = (await self.reader.readline()).decode()
                if not line:
                    raise EOFError
                if line.startswith(("data: ", ": ")):
                    return line.strip()

    async def next(self) -> Json:
        """Wait for the next message, check its form, and return it."""
        text = (await self.line()).removeprefix("data: ")
        strict.read_message(text)
        message: Json = json.loads(text)
        return message

    async def row(self) -> Json:
        """Wait for the next row of activity, check its form, and return it."""
        text = (await self.line()).removeprefix("data: ")
        strict.read_activity(text)
        row: Json = json.loads(text)
        return row

    async def close(self) -> None:
        """Close the connection."""
        self.writer.close()
        with contextlib.suppress(OSError):
            await self.writer.wait_closed()


class SocketReader:
    """Test client: a stream of WebSocket frames."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    @classmethod
    async def open(cls, seat: Seat, path: str = "") -> Self:
        """Open a stream, by default the member's own."""
        url = f"{seat.url.replace('http', 'ws', 1)}{path or subscription(seat)}"
        return cls(await connect(url, additional_headers={"authorization": f"Bearer {seat.token}"}, proxy=None))

    async def row(self) -> Json:
        """Wait for the next row of activity, check its form, and return it."""
        async with asyncio.timeout(WAIT_SECONDS):
            text = await self.socket.recv()
        strict.read_activity(text)
        row: Json = json.loads(text)
        return row

    async def next(self) -> Json:
        """Wait for the next message, check its form, and return it."""
        async with asyncio.timeout(WAIT_SECONDS):
            text = await self.socket.recv()
        strict.read_message(text)
        message: Json = json.loads(text)
        return message

    async def close(self) -> None:
        """Close the connection."""
        await self.socket.close()


Reader = EventReader | SocketReader


class Team:
    """Test helper: a hub and its ac7 members."""

    def __init__(self, there: HubHarness) -> None:
        self.there = there
        self.url = there.running.http
        self.stranger = Seat(self.url)
        self._readers: list[Reader] = []

    async def seat(self, name: str, *permissions: str) -> Seat:
        """Make a member with these permissions. Return its client."""
        await self.there.add(name, permissions=permissions)
        return Seat(self.url, name, self.there.tokens[name])

    async def open(self, seat: Seat, kind: str = "sse") -> Reader:
        """Open the stream of a member, `sse` or WebSocket, and wait for the hub's message that it is online."""
        reader: Reader = await (EventReader if kind == "sse" else SocketReader).open(seat)
        self._readers.append(reader)
        online = await reader.next()
        assert (online["from"], online["to"], online["title"]) == ("ac7", seat.name, "ac7 session online")
        return reader

    async def follow(self, seat: Seat, path: str, kind: str = "sse") -> Reader:
        """Open any other stream of a member, `sse` or WebSocket."""
        reader: Reader = await (EventReader if kind == "sse" else SocketReader).open(seat, path)
        self._readers.append(reader)
        return reader

    async def close(self) -> None:
        """Close all streams."""
        for reader in self._readers:
            await reader.close()


@contextlib.asynccontextmanager
async def team(home: Path, **options: Any) -> AsyncIterator[Team]:
    """Start a hub in this home and yield it. Close its streams at the end."""
    async with running_hub(home, **ALONE | {"ac7": True} | options) as there:
        built = Team(there)
        try:
            yield built
        finally:
            await built.close()

"""ac7 as a foreign client sees it: plain HTTP, and streams of both kinds."""

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
from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub

Json = dict[str, Any]


class Reply(Struct, frozen=True):
    """Answer to a request."""

    status: int
    headers: dict[str, str]
    text: str

    @property
    def value(self) -> Any:
        """The answer as JSON."""
        return json.loads(self.text)


def request(url: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
    """One request on a connection of its own."""
    connection = HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        text = response.read().decode()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, text)
    finally:
        connection.close()


class Seat:
    """A member, or somebody without a token."""

    def __init__(self, url: str, name: str = "", token: str | None = None) -> None:
        self.url = url
        self.name = name
        self.token = token

    @property
    def headers(self) -> dict[str, str]:
        """Headers of each request."""
        shown = {"authorization": f"Bearer {self.token}"} if self.token is not None else {}
        return {"content-type": "application/json", "x-ac7-protocol": "1", **shown}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Make a request."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        reply = await asyncio.to_thread(request, self.url, method, path, data, {**self.headers, **headers})
        self.read(method, path, reply)
        return reply

    def read(self, method: str, path: str, reply: Reply) -> None:
        """Check that clients of ac7 can decode the answer."""
        strict.read(method, path, reply.status, reply.text)

    async def get(self, path: str) -> Any:
        """Make a GET request that must succeed."""
        reply = await self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.value

    async def do(self, method: str, path: str, expected: int = 200, **body: Any) -> Any:
        """Make a request for a change that must succeed."""
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
        """Send a message."""
        result: Json = await self.do("POST", "/push", body=body, **fields)
        return result

    async def history(self, query: str = "") -> list[Json]:
        """Messages of the history, oldest first."""
        messages: list[Json] = (await self.get(f"/history{query}"))["messages"]
        return messages[::-1]

    async def said(self, query: str = "") -> list[str]:
        """Bodies of the history, without the hub's own messages."""
        return [message["body"] for message in await self.history(query) if message["from"] != "ac7"]


def subscription(seat: Seat) -> str:
    """Path of a member's own stream."""
    return f"/subscribe?name={quote(seat.name)}"


class EventReader:
    """A stream of server-sent events."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, seat: Seat, path: str = "", **headers: str) -> Self:
        """Subscribe."""
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
        """The next line that is not empty."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                line = (await self.reader.readline()).decode()
                if not line:
                    raise EOFError
                if line.startswith(("data: ", ": ")):
                    return line.strip()

    async def next(self) -> Json:
        """The next message."""
        text = (await self.line()).removeprefix("data: ")
        strict.read_message(text)
        message: Json = json.loads(text)
        return message

    async def row(self) -> Json:
        """The next row of activity."""
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
    """A stream of WebSocket frames."""

    def __init__(self, socket: ClientConnection) -> None:
        self.socket = socket

    @classmethod
    async def open(cls, seat: Seat, path: str = "") -> Self:
        """Subscribe."""
        url = f"{seat.url.replace('http', 'ws', 1)}{path or subscription(seat)}"
        return cls(await connect(url, additional_headers={"authorization": f"Bearer {seat.token}"}, proxy=None))

    async def row(self) -> Json:
        """The next row of activity."""
        async with asyncio.timeout(WAIT_SECONDS):
            text = await self.socket.recv()
        strict.read_activity(text)
        row: Json = json.loads(text)
        return row

    async def next(self) -> Json:
        """The next message."""
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
    """A hub and its members."""

    def __init__(self, there: HubHarness) -> None:
        self.there = there
        self.url = there.running.http
        self.stranger = Seat(self.url)
        self._readers: list[Reader] = []

    async def seat(self, name: str, *permissions: str) -> Seat:
        """Make a member."""
        await self.there.add(name, permissions=permissions)
        return Seat(self.url, name, self.there.tokens[name])

    async def open(self, seat: Seat, kind: str = "sse") -> Reader:
        """A stream of a member, which is online."""
        reader: Reader = await (EventReader if kind == "sse" else SocketReader).open(seat)
        self._readers.append(reader)
        online = await reader.next()
        assert (online["from"], online["to"], online["title"]) == ("ac7", seat.name, "ac7 session online")
        return reader

    async def follow(self, seat: Seat, path: str, kind: str = "sse") -> Reader:
        """Any other stream."""
        reader: Reader = await (EventReader if kind == "sse" else SocketReader).open(seat, path)
        self._readers.append(reader)
        return reader

    async def close(self) -> None:
        """Close all streams."""
        for reader in self._readers:
            await reader.close()


@contextlib.asynccontextmanager
async def team(home: Path, **options: Any) -> AsyncIterator[Team]:
    """A hub in this home."""
    async with running_hub(home, **options) as there:
        built = Team(there)
        try:
            yield built
        finally:
            await built.close()

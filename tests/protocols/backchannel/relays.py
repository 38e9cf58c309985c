"""Test clients of the relay API: plain HTTP with one request per connection, and streams read byte by byte."""

import asyncio
import contextlib
import json
import re
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote, urlsplit

from msgspec import Struct

from tests.server.hubs import ALONE, WAIT_SECONDS, HubHarness, running_hub
from tieline.client import Client, connect
from tieline.contract.member import ByHomeKey
from tieline.protocols.backchannel.relay import Relay
from tieline.server.http import HttpListener
from tieline.wire.home import read_key

ROOM = "the room's token"
JSON = "application/json;charset=utf-8"
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z\Z")
NO_TOKEN = "unauthorized — agent token required (get one via /v1/register)"
NO_ROOM = "unauthorized — registration requires the room token"

Json = dict[str, Any]


class Reply(Struct, frozen=True):
    """Answer to an HTTP request, with its JSON body decoded."""

    status: int
    headers: dict[str, str]
    value: Any

    @property
    def error(self) -> str:
        """Return the error text of a refusal, and check the form of the refusal."""
        assert self.headers["content-type"] == JSON
        assert set(self.value) == {"error"}, self.value
        text: str = self.value["error"]
        return text


def request(url: str, method: str, path: str, body: bytes | None, headers: dict[str, str]) -> Reply:
    """Make one request on a new connection.

    Return the answer, whose body must be JSON, because clients decode all answers.
    """
    connection = HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECONDS)
    try:
        connection.request(method, path, body, headers)
        response = connection.getresponse()
        data = response.read()
        return Reply(response.status, {name.lower(): value for name, value in response.getheaders()}, json.loads(data))
    finally:
        connection.close()


class Agent:
    """Test client of the relay API, with or without a token."""

    def __init__(self, url: str, token: str | None = None, name: str = "") -> None:
        self.url = url
        self.token = token
        self.name = name

    @property
    def headers(self) -> dict[str, str]:
        """Return the headers that the client sends with each request."""
        shown = {"authorization": f"Bearer {self.token}"} if self.token is not None else {}
        return {"content-type": "application/json", **shown}

    async def ask(self, method: str, path: str, body: Any = None, **headers: str) -> Reply:
        """Make a request and return its answer. A body of bytes is sent unchanged, any other value as JSON."""
        data = body if isinstance(body, bytes) or body is None else json.dumps(body).encode()
        return await asyncio.to_thread(request, self.url, method, path, data, {**self.headers, **headers})

    async def get(self, path: str) -> Any:
        """Make a GET request that must succeed. Return the decoded answer."""
        reply = await self.ask("GET", path)
        assert reply.status == 200, reply
        return reply.value

    async def post(self, path: str, **body: Any) -> Any:
        """Make a POST request that must succeed. Return the decoded answer."""
        reply = await self.ask("POST", path, body)
        assert reply.status == 200, reply
        return reply.value

    async def refused(self, status: int, method: str, path: str, body: Any = None, **headers: str) -> str:
        """Make a request that must be refused. Return the error text."""
        reply = await self.ask(method, path, body, **headers)
        assert reply.status == status, reply
        return reply.error

    async def register(self, name: str) -> Json:
        """Register a name with the token of this client. Return the record with the new token."""
        record: Json = await self.post("/v1/register", name=name)
        return record

    async def send(self, to: str, body: str = "hello", **fields: Any) -> Json:
        """Send a message. Return the message."""
        sent: Json = await self.post("/v1/send", to=to, body=body, **fields)
        return sent

    async def inbox(self) -> list[Json]:
        """Return the unread messages of this agent."""
        unread: list[Json] = await self.get(f"/v1/inbox/{quote(self.name)}")
        return unread

    async def bodies(self) -> list[str]:
        """Return the bodies of the unread messages of this agent."""
        return [message["body"] for message in await self.inbox()]

    async def take(self, message_id: str, **fields: Any) -> Json | None:
        """Take a message. Return it, or `None` if it is gone."""
        answer: Json = await self.post("/v1/take", id=message_id, **fields)
        assert set(answer) == {"message"}
        taken: Json | None = answer["message"]
        return taken

    @contextlib.asynccontextmanager
    async def watch(self, name: str | None = None) -> AsyncIterator["Stream"]:
        """Open the stream of this agent's messages, or of the agent `name`, and yield it."""
        stream = await Stream.open(self, f"/v1/events/{quote(self.name if name is None else name)}")
        try:
            yield stream
        finally:
            stream.close()


class Stream:
    """Test client: one stream of server-sent events, read byte by byte."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.status = 0
        self.headers: dict[str, str] = {}
        self._text = b""

    @classmethod
    async def open(cls, agent: Agent, path: str, *, limit: int = 2**20) -> Self:
        """Request a stream and read the headers of the answer. `limit` is the size of the read buffer in bytes."""
        address = urlsplit(agent.url)
        assert address.hostname is not None
        stream = cls(*await asyncio.open_connection(address.hostname, address.port, limit=limit))
        lines = [f"GET {path} HTTP/1.1", f"host: {address.netloc}"]
        lines += [f"{name}: {value}" for name, value in agent.headers.items()]
        stream.writer.write("\r\n".join([*lines, "", ""]).encode())
        async with asyncio.timeout(WAIT_SECONDS):
            head = (await stream.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        stream.status = int(head[0].split()[1])
        stream.headers = dict(line.lower().split(": ", 1) for line in head[1:] if line)
        return stream

    async def chunk(self) -> bytes:
        """Wait for the next chunk of the answer and return it.

        Raises `EOFError` when the answer is complete or cut off.
        """
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                size = int(await self.reader.readuntil(b"\r\n"), 16)
                data = (await self.reader.readexactly(size + 2))[:-2]
            except (asyncio.IncompleteReadError, ConnectionError) as error:
                raise EOFError("cut off") from error
        if not data:
            raise EOFError("complete")
        return data

    async def block(self) -> str:
        """Wait for the next event or comment. Return its complete text."""
        while b"\n\n" not in self._text:
            self._text += await self.chunk()
        block, _, self._text = self._text.partition(b"\n\n")
        return block.decode()

    async def next(self) -> Json:
        """Wait for the next message and return it. Like existing clients, read only lines that begin with `data: `."""
        while True:
            data = [line[6:] for line in (await self.block()).split("\n") if line.startswith("data: ")]
            if data:
                message: Json = json.loads("\n".join(data))
                return message

    async def bodies(self, count: int) -> list[str]:
        """Wait for `count` messages. Return their bodies."""
        return [(await self.next())["body"] for _ in range(count)]

    async def end(self) -> str:
        """Wait for the end of the stream, with only comments before it.

        Return the comments and the reason of the end.
        """
        comments = []
        try:
            while True:
                comments.append(await self.block())
        except EOFError as error:
            assert all(comment.startswith(":") for comment in comments), comments
            return "\n".join([*comments, str(error)])

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


class Room:
    """Test helper: a hub with a known room token, and clients of its relay API."""

    def __init__(self, there: HubHarness) -> None:
        self.there = there
        self.url = there.running.http
        self.lobby = Agent(self.url, ROOM)
        self.stranger = Agent(self.url)

    async def agent(self, name: str) -> Agent:
        """Register a new agent. Return its client."""
        return Agent(self.url, (await self.lobby.register(name))["token"], name)

    async def client(self, agent: Agent) -> Client:
        """Open a session of the same agent in the hub's own protocol."""
        return self.there.keep(await connect(token=agent.token, home=self.there.home))

    async def agents(self, *names: str) -> list[Agent]:
        """Register several agents. Return their clients."""
        return [await self.agent(name) for name in names]


@contextlib.asynccontextmanager
async def room(home: Path, *, room_token: str = ROOM, more: str = "", **options: Any) -> AsyncIterator[Room]:
    """Start a hub in this home with a known room token, and yield it. `more` is more text of its configuration."""
    home.mkdir(exist_ok=True)
    (home / "tieline.toml").write_text(f'{more}\n[backchannel]\nroom_token = "{room_token}"\n', encoding="utf-8")
    async with running_hub(home, **ALONE | {"backchannel": True} | options) as there:
        yield Room(there)


@contextlib.asynccontextmanager
async def own_port(there: HubHarness, **options: Any) -> AsyncIterator[str]:
    """Start a second relay API for the same hub on its own port, with other limits. Yield its address."""
    key = read_key(there.home)
    assert there.hub.local_hub is not None
    assert key is not None
    listener = HttpListener(there.hub.local_hub.limits, [Relay(there.hub.local_hub, ByHomeKey(key), **options)])
    await listener.start("127.0.0.1", 0)
    try:
        yield f"http://{listener.address}"
    finally:
        await listener.stop()

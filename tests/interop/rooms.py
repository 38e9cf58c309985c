"""Test helpers: a hub whose rooms have equal names and messages, so that a test can try to get from one to another."""

import contextlib
import json
from collections.abc import AsyncIterator, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import Struct

from tests.interop.drivers import CONFIG, MixedHub, mixed_hub
from tests.protocols.backchannel.relays import Agent
from tests.server.hubs import WAIT_SECONDS
from tieline.client import Client, connect
from tieline.contract.command import Tick, UpdateMember
from tieline.contract.identifiers import MemberName
from tieline.contract.permission import OWNER_PERMISSIONS
from tieline.contract.reply import MemberState
from tieline.server.rooms import Rooms
from tieline.services.assembly import Services
from tieline.services.files.tree import FileRefusal, Viewer
from tieline.wire.route import Route

COMMON = "common"
ROOM_TOKEN = "the token of the common room"
NAMES = ("alice", "bob")
"""Members of every room. Each room also has one member whose name is in no other room."""

_ROUNDS = 3
"""Number of times that the hub must finish its work before a room's state is read, because a message causes a
delivery."""


class Found(Struct, frozen=True):
    """Record: identifiers of objects in a room. A test uses them from another room."""

    member: str
    channel: str
    channel_id: str
    message: str
    objective: str
    token_id: str
    file: str


class Place:
    """Test helper: one room of a hub. It is the common room (the hub itself) or another one."""

    def __init__(self, url: str, name: str, room_id: str | None, services: Services) -> None:
        self.url = url
        self.name = name
        self.id = room_id
        self.services = services
        self.tokens: dict[str, str] = {}
        self.found: Found

    @property
    def marker(self) -> str:
        """Return a text that only messages of this room contain."""
        return f"said-in-{self.name}"

    @property
    def only(self) -> str:
        """Return the name of the member that only this room has."""
        return f"only-{self.name}"

    def agent(self, name: str) -> Agent:
        """Return a client of backchannel's relay API for a member. Its token leads to its room."""
        return Agent(self.url, self.tokens[name], name)

    async def join(self, name: str, **options: Any) -> Client:
        """Open a session of a member in the hub's own protocol."""
        return await connect(url=self.url, token=self.tokens[name], **options)

    async def state(self) -> list[Any]:
        """Return all log rows of this room except refusals, all its activity, and all its files."""
        for _ in range(_ROUNDS):
            assert await self.services.operator._hub.ask(Tick()) is not None, "it has done all that was asked before"
        async with await self.join("alice") as alice:
            rows = (await alice.read_log(start=0, limit=1000)).rows
            activity = (await alice.read_log("activity", start=0, limit=1000)).rows
        events = [json.loads(row.event) for row in rows]
        files = await self.services.files.everything(Viewer("", manages=True))
        assert not isinstance(files, FileRefusal)
        return [*(event for event in events if event["event"] != "refuse"), *activity, *files]

    async def furnish(self) -> None:
        """Create messages and objects of every kind in this room, and note their identifiers."""
        replies = await self.services.operator.ask(
            lambda session: (UpdateMember(session, name=MemberName("alice"), permissions=OWNER_PERMISSIONS),)
        )
        assert isinstance(replies[0], MemberState), replies
        async with await self.join("alice") as alice:
            channel = await alice.create_channel(f"chan-{self.name}")
            message = await alice.send("@bob", self.marker)
            await alice.send(f"@{self.only}", self.marker)
            objective = await alice.create_objective(self.marker, self.marker, "bob")
            token = (await alice.tokens(self.only))[0]
        path = f"/{self.only}/kept.txt"
        writer = self.agent(self.only)
        reply = await writer.ask("POST", f"/fs/write?path={quote(path)}&mime=text/plain", self.marker.encode())
        assert reply.status == 200, reply
        event = {"kind": "objective_open", "ts": 1, "objectiveId": self.marker}
        reply = await writer.ask("POST", f"/members/{self.only}/activity", {"events": [event]})
        assert reply.status == 201, reply
        self.found = Found(self.only, channel.name, str(channel.id), message.id, objective.id, token.id, path)


class House:
    """Test helper: a hub with its common room and two others."""

    def __init__(self, hub: MixedHub, rooms: Rooms) -> None:
        self.hub = hub
        self.rooms = rooms
        self.places: dict[str, Place] = {}

    @property
    def routes(self) -> Iterator[Route]:
        """Yield the HTTP routes that every room has."""
        for known in self.rooms._known.values():
            assert known.open is not None
            for app in known.open.apps:
                yield from getattr(app, "table", ())
            return


@contextlib.asynccontextmanager
async def house(home: Path) -> AsyncIterator[House]:
    """Start a hub with all protocols and two rooms besides the common one, and yield it."""
    config = f'{CONFIG}\n[backchannel]\nroom_token = "{ROOM_TOKEN}"\n[limits]\nlazy_commit_ms = 0\n'
    async with mixed_hub(home, config=config) as hub:
        url, running = hub.there.running.http, hub.there.hub
        assert running.rooms is not None
        assert running.services is not None
        built = House(hub, running.rooms)
        for name in (COMMON, "east", "west"):
            made = {} if name == COMMON else await Agent(url).post("/v1/rooms")
            room_id, token = made.get("roomId"), made.get("roomToken", ROOM_TOKEN)
            header = {"x-backchannel-room": room_id} if room_id else {}
            tokens = {}
            for member in (*NAMES, f"only-{name}"):
                reply = await Agent(url, token).ask("POST", "/v1/register", {"name": member}, **header)
                tokens[member] = reply.value["token"]
            services = running.services
            if room_id is not None:
                opened = built.rooms._known[room_id].open
                assert opened is not None
                services = opened.room.services
            place = built.places[name] = Place(url, name, room_id, services)
            place.tokens.update(tokens)
            await place.furnish()
        yield built


class Intruder:
    """Test client: a member of one room that asks for data of another, over one connection."""

    def __init__(self, url: str, **headers: str) -> None:
        self._connection = HTTPConnection(urlsplit(url).netloc, timeout=WAIT_SECONDS)
        self._headers = headers

    def ask(self, method: str, path: str, body: Any = None) -> tuple[int, str]:
        """Make a request. Return the status and the text of the answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"content-type": "application/json", **self._headers}
        self._connection.request(method, path, data, headers)
        response = self._connection.getresponse()
        return response.status, response.read().decode(errors="replace")

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

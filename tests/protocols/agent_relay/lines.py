"""Clients on real sockets: at a hub, over a cable that records and cuts, and at a fake daemon."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.protocols.agent_relay.cable import Cable, cable
from tests.protocols.agent_relay.wire import Frame, Wire, frame
from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub
from tieline.protocols.agent_relay.client import (
    Backoff,
    Delivery,
    RelayClient,
    RelayClosed,
)

QUICK = Backoff(initial_ms=10)
"""Comes back soon, so that a test need not wait."""


class Line:
    """A running hub, a cable to it, and the clients at its end."""

    def __init__(self, built: HubHarness, wire: Cable) -> None:
        self.hub = built
        self.cable = wire
        self._clients: list[RelayClient] = []

    async def client(self, name: str, **options: Any) -> RelayClient:
        """Open a client at the end of the cable."""
        client = RelayClient(self.cable.path, name, **{"backoff": QUICK} | options)
        self._clients.append(client)
        await client.open()
        return client

    async def beside(self, name: str, **options: Any) -> RelayClient:
        """Open a client that reaches the hub without the cable."""
        client = RelayClient(self.cable.hub, name, **{"backoff": QUICK} | options)
        self._clients.append(client)
        await client.open()
        return client

    async def backlog(self, name: str) -> int:
        """Number of a member's unsettled deliveries, as the hub sees it."""
        operator = await self.hub.operator()
        return next(member.backlog for member in await operator.members() if member.name == name)

    async def settled(self, name: str) -> None:
        """Wait until a member has settled everything."""
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.backlog(name):
                pass

    def said(self, kind: str) -> list[Frame]:
        """Frames of a type that came from clients through the cable."""
        return [one for one in self.cable.said if one["type"] == kind]

    def heard(self, kind: str) -> list[Frame]:
        """Frames of a type that the hub sent through the cable."""
        return [one for one in self.cable.heard if one["type"] == kind]

    async def close(self) -> None:
        """Close every client."""
        for client in self._clients:
            await client.close()


def relay_socket(built: HubHarness) -> str:
    assert built.running.places["relay_socket"] is not None
    return built.running.places["relay_socket"]


@contextlib.asynccontextmanager
async def a_line(folder: Path, configuration: str = "") -> AsyncIterator[Line]:
    home = folder / "h"
    home.mkdir(mode=0o700, exist_ok=True)
    (home / "tieline.toml").write_text(configuration)
    async with running_hub(home, store="sqlite:unsafe") as built, cable(folder / "c", relay_socket(built)) as wire:
        line = Line(built, wire)
        try:
            yield line
        finally:
            await line.close()


class Daemon:
    """A fake daemon. The test writes its frames."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wires: asyncio.Queue[Wire] = asyncio.Queue()
        self._all: list[Wire] = []
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self._all.append(wire)
        self._wires.put_nowait(wire)

    async def accept(self) -> Wire:
        """Wait for the next connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._wires.get()

    async def welcome(self, heartbeat_ms: int = 5000, **server: int) -> Wire:
        """Wait for the next connection, and for its HELLO, and welcome it."""
        wire = await self.accept()
        await wire.expect("HELLO")
        payload = {"session_id": "s-1", "resume_token": "t-1", "server": {"heartbeat_ms": heartbeat_ms} | server}
        await wire.send(frame("WELCOME", payload))
        return wire

    async def close(self) -> None:
        """Close all connections."""
        for wire in self._all:
            wire.writer.transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


@contextlib.asynccontextmanager
async def opened(daemon: Daemon, **options: Any) -> AsyncIterator[tuple[RelayClient, Wire]]:
    """A client that a daemon has welcomed, and the daemon's end of its connection."""
    heartbeat_ms = options.pop("heartbeat_ms", 5000)
    client = RelayClient(daemon.path, "alice", **{"backoff": QUICK} | options)
    opening = asyncio.create_task(client.open())
    wire = await daemon.welcome(heartbeat_ms)
    await opening
    try:
        yield client, wire
    finally:
        # It says goodbye to a daemon that does not answer.
        client._final = RelayClosed("the test is over")
        if client._link is not None:
            client._link.abort("the test is over")
        await client.close()


async def receive(client: RelayClient, count: int) -> list[Delivery]:
    """Take deliveries, and acknowledge each."""
    taken = []
    async with asyncio.timeout(WAIT_SECONDS):
        for _ in range(count):
            delivery = await client.receive()
            delivery.ack()
            taken.append(delivery)
    return taken


def bodies(deliveries: list[Delivery]) -> list[str]:
    return [delivery.body for delivery in deliveries]


def offer(number: int, **fields: Any) -> Frame:
    """Make a DELIVER."""
    delivery = {"seq": number, "session_id": "s-1"}
    body = {"kind": "message", "body": str(number), "data": {}}
    return frame("DELIVER", body, id=f"d-{number}-m", sender="bob", to="alice", delivery=delivery) | fields

"""Test helpers: clients on real sockets, connected to a hub, to a proxy that records and cuts, or to a fake daemon."""

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
"""Short waits between attempts to connect, so that tests are quick."""


class Line:
    """Test helper: a running hub, a proxy (cable) before its socket, and clients that connect through the proxy."""

    def __init__(self, built: HubHarness, wire: Cable) -> None:
        self.hub = built
        self.cable = wire
        self._clients: list[RelayClient] = []

    async def client(self, name: str, **options: Any) -> RelayClient:
        """Open a client that connects through the proxy."""
        client = RelayClient(self.cable.path, name, **{"backoff": QUICK} | options)
        self._clients.append(client)
        await client.open()
        return client

    async def beside(self, name: str, **options: Any) -> RelayClient:
        """Open a client that connects to the hub directly, without the proxy."""
        client = RelayClient(self.cable.hub, name, **{"backoff": QUICK} | options)
        self._clients.append(client)
        await client.open()
        return client

    async def backlog(self, name: str) -> int:
        """Return the number of a member's unsettled deliveries, as the hub reports it."""
        operator = await self.hub.operator()
        return next(member.backlog for member in await operator.members() if member.name == name)

    async def settled(self, name: str) -> None:
        """Wait until all deliveries of a member are settled."""
        async with asyncio.timeout(WAIT_SECONDS):
            while await self.backlog(name):
                pass

    def said(self, kind: str) -> list[Frame]:
        """Return the frames of a type that clients sent through the proxy."""
        return [one for one in self.cable.said if one["type"] == kind]

    def heard(self, kind: str) -> list[Frame]:
        """Return the frames of a type that the hub sent through the proxy."""
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
    """Test double: a server of Agent Relay (daemon) whose frames the test writes."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._wires: asyncio.Queue[Wire] = asyncio.Queue()
        self._all: list[Wire] = []
        self._server: asyncio.AbstractServer | None = None

    async def start(self) -> None:
        """Start to accept connections."""
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        wire = Wire(reader, writer)
        self._all.append(wire)
        self._wires.put_nowait(wire)

    async def accept(self) -> Wire:
        """Wait for the next connection. Return the daemon's end of it."""
        async with asyncio.timeout(WAIT_SECONDS):
            return await self._wires.get()

    async def welcome(self, heartbeat_ms: int = 5000, **server: int) -> Wire:
        """Wait for the next connection and its HELLO, and answer WELCOME. Return the daemon's end of the connection."""
        wire = await self.accept()
        await wire.expect("HELLO")
        payload = {"session_id": "s-1", "resume_token": "t-1", "server": {"heartbeat_ms": heartbeat_ms} | server}
        await wire.send(frame("WELCOME", payload))
        return wire

    async def close(self) -> None:
        """Abort all connections, and accept no more."""
        for wire in self._all:
            wire.writer.transport.abort()
        if self._server is not None:
            self._server.close()
            await self._server.wait_closed()


@contextlib.asynccontextmanager
async def opened(daemon: Daemon, **options: Any) -> AsyncIterator[tuple[RelayClient, Wire]]:
    """Open a client at a daemon, which welcomes it. Yield the client and the daemon's end of its connection."""
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
    """Receive `count` deliveries, and acknowledge each. Return them."""
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
    """Return a DELIVER frame with this sequence number, which is also its body."""
    delivery = {"seq": number, "session_id": "s-1"}
    body = {"kind": "message", "body": str(number), "data": {}}
    return frame("DELIVER", body, id=f"d-{number}-m", sender="bob", to="alice", delivery=delivery) | fields

"""Test helpers: start hubs in a home of their own, open clients over either carrier, and wait with a deadline.

The carriers are the Unix socket and the WebSocket.
"""

import asyncio
import contextlib
import os
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tests.stores.postgres_server import database_url, on_postgres
from tieline.client import Client, Delivery, connect
from tieline.contract.member import MemberKind
from tieline.server.hub import Options, RunningHub
from tieline.wire.home import Running

WAIT_SECONDS = 10

UNIX = "unix"
WEBSOCKET = "websocket"
CARRIERS = (UNIX, WEBSOCKET)

ALONE: dict[str, Any] = dict.fromkeys(
    ("agent_channels", "agent_relay", "backchannel", "peerbus", "ac7", "mcp", "adopt"), False
)
"""Options of a hub that speaks only its own protocol. Such a hub starts in two thirds of the time."""

MIXED: dict[str, Any] = dict.fromkeys(ALONE)
"""Options of a hub that speaks every protocol, as by default."""


class HubHarness:
    """Test helper: one running hub, and its clients."""

    def __init__(self, home: Path, hub: RunningHub, running: Running, carrier: str = UNIX) -> None:
        self.home = home
        self.hub = hub
        self.running = running
        self.carrier = carrier
        self.tokens: dict[str, str] = {}
        self._clients: list[Client] = []

    async def operator(self) -> Client:
        """Open a session that may manage members, with the key of the home."""
        return self.keep(await connect(home=self.home))

    async def add(self, *names: str, permissions: tuple[str, ...] = (), kind: MemberKind = MemberKind.AGENT) -> None:
        """Make members, and store their tokens in `tokens`."""
        async with await connect(home=self.home) as operator:
            for name in names:
                issued = await operator.add_member(name, permissions=permissions, kind=kind)
                self.tokens[name] = issued.token

    async def join(self, name: str, *, receive: bool = False, window: int = 256, carrier: str | None = None) -> Client:
        """Open a session of a member by its token, through `carrier` or else the harness's own. Return the client."""
        token = self.tokens[name]
        if (carrier or self.carrier) == WEBSOCKET:
            client = await connect(token=token, url=self.running.http, receive=receive, window=window)
        else:
            client = await connect(token=token, home=self.home, receive=receive, window=window)
        return self.keep(client)

    def keep(self, client: Client) -> Client:
        """Make the harness close this client at its end. Return the client."""
        self._clients.append(client)
        return client

    async def close(self) -> None:
        """Close every client, then the hub."""
        for client in self._clients:
            await client.close()
        await self.hub.stop()


_SETTINGS: dict[str, tuple[str, Callable[[Any], dict[str, Any]]]] = {
    "agent_channels": ("agent-channels", lambda spoken: {"enabled": spoken}),
    "channels_dir": ("agent-channels", lambda folder: {"folder": str(folder)}),
    "agent_relay": ("agent-relay", lambda spoken: {"enabled": spoken}),
    "relay_socket": ("agent-relay", lambda path: {"socket": str(path)}),
    "backchannel": ("backchannel", lambda spoken: {"enabled": spoken}),
    "spool": ("backchannel", lambda folder: {"spool": str(folder), "adopt": True, "spool_alone": True}),
    "adopt": ("backchannel", lambda adopted: {"adopt": adopted}),
    "peerbus": ("peerbus", lambda spoken: {"enabled": spoken}),
    "peerbus_listen": ("peerbus", lambda address: {"listen": address}),
    "ac7": ("ac7", lambda spoken: {"enabled": spoken}),
    "mcp": ("mcp", lambda spoken: {"enabled": spoken}),
}
"""Settings of protocols by the short names that tests use: the protocol, and a function that returns its settings."""


def options_of(home: Path, **given: Any) -> Options:
    """Return the options of a hub, on a free port unless another is named. Settings of protocols have short names.

    `TIELINE_TEST_WORKERS` is the number of workers, for suites that have a choice; see `test_suites_with_workers.py`.
    """
    flags: dict[str, dict[str, Any]] = {}
    for name in _SETTINGS.keys() & given.keys():
        value = given.pop(name)
        if value is not None:
            protocol, sets = _SETTINGS[name]
            flags.setdefault(protocol, {}).update(sets(value))
    if workers := os.environ.get("TIELINE_TEST_WORKERS"):
        flags["workers"] = {"count": int(workers)}
    if on_postgres():
        given.setdefault("store", database_url(home))
    return Options(**{"home": home, "http": "127.0.0.1:0", **given, "flags": {**flags, **given.get("flags", {})}})


@contextlib.asynccontextmanager
async def running_hub(home: Path, carrier: str = UNIX, **options: Any) -> AsyncIterator[HubHarness]:
    """Start a hub, on a free port unless another is named, and yield it. Stop it at the end."""
    hub = RunningHub(options_of(home, **options))
    running = await hub.start()
    built = HubHarness(home, hub, running, carrier)
    try:
        yield built
    finally:
        await built.close()


async def take(client: Client, count: int, *, ack: bool = False) -> list[Delivery]:
    """Wait for `count` deliveries, and acknowledge them if `ack` is true. Return them."""
    taken: list[Delivery] = []
    async with asyncio.timeout(WAIT_SECONDS):
        async for delivery in client:
            taken.append(delivery)
            if ack:
                client.ack(delivery)
            if len(taken) == count:
                break
    return taken


def bodies(deliveries: list[Delivery]) -> list[str]:
    """Return the bodies of the deliveries' messages."""
    return [delivery.message.body for delivery in deliveries]


async def silent(client: Client) -> None:
    """Check that the client has no unread delivery, after the hub has answered one more request."""
    await client.members()
    assert client._deliveries.empty()


async def until(condition: Callable[[], bool], *, seconds: float = WAIT_SECONDS) -> None:
    """Wait until a condition is true. Fail after `seconds`."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "waited in vain"
        await asyncio.sleep(0.005)

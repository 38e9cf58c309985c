"""The existing TypeScript client under the control of a test: agents, their hub, and the types of the answers.

This module has all knowledge about the SDK's own behaviour: its states, its callbacks, its types.
"""

import asyncio
import contextlib
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from tests.clients.node import WAIT_SECONDS, Fact, Program, need, program
from tests.clients.tap import Frame, Tap
from tests.faults.processes import HubProcess
from tieline.wire.home import CONFIG_FILE

SDK = "@agent-relay/sdk"
RECONNECT_MS = 50
"""The delay before the SDK's first attempt to come back; it doubles with each."""


class Agent:
    """One `RelayClient` of the SDK."""

    def __init__(self, node: Program, label: str) -> None:
        self._node = node
        # Name of the client in the script; the agent's name, unless several clients have the same name.
        self.label = label

    def _events(self, kind: str) -> list[Fact]:
        return [event for event in self._node.events if event["event"] == kind and event["agent"] == self.label]

    @property
    def messages(self) -> list[Fact]:
        """Messages with which `onMessage` was called."""
        return self._events("message")

    @property
    def bodies(self) -> list[Any]:
        """Bodies of the messages."""
        return [message["payload"]["body"] for message in self.messages]

    @property
    def channel_messages(self) -> list[Fact]:
        """Messages with which `onChannelMessage` was called."""
        return self._events("channel")

    @property
    def states(self) -> list[str]:
        """Every state that the client went through."""
        return [event["state"] for event in self._events("state")]

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method, or read a property."""
        return await self._node.command(agent=self.label, call=method, args=args)

    def calling(self, method: str, *args: Any) -> asyncio.Future[Any]:
        """Call a method and do not wait."""
        return self._node.submit(agent=self.label, call=method, args=args)

    async def say(self, to: str, *bodies: str) -> None:
        """Send messages."""
        for body in bodies:
            assert await self.call("sendMessage", to, body) is True

    async def hears(self, *bodies: Any) -> None:
        """Wait until exactly these messages came, each once and in this order."""
        await self._node.until(lambda: bodies[-1] in self.bodies, f"{self.label} to hear {str(bodies[-1])[:80]!r}")
        assert self.bodies == list(bodies), self._node.transcript()

    async def reaches(self, state: str, *, after: int = 0) -> None:
        """Wait until the client is in a state. Ignore its first `after` states."""
        await self._node.until(lambda: state in self.states[after:], f"{self.label} {state}")

    async def settled(self) -> None:
        """Wait until the hub has handled all earlier commands of this connection."""
        await self.call("getStatus")


class Place:
    """A hub, and the Node process in which its agents live."""

    def __init__(self, folder: Path, hub: HubProcess, node: Program) -> None:
        self.folder = folder
        self.hub = hub
        self.node = node
        self._taps: list[Tap] = []

    @property
    def socket(self) -> Path:
        """Path of the hub's socket for the protocol."""
        return self.hub.home / "agent-relay.sock"

    async def tap(self) -> Tap:
        """A tap before the hub's socket."""
        tap = Tap(self.folder / f"tap-{len(self._taps)}", self.socket)
        self._taps.append(tap)
        await tap.open()
        return tap

    async def agent(self, name: str, *, tap: Tap | None = None, label: str | None = None, **config: Any) -> Agent:
        """A client that is not connected yet."""
        socket = {"socketPath": str(tap.path if tap is not None else self.socket)}
        config = {"agentName": name, "reconnectDelayMs": RECONNECT_MS} | socket | config
        agent = Agent(self.node, label or name)
        await self.node.command(agent=agent.label, new=config)
        return agent

    async def join(self, name: str, **options: Any) -> Agent:
        """A client that is connected."""
        agent = await self.agent(name, **options)
        await agent.call("connect")
        return agent

    async def close(self) -> None:
        """Close the taps."""
        for tap in self._taps:
            await tap.close()


@contextlib.asynccontextmanager
async def place(folder: Path, *, config: str = "", **environment: str) -> AsyncIterator[Place]:
    """A running hub and a Node process."""
    need(SDK)
    hub = HubProcess(folder / "home")
    if config:
        hub.home.mkdir(mode=0o700)
        (hub.home / CONFIG_FILE).write_text(config, encoding="utf-8")
    await hub.start()
    try:
        async with program("agent_relay.mjs", folder / "printed", **environment) as node:
            built = Place(folder, hub, node)
            try:
                yield built
            finally:
                await built.close()
    finally:
        hub.kill()


async def until_connected(asker: Agent, *names: str) -> None:
    """Wait until these agents are connected, and no others."""
    deadline = time.monotonic() + WAIT_SECONDS
    while (found := {agent["name"] for agent in await asker.call("listConnectedAgents")}) != set(names):
        assert time.monotonic() < deadline, f"{found} are connected"
        await asyncio.sleep(0.01)


def numbers(frames: list[Frame]) -> list[int]:
    """The numbers that DELIVERs have."""
    return [frame["delivery"]["seq"] for frame in frames]


# Shapes of answers: fields that are not optional in the types of the SDK are required here.


class Status(Struct, rename="camel", kw_only=True):
    """StatusResponsePayload."""

    version: str
    uptime: int
    cloud_connected: bool
    agent_count: int


class AgentInfo(Struct, kw_only=True):
    """AgentInfo."""

    name: str
    idle: bool
    cli: str | None = None


class InboxMessage(Struct, rename={"sender": "from"}, kw_only=True):
    """InboxMessage."""

    id: str
    sender: str
    body: str
    timestamp: int
    channel: str | None = None
    thread: str | None = None


class HistoryMessage(InboxMessage, kw_only=True):
    """One of MessagesResponsePayload."""

    to: str


class Issue(Struct):
    """One of HealthResponsePayload.issues."""

    severity: str
    message: str


class HealthStats(Struct, kw_only=True):
    """HealthResponsePayload.stats."""

    total_crashes: int = msgspec.field(name="totalCrashes24h")
    total_alerts: int = msgspec.field(name="totalAlerts24h")
    agent_count: int = msgspec.field(name="agentCount")


class Health(Struct, rename="camel", kw_only=True):
    """HealthResponsePayload."""

    health_score: int
    summary: str
    issues: list[Issue]
    recommendations: list[str]
    crashes: list[dict[str, str]]
    alerts: list[dict[str, str]]
    stats: HealthStats


class AgentMetrics(Struct):
    """One of MetricsResponsePayload.agents."""

    name: str
    status: str


class System(Struct, rename="camel", kw_only=True):
    """MetricsResponsePayload.system."""

    total_memory: int
    free_memory: int
    heap_used: int


class Metrics(Struct):
    """MetricsResponsePayload."""

    agents: list[AgentMetrics]
    system: System


class Removal(Struct):
    """RemoveAgentResponsePayload."""

    success: bool
    removed: bool
    message: str | None = None

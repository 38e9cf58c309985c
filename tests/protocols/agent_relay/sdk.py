"""Test helper that controls the existing TypeScript client (SDK): agents, their hub, and the types of the answers.

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
"""Delay before the SDK's first attempt to connect again. It doubles with each attempt."""


class Agent:
    """Test client: one `RelayClient` of the SDK, which runs in Node."""

    def __init__(self, node: Program, label: str) -> None:
        self._node = node
        # Name of the client in the script; the agent's name, unless several clients have the same name.
        self.label = label

    def _events(self, kind: str) -> list[Fact]:
        return [event for event in self._node.events if event["event"] == kind and event["agent"] == self.label]

    @property
    def messages(self) -> list[Fact]:
        """Return the messages with which the SDK called `onMessage`."""
        return self._events("message")

    @property
    def bodies(self) -> list[Any]:
        """Return the bodies of the messages with which the SDK called `onMessage`."""
        return [message["payload"]["body"] for message in self.messages]

    @property
    def channel_messages(self) -> list[Fact]:
        """Return the messages with which the SDK called `onChannelMessage`."""
        return self._events("channel")

    @property
    def states(self) -> list[str]:
        """Return all states that the client had so far, in order."""
        return [event["state"] for event in self._events("state")]

    async def call(self, method: str, *args: Any) -> Any:
        """Call a method of the SDK's client, or read a property. Return the result."""
        return await self._node.command(agent=self.label, call=method, args=args)

    def calling(self, method: str, *args: Any) -> asyncio.Future[Any]:
        """Call a method of the SDK's client, and do not wait. Return a future of the result."""
        return self._node.submit(agent=self.label, call=method, args=args)

    async def say(self, to: str, *bodies: str) -> None:
        """Send messages with these bodies to an agent."""
        for body in bodies:
            assert await self.call("sendMessage", to, body) is True

    async def hears(self, *bodies: Any) -> None:
        """Wait for the last of these bodies. Check that exactly these came, each once and in this order."""
        await self._node.until(lambda: bodies[-1] in self.bodies, f"{self.label} to hear {str(bodies[-1])[:80]!r}")
        assert self.bodies == list(bodies), self._node.transcript()

    async def reaches(self, state: str, *, after: int = 0) -> None:
        """Wait until the client has had a state. Ignore its first `after` states."""
        await self._node.until(lambda: state in self.states[after:], f"{self.label} {state}")

    async def settled(self) -> None:
        """Wait until the hub has handled all earlier commands of this connection."""
        await self.call("getStatus")


class Place:
    """Test helper: a hub process, and the Node process in which its agents run."""

    def __init__(self, folder: Path, hub: HubProcess, node: Program) -> None:
        self.folder = folder
        self.hub = hub
        self.node = node
        self._taps: list[Tap] = []

    @property
    def socket(self) -> Path:
        """Return the path of the hub's Agent Relay socket."""
        return self.hub.home / "agent-relay.sock"

    async def tap(self) -> Tap:
        """Start a tap (a recording proxy) before the hub's socket. Return it."""
        tap = Tap(self.folder / f"tap-{len(self._taps)}", self.socket)
        self._taps.append(tap)
        await tap.open()
        return tap

    async def agent(self, name: str, *, tap: Tap | None = None, label: str | None = None, **config: Any) -> Agent:
        """Make a client that is not connected yet. With `tap`, it will connect through this recording proxy."""
        socket = {"socketPath": str(tap.path if tap is not None else self.socket)}
        config = {"agentName": name, "reconnectDelayMs": RECONNECT_MS} | socket | config
        agent = Agent(self.node, label or name)
        await self.node.command(agent=agent.label, new=config)
        return agent

    async def join(self, name: str, **options: Any) -> Agent:
        """Make a client and connect it. `options` are those of `agent`."""
        agent = await self.agent(name, **options)
        await agent.call("connect")
        return agent

    async def close(self) -> None:
        """Close the taps."""
        for tap in self._taps:
            await tap.close()


@contextlib.asynccontextmanager
async def place(folder: Path, *, config: str = "", **environment: str) -> AsyncIterator[Place]:
    """Start a hub process and a Node process, and yield them. Skip the test without the SDK."""
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
    """Return the sequence numbers of DELIVER frames."""
    return [frame["delivery"]["seq"] for frame in frames]


# Shapes of answers: fields that are not optional in the types of the SDK are required here.


class Status(Struct, rename="camel", kw_only=True):
    """SDK type `StatusResponsePayload`: the answer to a status request."""

    version: str
    uptime: int
    cloud_connected: bool
    agent_count: int


class AgentInfo(Struct, kw_only=True):
    """SDK type `AgentInfo`: one agent in a list of agents."""

    name: str
    idle: bool
    cli: str | None = None


class InboxMessage(Struct, rename={"sender": "from"}, kw_only=True):
    """SDK type `InboxMessage`: one message in the answer to an inbox request."""

    id: str
    sender: str
    body: str
    timestamp: int
    channel: str | None = None
    thread: str | None = None


class HistoryMessage(InboxMessage, kw_only=True):
    """SDK type of one message in `MessagesResponsePayload`, the answer to a query of messages."""

    to: str


class Issue(Struct):
    """SDK type of one entry in `HealthResponsePayload.issues`."""

    severity: str
    message: str


class HealthStats(Struct, kw_only=True):
    """SDK type of `HealthResponsePayload.stats`."""

    total_crashes: int = msgspec.field(name="totalCrashes24h")
    total_alerts: int = msgspec.field(name="totalAlerts24h")
    agent_count: int = msgspec.field(name="agentCount")


class Health(Struct, rename="camel", kw_only=True):
    """SDK type `HealthResponsePayload`: the answer to a health request."""

    health_score: int
    summary: str
    issues: list[Issue]
    recommendations: list[str]
    crashes: list[dict[str, str]]
    alerts: list[dict[str, str]]
    stats: HealthStats


class AgentMetrics(Struct):
    """SDK type of one entry in `MetricsResponsePayload.agents`."""

    name: str
    status: str


class System(Struct, rename="camel", kw_only=True):
    """SDK type of `MetricsResponsePayload.system`."""

    total_memory: int
    free_memory: int
    heap_used: int


class Metrics(Struct):
    """SDK type `MetricsResponsePayload`: the answer to a metrics request."""

    agents: list[AgentMetrics]
    system: System


class Removal(Struct):
    """SDK type `RemoveAgentResponsePayload`: the answer to a request to remove an agent."""

    success: bool
    removed: bool
    message: str | None = None

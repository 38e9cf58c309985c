"""Test helpers: hubs, and raw agents at their Agent Relay socket."""

import asyncio
import contextlib
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from tests.protocols.agent_relay.wire import Frame, Wire
from tests.server.hubs import ALONE, WAIT_SECONDS, HubHarness, running_hub
from tieline.contract.event import AnyEvent, Refused
from tieline.contract.refusal import Code
from tieline.core.ledger import decode_event

MIB = 1024 * 1024


class Relay(HubHarness):
    """Test helper: a running hub, and the raw agents at its Agent Relay socket."""

    wires: list[Wire]

    @property
    def path(self) -> str:
        """Return the path of the socket."""
        assert self.running.places["relay_socket"] is not None
        return self.running.places["relay_socket"]

    async def dial(self) -> Wire:
        """Open a connection and send nothing."""
        wire = await Wire.dial(self.path)
        self.wires.append(wire)
        return wire

    async def agent(self, name: str, **payload: Any) -> Wire:
        """Open a connection and send HELLO with this name."""
        wire = await self.dial()
        await wire.hello(name, **payload)
        return wire

    async def agents(self, *names: str) -> list[Wire]:
        """Open a connection and send HELLO, for each of these names."""
        return [await self.agent(name) for name in names]

    async def leave(self, wire: Wire) -> None:
        """Close a connection without BYE, and wait until the hub has noticed it."""
        await wire.close()
        operator = await self.operator()
        async with asyncio.timeout(WAIT_SECONDS):
            while any(member.name == wire.name and member.sessions for member in await operator.members()):
                pass

    async def events(self) -> list[AnyEvent]:
        """Return all events of the main log."""
        operator = await self.operator()
        found: list[AnyEvent] = []
        while page := (await operator.read_log("main", len(found))).rows:
            found += [decode_event(row.event.encode()) for row in page]
        return found

    async def refusals(self, code: Code) -> list[Refused]:
        """Wait until the log has a refusal with this code. Return all such refusals."""
        async with asyncio.timeout(WAIT_SECONDS):
            while True:
                events = [event for event in await self.events() if isinstance(event, Refused)]
                found = [event for event in events if event.code == code]
                if found:
                    return found
                await asyncio.sleep(0.01)


def relay_of(built: HubHarness) -> Relay:
    """Return the helper for raw agents at a hub."""
    made = Relay(built.home, built.hub, built.running)
    made._clients = built._clients
    made.wires = []
    return made


@contextlib.asynccontextmanager
async def running(
    home: Path, config: str = "", *, store: str = "sqlite:unsafe", **options: Any
) -> AsyncIterator[Relay]:
    """Start a hub with this configuration, and yield it. Close its connections at the end.

    It speaks no other protocol beside its own, unless `options` say so.
    """
    if config:
        home.mkdir(mode=0o700, exist_ok=True)
        (home / "tieline.toml").write_text(config)
    async with running_hub(home, store=store, **ALONE | {"agent_relay": True} | options) as built:
        relay = relay_of(built)
        try:
            yield relay
        finally:
            for wire in relay.wires:
                await wire.close()


def numbers(deliveries: list[Frame]) -> list[tuple[str, str | None, int]]:
    """Return sender, topic and sequence number of each delivery."""
    return [(one["from"], one.get("topic"), one["delivery"]["seq"]) for one in deliveries]


def texts(frames: list[Frame]) -> list[str]:
    """Return the bodies of those frames that are DELIVER frames."""
    return [one["payload"]["body"] for one in frames if one["type"] == "DELIVER"]


def accepting() -> dict[str, Any]:
    """Return the HELLO payload of a client that wants an ACK for each accepted message."""
    return {"capabilities": {"ack": True, "accept": True}}

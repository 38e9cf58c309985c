"""Fixtures of the Agent Relay tests: running hubs with a relay socket, and clients of this socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.agent_relay.lines import Daemon, Line, a_line
from tests.protocols.agent_relay.relays import Relay, running
from tests.protocols.agent_relay.sdk import Place, place
from tests.server.hubs import MIXED


@pytest.fixture
async def relay(folder: Path) -> AsyncIterator[Relay]:
    """Fixture: a hub with default settings, but without disk syncs."""
    async with running(folder / "h") as made:
        yield made


@pytest.fixture
async def mixed(folder: Path) -> AsyncIterator[Relay]:
    """Fixture: a hub that speaks every protocol, without disk syncs."""
    async with running(folder / "h", **MIXED) as made:
        yield made


@pytest.fixture
async def brisk(folder: Path) -> AsyncIterator[Relay]:
    """Fixture: a hub with a short heartbeat."""
    async with running(folder / "h", "[agent_relay]\nheartbeat_ms = 100\n") as made:
        yield made


@pytest.fixture
async def line(folder: Path) -> AsyncIterator[Line]:
    """Fixture: a hub and a proxy (cable) before its socket."""
    async with a_line(folder) as made:
        yield made


@pytest.fixture
async def brisk_line(folder: Path) -> AsyncIterator[Line]:
    """Fixture: a hub with a short heartbeat, and a proxy (cable) before its socket."""
    async with a_line(folder, "[agent_relay]\nheartbeat_ms = 250\n") as made:
        yield made


@pytest.fixture
async def daemon(folder: Path) -> AsyncIterator[Daemon]:
    """Fixture: a fake daemon whose frames the test writes."""
    made = Daemon(folder / "d")
    await made.start()
    yield made
    await made.close()


@pytest.fixture
async def here(folder: Path) -> AsyncIterator[Place]:
    """Fixture: a hub process, and a Node process for the SDK."""
    async with place(folder) as built:
        yield built

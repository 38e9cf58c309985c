"""Fixtures of the agent-channels tests, which run on both event loops."""

import asyncio
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import uvloop

from tests.protocols.agent_channels.halls import Hall, join, running
from tests.protocols.agent_channels.scene import Scene, open_scene
from tests.server.hubs import ALONE, running_hub
from tieline.protocols.agent_channels.channel import Channel


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Return the makers of two event loops, which treat socket files differently. Every async test runs on both."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
async def scene(folder: Path) -> AsyncIterator[Scene]:
    """Fixture: a running hub with the members alice and bob."""
    async with running_hub(folder / "h", store="sqlite:unsafe", **ALONE | {"agent_channels": True}) as built:
        made = await open_scene(built)
        await made.add("alice", "bob")
        yield made
        for peer in made.peers:
            peer.close()


@pytest.fixture
async def hall(folder: Path) -> AsyncIterator[Hall]:
    """Fixture: a running channel with three clients. Yields channel, log of events, and clients."""
    async with running(Channel(folder / "general.sock")) as (channel, log):
        peers = await join(channel, log, 3)
        yield channel, log, peers
        for peer in peers:
            peer.close()

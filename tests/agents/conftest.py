"""A terminal that a test looks at; and a hub that forgets, with alice and bob, whose agent is to be reached."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from tests.agents.terminals import Screen
from tests.cli.hub_process import HubProcess
from tests.server.hubs import HubHarness, running_hub
from tieline.contract.permission import OBJECTIVES_CREATE

ALONE: dict[str, Any] = dict.fromkeys(
    ("agent_channels", "agent_relay", "backchannel", "peerbus", "ac7", "mcp", "adopt"), False
)
"""A hub that speaks its own protocol only: what an agent is told comes through no other."""


_numbers = count(1)


@pytest.fixture(scope="session")
def hub() -> Iterator[HubProcess]:
    """Give a hub in a process of its own, one for all runs, with alice."""
    with HubProcess("--store", "memory") as running:
        running.add_members("alice")
        yield running


@pytest.fixture
def bob(hub: HubProcess) -> str:
    """Give the name of a new member of it, so that no test finds what another left."""
    name = f"bob-{next(_numbers)}"
    hub.add_members(name)
    return name


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    """Give a terminal."""
    screen = Screen()
    yield screen
    screen.close()


@pytest.fixture
async def home(folder: Path) -> AsyncIterator[HubHarness]:
    """Give a running hub on which alice may give work and bob may not."""
    async with running_hub(folder / "home", store="memory", **ALONE) as built:
        await built.add("alice", permissions=(OBJECTIVES_CREATE,))
        await built.add("bob")
        yield built

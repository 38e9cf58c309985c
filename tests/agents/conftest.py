"""Fixtures for tests of agents: a terminal, and hubs with the members alice and bob. The hubs store only in memory."""

from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.agents.terminals import Screen
from tests.cli.hub_process import HubProcess
from tests.server.hubs import ALONE, HubHarness, running_hub
from tieline.contract.permission import OBJECTIVES_CREATE

_numbers = count(1)


@pytest.fixture(scope="session")
def hub() -> Iterator[HubProcess]:
    """Fixture: a hub in a separate process, with the member alice. All tests of a session share this hub."""
    with HubProcess("--store", "memory") as running:
        running.add_members("alice")
        yield running


@pytest.fixture
def bob(hub: HubProcess) -> str:
    """Fixture: a new member of `hub` whose name no other test uses. Returns the name."""
    name = f"bob-{next(_numbers)}"
    hub.add_members(name)
    return name


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    """Fixture: a pseudo-terminal of a person. It is closed after the test."""
    screen = Screen()
    yield screen
    screen.close()


@pytest.fixture
async def home(folder: Path) -> AsyncIterator[HubHarness]:
    """Fixture: a running hub with the members alice, who may create objectives, and bob, who may not."""
    async with running_hub(folder / "home", store="memory", **ALONE) as built:
        await built.add("alice", permissions=(OBJECTIVES_CREATE,))
        await built.add("bob")
        yield built

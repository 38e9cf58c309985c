"""Fixtures of the MCP tests: the hub that the tests of agents use, and a hub that serves MCP.

Both have the members alice and bob.
"""

from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest

from tests.agents.conftest import home
from tests.protocols.mcp.web import Web
from tests.server.hubs import ALONE, HubHarness, running_hub
from tieline.contract.permission import OBJECTIVES_CREATE

__all__ = ["home"]

Join = Callable[[str], Web]
"""Type of a function that makes a client of `/mcp` for a member."""


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[HubHarness]:
    """Fixture: a running hub that serves MCP and no other foreign protocol. Alice may create objectives."""
    async with running_hub(folder / "home", store="memory", **{**ALONE, "mcp": True}) as built:
        await built.add("alice", permissions=(OBJECTIVES_CREATE,))
        await built.add("bob")
        yield built


@pytest.fixture
async def join(place: HubHarness) -> AsyncIterator[Join]:
    """Fixture: a function that makes clients of `/mcp`. They are closed at the end."""
    made: list[Web] = []

    def make(member: str) -> Web:
        made.append(Web(place, place.tokens[member]))
        return made[-1]

    yield make
    for one in made:
        await one.close()


@pytest.fixture
def bob(join: Join) -> Web:
    """Fixture: a client of `/mcp` for bob."""
    return join("bob")

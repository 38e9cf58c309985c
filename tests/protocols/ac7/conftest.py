"""Fixtures of the ac7 tests: a hub for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.ac7.teams import Team, team


@pytest.fixture
async def crew(folder: Path) -> AsyncIterator[Team]:
    """Fixture: a hub without members, which stores its data in memory."""
    async with team(folder / "home", store="memory") as built:
        yield built

"""A team for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.ac7.teams import Team, team


@pytest.fixture
async def crew(folder: Path) -> AsyncIterator[Team]:
    """A hub without members, whose data is deleted at the end."""
    async with team(folder / "home", store="memory") as built:
        yield built

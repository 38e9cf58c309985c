"""A team for each test."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.ac7.teams import Team, team


@pytest.fixture
async def crew(folder: Path) -> AsyncIterator[Team]:
    """Give a hub that forgets, with nobody on its team."""
    async with team(folder / "home", store="memory") as built:
        yield built

"""A terminal that a test looks at."""

from collections.abc import AsyncIterator

import pytest

from tests.agents.terminals import Screen


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    """Give a terminal."""
    screen = Screen()
    yield screen
    screen.close()

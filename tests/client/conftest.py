"""A real hub, reached over a Unix socket and over a WebSocket: the same tests for both."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.hubs import CARRIERS, HubHarness, running_hub


@pytest.fixture(params=CARRIERS)
async def there(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[HubHarness]:
    """A hub with three members. The tests run once for each carrier."""
    async with running_hub(folder, request.param, store="sqlite:unsafe") as built:
        await built.add("alice", "bob", "carol")
        yield built

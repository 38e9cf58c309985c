"""Fixture for tests of the SDK: a real hub, reached over a Unix socket and over a WebSocket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.hubs import ALONE, CARRIERS, HubHarness, running_hub


@pytest.fixture(params=CARRIERS)
async def there(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[HubHarness]:
    """Fixture: a hub with three members. Each test runs twice: over a Unix socket and over a WebSocket."""
    async with running_hub(folder, request.param, store="sqlite:unsafe", **ALONE) as built:
        await built.add("alice", "bob", "carol")
        yield built

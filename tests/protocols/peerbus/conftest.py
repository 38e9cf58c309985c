"""Fixtures of the peerbus tests: a hub for peers on one carrier (kind of connection), or on each."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.peerbus.peers import CARRIERS, PORT, Bus, bus


@pytest.fixture(params=CARRIERS)
async def anyhow(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Bus]:
    """Fixture: a hub for peers. Tests with it run once for each kind of connection."""
    async with bus(folder / "h", request.param) as built:
        yield built


@pytest.fixture
async def hub(folder: Path) -> AsyncIterator[Bus]:
    """Fixture: a hub whose peers connect to the separate port of peerbus."""
    async with bus(folder / "h", PORT) as built:
        yield built

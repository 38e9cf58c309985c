"""A hub with peers, over every carrier where the carrier must not matter."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.peerbus.peers import CARRIERS, PORT, Bus, bus


@pytest.fixture(params=CARRIERS)
async def anyhow(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Bus]:
    """A hub for peers. The tests run once for each carrier."""
    async with bus(folder / "h", request.param) as built:
        yield built


@pytest.fixture
async def hub(folder: Path) -> AsyncIterator[Bus]:
    """A hub whose peers connect to the separate port of peerbus."""
    async with bus(folder / "h", PORT) as built:
        yield built

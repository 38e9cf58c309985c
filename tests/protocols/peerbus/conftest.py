"""A hub with peers, over every carrier where the carrier must not matter."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.peerbus.peers import CARRIERS, PORT, Bus, bus


@pytest.fixture(params=CARRIERS)
async def anyhow(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Bus]:
    """A hub whose peers come through one carrier after the other."""
    async with bus(folder / "h", request.param) as built:
        yield built


@pytest.fixture
async def hub(folder: Path) -> AsyncIterator[Bus]:
    """A hub whose peers come through the port of their own."""
    async with bus(folder / "h", PORT) as built:
        yield built

"""Fixtures of the backchannel tests: a spool alone, a spool that a hub has adopted, and a hub with its relay API."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from tests.protocols.backchannel.adopted_spools import AdoptedSpool, adopted_spool
from tests.protocols.backchannel.relays import Room, room
from tieline.protocols.backchannel.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """Fixture: a new spool, with a clock that moves by a millisecond at each reading."""
    moments = count(1_781_265_600_000)
    return Spool(tmp_path / "home", now_ms=lambda: next(moments))


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[AdoptedSpool]:
    """Fixture: a hub with its adopted spool."""
    async with adopted_spool(folder) as there:
        yield there


@pytest.fixture
async def lobby(folder: Path) -> AsyncIterator[Room]:
    """Fixture: a hub at which agents register themselves with the room token."""
    async with room(folder) as made:
        yield made

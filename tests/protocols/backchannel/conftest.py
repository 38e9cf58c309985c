"""A spool by itself, one that a hub has adopted, and a hub with its relay API."""

from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest

from tests.protocols.backchannel.adopted_spools import AdoptedSpool, adopted_spool
from tests.protocols.backchannel.relays import Room, room
from tieline.protocols.backchannel.spool import Spool


@pytest.fixture
def spool(tmp_path: Path) -> Spool:
    """A new spool, with a clock that moves by a millisecond at each reading."""
    moments = count(1_781_265_600_000)
    return Spool(tmp_path / "home", now_ms=lambda: next(moments))


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[AdoptedSpool]:
    """A hub with its spool."""
    async with adopted_spool(folder) as there:
        yield there


@pytest.fixture
async def lobby(folder: Path) -> AsyncIterator[Room]:
    """A hub at which agents register themselves."""
    async with room(folder) as made:
        yield made

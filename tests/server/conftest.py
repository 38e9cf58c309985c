"""Fixtures of the server's tests: a local hub whose store the test controls."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.offices import Office
from tieline.contract.limits import Limits


@pytest.fixture
async def office(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    """Fixture: a local hub with the members alice and bob. Its parameter, if any, is the limits of the hub."""
    made = Office(folder, getattr(request, "param", Limits()))
    await made.open()
    yield made
    made.store.gate.set()
    made.store.restore_fails = False
    await made.hub.stop()

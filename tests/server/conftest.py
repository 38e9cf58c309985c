"""Fixtures of the server's tests: a local hub whose store the test controls."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.server.offices import Office
from tieline.contract.limits import Limits


@pytest.fixture
def remote() -> bool:
    """Fixture: true if the test uses the hub over a link. A module may give it parameters."""
    return False


@pytest.fixture
async def office(folder: Path, request: pytest.FixtureRequest, remote: bool) -> AsyncIterator[Office]:
    """Fixture: a hub with the members alice and bob. Its parameter, if any, is the limits of the hub."""
    made = Office(folder, getattr(request, "param", Limits()))
    await made.open(remote=remote)
    yield made
    await made.close()

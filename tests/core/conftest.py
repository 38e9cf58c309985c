"""A desk over the embedded store, which syncs nothing here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core.doubles import Desk
from tests.core.objective_team import Team
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteStore

MakeDesk = Callable[[Limits], Desk]


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[[], Store]:
    """Open the store; again and again, it is the same one."""
    return lambda: SqliteStore(tmp_path, synchronous="OFF")


@pytest.fixture
def make_desk(open_store: Callable[[], Store]) -> MakeDesk:
    """Make a desk with limits of the test's choice."""
    return lambda limits: Desk(open_store, limits)


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    """Give a desk with the limits that the hub has by default."""
    return make_desk(DEFAULT_LIMITS)


@pytest.fixture
def team(desk: Desk) -> Team:
    """Give a team at that desk."""
    return Team(desk)

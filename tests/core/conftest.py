"""A harness over the embedded store, which syncs nothing here."""

from collections.abc import Callable
from pathlib import Path

import pytest

from tests.core.doubles import BrokerHarness
from tests.core.objective_team import Team
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteStore

MakeHarness = Callable[[Limits], BrokerHarness]


@pytest.fixture
def open_store(tmp_path: Path) -> Callable[[], Store]:
    """Open the store; again and again, it is the same one."""
    return lambda: SqliteStore(tmp_path, synchronous="OFF")


@pytest.fixture
def make_harness(open_store: Callable[[], Store]) -> MakeHarness:
    """Make a harness with limits of the test's choice."""
    return lambda limits: BrokerHarness(open_store, limits)


@pytest.fixture
def harness(make_harness: MakeHarness) -> BrokerHarness:
    """Give a harness with the limits that the hub has by default."""
    return make_harness(DEFAULT_LIMITS)


@pytest.fixture
def team(harness: BrokerHarness) -> Team:
    """Give a team in that harness."""
    return Team(harness)

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
    """Open the store. Each call opens the same store."""
    return lambda: SqliteStore(tmp_path, synchronous="OFF")


@pytest.fixture
def make_harness(open_store: Callable[[], Store]) -> MakeHarness:
    """Make a harness with limits of the test's choice."""
    return lambda limits: BrokerHarness(open_store, limits)


@pytest.fixture
def harness(make_harness: MakeHarness) -> BrokerHarness:
    """A harness with the hub's default limits."""
    return make_harness(DEFAULT_LIMITS)


@pytest.fixture
def team(harness: BrokerHarness) -> Team:
    """A team in the test's broker harness."""
    return Team(harness)

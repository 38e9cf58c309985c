"""Fixtures for tests of the broker: a broker harness with the embedded store, which does not sync to disk here."""

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
    """Fixture: a function that opens the store of this test. Each call opens the same store."""
    return lambda: SqliteStore(tmp_path, synchronous="OFF")


@pytest.fixture
def make_harness(open_store: Callable[[], Store]) -> MakeHarness:
    """Fixture: a function that makes a broker harness with the given limits."""
    return lambda limits: BrokerHarness(open_store, limits)


@pytest.fixture
def harness(make_harness: MakeHarness) -> BrokerHarness:
    """Fixture: a broker harness with the hub's default limits."""
    return make_harness(DEFAULT_LIMITS)


@pytest.fixture
def team(harness: BrokerHarness) -> Team:
    """Fixture: a team of five members in the test's broker harness."""
    return Team(harness)

"""Fixtures for tests of the broker: a broker harness with the embedded store, which does not sync to disk here."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.core.doubles import BrokerHarness
from tests.core.held_rooms import LIMITS, Room
from tests.core.objective_team import Team
from tests.stores.postgres_server import on_postgres, postgres_store
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import MemberKind
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteStore

MakeHarness = Callable[[Limits], BrokerHarness]


@pytest.fixture
def open_store(tmp_path: Path) -> Iterator[Callable[[], Store]]:
    """Fixture: a function that opens the store of this test. Each call opens the same store.

    With `TIELINE_TEST_STORE=postgres` the store is in PostgreSQL, which closes connections only if somebody says so.
    """
    if not on_postgres():
        yield lambda: SqliteStore(tmp_path, synchronous="OFF")
        return
    opened: list[Store] = []

    def open_again() -> Store:
        for store in opened:
            store.close()
        opened.append(postgres_store(tmp_path))
        return opened[-1]

    yield open_again
    for store in opened:
        store.close()


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


@pytest.fixture
def room(make_harness: MakeHarness) -> Room:
    """Fixture: a room with three agents and a person, in which chains of answers are soon slowed and held."""
    made = Room(make_harness(LIMITS))
    made.join("ada", "bob", "cy")
    made.join("hana", kind=MemberKind.HUMAN)
    return made


@pytest.fixture
def stuck(room: Room) -> Room:
    """Fixture: a room in which ada and bob answered each other until bob's last message to ada was held."""
    room.alternate("ada", "bob", LIMITS.hops_max + 1)
    assert room.say("bob", "@ada", "held 0").held
    return room

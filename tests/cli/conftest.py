"""Fixtures for tests of the command line: one hub that all tests share, and members that only one test uses."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.cli.place import Place

_numbers = count(1)


@pytest.fixture(scope="session")
def hub() -> Iterator[HubProcess]:
    """Fixture: a running hub in a separate process. All tests of a session share this hub."""
    with HubProcess() as running:
        yield running


@pytest.fixture
def alice(hub: HubProcess) -> str:
    """Fixture: a member whose name no other test uses. Returns the name."""
    name = f"alice-{next(_numbers)}"
    hub.add_members(name)
    return name


@pytest.fixture
def bob(hub: HubProcess) -> str:
    """Fixture: a second member whose name no other test uses. Returns the name."""
    name = f"bob-{next(_numbers)}"
    hub.add_members(name)
    return name


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Fixture: a home in which no hub has ever run, with bob registered in its spool (messages as files)."""
    made = Place(tmp_path / "home")
    made.spool.register("bob")
    return made

"""One hub for all tests of the command line that do not stop it; each test has members of its own."""

from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.cli.place import Place

_numbers = count(1)


@pytest.fixture(scope="session")
def hub() -> Iterator[HubProcess]:
    """A running hub."""
    with HubProcess() as running:
        yield running


@pytest.fixture
def alice(hub: HubProcess) -> str:
    """A member of the hub that no other test knows."""
    name = f"alice-{next(_numbers)}"
    hub.add_members(name)
    return name


@pytest.fixture
def bob(hub: HubProcess) -> str:
    """A second member of the hub that no other test knows."""
    name = f"bob-{next(_numbers)}"
    hub.add_members(name)
    return name


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """Home without a hub, in whose spool bob is registered."""
    made = Place(tmp_path / "home")
    made.spool.register("bob")
    return made

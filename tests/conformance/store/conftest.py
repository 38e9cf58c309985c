"""The Store port, sentence by sentence, over every implementation.

The tests know the port alone: each says what a docstring of it says.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.store.writer import STORES, Opener, Writer


@pytest.fixture(params=sorted(STORES))
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Open the same store each time."""
    return STORES[request.param](tmp_path / "home")


@pytest.fixture
def writer(opener: Opener) -> Iterator[Writer]:
    """A writer on an empty store."""
    writer = Writer(opener)
    yield writer
    writer.store.close()

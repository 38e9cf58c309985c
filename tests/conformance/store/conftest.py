"""The Store port, sentence by sentence, over every implementation.

The tests use only the port. Each test checks a sentence of the port's docstrings.
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

"""Fixtures for the tests of the Store port (the interface of a store), which run with every implementation.

The tests use only the port. Each test checks a sentence of the port's docstrings.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.conformance.store.writer import PARAMS, STORES, Opener, Writer


@pytest.fixture(params=PARAMS)
def opener(request: pytest.FixtureRequest, tmp_path: Path) -> Opener:
    """Fixture: a function that opens the store of this test. Each call opens the same store."""
    return STORES[request.param](tmp_path / "home")


@pytest.fixture
def writer(opener: Opener) -> Iterator[Writer]:
    """Fixture: a `Writer` on an empty store."""
    writer = Writer(opener)
    yield writer
    writer.store.close()

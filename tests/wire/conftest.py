"""What the tests of `wire` share: both event loops, and a folder whose path is short enough for a Unix address."""

import asyncio
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test that awaits on both loops: they differ in what they do with socket files."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder with a short path: pytest's own are often longer than a Unix address."""
    path = Path(tempfile.mkdtemp(prefix="tieline-"))
    yield path
    shutil.rmtree(path)

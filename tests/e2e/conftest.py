"""One browser for all tests of a process, with nothing of another test in it.

A browser belongs to the event loop that started it, so all of these tests run in one loop.
"""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from playwright.async_api import Browser, expect

from tests.e2e.browsers import Office, chromium, office

# A busy machine draws a page late; only what fails waits that long.
expect.set_options(timeout=15_000)

_HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the tests of this folder into one event loop."""
    for item in items:
        if item.path.is_relative_to(_HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def program() -> AsyncIterator[Browser]:
    """Start the browser once: that costs as much as a test."""
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def browser(program: Browser) -> AsyncIterator[Browser]:
    """A browser without cookies. All its pages are closed at the end."""
    assert program.contexts == []
    yield program
    for context in program.contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def there(folder: Path, browser: Browser) -> AsyncIterator[Office]:
    """A hub with members, and a browser."""
    async with office(folder, browser) as built:
        yield built

"""Fixtures for tests in a real browser. All tests of a process share one browser, but no cookies and no pages.

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
    """Let all tests of this folder run in the same event loop."""
    for item in items:
        if item.path.is_relative_to(_HERE) and pytest_asyncio.is_async_test(item):
            item.add_marker(pytest.mark.asyncio(loop_scope="session"), append=False)


@pytest_asyncio.fixture(scope="session", loop_scope="session")
async def program() -> AsyncIterator[Browser]:
    """Fixture: a started browser. It is started once, because a start takes as long as a test."""
    async with chromium() as started:
        yield started


@pytest_asyncio.fixture(loop_scope="session")
async def browser(program: Browser) -> AsyncIterator[Browser]:
    """Fixture: the browser, without cookies. All its pages are closed after the test."""
    assert program.contexts == []
    yield program
    for context in program.contexts:
        await context.close()


@pytest_asyncio.fixture(loop_scope="session")
async def there(folder: Path, browser: Browser) -> AsyncIterator[Office]:
    """Fixture: a running hub with members, and a browser."""
    async with office(folder, browser) as built:
        yield built

"""A browser for each test: starting one costs less than sharing one between event loops."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office, chromium, office

# A busy machine draws a page late; only what fails waits that long.
expect.set_options(timeout=15_000)


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[Office]:
    """Give a hub with members, and a browser."""
    async with chromium() as browser, office(folder, browser) as built:
        yield built

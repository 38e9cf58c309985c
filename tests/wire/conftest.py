"""The tests of `wire` run on both event loops."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every async test on both event loops, because these treat socket files differently."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

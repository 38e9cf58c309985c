"""These tests run on both event loops."""

import asyncio
from collections.abc import Callable

import uvloop


def pytest_asyncio_loop_factories() -> dict[str, Callable[[], asyncio.AbstractEventLoop]]:
    """Run every test that awaits on both loops: they differ in what they do with socket files."""
    return {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

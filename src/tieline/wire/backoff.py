"""Backoff: how long a client waits before each attempt to come back to a hub, and when it gives up.

Above: every client that connects again by itself. It refuses to know what an attempt is. Waits double from the first to
the longest. Jitter varies them, so that all clients of a hub that restarts do not return at the same instant.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

_Found = TypeVar("_Found")

_DOUBLINGS_MAX = 32
"""Waits reach any useful maximum long before this many, and floats end far beyond it."""


class Backoff(Struct, frozen=True):
    """The waits of one kind of client."""

    initial_ms: int = 100
    wait_ms_max: int = 30_000
    jitter: float = 0.15
    """The share of a wait by which chance makes it shorter or longer, though never longer than the maximum."""
    attempts_max: int | None = 10
    """Attempts until it gives up; `None` for a client that never does."""

    def wait_ms(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """The wait before an attempt, the first being 0. `chance` draws from 0 to 1."""
        nominal = min(self.initial_ms << min(attempt, _DOUBLINGS_MAX), self.wait_ms_max)
        return min(nominal * (1 + self.jitter * (2 * chance() - 1)), self.wait_ms_max)

    def wait_seconds(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """The same in seconds."""
        return self.wait_ms(attempt, chance) / 1000

    def is_over(self, attempts: int) -> bool:
        """Whether no attempt follows so many."""
        return self.attempts_max is not None and attempts >= self.attempts_max

    async def retry(self, attempt: Callable[[], Awaitable[_Found]], passes: Callable[[Exception], bool]) -> _Found:
        """Wait and try, until an attempt succeeds.

        Raises the error of an attempt that does not pass by itself, or that was the last one.
        """
        attempts = 0
        while True:
            await asyncio.sleep(self.wait_seconds(attempts))
            attempts += 1
            try:
                return await attempt()
            except Exception as error:
                if self.is_over(attempts) or not passes(error):
                    raise


SESSION_BACKOFF = Backoff(wait_ms_max=5000, attempts_max=None)
"""For a session with the hub: long enough to leave a restarting machine alone, short enough that nobody looks for what
is wrong. Whoever has work waits for the hub for as long as it takes."""

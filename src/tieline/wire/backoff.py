"""Backoff: computes a client's wait before each attempt to reconnect to a hub, and when the client gives up.

Used by: every client that reconnects by itself. This module does not know what an attempt does. Each wait is twice as
long as the wait before it, up to a maximum. Random jitter varies the waits, so that the clients of a restarted hub do
not all reconnect at once.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from typing import TypeVar

from msgspec import Struct

_Found = TypeVar("_Found")

_DOUBLINGS_MAX = 32
"""Most times that a wait is doubled. Every useful `wait_ms_max` is reached with fewer doublings. The limit keeps the
number small enough for a float."""


class Backoff(Struct, frozen=True):
    """Configuration of a client's attempts to reconnect: the waits between attempts, and the number of attempts."""

    initial_ms: int = 100
    wait_ms_max: int = 30_000
    jitter: float = 0.15
    """Random change of a wait, as a fraction of the wait. It makes the wait shorter or longer, but never longer than
    `wait_ms_max`."""
    attempts_max: int | None = 10
    """Attempts before the client gives up. `None` for a client that never gives up."""

    def wait_ms(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """Return the milliseconds to wait before an attempt; the first attempt is 0.

        `chance` returns a random number from 0 to 1.
        """
        nominal = min(self.initial_ms << min(attempt, _DOUBLINGS_MAX), self.wait_ms_max)
        return min(nominal * (1 + self.jitter * (2 * chance() - 1)), self.wait_ms_max)

    def wait_seconds(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """Return the seconds to wait before an attempt; the first attempt is 0.

        `chance` returns a random number from 0 to 1.
        """
        return self.wait_ms(attempt, chance) / 1000

    def is_over(self, attempts: int) -> bool:
        """True if the client gives up after `attempts` failed attempts."""
        return self.attempts_max is not None and attempts >= self.attempts_max

    async def retry(
        self, attempt: Callable[[], Awaitable[_Found]], is_temporary: Callable[[Exception], bool]
    ) -> _Found:
        """Call `attempt` until it succeeds, and return its result. Wait before each call, also before the first.

        `is_temporary` returns true for an error that may go away by itself. Raises the first error for which it returns
        false, or the error of the last attempt.
        """
        attempts = 0
        while True:
            await asyncio.sleep(self.wait_seconds(attempts))
            attempts += 1
            try:
                return await attempt()
            except Exception as error:
                if self.is_over(attempts) or not is_temporary(error):
                    raise


SESSION_BACKOFF = Backoff(wait_ms_max=5000, attempts_max=None)
"""Waits of a client that reconnects to the hub. The waits are long enough not to overload a machine that restarts, and
short enough that a user does not suspect an error. The client never gives up."""

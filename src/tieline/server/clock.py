"""The hub's clock: it follows the system's time, but not at once if the system's time jumps.

Uses: two clocks of the system. The *wall clock* has the date and the time of day; somebody may set it. The *steady
clock* only counts, also while the machine sleeps, so a laptop that was closed causes no jump. While both clocks agree,
the hub's time is the time of the wall clock. When they differ by more than `clock_step_ms`, the wall clock has jumped.
The hub then follows the steady clock, so that the jump deletes and expires nothing. If the wall clock returns to its
old time, the jump has no effect. If the wall clock keeps the new time for `clock_patience_ms`, the hub trusts it and
sets its own time in one step, forwards or backwards.

At the start there is nothing to compare the wall clock with. The hub uses the wall clock, but does not trust it for the
first `clock_patience_ms`. In this time, the hub deletes nothing because of its age. If the wall clock jumps in this
time, the time without trust lasts until the wall clock returns or the hub follows it.

While the hub runs, only such a step can move its time backwards. Message ids contain the hub's time, so they sort in
the order in which messages were accepted, except across such a step. The order of log offsets never changes.
"""

import threading
import time
from collections.abc import Callable

import structlog

from tieline.contract.limits import DEFAULT_LIMITS, Limits

log = structlog.get_logger(__name__)

_DAY_MS = 24 * 3600 * 1000
_LONG_MS = 7 * _DAY_MS
"""Longest usual age of the newest row of the log when the hub starts. If the row is older, the hub was off for a long
time or the clock is wrong. Then the hub logs a warning, so that a person checks the clock."""

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""System id of the steady clock, which also counts while the machine sleeps. If the system has no such clock, this is
the monotonic clock."""


def wall_ms() -> int:
    """Return the milliseconds since 1970, by the system's clock (date and time of day)."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return the milliseconds since some fixed moment, by a clock that only counts and that nobody can set."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class Clock:
    """Clock of a hub. It does not follow jumps of the system's clock at once. Any thread may read it.

    `wall` returns the system's time. `steady` returns the time of a clock that nobody can set.
    """

    def __init__(
        self,
        limits: Limits = DEFAULT_LIMITS,
        wall: Callable[[], int] = wall_ms,
        steady: Callable[[], int] = steady_ms,
    ) -> None:
        self._limits = limits
        self._wall = wall
        self._steady = steady
        self._lock = threading.Lock()
        # `_offset_ms` is the difference between the hub's time and the steady clock. `_last_ms` is the latest time that
        # the hub has returned.
        self._offset_ms = wall() - steady()
        self._last_ms = 0
        # `jump_ms` is the size of the wall clock's jump; 0 while both clocks agree. `_jumped_at_ms` is the steady time
        # of the jump.
        self.jump_ms = 0
        self._jumped_at_ms = 0
        self.jumps = 0
        # Steps of the hub's time since the last `take_step_ms`, added up.
        self._step_ms = 0
        # `_trusted_at_ms` is the steady time from which on the hub trusts the wall clock. `_gap_ms` is the time between
        # the newest row of the log and the start, if it is suspicious.
        self._trusted_at_ms = steady() + limits.clock_patience_ms
        self._gap_ms = 0

    @property
    def patience_minutes(self) -> int:
        """Minutes (rounded up) for which the system's clock must run without a jump before the hub trusts it."""
        return -(-self._limits.clock_patience_ms // 60_000)

    @property
    def doubted(self) -> bool:
        """True while the hub does not trust the system's clock yet, because the hub started a short time ago."""
        with self._lock:
            return self._steady() < self._trusted_at_ms

    @property
    def gap_ms(self) -> int:
        """Milliseconds from the newest row of the log to the start of the hub, if this time was very long or negative.

        Otherwise 0. The value is also 0 as soon as the hub trusts the system's clock.
        """
        return self._gap_ms if self._gap_ms and self.doubted else 0

    def compare_with_log(self, newest_ms: int) -> None:
        """Log a warning if the time at the start is far from `newest_ms`, the time of the newest row of the log.

        In this case, `gap_ms` is the difference.
        """
        gap_ms = self.now_ms() - newest_ms
        if not -self._limits.clock_step_ms <= gap_ms <= _LONG_MS:
            self._gap_ms = gap_ms
            meanwhile = f"nothing is deleted for its age in the first {self.patience_minutes} minutes"
            said = f"the system's clock is far from the newest row of the log; {meanwhile}"
            log.warning(said, days=round(gap_ms / _DAY_MS, 1))

    def now_ms(self) -> int:
        """Return the hub's time in milliseconds since 1970."""
        with self._lock:
            steady = self._steady()
            self._compare(self._wall() - steady - self._offset_ms, steady)
            self._last_ms = max(self._last_ms, steady + self._offset_ms)
            return self._last_ms

    def take_step_ms(self) -> int:
        """Return the milliseconds by which the hub's time was set since the last call; 0 if it was not set.

        A step backwards is negative.
        """
        with self._lock:
            step, self._step_ms = self._step_ms, 0
            return step

    def _compare(self, apart_ms: int, steady: int) -> None:
        """Decide which clock the hub follows: the system's clock or the steady clock.

        `apart_ms` is the difference between the system's clock and the hub's time. `steady` is the time of the steady
        clock.
        """
        if abs(apart_ms) <= self._limits.clock_step_ms:
            # The system makes small corrections all the time.
            self._offset_ms += apart_ms
            if self.jump_ms:
                log.warning("the system's clock has come back; nothing was done because of its jump")
                self.jump_ms = 0
            return
        if not self.jump_ms or abs(apart_ms - self.jump_ms) > self._limits.clock_step_ms:
            self.jumps += 1
            self._jumped_at_ms = steady
            if steady < self._trusted_at_ms:
                self._trusted_at_ms = steady + self._limits.clock_patience_ms
            said = f"the system's clock jumped; the hub follows if that lasts {self.patience_minutes} minutes"
            log.error(said, seconds=apart_ms // 1000)
        self.jump_ms = apart_ms
        if steady - self._jumped_at_ms >= self._limits.clock_patience_ms:
            log.warning("the system's clock stayed where it jumped to; the hub follows", seconds=apart_ms // 1000)
            self._offset_ms += apart_ms
            self._step_ms += apart_ms
            self._last_ms = 0
            self.jump_ms = 0

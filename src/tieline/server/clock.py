"""The hub's clock: the system's time, unless that jumps.

Below: two readings. The wall clock is what people call the time; somebody may set it. The steady clock only counts,
also while the machine sleeps, so a laptop that was closed is no jump. As long as both agree, the hub's time is the wall
clock's. When they part by more than `clock_step_ms`, the wall clock has jumped: the hub goes on by the steady one, so
that nothing is deleted or expired because of it. If the wall clock comes back, nothing has happened. If it stays where
it is for `clock_patience_ms`, it is believed: the hub's time is set to it in one step, which may lead backwards.

At the start there is nothing to compare the wall clock with, so it is gone by but doubted for `clock_patience_ms`:
meanwhile nothing is deleted for its age. If it jumps in that time, it is doubted until the jump is over or followed.

Within a run time does not go backwards but for such a step. Message ids carry the hub's time, so they sort as messages
were accepted, but for such a step. Offsets of the log are the order that nothing changes.
"""

import threading
import time
from collections.abc import Callable

import structlog

from tieline.contract.limits import DEFAULT_LIMITS, Limits

log = structlog.get_logger(__name__)

_DAY_MS = 24 * 3600 * 1000
_LONG_MS = 7 * _DAY_MS
"""A hub that wrote nothing for longer than this was off for long, or the clock is wrong: a person should look."""

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""Where the system has it, the clock that counts while the machine sleeps too."""


def wall_ms() -> int:
    """Milliseconds since the epoch, as the system says."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Milliseconds since some moment, never set by anybody."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class Clock:
    """The hub's time. Any thread may read it."""

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
        # The hub's time is the steady clock and this, and was never more than the last.
        self._offset_ms = wall() - steady()
        self._last_ms = 0
        # How far the wall clock is off, and since when by the steady one; 0 while both agree.
        self.jump_ms = 0
        self._jumped_at_ms = 0
        self.jumps = 0
        # How far the hub's time was set since somebody asked.
        self._step_ms = 0
        # When doubt ends, by the steady clock; and how far the time at the start was from the newest row, if far.
        self._trusted_at_ms = steady() + limits.clock_patience_ms
        self._gap_ms = 0

    @property
    def patience_minutes(self) -> int:
        """How long a clock must stay as it is before it is believed, in minutes, rounded up."""
        return -(-self._limits.clock_patience_ms // 60_000)

    @property
    def doubted(self) -> bool:
        """Whether the time may have been wrong since the start."""
        with self._lock:
            return self._steady() < self._trusted_at_ms

    @property
    def gap_ms(self) -> int:
        """How far the time at the start was from the newest row, if that was far and the clock is still doubted."""
        return self._gap_ms if self._gap_ms and self.doubted else 0

    def compare_with_log(self, newest_ms: int) -> None:
        """Say so if the time at the start is far from that of the newest row of the log."""
        gap_ms = self.now_ms() - newest_ms
        if not -self._limits.clock_step_ms <= gap_ms <= _LONG_MS:
            self._gap_ms = gap_ms
            meanwhile = f"nothing is deleted for its age in the first {self.patience_minutes} minutes"
            said = f"the system's clock is far from the newest row of the log; {meanwhile}"
            log.warning(said, days=round(gap_ms / _DAY_MS, 1))

    def now_ms(self) -> int:
        """Milliseconds since the epoch."""
        with self._lock:
            steady = self._steady()
            self._compare(self._wall() - steady - self._offset_ms, steady)
            self._last_ms = max(self._last_ms, steady + self._offset_ms)
            return self._last_ms

    def take_step_ms(self) -> int:
        """How far the hub's time was set in one step since this was last asked."""
        with self._lock:
            step, self._step_ms = self._step_ms, 0
            return step

    def _compare(self, apart_ms: int, steady: int) -> None:
        """Decide which clock to go by, when the wall clock is this far from where it should be."""
        if abs(apart_ms) <= self._limits.clock_step_ms:
            # Small corrections, as the system makes them all the time.
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

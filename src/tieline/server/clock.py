"""The hub's clock: the system's time, unless that jumps.

Below: two readings. The wall clock is what people call the time; somebody may set it. The steady clock only counts,
also while the machine sleeps, so a laptop that was closed causes no jump. While both clocks agree, the hub's time is
the wall clock's. When they differ by more than `clock_step_ms`, the wall clock has jumped. The hub then follows the
steady clock, so that the jump deletes and expires nothing. If the wall clock comes back, nothing has happened. If the
wall clock stays there for `clock_patience_ms`, the hub trusts it and sets its own time in one step, which may go back.

At the start there is nothing to compare the wall clock with. The hub uses the wall clock but doubts it for
`clock_patience_ms`. Meanwhile the hub deletes nothing for its age. If the wall clock jumps in that time, the doubt
lasts until the jump is over or followed.

Within a run, only such a step can move time backwards. Message ids carry the hub's time, so they sort in the order of
acceptance, except across such a step. The order of log offsets never changes.
"""

import threading
import time
from collections.abc import Callable

import structlog

from tieline.contract.limits import DEFAULT_LIMITS, Limits

log = structlog.get_logger(__name__)

_DAY_MS = 24 * 3600 * 1000
_LONG_MS = 7 * _DAY_MS
"""If the hub wrote nothing for longer than this, it was off for long or the clock is wrong: a person should look."""

_STEADY = getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC)
"""The clock that also counts while the machine sleeps; the monotonic clock if the system has no such clock."""


def wall_ms() -> int:
    """Return the milliseconds since the epoch, by the system's clock."""
    return time.time_ns() // 1_000_000


def steady_ms() -> int:
    """Return the milliseconds since some fixed moment, by a clock that nobody can set."""
    return time.clock_gettime_ns(_STEADY) // 1_000_000


class Clock:
    """The clock of a hub, which does not follow jumps of the system's clock at once. Any thread may read it."""

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
        # The hub's time is the steady clock plus this offset; and the latest time that the hub gave out.
        self._offset_ms = wall() - steady()
        self._last_ms = 0
        # Size of the wall clock's jump, and the steady time of the jump; 0 while both clocks agree.
        self.jump_ms = 0
        self._jumped_at_ms = 0
        self.jumps = 0
        # Steps of the hub's time since the last `take_step_ms`, added up.
        self._step_ms = 0
        # Steady time at which the doubt ends; and the gap between the start and the newest row, if it is large.
        self._trusted_at_ms = steady() + limits.clock_patience_ms
        self._gap_ms = 0

    @property
    def patience_minutes(self) -> int:
        """Minutes (rounded up) for which the wall clock must run without a jump before the hub trusts it."""
        return -(-self._limits.clock_patience_ms // 60_000)

    @property
    def doubted(self) -> bool:
        """True while the hub does not trust the wall clock yet, in the first time after the start."""
        with self._lock:
            return self._steady() < self._trusted_at_ms

    @property
    def gap_ms(self) -> int:
        """Time from the newest row of the log to the start of the hub, if it was suspiciously large or negative.

        It is 0 otherwise, and after the hub has begun to trust the wall clock.
        """
        return self._gap_ms if self._gap_ms and self.doubted else 0

    def compare_with_log(self, newest_ms: int) -> None:
        """Log a warning if the time at the start is far from the time of the newest row of the log."""
        gap_ms = self.now_ms() - newest_ms
        if not -self._limits.clock_step_ms <= gap_ms <= _LONG_MS:
            self._gap_ms = gap_ms
            meanwhile = f"nothing is deleted for its age in the first {self.patience_minutes} minutes"
            said = f"the system's clock is far from the newest row of the log; {meanwhile}"
            log.warning(said, days=round(gap_ms / _DAY_MS, 1))

    def now_ms(self) -> int:
        """Return the hub's time in milliseconds since the epoch."""
        with self._lock:
            steady = self._steady()
            self._compare(self._wall() - steady - self._offset_ms, steady)
            self._last_ms = max(self._last_ms, steady + self._offset_ms)
            return self._last_ms

    def take_step_ms(self) -> int:
        """Return by how much the hub's time was set forwards or backwards since the last call, added up."""
        with self._lock:
            step, self._step_ms = self._step_ms, 0
            return step

    def _compare(self, apart_ms: int, steady: int) -> None:
        """Decide which clock to follow.

        The wall clock differs from the hub's time by `apart_ms`; `steady` is the steady clock.
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

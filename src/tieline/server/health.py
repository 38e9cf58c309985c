"""The hub's health: the current failures and their duration, for `/healthz`, `/metrics`, `doctor` and the log.

Used by: code on the event loop that shows the health. Uses: threads that write to a store and report each success and
failure. A fault that lasts causes only two lines in the log, one when it begins and one when it ends.
"""

import time

import structlog
from msgspec import Struct

from tieline.core.outcome import Fault
from tieline.core.store import DamagedError
from tieline.server.clock import Clock

log = structlog.get_logger(__name__)

_CALM_SECONDS = 2.0
"""Seconds without a failure after which a store counts as healthy again. One success is not enough, because a nearly
full disk accepts small writes but no large ones."""
_PATIENCE = 3
"""Number of failures in a row after which the hub stops writing for a while. After fewer failures, the hub tries again
at once, because the cause may be gone."""
_REST_SECONDS = 0.5
"""Seconds for which the hub stops writing after `_PATIENCE` failures in a row. Without this pause, the hub would spend
its time on rolling back failed writes."""
_FAULT_SECONDS = 60.0
"""Seconds in which all faults of one kind cause only one line in the log."""
_KINDS_MAX = 1000  # bounds the memory; past it, all kinds are forgotten and logged again


class Problem(Struct, frozen=True):
    """Description of a current failure of a part of the hub, with the reason and with advice for a person."""

    what: str
    reason: str
    do: str
    """Advice for a person who wants to repair the failure."""
    severe: bool
    """True if the hub cannot do a part of its work for members now. False if the hub works, but a person should look at
    the problem."""


class Writing:
    """State of the writing to one store: successes and failures. Only the thread that writes may call its methods."""

    def __init__(self, what: str, *, severe: bool) -> None:
        self.what = what
        self.severe = severe
        # Reason of the current or latest failure; empty while all is well.
        self.reason = ""
        self.do = ""
        # Number of failures since the start.
        self.failures = 0
        # The current trouble: time of its beginning, time of the last failure, and number of failures.
        self._since = 0.0
        self._last = 0.0
        self._count = 0
        # Failures since the last success.
        self._in_a_row = 0

    @property
    def rest_seconds(self) -> float:
        """Seconds for which the hub should write nothing to the store, after repeated failures; 0 if it may write."""
        if self._in_a_row < _PATIENCE:
            return 0.0
        return max(0.0, self._last + _REST_SECONDS - time.monotonic())

    def failed(self, reason: str, do: str = "") -> None:
        """Record that a write to the store failed. `do` is advice for a person."""
        now = time.monotonic()
        if not self.reason:
            log.error("writing fails; what cannot be kept is refused", what=self.what, reason=reason)
            self._since, self._count = now, 0
        self.reason, self.do = reason, do
        self._last = now
        self._count += 1
        self._in_a_row += 1
        self.failures += 1

    def succeeded(self) -> None:
        """Record that a write to the store succeeded.

        After some time without failures, the store counts as healthy again.
        """
        self._in_a_row = 0
        now = time.monotonic()
        if self.reason and now - self._last >= _CALM_SECONDS:
            seconds = round(now - self._since, 1)
            log.warning("writing works again", what=self.what, failures=self._count, seconds=seconds)
            self.reason = ""


class Health:
    """State of a running hub: failures of its stores, jumps of its clock, and the number of failed commands."""

    def __init__(self) -> None:
        self.store = Writing("the message store", severe=True)
        # Moving the write-ahead log into the database.
        self.checkpoint = Writing("the message store's checkpoint", severe=False)
        self.activity = Writing("the activity log", severe=True)
        self.search = Writing("the search index", severe=False)
        # The reason why another hub of the team may lead by now; empty if this hub leads, or is alone.
        self.lease = ""
        # Damaged stores, each with its error.
        self._damage: dict[str, DamagedError] = {}
        self.clock: Clock | None = None
        # Commands and chores that raised.
        self.faults = 0
        # For each kind of fault: the time of its last line in the log, and the number of faults since then.
        self._logged: dict[tuple[str, str], tuple[float, int]] = {}

    @property
    def problems(self) -> list[Problem]:
        """List of all current failures of the hub; empty if there are none."""
        writers = (self.store, self.checkpoint, self.activity, self.search)
        failing = [Problem(one.what, one.reason, one.do, one.severe) for one in writers if one.reason]
        if self.lease:
            do = "look at the database; another hub of the team may lead: tieline cluster status"
            failing.append(Problem("the lease", self.lease, do, severe=True))
        if self.clock is not None and self.clock.jump_ms:
            reason = f"the system's clock jumped by {self.clock.jump_ms // 1000} s; the hub does not follow it yet"
            minutes = self.clock.patience_minutes
            do = f"set it right (timedatectl); if it is right now, the hub follows within {minutes} minutes"
            failing.append(Problem("the clock", reason, do, severe=False))
        elif self.clock is not None and self.clock.gap_ms:
            hours = self.clock.gap_ms // 3_600_000
            than = f"{hours} h later" if hours > 0 else "earlier"
            reason = f"at the start it was {than} than the newest row of the log; nothing is deleted for its age yet"
            do = f"look at it (date); if it is right, this ends {self.clock.patience_minutes} minutes after the start"
            failing.append(Problem("the clock", reason, do, severe=False))
        return failing + [Problem(what, str(error), error.hint, severe=True) for what, error in self._damage.items()]

    def watch(self, clock: Clock) -> None:
        """Watch the hub's clock. From now on, `problems` also reports jumps of the clock."""
        self.clock = clock

    def damaged(self, what: str, error: DamagedError) -> None:
        """Record that the store `what` is damaged: it could not be read.

        This problem stays until the hub stops, because the extent of the damage is unknown.
        """
        if what not in self._damage:
            log.error("a database is damaged", what=what, reason=str(error), do=error.hint)
            self._damage = {**self._damage, what: error}

    def fault(self, fault: Fault) -> None:
        """Record that a command or background work raised an exception and was rolled back.

        Log the exception, but each kind of fault only once a minute.
        """
        self.faults += 1
        if isinstance(fault.error, DamagedError):
            self.damaged(self.store.what, fault.error)
            return
        kind, now = (fault.what, type(fault.error).__name__), time.monotonic()
        at, since = self._logged.get(kind, (-_FAULT_SECONDS, 0))
        if now - at < _FAULT_SECONDS:
            self._logged[kind] = (at, since + 1)
            return
        if len(self._logged) >= _KINDS_MAX:
            self._logged.clear()
        self._logged[kind] = (now, 0)
        log.error("a command failed and was taken back", what=fault.what, more_before=since, exc_info=fault.error)

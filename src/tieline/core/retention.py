"""Retention: deletes old settled messages, a few at a time, so that the writer never stalls."""

from collections.abc import Callable

from tieline.contract.delivery import State
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Directory

_PASS_MS = 60 * 60 * 1000
"""Time between two passes. One pass an hour is enough, because retention is counted in days."""
_BATCH = 500
"""Largest number of messages checked or deleted in one transaction: a few milliseconds."""


class Retention:
    """The state of the current pass."""

    __slots__ = (
        "_batch",
        "_before_ms",
        "_clock_and_ids",
        "_keep",
        "_limits",
        "_next_pass_ms",
        "_snapshot",
        "_start",
        "_store",
    )

    def __init__(self, batch: Batch, snapshot: Callable[[], None]) -> None:
        self._limits = batch.limits
        self._batch = batch
        self._clock_and_ids = batch.clock_and_ids
        self._store = batch.store
        # Saves a snapshot of all members at the end of the log.
        self._snapshot = snapshot
        self._next_pass_ms = 0
        # Offsets that the running pass must keep (`None` between passes), and its time limit: older messages go.
        self._keep: frozenset[int] | None = None
        self._before_ms = 0
        # The offset from which the running pass continues.
        self._start = 0

    def start_over(self) -> None:
        """Begin a new pass. After a rollback, deliveries that were settled when the pass began may be unsettled."""
        if self._keep is not None:
            self._keep = None
            self._next_pass_ms = 0

    def work(self, directory: Directory, deliveries: Deliveries) -> None:
        """Do one step of a pass, if a pass is running or due."""
        batch, accounts = self._batch, directory.accounts.values()
        if self._keep is None:
            if batch.now_ms < self._next_pass_ms or self._clock_and_ids.doubts_time():
                return
            self._next_pass_ms = batch.now_ms + _PASS_MS
            # A replay reads messages after the last snapshot. So make a snapshot before messages are deleted.
            batch.write_moves()
            self._snapshot()
            batch.dirty = True
            self._before_ms = batch.now_ms - self._limits.retention_ms
            self._start = 0
            self._keep = frozenset(offset for account in accounts for offset in account.inbox.awaited_offsets())
        pruned, following = self._store.prune(self._start, self._before_ms, self._keep, _BATCH)
        if pruned:
            batch.dirty = True
            for account in accounts:
                ackless = account.inbox.ackless_until(pruned[-1])
                deliveries.move(account, ackless, State.EXPIRED, evidence="kept as long as retention says")
        if following is None:
            self._keep = None
        else:
            self._start = following

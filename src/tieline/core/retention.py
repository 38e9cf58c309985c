"""Retention: deletes old messages that nobody must acknowledge any more. It deletes a few at a time, so nothing waits.

Messages that a reader of the log has not read are kept longer; see `core.readers`. The space that becomes free is given
back to the file system while the hub is idle.
"""

from collections.abc import Callable

from tieline.contract.delivery import State
from tieline.core.batch import Batch
from tieline.core.deliveries import Deliveries
from tieline.core.directory import Directory
from tieline.core.hub_messages import HubMessages
from tieline.core.readers import Readers

_PASS_MS = 60 * 60 * 1000
"""Time between two passes over all messages. One an hour is enough, because retention is counted in days."""
_BATCH = 500
"""Largest number of messages checked or deleted in one transaction, which takes a few milliseconds."""


class Retention:
    """Deletes old messages in passes over the store, and keeps the state of the current pass."""

    __slots__ = (
        "_batch",
        "_begun_ms",
        "_clock_and_ids",
        "_end",
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
        # Offsets that the running pass must keep (`None` between passes), and the time when it began.
        self._keep: frozenset[int] | None = None
        self._begun_ms = 0
        # The end of the log at the last call. If it is the same at the next call, the hub is idle.
        self._end = -1
        # The offset from which the running pass continues.
        self._start = 0

    def start_over(self) -> None:
        """Stop the running pass over the messages, and begin a new one soon.

        Call this after a rollback, because the hub may then still need messages that the pass would delete.
        """
        if self._keep is not None:
            self._keep = None
            self._next_pass_ms = 0

    def work(self, directory: Directory, deliveries: Deliveries, readers: Readers, hub_messages: HubMessages) -> None:
        """Check the next few messages and delete the old messages among them, if a pass is running or due."""
        batch, accounts = self._batch, directory.accounts.values()
        if self._keep is None:
            if batch.now_ms < self._next_pass_ms or self._clock_and_ids.doubts_time():
                self._free_space()
                return
            self._next_pass_ms = batch.now_ms + _PASS_MS
            # A replay reads messages after the last snapshot. So make a snapshot before messages are deleted.
            batch.write_moves()
            self._snapshot()
            batch.dirty = True
            hub_messages.late_readers(readers.late(batch.now_ms))
            self._begun_ms = batch.now_ms
            self._start = 0
            self._keep = frozenset(offset for account in accounts for offset in account.inbox.awaited_offsets())
        # Readers may come or move while a pass is running.
        cutoff = readers.cutoff(self._begun_ms)
        pruned, following = self._store.prune(self._start, cutoff, self._keep, _BATCH)
        if pruned:
            batch.dirty = True
            readers.passed(pruned)
            for account in accounts:
                ackless = account.inbox.ackless_until(pruned[-1])
                deliveries.move(account, ackless, State.EXPIRED, evidence="kept as long as retention says")
        if following is None:
            self._keep = None
        else:
            self._start = following

    def _free_space(self) -> None:
        """Return some free space to the file system, if nothing was written since the last call."""
        end, self._end = self._end, self._batch.ledger.end
        if end == self._end and self._store.readers.free_space():
            self._batch.dirty = True

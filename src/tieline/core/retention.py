"""Retention: settled messages are forgotten after a while, a few at a time, so that the writer never stalls."""

from typing import TYPE_CHECKING

from tieline.contract.delivery import State
from tieline.contract.limits import Limits

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_PASS_MS = 60 * 60 * 1000
"""A pass an hour: retention is counted in days."""
_BATCH = 500
"""Messages looked at in one transaction, and forgotten at most: a few milliseconds."""


class Retention:
    """The state of the current pass."""

    __slots__ = ("_before_ms", "_keep", "_limits", "_next_pass_ms", "_start")

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._next_pass_ms = 0
        # Offsets that the running pass must not touch, and the time before which it may; `None` between passes.
        self._keep: frozenset[int] | None = None
        self._before_ms = 0
        # The offset that it goes on from.
        self._start = 0

    def start_over(self) -> None:
        """What was settled when the running pass began may not be any more: begin another."""
        if self._keep is not None:
            self._keep = None
            self._next_pass_ms = 0

    def work(self, broker: "Broker") -> None:
        """Do a little, if it is time."""
        accounts = broker.directory.accounts.values()
        if self._keep is None:
            if broker.now_ms < self._next_pass_ms or broker.nature.doubts_time():
                return
            self._next_pass_ms = broker.now_ms + _PASS_MS
            # A replay reads messages from the last snapshot on, so none of those may be forgotten.
            broker.write_moves()
            broker.snapshot()
            broker.dirty = True
            self._before_ms = broker.now_ms - self._limits.retention_ms
            self._start = 0
            self._keep = frozenset(offset for account in accounts for offset in account.inbox.awaited_offsets())
        pruned, following = broker.store.prune(self._start, self._before_ms, self._keep, _BATCH)
        if pruned:
            broker.dirty = True
            for account in accounts:
                muted = account.inbox.muted_until(pruned[-1])
                broker.move(account, muted, State.EXPIRED, evidence="kept as long as retention says")
        if following is None:
            self._keep = None
        else:
            self._start = following

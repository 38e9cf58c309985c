"""The batch: the commands that the broker handles together, with their time, outcome and uncommitted writes.

Every rule (a method that decides one kind of command) gets the batch, and those parts of memory that the rule works
with. Only `core.memory` commits a batch or rolls it back.
"""

from collections.abc import Callable

from tieline.contract.delivery import State
from tieline.contract.event import Event, Released
from tieline.contract.limits import Limits
from tieline.core.clock_and_ids import ClockAndIds
from tieline.core.ladder import Ladder, Move
from tieline.core.ledger import Ledger
from tieline.core.outcome import Outcome
from tieline.core.store import Grant, Store

Work = Move | tuple[Event, int] | Grant
"""A change that is committed together with later changes, because no client waits for its commit.

It is a status change of deliveries (`Move`), an event with its time, or a changed right to resume a session (`Grant`).
"""


class Batch:
    """State that the rules share while they handle a batch of commands: its time, outcome and uncommitted writes.

    A broker uses this one object for all its batches.
    """

    __slots__ = (
        "changed",
        "clock_and_ids",
        "dirty",
        "ladder",
        "lazy",
        "ledger",
        "limits",
        "now_ms",
        "outcome",
        "store",
        "undo",
    )

    def __init__(self, store: Store, clock_and_ids: ClockAndIds, limits: Limits) -> None:
        self.store = store
        self.clock_and_ids = clock_and_ids
        self.limits = limits
        # Time of the batch being handled.
        self.now_ms = 0
        # Undo steps for changes to state that is only in memory. The newest step is the last.
        self.undo: list[Callable[[], object]] = []
        # Work of this batch that no client waits for.
        self.lazy: list[Work] = []
        self.start_over(Ledger())

    def start_over(self, ledger: Ledger) -> None:
        """Forget the outcome and the collected status changes, for example after a rollback.

        `ledger` is the end of the committed log.
        """
        self.ledger = ledger
        self.ladder = Ladder()
        self.outcome = Outcome()
        # True if there are writes to commit.
        self.dirty = False
        # True if the command being decided has begun to change stored state.
        self.changed = False

    def record(self, event: Event, *, urgent: bool = True) -> None:
        """Append an event to the main log. Do not use this for events of messages, deliveries or objectives.

        With `urgent`, a client waits for the commit of the event. Otherwise the commit may wait for later batches.
        """
        self.changed = self.dirty = True
        self.store.record(self.ledger.append(event, self.now_ms))
        if urgent:
            self.outcome.urgent = True
        else:
            self.lazy.append((event, self.now_ms))

    def keep_grant(self, grant: Grant) -> None:
        """Store a changed grant (the right to resume a session). No client waits for the commit."""
        self.changed = self.dirty = True
        self.store.save_grant(grant)
        self.lazy.append(grant)

    def write_moves(self) -> None:
        """Write the collected status changes of deliveries to the log and the store."""
        if self.ladder:
            self.changed = True
        for move in self.ladder.take():
            row = self.ledger.append(move.event(), move.step.at_ms)
            if move.kind is Released:
                self.store.record(row)
            else:
                self.store.advance(row, move.account.number, move.step.state, move.ranges)
            # Holds and releases are published only after their commit, so no rollback needs to apply them again.
            if move.step.state is not State.PENDING:
                self.lazy.append(move)

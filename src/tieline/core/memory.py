"""The broker's memory: loaded from the store, committed to the store, and rolled back when something fails.

A rollback treats three kinds of state differently. Stored state is read from the store again. State that is only in
memory (sessions, followed messages, escalation times) is kept, but the changes of the failed batch are undone one by
one. Changes that were *published*, that is, told to clients before the commit (offers, acknowledgements), are applied
again, because no client will report them twice. So no session ends when a commit fails, or when a command
raises half-way.
"""

import heapq

from tieline.contract.delivery import State
from tieline.contract.limits import Limits
from tieline.core import team
from tieline.core.batch import Batch, Work
from tieline.core.channels import Channels
from tieline.core.clock_and_ids import ClockAndIds
from tieline.core.dead_letters import DeadLetters
from tieline.core.directory import Directory
from tieline.core.escalation import Escalation
from tieline.core.expiry import Deadline
from tieline.core.external_inboxes import ExternalInboxes
from tieline.core.followers import Followers
from tieline.core.holds import Holds
from tieline.core.ladder import Move
from tieline.core.ledger import Ledger
from tieline.core.loops import Loops
from tieline.core.objectives import Objectives
from tieline.core.outcome import Fault
from tieline.core.readers import Readers
from tieline.core.refusals import Refusals
from tieline.core.resumption import Resumption
from tieline.core.retention import Retention
from tieline.core.store import MAIN, Grant, MovedReplay, SentReplay, Store, StoredState
from tieline.core.streams import stream_name

_REPLAY_ROWS = 2000
"""After a rollback, the next snapshot comes after this many log rows. Their replay takes a few milliseconds."""


class Memory:
    """The whole state of a broker in memory (members, inboxes, sessions, holds…), loaded from one store."""

    def __init__(self, store: Store, clock_and_ids: ClockAndIds, limits: Limits) -> None:
        self.store = store
        self.clock_and_ids = clock_and_ids
        self.limits = limits
        self.batch = Batch(store, clock_and_ids, limits)
        # Faults for which no command can be refused. The caller of the broker takes them from here.
        self.faults: list[Fault] = []
        self.external_inboxes = ExternalInboxes(self.batch)
        self.restore()

    @property
    def ledger(self) -> Ledger:
        """The end of the main log: the next offset and the last hash."""
        return self.batch.ledger

    @property
    def dirty(self) -> bool:
        """True if there are writes to commit."""
        return self.batch.dirty

    def restore(self) -> None:
        """Load the committed state from the store. Drop open sessions and uncommitted changes."""
        batch, limits = self.batch, self.limits
        batch.undo.clear()
        batch.lazy.clear()
        self.loops = Loops(limits, batch.undo)
        self.refusals = Refusals(batch)
        self.retention = self._new_retention()
        self.followers = Followers(batch)
        # Changes that were published but are not committed. A rollback applies them again.
        self._published: list[Work] = []
        self.external_inboxes.start_over()
        self.faults.clear()
        self._load(None, None)

    def roll_back(self) -> None:
        """Undo all changes that were neither committed nor published (told to clients).

        Sessions, and other state that is only in memory, are kept. If this method raises, this object cannot be used
        any more.
        """
        batch = self.batch
        for take_back in reversed(batch.undo):
            take_back()
        batch.undo.clear()
        self.external_inboxes.roll_back()
        directory, end = self.directory, batch.ledger.end
        self._load(self.escalation, self.holds)
        self.directory.carry_over(directory)
        self.loops.take_back(range(batch.ledger.end, end))
        self.retention.start_over()
        for work in self._published:
            self._do_again(work)
        batch.write_moves()
        batch.lazy.clear()
        # A failure may happen again. An early snapshot makes the next rollback shorter.
        self._snapshot_rows = _REPLAY_ROWS

    def _new_retention(self) -> Retention:
        return Retention(self.batch, self.snapshot)

    def _load(self, escalation: Escalation | None, holds: Holds | None) -> None:
        """Load the state from the store.

        In a rollback, `escalation` and `holds` are the objects from before the rollback. The new state keeps their
        waiting times.
        """
        stored_state = self.store.restore()
        assert stored_state.snapshot_end <= stored_state.log_end, "a snapshot of what was never committed"
        batch, limits = self.batch, self.limits
        batch.start_over(Ledger(stored_state.log_end, stored_state.log_head))
        directory = self.directory = Directory(stored_state, team.restore_team(stored_state))
        # Small stored values by key.
        self.settings = stored_state.settings
        self.dead_letters = DeadLetters(stored_state.settings)
        self.resumption = Resumption(stored_state.grants)
        self.channels = Channels(stored_state, directory)
        self.objectives = Objectives(stored_state, self.store)
        self.readers = Readers(MAIN, self.store.readers, limits, limits.retention_ms)
        # The log offset of the last snapshot, and the number of rows until the next snapshot.
        self._snapshot_end = stored_state.snapshot_end
        self._snapshot_rows = limits.snapshot_rows
        self._replay(stored_state)
        self.deadlines = self._read_deadlines()
        self.escalation: Escalation = Escalation(batch, directory, self.followers)
        self.holds: Holds = Holds(batch, directory, self.loops, self.escalation, self.external_inboxes.sessions)
        self.holds.restore(stored_state.settings, holds)
        self.escalation.restore(stored_state.settings, self.clock_and_ids.now_ms(), escalation)

    def _replay(self, stored_state: StoredState) -> None:
        """Apply the log rows since the last snapshot to the inboxes and streams."""
        for event in self.store.replay(stored_state.snapshot_end):
            match event:
                case SentReplay():
                    self._replay_sent(event)
                case MovedReplay():
                    account = self.directory.accounts.get(event.number)
                    if account is not None:
                        account.changed = True
                        for first, last in event.ranges:
                            if event.state is State.PENDING:
                                account.inbox.hold(first, last, held=event.held)
                            else:
                                account.inbox.move(first, last, event.state, ackless=event.ackless)

    def _read_deadlines(self) -> list[Deadline]:
        """Return the deadlines of all deliveries that can still expire, as a heap."""
        accounts = self.directory.accounts
        deadlines: list[Deadline] = [
            (deadline_ms, number, key)
            for deadline_ms, route in self.store.expiring()
            for number, key in zip(route.numbers, route.keys, strict=True)
            if number in accounts and accounts[number].inbox.entry(key) is not None
        ]
        heapq.heapify(deadlines)
        return deadlines

    def _do_again(self, work: Work) -> None:
        """Apply a change again after a rollback.

        Clients were told of the change before its commit (it was published), so the change must not be lost.
        """
        batch = self.batch
        batch.dirty = True
        match work:
            case Move():
                account = self.directory.accounts.get(work.account.number)
                if account is not None:
                    account.changed = True
                    if work.step.state is State.DEAD:
                        self.dead_letters.note(account, work.ranges, work.step)
                    for first, last in work.ranges:
                        done = account.inbox.move(first, last, work.step.state, ackless=work.ackless)
                        batch.ladder.note(account, done, work.step, work.kind, ackless=work.ackless)
            case Grant():
                self.resumption.keep(work)
                self.store.save_grant(work)
            case (event, at_ms):
                batch.write_moves()
                self.store.record(batch.ledger.append(event, at_ms))

    def _replay_sent(self, event: SentReplay) -> None:
        stream = stream_name(event.sender, event.topic)
        route = event.route
        for number, key, stream_seq in zip(route.numbers, route.keys, route.stream_seqs, strict=True):
            account = self.directory.accounts.get(number)
            if account is None:
                continue
            given = account.inbox.append(event.offset, stream_seq)
            assert given == key, f"the log gives {account.member.name} key {key} where its inbox is at {given}"
            account.streams[stream] = stream_seq
            account.changed = True

    def commit(self) -> None:
        """Write all changes since the last commit durably to the store."""
        batch = self.batch
        batch.write_moves()
        self.holds.save(self.store)
        self.dead_letters.save(self.store)
        if batch.ledger.end - self._snapshot_end >= self._snapshot_rows:
            self.snapshot()
        self.store.commit()
        self.holds.committed()
        self.dead_letters.committed()
        batch.dirty = False
        batch.undo.clear()
        batch.lazy.clear()
        self._published.clear()
        self.external_inboxes.commit()

    def mark_published(self) -> None:
        """Make rollbacks keep the changes so far, though they are not committed.

        Call this before you publish their outcome, that is, tell clients about it.
        """
        batch = self.batch
        batch.write_moves()
        batch.undo.clear()
        self._published += batch.lazy
        batch.lazy.clear()
        self.external_inboxes.mark_published()

    def close(self) -> None:
        """Commit the remaining writes with a snapshot, so that the next start replays nothing. Then close the store."""
        self.refusals.finish()
        self.batch.write_moves()
        self.holds.save(self.store)
        self.dead_letters.save(self.store)
        self.snapshot()
        self.store.commit()
        self.store.close()

    def snapshot(self) -> None:
        """Save the inboxes and streams of all changed members, so that a start need not replay the log up to now."""
        batch = self.batch
        assert not batch.ladder, "moves that are not in the log yet would be in the snapshot and replayed on top of it"
        changed = [account for account in self.directory.accounts.values() if account.changed]
        self.store.save_snapshot([account.image() for account in changed], batch.ledger.end)
        for account in changed:
            account.changed = False
        self._snapshot_end = batch.ledger.end
        self._snapshot_rows = self.limits.snapshot_rows

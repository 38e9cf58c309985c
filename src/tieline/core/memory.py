"""The broker's memory: read from the store, made durable in it, and brought back to it when something fails.

Three kinds of memory have three ways back. What the store keeps is read from it again. What is in memory alone
(sessions, who follows what, the times of escalation) is carried over, after the changes of the batch were taken
back one by one. What was decided and published and is not committed yet (offers, acknowledgements) is *owed*: it is
done again, because nobody will say it twice. So a failed commit, or a command that raises half-way, ends no session.
"""

import heapq
from collections.abc import Callable
from typing import TYPE_CHECKING, cast

from tieline.contract.delivery import State
from tieline.contract.event import Event, Released
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.limits import Limits
from tieline.core import channels, objectives, team
from tieline.core.directory import Directory
from tieline.core.escalation import Escalation
from tieline.core.holds import Holds
from tieline.core.ladder import Ladder, Move
from tieline.core.ledger import Ledger
from tieline.core.loops import Loops
from tieline.core.nature import Nature
from tieline.core.outcome import Fault, Followed, Outcome
from tieline.core.refusals import Refusals
from tieline.core.resumption import Resumption
from tieline.core.retention import Retention
from tieline.core.store import Foundation, Grant, MovedReplay, SentReplay, Store
from tieline.core.streams import stream_name

if TYPE_CHECKING:
    from tieline.core.broker import Broker

_REPLAY_ROWS = 2000
"""Log rows that a rollback may replay, once there was one: a few milliseconds."""

_Work = Move | tuple[Event, int] | Grant
"""What a batch did that nobody waits for: moves, events with their times, changed rights to take up a session."""


class Memory:
    """All that a broker knows, over one store."""

    def __init__(self, store: Store, nature: Nature, limits: Limits) -> None:
        self.store = store
        self.nature = nature
        self.limits = limits
        # The sessions of those who hold deliveries outside as well, by the name of their member; see `core.custody`.
        self.custodians: dict[MemberName, SessionId] = {}
        # Their answers for the commands that are being decided.
        self.answers: dict[tuple[MemberName, int], bool | None] = {}
        # Time of the batch being handled.
        self.now_ms = 0
        self.restore()

    def restore(self) -> None:
        """Start from what is committed; open sessions and anything not committed are forgotten."""
        # Take back what this batch changed of what is in memory alone, the newest first.
        self.undo: list[Callable[[], object]] = []
        self.loops = Loops(self.limits, self.undo)
        self.holds = Holds()
        self.refusals = Refusals(self.limits)
        self.retention = Retention(self.limits)
        # Messages that sessions follow, by their log offset.
        self.followers: dict[int, Followed] = {}
        # What this batch did that nobody waits for.
        self._lazy: list[_Work] = []
        # The same of batches that were published and are not committed yet.
        self._owed: list[_Work] = []
        # Deliveries won from a custodian since the last commit, as (member, key); and how many of them are owed.
        self.won: list[tuple[MemberName, int]] = []
        self._won_owed = 0
        # What they won and is settled, durably; whoever drives the broker tells them.
        self.finished: list[tuple[MemberName, int]] = []
        # What went wrong where no command can be refused for it; whoever drives the broker takes it from here.
        self.faults: list[Fault] = []
        foundation = self._load()
        self.escalation = Escalation()
        self.escalation.restore(cast("Broker", self), foundation.settings)

    def roll_back(self) -> None:
        """Go back to what is committed or owed. Sessions stay open, and what is in memory alone stays as it was.

        If this raises, memory is not to be trusted any more.
        """
        for take_back in reversed(self.undo):
            take_back()
        self.undo.clear()
        del self.won[self._won_owed :]
        directory, escalation, end = self.directory, self.escalation, self.ledger.end
        foundation = self._load()
        self.directory.carry_over(directory)
        self.escalation = Escalation()
        self.escalation.restore(cast("Broker", self), foundation.settings, escalation)
        self.loops.take_back(range(self.ledger.end, end))
        self.retention.start_over()
        for work in self._owed:
            self._do_again(work)
        self.write_moves()
        self._lazy.clear()
        # What failed once may fail again: the next rollback need not replay all this.
        self._snapshot_rows = _REPLAY_ROWS

    def _load(self) -> Foundation:
        """Read what the store keeps."""
        foundation = self.store.restore()
        assert foundation.snapshot_end <= foundation.log_end, "a snapshot of what was never committed"
        self.directory = Directory(foundation)
        self.ledger = Ledger(foundation.log_end, foundation.log_head)
        self.resumption = Resumption(foundation.grants)
        self.team = team.restore_team(foundation)
        self.channels = channels.Channels(foundation, self.directory)
        self.objectives = objectives.Objectives(foundation, self.store)
        self.ladder = Ladder()
        self.outcome = Outcome()
        # The log offset of the last snapshot, and after how many rows the next is made.
        self._snapshot_end = foundation.snapshot_end
        self._snapshot_rows = self.limits.snapshot_rows
        # Whether anything waits for a commit.
        self.dirty = False
        # Whether the command being decided has begun to change what the store keeps.
        self.changed = False
        for event in self.store.replay(foundation.snapshot_end):
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
                                account.inbox.move(first, last, event.state, mute=event.mute)
        # (deadline, member number, key) of every delivery that can expire.
        self.deadlines: list[tuple[int, int, int]] = [
            (deadline_ms, number, key)
            for deadline_ms, route in self.store.expiring()
            for number, key in zip(route.numbers, route.keys, strict=True)
            if number in self.directory.accounts and self.directory.accounts[number].inbox.entry(key) is not None
        ]
        heapq.heapify(self.deadlines)
        before, self.holds = self.holds, Holds()
        self.holds.restore(cast("Broker", self), foundation.settings, before)
        return foundation

    def _do_again(self, work: _Work) -> None:
        """Do again what is owed."""
        self.dirty = True
        match work:
            case Move():
                account = self.directory.accounts.get(work.account.number)
                if account is not None:
                    account.changed = True
                    for first, last in work.ranges:
                        done = account.inbox.move(first, last, work.step.state, mute=work.mute)
                        self.ladder.note(account, done, work.step, work.kind, mute=work.mute)
            case Grant():
                self.resumption.keep(work)
                self.store.save_grant(work)
            case (event, at_ms):
                self.write_moves()
                self.store.record(self.ledger.append(event, at_ms))

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

    def record(self, event: Event, *, urgent: bool = True) -> None:
        """Put an event that is no message and no move into the log."""
        self.changed = self.dirty = True
        self.store.record(self.ledger.append(event, self.now_ms))
        if urgent:
            self.outcome.urgent = True
        else:
            self._lazy.append((event, self.now_ms))

    def save_grant(self, grant: Grant) -> None:
        """Keep a changed right to take up a session; nobody waits for that."""
        self.changed = self.dirty = True
        self.resumption.keep(grant)
        self.store.save_grant(grant)
        self._lazy.append(grant)

    def commit(self) -> None:
        """Make everything decided so far durable."""
        self.write_moves()
        self.holds.save(self.store)
        if self.ledger.end - self._snapshot_end >= self._snapshot_rows:
            self.snapshot()
        self.store.commit()
        self.holds.committed()
        self.dirty = False
        self.undo.clear()
        self._lazy.clear()
        self._owed.clear()
        self._won_owed = 0
        self.finished += self.won
        self.won.clear()

    def owe(self) -> None:
        """The outcome is published although it is not committed: what was decided so far must outlive a rollback."""
        self.write_moves()
        self.undo.clear()
        self._owed += self._lazy
        self._lazy.clear()
        self._won_owed = len(self.won)

    def write_moves(self) -> None:
        """Bring the moves that were collected into the log."""
        if self.ladder:
            self.changed = True
        for move in self.ladder.take():
            row = self.ledger.append(move.event(), move.step.at_ms)
            if move.kind is Released:
                self.store.record(row)
            else:
                self.store.advance(row, move.account.number, move.step.state, move.ranges)
            # Holding and releasing is waited for, like messages, so it is never owed.
            if move.step.state is not State.PENDING:
                self._lazy.append(move)

    def close(self) -> None:
        """Commit what is left, with a snapshot, so that the next start replays nothing."""
        self.refusals.finish(cast("Broker", self))
        self.write_moves()
        self.holds.save(self.store)
        self.snapshot()
        self.store.commit()
        self.store.close()

    def snapshot(self) -> None:
        """Keep the state of all members as of the log's end, so that a start need not replay what led to it."""
        assert not self.ladder, "moves that are not in the log yet would be in the snapshot and replayed on top of it"
        changed = [account for account in self.directory.accounts.values() if account.changed]
        self.store.save_snapshot([account.image() for account in changed], self.ledger.end)
        for account in changed:
            account.changed = False
        self._snapshot_end = self.ledger.end
        self._snapshot_rows = self.limits.snapshot_rows

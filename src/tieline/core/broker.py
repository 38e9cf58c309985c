"""The broker (the hub's decision logic): handles every command, one after the other, and buffers the writes to commit.

The caller is the local hub or a test. The broker uses the interface `Store` for durable storage. `handle` changes
memory and buffers writes. `commit` makes the writes durable. Only then may the caller publish the outcome (tell it to
clients), with one exception. If no client waits for the commit, the caller may call `mark_published` and publish the
outcome before the commit. After `mark_published`, a rollback keeps the changes of this outcome. If a commit fails,
`roll_back` restores memory to the last state that was committed or published, and sessions stay open. If a command
raises an exception, only that command is refused.

The broker looks up the session of a command once, and passes both to the rule (method) for this kind of command. A rule
gets the parts of memory that it works with, and never the broker itself.
"""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from tieline.contract import command as c
from tieline.contract.identifiers import SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Done, Reply
from tieline.core.activity import ActivityRules
from tieline.core.channels import ChannelRules
from tieline.core.clock_and_ids import ClockAndIds
from tieline.core.deliveries import Deliveries
from tieline.core.directory import HINTS_MAX, Session
from tieline.core.escalation import Escalation, ReachRules
from tieline.core.evidence import EvidenceRules
from tieline.core.expiry import Expiry
from tieline.core.holds import Holds
from tieline.core.hub_messages import HubMessages
from tieline.core.invitations import InvitationBook, InvitationRules
from tieline.core.log_rules import LogRules
from tieline.core.membership import MembershipRules
from tieline.core.memory import Memory
from tieline.core.objectives import ObjectiveRules
from tieline.core.outcome import Deferred, Fault, Outcome
from tieline.core.pacing import Pacing
from tieline.core.pauses import PauseRules
from tieline.core.posting import Posting
from tieline.core.reading import ReadingRules
from tieline.core.redaction import RedactionRules
from tieline.core.refusals import Refusals
from tieline.core.routing import Routing
from tieline.core.rules import Rules
from tieline.core.search import SearchRules
from tieline.core.sending import SendingRules
from tieline.core.sessions import SessionRules, Sessions
from tieline.core.settlement import SettlementRules
from tieline.core.shared_tokens import SharedTokens
from tieline.core.signing import Signing
from tieline.core.staleness import StalenessRules
from tieline.core.store import Store, StoreError
from tieline.core.streams import StreamRules
from tieline.core.stuck import StuckRules
from tieline.core.team import TeamRules
from tieline.core.tokens import TokenRules
from tieline.core.wire_ids import WireIdRules, WireIds

_QUIET = frozenset({Code.UNKNOWN_SESSION, Code.SHUTTING_DOWN, Code.INTERNAL_ERROR, Code.STORE_FAILED})
"""Codes of refusals that are not written to the log, because they say nothing about what the client tried to do."""

_CAREFUL = frozenset(
    {c.Send, c.Offered, c.Advance, c.AcknowledgeIds, c.Discard, c.Claim, c.Attach, c.Confirm, c.Detach, c.Follow}
    | {c.Fetch, c.ReadStreams, c.ReadReceipts, c.ReadHistory, c.ReadLog, c.ListReaders, c.Search, c.ReadTeam, c.SetBusy}
    | {
        c.ListMembers,
        c.ListChannels,
        c.ListPauses,
        c.ListTokens,
        c.ViewChannel,
        c.ListObjectives,
        c.ViewObjective,
        c.ReadStuck,
    }
    | {c.RecordActivity, c.ReadActivity, c.FollowActivity, c.RecordRefusal}
)
"""Commands whose rules set `Batch.changed` before they change stored state.

If one of these commands raises while `Batch.changed` is still false, the broker undoes only this command. A command
that is not listed here may change stored state without setting `Batch.changed`. So the broker rolls back whenever such
a command raises.
"""

_CHORE_REST_MS = 60_000
"""Delay before a failed chore (a regular task of the hub, such as expiry) is tried again.

Without the delay, the chore could fail in every batch and cause a rollback each time.
"""

_CHORES_MAX = 2048
"""Largest number of deliveries that one batch marks as expired, and of held deliveries that it releases.

This many deliveries take about ten milliseconds. The next batch continues with the remaining deliveries.
"""

_DONE = Done()
_NO_SESSION = Refusal(Code.UNKNOWN_SESSION, "the session has ended; connect again")

_NOBODY = SessionId("")
"""No session has this id."""

SESSIONLESS: frozenset[type[c.Command]] = frozenset({c.Attach, c.RecordRefusal, c.Settle, c.Tick})
"""Commands that need no session."""

_IDLE = frozenset({c.Offered, c.Detach})
"""Commands that do nothing, and are not refused, if their session has already ended."""


class Broker(Memory):
    """Handles all commands of one hub, and keeps its state in one store. Not thread-safe: one caller at a time."""

    def __init__(  # noqa: PLR0913 - what the configuration decides
        self,
        store: Store,
        clock_and_ids: ClockAndIds,
        limits: Limits = DEFAULT_LIMITS,
        *,
        home_key: bytes | None = None,
        signs: bool = True,
        notifies: bool = False,
        kept_name: str = "",
        shared_tokens: frozenset[bytes] = frozenset(),
        room_token: bytes | None = None,
    ) -> None:
        # Digest of the key that makes a session an operator.
        self.home_key = home_key
        # True if the hub has a secret to sign messages for wires that accept only signed messages.
        self.signs = signs
        # True if the hub is configured with a command that notifies a human about unseen messages.
        self.notifies = notifies
        # The name of the person who runs the hub. Nobody else may create a member with this name. Empty for none.
        self.kept_name = kept_name
        # Digests of the tokens that several names share, as configured.
        self._configured_tokens = shared_tokens
        # Digest of the configured token with which anybody can become a member.
        self._room_token = room_token
        self._expiry = Expiry()
        # The running chore, and for each failed chore the time of its next retry.
        self._chore = ""
        self._rests: dict[str, int] = {}
        super().__init__(store, clock_and_ids, limits)

    def _load(self, escalation: Escalation | None, holds: Holds | None) -> None:
        """Read the stored state, and create the rules that work on it.

        In a rollback, `escalation` and `holds` are the objects from before the rollback. The new state keeps their
        waiting times.
        """
        super()._load(escalation, holds)
        batch, directory = self.batch, self.directory
        self._deliveries = Deliveries(
            batch, directory, self.followers, self.loops, self.holds, self.external_inboxes, self.dead_letters
        )
        self._signing = Signing(self.signs, directory, self._deliveries)
        self._posting = Posting(batch, self.deadlines, self.escalation, self.holds, self.loops, self._signing)
        self._hub_messages = HubMessages(batch, directory, self._posting)
        self._wire_ids = WireIds(self.store, self.limits)
        sessions = Sessions(batch, directory, self.followers, self.resumption, self.kept_name)
        self.shared_tokens = SharedTokens(batch, directory, sessions, self._configured_tokens)
        self._sessions = SessionRules(
            batch,
            directory,
            self.external_inboxes.sessions,
            self.holds,
            self.resumption,
            sessions,
            self.shared_tokens,
            self.home_key,
        )
        self._evidence = EvidenceRules(batch, self._deliveries, self.loops, self._hub_messages)
        self._staleness = StalenessRules(batch, directory, self._deliveries)
        self._acknowledging = WireIdRules(batch, self._deliveries)
        # Finds the deliveries that an external inbox must reserve for the hub before a command is decided.
        self.settlement = SettlementRules(
            batch,
            directory,
            self.external_inboxes,
            self._deliveries,
            evidence=self._evidence,
            staleness=self._staleness,
            wire_ids=self._acknowledging,
        )
        self._tokens = TokenRules(batch, directory, sessions)
        self._channels = ChannelRules(batch, directory, self.channels)
        # The rule of each kind of command. Rules of commands that need no session may get `None` as the session.
        self._rules: dict[type[c.Command], Callable[[Any, Any], Reply | Deferred]] = {
            **dict.fromkeys(SESSIONLESS, self._decide_sessionless),
            **{kind: rule for owner in self._make_rules(sessions) for kind, rule in owner.rules()},
        }

    def _make_rules(self, sessions: Sessions) -> Iterator[Rules]:
        """Yield all objects that have rules (methods that decide one kind of command each).

        Each object gets the parts of memory that it works with.
        """
        batch, directory = self.batch, self.directory
        yield self._sessions
        yield self._evidence
        yield self._staleness
        yield self._acknowledging
        yield self.shared_tokens
        yield self._tokens
        yield self._channels
        yield SendingRules(
            self.limits,
            evidence=self._evidence,
            pacing=Pacing(batch, directory, self.objectives, self.loops, self.holds, self._hub_messages),
            posting=self._posting,
            routing=Routing(self.limits, directory, self.channels, self.objectives),
            signing=self._signing,
            staleness=self._staleness,
            wire_ids=self._wire_ids,
        )
        yield PauseRules(batch, self.holds)
        team = TeamRules(batch, directory, sessions)
        yield team
        book = InvitationBook(batch, directory, self.settings, self._room_token)
        membership = MembershipRules(
            batch, directory, self._channels, self._deliveries, self.escalation, sessions, team, self._tokens, book
        )
        yield membership
        yield InvitationRules(batch, directory, book, membership.add)
        yield ReachRules(batch, directory, self.escalation, self.notifies)
        yield ObjectiveRules(batch, directory, self.objectives, self._posting, self._deliveries)
        reading = ReadingRules(
            batch,
            directory,
            self.channels,
            self.objectives,
            self.escalation,
            self.followers,
            self.holds,
            self._deliveries,
        )
        yield reading
        yield StuckRules(batch, directory, self.dead_letters)
        yield SearchRules(reading)
        yield RedactionRules(batch)
        yield LogRules(batch, self.readers)
        yield StreamRules(self.store)
        yield ActivityRules(batch, directory)

    def handle(self, commands: Sequence[c.Command], *, releases: bool = True) -> Outcome:
        """Handle commands one after the other: call the rule of each, with its session. Return their outcome.

        Publish the outcome (tell it to clients) only after `commit`. An outcome that is not urgent may also be
        published after `mark_published`. If a command raises, it is refused and its changes are undone. If it had
        already begun to change stored state, the broker rolls back and handles the commands before it again. The
        commands after it are not handled, so the outcome has fewer replies than there are commands. The caller must
        pass the remaining commands again in the next call. With `releases`, the batch also releases held deliveries
        that are due.
        """
        batch = self.batch
        outcome = self._begin(commands)
        for command in commands:
            batch.changed = outcome.urgent = False
            undone = len(batch.undo)
            kind = type(command)
            try:
                rule = self._rules[kind]
                session = self.directory.sessions.get(getattr(command, "session", _NOBODY))
                if session is not None or kind in SESSIONLESS:
                    reply = rule(session, command)
                else:
                    reply = _DONE if kind in _IDLE else _NO_SESSION
                if isinstance(reply, Refusal) and reply.code not in _QUIET:
                    self._record_refusal(command, reply.code)
            except Exception as error:  # noqa: BLE001 - no error may affect the other commands
                fault = self._fault(len(outcome.replies), command, error)
                if batch.changed or kind not in _CAREFUL or not self.store.intact:
                    return self._handle_before(fault, commands, releases=releases)
                while len(batch.undo) > undone:
                    batch.undo.pop()()
                outcome.faults.append(fault)
                outcome.urgent = False
                reply = fault.refusal
            if outcome.urgent:
                outcome.awaited.append(len(outcome.replies))
            outcome.replies.append(reply)
        outcome.urgent = bool(outcome.awaited)
        if releases and (failed := self._release_due(len(commands))) is not None:
            return self._handle_before(failed, commands, releases=releases)
        return outcome

    def _handle_before(self, fault: Fault, commands: Sequence[c.Command], *, releases: bool) -> Outcome:
        """Roll back because of a fault. Handle again only the commands before the one at fault, and refuse that one."""
        self.roll_back()
        outcome = self.handle(commands[: fault.index], releases=releases)
        # If an earlier command failed this time, the caller passes all commands after that one again.
        if len(outcome.replies) == fault.index:
            outcome.faults.append(fault)
            if fault.index < len(commands):
                outcome.replies.append(fault.refusal)
        return outcome

    def _begin(self, commands: Sequence[c.Command]) -> Outcome:
        """Begin a batch: read the clock, expire deliveries that are due, and look up the wire ids of the commands.

        Return the outcome of the new batch.
        """
        batch = self.batch
        batch.now_ms = self.clock_and_ids.now_ms()
        step_ms = self.clock_and_ids.take_step_ms()
        if step_ms:
            self._follow_clock(step_ms)
        batch.outcome = Outcome()
        self.directory.hints_left = HINTS_MAX
        if self.deadlines and self.deadlines[0][0] <= batch.now_ms and not self._resting("expiry"):
            # No client waits for this. A delivery past its deadline is expired even before the log says so.
            more = self._expire()
            batch.outcome.more = more
        if len(commands) > 1:
            self._prefetch(commands)
        return batch.outcome

    def _decide_sessionless(self, _session: Session | None, command: c.Command) -> Reply:
        match command:
            case c.Attach():
                return self._sessions.attach(command)
            case c.RecordRefusal():
                self._record_refusal(command, command.code)
                return _DONE
            case c.Tick():
                self._hub_messages.late_readers(command.late)
                return self._tick()
            case _:
                assert isinstance(command, c.Settle), f"{type(command).__name__} has no rule"
                return self.settlement.settle(command)

    def _record_refusal(self, command: c.Command, code: Code) -> None:
        session = self.directory.sessions.get(getattr(command, "session", _NOBODY))
        self.refusals.record(command, session, code)

    def replaced(self, command: c.Attach) -> list[SessionId]:
        """Return the sessions that may end when `command` opens a new session. Empty if its credential is not valid.

        The caller must let the broker handle the earlier commands of these sessions before it passes `command` to the
        broker.
        """
        return self._sessions.replaced(command)

    # Chores.

    def _tick(self) -> Reply:
        chores: dict[str, Callable[[], None]] = {
            "escalation": lambda: self.escalation.work(self._hub_messages.unseen),
            "tokens": self._tokens.expire,
            "refusals": self.refusals.work,
            "retention": lambda: self.retention.work(
                self.directory, self._deliveries, self.readers, self._hub_messages
            ),
        }
        for name, work in chores.items():
            if not self._resting(name):
                self._chore = name
                work()
        self._chore = ""
        return _DONE

    def _expire(self) -> bool:
        """Mark due deliveries as expired. Return true if due deliveries are left for the next batch.

        If this raises an error, note the fault and roll back. Then the deliveries are tried again later.
        """
        now_ms = self.batch.now_ms
        try:
            return self._expiry.work(self.deadlines, self.directory, self._deliveries, now_ms, _CHORES_MAX)
        except Exception as error:  # noqa: BLE001 - otherwise it would block every batch
            self._chore = "expiry"
            self.faults.append(self._fault(0, c.Tick(), error))
            self._chore = ""
            self.roll_back()
            return False

    def _prefetch(self, commands: Sequence[c.Command]) -> None:
        """Tell the store to look up the wire ids (senders' ids of messages) of all commands at once, which saves time.

        If this fails, each command looks up its own wire id.
        """
        try:
            self._wire_ids.prefetch(commands, self.directory.sessions)
        except Exception as error:  # noqa: BLE001 - a prefetch is optional
            self.faults.append(self._fault(0, commands[0], error))
            if not self.store.intact:
                self.roll_back()

    def _release_due(self, place: int) -> Fault | None:
        """Release held deliveries (not delivered yet) that are due. Return `None`, or the fault if this fails.

        `place` is the index that such a fault gets. This runs after all commands of the batch, so that no reply of the
        batch depends on a released delivery.
        """
        if self._resting("holds"):
            return None
        self._chore = "holds"
        try:
            if self.holds.work(_CHORES_MAX):
                self.batch.outcome.more = True
        except Exception as error:  # noqa: BLE001 - no error may affect the commands before
            return self._fault(place, c.Tick(), error)
        finally:
            self._chore = ""
        return None

    def _follow_clock(self, step_ms: int) -> None:
        """Adjust all waiting times after somebody set the system clock forward by `step_ms` (negative: back).

        So each wait lasts as long as planned.
        """
        self.escalation.shift(step_ms)
        self.loops.shift(step_ms)
        self.holds.shift(step_ms)
        self.refusals = Refusals(self.batch)
        self.retention = self._new_retention()
        self._rests.clear()
        self._expiry = Expiry()
        for account in self.directory.accounts.values():
            account.busy_until_ms += step_ms if account.busy_until_ms else 0
            account.busy_since_ms += step_ms

    def _resting(self, chore: str) -> bool:
        """True if the chore (regular task) with this name has failed and must still wait for its retry."""
        return self._rests.get(chore, 0) > self.batch.now_ms

    def _fault(self, place: int, command: c.Command, error: Exception) -> Fault:
        error = self.store.explain(error)
        if isinstance(command, c.Tick) and self._chore:
            self._rests[self._chore] = self.batch.now_ms + _CHORE_REST_MS
        if isinstance(error, StoreError):
            refusal = Refusal(Code.STORE_FAILED, f"the store failed at this, and nothing was accepted: {error}")
        else:
            refusal = Refusal(Code.INTERNAL_ERROR, "the hub failed at this, and nothing was accepted; its log says why")
        return Fault(place, type(command).__name__, error, refusal)

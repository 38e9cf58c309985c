"""The broker: decides every command, one after the other, and says what must become durable.

Above: whoever implements the Hub port (the exchange, or a test). Below: the Store port. `handle` changes memory and
buffers writes; `commit` makes them durable; only then may the outcome be published. An outcome that nobody waits for
may be published at once, after `owe`. If a commit fails, `roll_back` brings memory back to what was committed or is
owed, and sessions stay open. A command that raises is refused alone; see `handle`.
"""

import heapq
from collections.abc import Collection, Sequence
from typing import assert_never

from tieline.contract import chain
from tieline.contract import command as c
from tieline.contract.delivery import SETTLED, Delivery, State, Step
from tieline.contract.event import Claimed as ClaimedEvent
from tieline.contract.event import Sent
from tieline.contract.identifiers import SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Content, Message, Priority, check_content
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Claimed, Done, Reply
from tieline.contract.target import TargetKind
from tieline.core import (
    activity,
    channels,
    custody,
    escalation,
    evidence,
    followers,
    ledger,
    membership,
    notices,
    objectives,
    reading,
    routing,
    search,
    signing,
    staleness,
    streams,
    team,
    tokens,
    wire_ids,
)
from tieline.core.directory import HINTS_MAX, Account, Session
from tieline.core.expiry import Expiry
from tieline.core.holds import Verdict
from tieline.core.loops import INNOCENT, Judgement
from tieline.core.memory import Memory
from tieline.core.nature import Nature
from tieline.core.outcome import Deferred, Fault, Outcome, Post
from tieline.core.refusals import Refusals
from tieline.core.retention import Retention
from tieline.core.store import Route, Store, StoreError, pack_route
from tieline.core.streams import stream_name

_QUIET = frozenset({Code.UNKNOWN_SESSION, Code.SHUTTING_DOWN, Code.INTERNAL_ERROR, Code.STORE_FAILED})
"""Refusals that say nothing about anybody's intent, so the audit chain does not keep them."""

_CAREFUL = frozenset(
    {c.Send, c.Offered, c.Advance, c.AcknowledgeIds, c.Discard, c.Claim, c.Attach, c.Confirm, c.Detach, c.Follow}
    | {c.Fetch, c.ReadStreams, c.ReadReceipts, c.ReadHistory, c.ReadLog, c.Search, c.ReadTeam, c.SetBusy}
    | {c.ListMembers, c.ListChannels, c.ListPauses, c.ListTokens, c.ViewChannel, c.ListObjectives, c.ViewObjective}
    | {c.RecordActivity, c.ReadActivity, c.FollowActivity, c.RecordRefusal}
)
"""Commands that set `Broker.changed` before they change what the store keeps. Any other may have changed something."""

_CHORE_REST_MS = 60_000
"""A chore that failed is tried again after this: it would fail at every tick, and each failure costs a rollback."""

_CHORES_MAX = 2048
"""Deliveries that one batch expires, and that it releases: some ten milliseconds each. The next batch goes on."""

_NEWEST = 8
"""Deliveries of a range that are noted for the loop rule."""


class Broker(Memory):
    """One hub's rules over one store. Not thread-safe: one caller at a time."""

    def __init__(
        self,
        store: Store,
        nature: Nature,
        limits: Limits = DEFAULT_LIMITS,
        *,
        home_key: bytes | None = None,
        signs: bool = True,
        notifies: bool = False,
        kept_name: str = "",
    ) -> None:
        super().__init__(store, nature, limits)
        # Digest of the key that makes a session an operator.
        self.home_key = home_key
        # Whether it has a secret to sign with for wires that take signed messages only.
        self.signs = signs
        # Whether the hub has a command that tells a human of what was not seen.
        self.notifies = notifies
        # The name of the person who runs the hub, which nobody else may make a member of; empty for none.
        self.kept_name = kept_name
        self._expiry = Expiry()
        # The chore of the tick being handled, and until when a chore that failed rests.
        self._chore = ""
        self._rests: dict[str, int] = {}

    def handle(self, commands: Sequence[c.Command], *, releases: bool = True) -> Outcome:
        """Decide commands in turn. Publish the outcome only after `commit`, or, if it is not urgent, after `owe`.

        A command that raises is refused, and leaves nothing behind. If it had begun to change something, this goes back
        to what is committed and decides those before it again; those after it are left for the next call, so that the
        outcome has fewer replies than there are commands. What is held no more is released with them, unless that is
        not wanted.
        """
        self.now_ms = self.nature.now_ms()
        step_ms = self.nature.take_step_ms()
        if step_ms:
            self._follow_clock(step_ms)
        count = len(commands)
        failed: Fault | None = None
        while True:
            fault = self._decide_all(commands)
            if fault is None and releases:
                fault = self._let_go(len(commands))
            if fault is None:
                break
            failed = fault
            self.roll_back()
            commands = commands[: fault.place]
        if failed is not None:
            self.outcome.faults.append(failed)
            if failed.place < count:
                self.outcome.replies.append(failed.refusal)
        return self.outcome

    def _decide_all(self, commands: Sequence[c.Command]) -> Fault | None:
        """Decide commands until one raises that had begun to change something."""
        outcome = self.outcome = Outcome()
        self.directory.hints_left = HINTS_MAX
        if self.deadlines and self.deadlines[0][0] <= self.now_ms:
            # Nobody waits for it: a deadline that passed has passed, whether that is in the log yet or not.
            more = self._expiry.work(self, _CHORES_MAX)
            outcome = self.outcome
            outcome.more = more
        if len(commands) > 1:
            self._foresee(commands)
            outcome = self.outcome
        for command in commands:
            self.changed = outcome.urgent = False
            undone = len(self.undo)
            try:
                reply = self._decide(command)
                if isinstance(reply, Refusal) and reply.code not in _QUIET:
                    self.refusals.record(self, command, reply.code)
            except Exception as error:  # noqa: BLE001 - whatever it is, it must not touch the others
                fault = self._fault(len(outcome.replies), command, error)
                if self.changed or type(command) not in _CAREFUL or not self.store.intact:
                    return fault
                while len(self.undo) > undone:
                    self.undo.pop()()
                outcome.faults.append(fault)
                outcome.urgent = False
                reply = fault.refusal
            if outcome.urgent:
                outcome.awaited.append(len(outcome.replies))
            outcome.replies.append(reply)
        outcome.urgent = bool(outcome.awaited)
        return None

    def _foresee(self, commands: Sequence[c.Command]) -> None:
        """Let the store read ahead. That saves time and nothing else: if it fails, each command looks for itself."""
        try:
            wire_ids.foresee(self, commands)
        except Exception as error:  # noqa: BLE001 - whatever it is, no command has asked for it yet
            self.faults.append(self._fault(0, commands[0], error))
            if not self.store.intact:
                self.roll_back()

    def _let_go(self, place: int) -> Fault | None:
        """Release what is held no more. After all commands, so that no reply of the batch is about what goes."""
        if self.rests("holds"):
            return None
        self._chore = "holds"
        try:
            if self.holds.work(self, _CHORES_MAX):
                self.outcome.more = True
        except Exception as error:  # noqa: BLE001 - it must not touch the commands before it
            return self._fault(place, c.Tick(), error)
        finally:
            self._chore = ""
        return None

    def _follow_clock(self, step_ms: int) -> None:
        """The time was set: what lasts for a while from some moment on lasts as long as before."""
        self.escalation.shift(step_ms)
        self.loops.shift(step_ms)
        self.holds.shift(step_ms)
        self.refusals = Refusals(self.limits)
        self.retention = Retention(self.limits)
        self._rests.clear()
        self._expiry = Expiry()
        for account in self.directory.accounts.values():
            account.busy_until_ms += step_ms if account.busy_until_ms else 0

    def rests(self, chore: str) -> bool:
        """True while a chore is left alone because it failed."""
        return self._rests.get(chore, 0) > self.now_ms

    def chore_failed(self, chore: str, error: Exception) -> None:
        """Go back to what is committed, and leave a chore alone for a while."""
        self._chore = chore
        self.faults.append(self._fault(0, c.Tick(), error))
        self._chore = ""
        self.roll_back()

    def _fault(self, place: int, command: c.Command, error: Exception) -> Fault:
        error = self.store.explain(error)
        if isinstance(command, c.Tick) and self._chore:
            self._rests[self._chore] = self.now_ms + _CHORE_REST_MS
        if isinstance(error, StoreError):
            refusal = Refusal(Code.STORE_FAILED, f"the store failed at this, and nothing was accepted: {error}")
        else:
            refusal = Refusal(Code.INTERNAL_ERROR, "the hub failed at this, and nothing was accepted; its log says why")
        return Fault(place, type(command).__name__, error, refusal)

    def _decide(self, command: c.Command) -> Reply | Deferred:
        match command:
            case c.Send():
                return self._send(command)
            case c.Offered():
                return self._offered(command)
            case c.Advance():
                return self._advance(command)
            case c.AcknowledgeIds():
                return wire_ids.acknowledge(self, command)
            case c.Discard():
                return staleness.discard(self, command)
            case c.Claim():
                return self._claim(command)
            case c.Fetch():
                return reading.fetch(self, command)
            case c.Attach():
                return membership.attach(self, command)
            case c.Confirm():
                return membership.confirm(self, command)
            case c.Detach():
                return membership.detach(self, command)
            case c.ReadStreams():
                return streams.read(self, command)
            case c.Follow():
                return reading.follow(self, command)
            case c.Subscribe():
                return membership.subscribe(self, command)
            case c.Unsubscribe():
                return membership.unsubscribe(self, command)
            case c.ResumeThread():
                return membership.resume_thread(self, command)
            case c.PauseThread():
                return membership.pause_thread(self, command)
            case c.AllowThread():
                return membership.allow_thread(self, command)
            case c.ListPauses():
                return membership.pauses(self, command)
            case c.AddMember():
                return membership.add(self, command)
            case c.RemoveMember():
                return membership.remove(self, command)
            case c.RotateToken():
                return membership.rotate(self, command)
            case c.ListMembers():
                return reading.members(self, command)
            case c.ListChannels():
                return reading.channels(self, command)
            case c.ReadReceipts():
                return reading.receipts(self, command)
            case c.ReadHistory():
                return reading.history(self, command)
            case c.Search():
                return search.decide(self, command)
            case c.SetReach():
                return escalation.decide(self, command)
            case c.UpdateMember() | c.SetBusy() | c.ReadTeam() | c.UpdateTeam():
                return team.decide(self, command)
            case c.IssueToken() | c.ListTokens() | c.RevokeToken():
                return tokens.decide(self, command)
            case c.CreateChannel() | c.ChangeChannel() | c.ViewChannel():
                return channels.decide(self, command)
            case c.CreateObjective() | c.ChangeObjective() | c.ListObjectives() | c.ViewObjective():
                return objectives.decide(self, command)
            case c.ReadLog():
                return reading.log(self, command)
            case c.RecordActivity() | c.ReadActivity() | c.FollowActivity():
                return activity.decide(self, command)
            case c.RecordRefusal():
                self.refusals.record(self, command, command.code)
                return _DONE
            case c.Tick():
                return self._tick()
            case c.Settle():
                custody.settle(self, command)
                return _DONE
            case _:
                assert_never(command)

    # What the rules in `membership` and `reading` need of the broker.

    def session(self, session_id: SessionId) -> Session | Refusal:
        """The open session with this id."""
        session = self.directory.sessions.get(session_id)
        return session or Refusal(Code.UNKNOWN_SESSION, "the session has ended; connect again")

    def move(
        self,
        account: Account,
        ranges: Sequence[tuple[int, int]],
        state: State,
        *,
        session: Session | None = None,
        evidence: str = "",
        claimed: bool = False,
        mute: bool = False,
    ) -> bool:
        """Move deliveries of a member up the ladder; says whether any moved."""
        if self.custodians and state in SETTLED:
            ranges = custody.win(self, account, ranges, state, session, evidence)
        return self.climb(account, ranges, state, session=session, evidence=evidence, claimed=claimed, mute=mute)

    def climb(
        self,
        account: Account,
        ranges: Sequence[tuple[int, int]],
        state: State,
        *,
        session: Session | None = None,
        evidence: str = "",
        claimed: bool = False,
        mute: bool = False,
    ) -> bool:
        """Move deliveries that nobody outside the hub can take any more."""
        mute = state is State.OFFERED and (mute or (session is not None and not session.acknowledges))
        step = Step(state, self.now_ms, session.id if session else "", session.protocol if session else "", evidence)
        inbox, held = account.inbox, account.inbox.held
        moved = False
        self.changed = True
        for first, last in ranges:
            if self.followers:
                followers.tell(self, account, first, last, state)
            if session is not None and state <= State.ACKED:
                # Only the newest few: an agent answers what it was shown last. A client may name keys to come.
                newest = min(last, inbox.next_key - 1)
                for key in range(max(first, newest - _NEWEST + 1), newest + 1):
                    offset = inbox.offset(key)
                    if offset is not None and not (held and inbox.is_held(key)):
                        self.loops.reached(account.name, offset, self.now_ms, seen=state is not State.OFFERED)
            done = inbox.move(first, last, state, mute=mute)
            if done:
                self.ladder.note(account, done, step, ClaimedEvent if claimed else None, mute=mute)
                moved = True
        if inbox.held < held:
            self.holds.recheck(account)
        if moved:
            account.changed = True
            self.dirty = True
        return moved

    def end_sessions(self, sessions: Sequence[Session], why: Refusal) -> None:
        """End sessions that may go on no more."""
        for session in sessions:
            membership.end_session(self, session)
            self.outcome.ended.append((session.id, why))

    def post(self, session: Session, content: Content, accounts: Collection[Account]) -> None:
        """Say in a session's name what a rule has to tell these members."""
        encoded, stream = ledger.encode_content(content), stream_name(session.speaker, content.topic)
        self._accept(c.Send(session.id, content), session, encoded, stream, accounts, INNOCENT)

    # Rules of the message path.

    def _send(self, command: c.Send) -> Reply:
        session = self.directory.sessions.get(command.session)
        if session is None:
            return Refusal(Code.UNKNOWN_SESSION, "the session has ended; connect again")
        if session.operator and session.account is None:
            return Refusal(Code.FORBIDDEN, "the operator has no voice: say which member speaks")
        if self.team.aliases:
            command = routing.by_own_name(command, self.team.aliases, self.directory)
        content = command.content
        sender = session.speaker
        refusal = check_content(content, self.limits)
        if refusal is not None:
            return refusal
        try:
            encoded = ledger.encode_content(content)
        except (UnicodeEncodeError, TypeError, RecursionError) as error:
            return Refusal(Code.INVALID_MESSAGE, f"the data cannot be written down: {error}")
        if len(encoded) > self.limits.message_bytes_max:
            return Refusal(Code.MESSAGE_TOO_LARGE, f"the message is larger than {self.limits.message_bytes_max} bytes")
        if command.wire_id is not None:
            owner = "" if command.shared_id else sender
            known = self._known(owner, session.protocol, command.wire_id, chain.digest(encoded))
            if known is not None:
                return known
        superseded: Route | None = None
        if content.supersedes is not None:
            route = staleness.find_superseded(self, content.supersedes, session)
            if isinstance(route, Refusal):
                return route
            superseded = route
        found = self._recipients(command, session)
        if isinstance(found, Refusal):
            return found
        refusal = signing.refuse(self, command, found)
        if refusal is not None:
            return refusal
        stream = stream_name(sender, content.topic)
        backlog = max([account.inbox.backlog for account in found], default=0)
        refusal = self._check_room(found, backlog, stream if content.topic else None)
        if refusal is not None:
            return refusal
        agent = session.account is not None and session.account.member.kind is MemberKind.AGENT
        counts = agent and not self.holds.allows(content, sender, self.now_ms)
        judgement = self.loops.judge(content, sender, self.now_ms, counts=counts)
        verdict = self.holds.decide(self, session, content, judgement, found)
        post, held = self._accept(command, session, encoded, stream, found, judgement, verdict)
        if superseded is not None:
            staleness.supersede(self, superseded, post)
        if content.reply_to is not None:
            evidence.replied(self, session, content.reply_to)
        return Accepted(post.message.id, post.message.offset, len(post.keys), backlog=backlog, held=held)

    def _check_room(self, accounts: Collection[Account], backlog: int, stream: str | None) -> Refusal | None:
        """Refuse what a recipient has no room for. `backlog` is the largest of theirs, `stream` one with a topic."""
        if backlog >= self.limits.backlog_max:
            name = next(account.name for account in accounts if account.inbox.backlog == backlog)
            return Refusal(Code.BACKLOG_FULL, f"{name} has {backlog} messages waiting")
        return None if stream is None else streams.refuse_more(self, accounts, stream)

    def _recipients(self, command: c.Send, session: Session) -> Collection[Account] | Refusal:
        if command.only:
            return routing.named(command.only, self.directory)
        target = command.content.target
        if target.kind is TargetKind.MEMBER:
            return routing.member(target.name, self.directory)
        return routing.recipients(
            target,
            session.account,
            self.directory,
            self.limits,
            allow_empty=command.allow_empty,
            members_only=command.members_only,
            channels=self.channels,
            objectives=self.objectives,
        )

    def _accept(
        self,
        command: c.Send,
        session: Session,
        encoded: bytes,
        stream: str,
        found: Collection[Account],
        judgement: Judgement,
        verdict: Verdict | None = None,
    ) -> tuple[Post, str]:
        """Stamp a message that nothing speaks against, and keep it with its deliveries; says why any are held."""
        self.changed = self.dirty = self.outcome.urgent = True
        content, sender = command.content, session.speaker
        message = self._stamp(command, session, judgement)
        post = self._deliver(message, session.id, stream, found)
        route = pack_route(post.numbers, post.keys, post.stream_seqs)
        seal = chain.seal_message(message, encoded, route)
        row = self.ledger.append(Sent(message.id, sender, str(content.target), len(post.keys), seal), self.now_ms)
        self.store.accept(row, message, encoded, route, command.shared_id)
        held = ""
        if verdict is not None or self.holds.any:
            held = self.holds.keep(self, post, stream, verdict)
        if content.ttl_ms is not None:
            deadline_ms = self.now_ms + content.ttl_ms
            for number, key in zip(post.numbers, post.keys, strict=True):
                heapq.heappush(self.deadlines, (deadline_ms, number, key))
        if self.escalation.reaches:
            self.escalation.expect(post, content.priority is Priority.URGENT, self.now_ms)
        self.loops.note(message.id, message.offset, content, sender, judgement, self.now_ms)
        self.outcome.posts.append(post)
        signing.give_up(self, command, found)
        return post, held

    def _known(self, owner: str, protocol: str, wire_id: str, digest: str) -> Reply | None:
        if not wire_id or len(wire_id.encode()) > self.limits.text_bytes_max:
            return Refusal(Code.INVALID_MESSAGE, f"a wire id has 1 to {self.limits.text_bytes_max} bytes")
        known = self.store.find_wire_id(owner, protocol, wire_id)
        if known is None:
            return None
        if known.digest != digest:
            return Refusal(Code.WIRE_ID_REUSED, f"the id {wire_id!r} was used before for another message")
        return Accepted(known.message_id, known.offset, known.recipients, duplicate=True)

    def _stamp(self, command: c.Send, session: Session, judgement: Judgement) -> Message:
        return Message(
            id=self.nature.message_id(self.now_ms),
            offset=self.ledger.end,
            sender=session.speaker,
            protocol=session.protocol,
            sent_at_ms=self.now_ms,
            content=command.content,
            wire_id=command.wire_id,
            verified=session.account is not None and not command.unverified,
            hops=judgement.hops,
            cause=judgement.cause,
            signature=command.signature,
        )

    def _deliver(self, message: Message, origin: SessionId, stream: str, accounts: Collection[Account]) -> Post:
        keys: list[int] = []
        stream_seqs: list[int] = []
        offset = message.offset
        for account in accounts:
            counts = account.streams
            stream_seq = counts[stream] = counts.get(stream, 0) + 1
            keys.append(account.inbox.append(offset, stream_seq))
            stream_seqs.append(stream_seq)
            account.changed = True
        names = [account.name for account in accounts]
        numbers = [account.number for account in accounts]
        return Post(message, origin, names, numbers, keys, stream_seqs)

    def _offered(self, command: c.Offered) -> Reply:
        session = self.directory.sessions.get(command.session)
        if session is not None and session.account is not None:
            ranges = ((command.first, command.last),)
            self.move(session.account, ranges, State.OFFERED, session=session, mute=command.mute)
        return _DONE

    def _advance(self, command: c.Advance) -> Reply:
        session = self.session(command.session)
        if isinstance(session, Refusal):
            return session
        account = session.account
        if account is None or command.state not in (State.SEEN, State.ACKED, State.DEAD):
            return Refusal(Code.INVALID_REQUEST, "only a member's session can see, acknowledge or give up a delivery")
        if len(command.ranges) > self.limits.ranges_max:
            return Refusal(Code.INVALID_REQUEST, f"one command moves at most {self.limits.ranges_max} ranges")
        if len(command.evidence) > self.limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"evidence has at most {self.limits.text_bytes_max} characters")
        if command.state is State.DEAD and any(
            other.acknowledges and other is not session for other in account.sessions
        ):
            # What does not fit this wire may fit another that the member has.
            return _DONE
        doomed = notices.doomed(self, account, command.ranges) if command.state is State.DEAD else ()
        if self.move(account, command.ranges, command.state, session=session, evidence=command.evidence) and doomed:
            notices.given_up(self, account, doomed, command.evidence)
        account.touch(self.now_ms)
        return _DONE

    def _claim(self, command: c.Claim) -> Reply:
        session = self.session(command.session)
        if isinstance(session, Refusal):
            return session
        account = session.account
        if account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member's session can claim a delivery")
        account.touch(self.now_ms)
        delivery = reading.unsettled_delivery(self, account, command.message_id)
        if delivery is None or not delivery.message.reaches(session.protocol):
            return Claimed(None)
        keys = ((delivery.key, delivery.key),)
        if not self.move(account, keys, State.ACKED, session=session, evidence="claim", claimed=True):
            return Claimed(None)
        self.outcome.urgent = True
        return Claimed(Delivery(delivery.key, delivery.stream_seq, State.ACKED, delivery.message))

    def _tick(self) -> Reply:
        chores = {
            "escalation": self.escalation.work,
            "tokens": tokens.expire,
            "refusals": self.refusals.work,
            "retention": self.retention.work,
        }
        for name, work in chores.items():
            if not self.rests(name):
                self._chore = name
                work(self)
        self._chore = ""
        return _DONE


_DONE = Done()

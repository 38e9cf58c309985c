"""The broker: decides every command, one after the other, and says what must become durable.

Above: whoever implements the Hub port (the exchange, or a test). Below: the Store port. `handle` changes memory and
buffers writes; `commit` makes them durable; only then may the outcome be published. If a commit fails, `restore`
brings memory back to what was committed.
"""

import heapq
from collections.abc import Collection, Sequence
from typing import assert_never

from tieline.contract import command as c
from tieline.contract.delivery import SETTLED, Delivery, State, Step
from tieline.contract.event import Event, LogRow, Paused, Sent
from tieline.contract.identifiers import MemberName, MessageId, SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import MemberKind
from tieline.contract.message import Message, check_content
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Claimed, Done, Progress, Recorded, Reply
from tieline.core import ledger, membership, reading, routing, streams
from tieline.core.directory import Account, Directory, Session
from tieline.core.ladder import Ladder
from tieline.core.ledger import Ledger
from tieline.core.loops import Judgement, Loop, Loops
from tieline.core.nature import Nature
from tieline.core.outcome import Followed, Outcome, Post
from tieline.core.refusals import Refusals
from tieline.core.resumption import Resumption
from tieline.core.retention import Retention
from tieline.core.store import MovedReplay, Route, SentReplay, Store
from tieline.core.streams import stream_name

_QUIET = frozenset({Code.UNKNOWN_SESSION, Code.SHUTTING_DOWN})
"""Refusals that say nothing about anybody's intent, so the audit chain does not keep them."""


_NEWEST = 8
"""Deliveries of a range that are noted for the loop rule."""


class Broker:
    """One hub's rules over one store. Not thread-safe: one caller at a time."""

    def __init__(
        self, store: Store, nature: Nature, limits: Limits = DEFAULT_LIMITS, *, home_key: bytes | None = None
    ) -> None:
        self.store = store
        self.nature = nature
        self.limits = limits
        # Digest of the key that makes a session an operator.
        self.home_key = home_key
        # Time of the batch being handled.
        self.now_ms = 0
        self.restore()

    def restore(self) -> None:
        """Start from what is committed; open sessions and anything not committed are forgotten."""
        foundation = self.store.restore()
        assert foundation.snapshot_end <= foundation.log_end, "a snapshot of what was never committed"
        self.directory = Directory(foundation)
        self.ledger = Ledger(foundation.log_end, foundation.log_head)
        self.resumption = Resumption(foundation.grants)
        self.ladder = Ladder()
        self.loops = Loops(self.limits)
        self._refusals = Refusals(self.limits)
        self.outcome = Outcome()
        # Messages that sessions follow, by their log offset.
        self.followers: dict[int, Followed] = {}
        self.retention = Retention(self.limits)
        self._activity_end = foundation.activity_end
        self._snapshot_end = foundation.snapshot_end
        # Whether anything waits for a commit.
        self.dirty = False
        for event in self.store.replay(foundation.snapshot_end):
            match event:
                case SentReplay():
                    self._replay_sent(event)
                case MovedReplay():
                    account = self.directory.accounts.get(event.number)
                    if account is not None:
                        account.changed = True
                        for first, last in event.ranges:
                            account.inbox.move(first, last, event.state, mute=event.mute)
        # (deadline, member number, key) of every delivery that can expire.
        self._deadlines: list[tuple[int, int, int]] = [
            (deadline_ms, number, key)
            for deadline_ms, route in self.store.expiring()
            for number, key in zip(route.numbers, route.keys, strict=True)
            if number in self.directory.accounts and self.directory.accounts[number].inbox.entry(key) is not None
        ]
        heapq.heapify(self._deadlines)

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

    def handle(self, commands: Sequence[c.Command]) -> Outcome:
        """Decide each command in turn. Publish the outcome only after `commit`, if `dirty`."""
        self.now_ms = self.nature.now_ms()
        outcome = self.outcome = Outcome()
        if self._deadlines and self._deadlines[0][0] <= self.now_ms:
            self._expire()
        for command in commands:
            reply = self._decide(command)
            if isinstance(reply, Refusal) and reply.code not in _QUIET:
                self._audit_refusal(command, reply)
            outcome.replies.append(reply)
        return outcome

    def commit(self) -> None:
        """Make everything decided so far durable."""
        self.write_moves()
        if self.ledger.end - self._snapshot_end >= self.limits.snapshot_rows:
            self.snapshot()
        self.store.commit()
        self.dirty = False

    def write_moves(self) -> None:
        """Bring the moves that were collected into the log."""
        for move in self.ladder.take():
            row = self.ledger.append(move.event(), move.step.at_ms)
            self.store.advance(row, move.account.number, move.step.state, move.ranges)

    def close(self) -> None:
        """Commit what is left, with a snapshot, so that the next start replays nothing."""
        self.write_moves()
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

    def _decide(self, command: c.Command) -> Reply:
        match command:
            case c.Send():
                return self._send(command)
            case c.Offered():
                return self._offered(command)
            case c.Advance():
                return self._advance(command)
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
            case c.ReadLog():
                return reading.log(self, command)
            case c.RecordActivity():
                return self._record_activity(command)
            case c.Tick():
                return self._tick()
            case _:
                assert_never(command)

    # What the rules in `membership` and `reading` need of the broker.

    def session(self, session_id: SessionId) -> Session | Refusal:
        """The open session with this id."""
        session = self.directory.sessions.get(session_id)
        return session or Refusal(Code.UNKNOWN_SESSION, "the session has ended; connect again")

    def record(self, event: Event, *, urgent: bool = True) -> None:
        """Put an event that is no message and no move into the log."""
        self.store.record(self.ledger.append(event, self.now_ms))
        self.dirty = True
        if urgent:
            self.outcome.urgent = True

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
        mute = state is State.OFFERED and (mute or (session is not None and not session.acknowledges))
        step = Step(state, self.now_ms, session.id if session else "", session.protocol if session else "", evidence)
        moved = False
        for first, last in ranges:
            if self.followers:
                self._tell_followers(account, first, last, state)
            if session is not None:
                # Only the newest few: an agent answers what it was shown last.
                for key in range(max(first, last - _NEWEST + 1), last + 1):
                    offset = account.inbox.offset(key)
                    if offset is not None:
                        self.loops.offered(account.name, offset)
            done = account.inbox.move(first, last, state, mute=mute)
            if done:
                self.ladder.note(account, done, step, mute=mute, claimed=claimed)
                moved = True
        if moved:
            account.changed = True
            self.dirty = True
        return moved

    # Rules of the message path.

    def _send(self, command: c.Send) -> Reply:
        session = self.directory.sessions.get(command.session)
        if session is None:
            return Refusal(Code.UNKNOWN_SESSION, "the session has ended; connect again")
        if session.operator and session.account is None:
            return Refusal(Code.FORBIDDEN, "the operator has no voice: say which member speaks")
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
            known = self._known(session, command.wire_id, ledger.digest(encoded))
            if known is not None:
                return known
        found = routing.recipients(
            content.target, session.account, self.directory, self.limits, allow_empty=command.allow_empty
        )
        if isinstance(found, Refusal):
            return found
        human = session.account is not None and session.account.member.kind is MemberKind.HUMAN
        judgement = self.loops.judge(content, sender, self.now_ms, human=human)
        if isinstance(judgement, Loop):
            self._pause(judgement.conversation, content.reply_to)
            return judgement.refusal
        if isinstance(judgement, Refusal):
            return judgement
        backlog = 0
        stream = stream_name(sender, content.topic)
        for account in found:
            waiting = account.inbox.backlog
            if waiting >= self.limits.backlog_max:
                return Refusal(Code.BACKLOG_FULL, f"{account.name} has {waiting} messages waiting")
            backlog = max(backlog, waiting)
            if len(account.streams) >= self.limits.streams_max and stream not in account.streams:
                return Refusal(Code.TOO_MANY_STREAMS, f"{account.name} has {len(account.streams)} streams")
        message = self._stamp(command, session, judgement)
        post = self._deliver(message, session.id, stream, found)
        route = Route(post.numbers, post.keys, post.stream_seqs).pack()
        seal = ledger.seal(encoded, route, message.id, sender, message.protocol, int(message.verified), self.now_ms)
        row = self.ledger.append(Sent(message.id, sender, str(content.target), len(post.keys), seal), self.now_ms)
        self.store.accept(row, message, encoded, route)
        if content.ttl_ms is not None:
            deadline_ms = self.now_ms + content.ttl_ms
            for number, key in zip(post.numbers, post.keys, strict=True):
                heapq.heappush(self._deadlines, (deadline_ms, number, key))
        self.loops.note(message.id, message.offset, content, sender, judgement.hops, self.now_ms)
        self.outcome.posts.append(post)
        self.outcome.urgent = self.dirty = True
        return Accepted(message.id, message.offset, len(post.keys), backlog=backlog)

    def _known(self, session: Session, wire_id: str, digest: str) -> Reply | None:
        if not wire_id or len(wire_id.encode()) > self.limits.text_bytes_max:
            return Refusal(Code.INVALID_MESSAGE, f"a wire id has 1 to {self.limits.text_bytes_max} bytes")
        known = self.store.find_wire_id(session.speaker, session.protocol, wire_id)
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
            verified=session.account is not None,
            hops=judgement.hops,
            cause=judgement.cause,
        )

    def _deliver(self, message: Message, origin: SessionId, stream: str, accounts: Collection[Account]) -> Post:
        names: list[MemberName] = []
        numbers: list[int] = []
        keys: list[int] = []
        stream_seqs: list[int] = []
        offset = message.offset
        for account in accounts:
            counts = account.streams
            stream_seq = counts[stream] = counts.get(stream, 0) + 1
            keys.append(account.inbox.append(offset, stream_seq))
            stream_seqs.append(stream_seq)
            names.append(account.name)
            numbers.append(account.number)
            account.changed = True
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
        if len(command.evidence) > self.limits.text_bytes_max:
            return Refusal(Code.INVALID_REQUEST, f"evidence has at most {self.limits.text_bytes_max} characters")
        if command.state is State.DEAD and any(
            other.acknowledges and other is not session for other in account.sessions
        ):
            # What does not fit this wire may fit another that the member has.
            return _DONE
        self.move(account, command.ranges, command.state, session=session, evidence=command.evidence)
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
        if delivery is None:
            return Claimed(None)
        self.move(
            account, ((delivery.key, delivery.key),), State.ACKED, session=session, evidence="claim", claimed=True
        )
        self.outcome.urgent = True
        return Claimed(Delivery(delivery.key, delivery.stream_seq, State.ACKED, delivery.message))

    def _record_activity(self, command: c.RecordActivity) -> Reply:
        session = self.session(command.session)
        if isinstance(session, Refusal):
            return session
        if session.account is None:
            return Refusal(Code.INVALID_REQUEST, "only a member's session can report activity")
        rows = [
            LogRow(self._activity_end + index, self.now_ms, ledger.encode_activity(event))
            for index, event in enumerate(command.events)
        ]
        self.store.record_activity(session.account.number, rows)
        self._activity_end += len(rows)
        self.outcome.urgent = self.dirty = True
        return Recorded(len(rows))

    def _tick(self) -> Reply:
        self.retention.work(self)
        return _DONE

    def _expire(self) -> None:
        while self._deadlines and self._deadlines[0][0] <= self.now_ms:
            _, number, key = heapq.heappop(self._deadlines)
            account = self.directory.accounts.get(number)
            if account is not None:
                self.move(account, ((key, key),), State.EXPIRED, evidence="time to live passed")

    def _tell_followers(self, account: Account, first: int, last: int, state: State) -> None:
        for key in range(max(first, account.inbox.first_unsettled), min(last, account.inbox.next_key - 1) + 1):
            entry = account.inbox.entry(key)
            if entry is None or entry.state >= state or entry.offset not in self.followers:
                continue
            followed = self.followers[entry.offset]
            step = Progress(followed.message_id, account.name, state, self.now_ms)
            self.outcome.progress.extend((session, step) for session in followed.sessions)
            self.outcome.urgent = True
            if state in SETTLED:
                followed.unsettled.discard(account.number)
                if not followed.unsettled:
                    del self.followers[entry.offset]

    def _pause(self, name: str, message_id: MessageId | None) -> None:
        self.loops.pause(name, self.now_ms)
        self.record(Paused(name, message_id or ""), urgent=False)

    def _audit_refusal(self, command: c.Command, refusal: Refusal) -> None:
        session = self.directory.sessions.get(getattr(command, "session", SessionId("")))
        if session is not None:
            speaker, protocol = session.speaker, session.protocol
        else:
            speaker, protocol = str(getattr(command, "member", "") or ""), str(getattr(command, "protocol", ""))
        row = self._refusals.note(refusal.code, speaker, protocol, type(command).__name__, self.now_ms)
        if row is not None:
            self.record(row, urgent=False)


_DONE = Done()

"""Test doubles for tests of the broker: a clock and ids that the test controls, and a harness around a broker."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol, TypeVar

from tieline.contract import command as c
from tieline.contract.delivery import Delivery, Receipt, State
from tieline.contract.event import AnyEvent, LogRow
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import ByHomeKey, ByPlace, ByToken, MemberKind, Presence
from tieline.contract.message import Content, Message
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Accepted, Attached, Claimed, Done, Fetched, Issued, LogRows, Receipts, Reply, Roster
from tieline.contract.target import Target, parse_target
from tieline.core import ledger
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.external_inboxes import Answers
from tieline.core.journal import Journal
from tieline.core.outcome import Deferred, Outcome
from tieline.core.search_query import SearchQuery
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteActivity
from tieline.stores.sqlite.database import IN_MEMORY

HOME_KEY = "the key of the test's home"
START_MS = 1_800_000_000_000

_Kind = TypeVar("_Kind")


class FakeClockAndIds:
    """Test double for the clock and the ids: the clock stands still until the test moves it, and ids are counted."""

    def __init__(self) -> None:
        self.time_ms = START_MS
        self.step_ms = 0
        self.doubtful = False
        self._count = 0

    def _next(self) -> int:
        self._count += 1
        return self._count

    def now_ms(self) -> int:
        return self.time_ms

    def take_step_ms(self) -> int:
        step, self.step_ms = self.step_ms, 0
        return step

    def doubts_time(self) -> bool:
        return self.doubtful

    def set_clock(self, by_ms: int) -> None:
        """Move the time by `by_ms`, as if somebody had set the clock of the machine."""
        self.time_ms += by_ms
        self.step_ms += by_ms

    def message_id(self, now_ms: int) -> MessageId:
        return MessageId(f"{now_ms:013d}-{self._next():06d}")

    def session_id(self) -> SessionId:
        return SessionId(f"session-{self._next()}")

    def token(self) -> str:
        return f"token-made-for-tests-{self._next()}"


def content(target: str | Target, body: str = "hello", **fields: Any) -> Content:
    """Return the content of a message. `target` may be a text as people write it, such as `@bob`."""
    checked = parse_target(target) if isinstance(target, str) else target
    assert isinstance(checked, Target), checked
    return Content(target=checked, body=body, **fields)


class FakeInbox(Protocol):
    """Interface of a test double for an external inbox. It answers at once."""

    session: SessionId

    def reserve(self, message: Message, key: int) -> bool | None:
        """Reserve a delivery.

        Return false if a process outside took it first, and `None` if the inbox cannot know that.
        """

    def finish(self, keys: Sequence[int]) -> None:
        """Record that the reserved deliveries are settled and committed."""

    def give_back(self, keys: Sequence[int]) -> None:
        """Record that the reserved deliveries were not settled, so that processes outside may take them again."""


class BrokerHarness:
    """Test harness: a broker with its store.

    It decides one command at a time, and commits before it returns the reply.
    """

    def __init__(self, open_store: Callable[[], Store], limits: Limits = DEFAULT_LIMITS) -> None:
        self._open_store = open_store
        self._activity = SqliteActivity(IN_MEMORY)
        self.limits = limits
        self.clock_and_ids = FakeClockAndIds()
        self.external_inboxes: dict[MemberName, FakeInbox] = {}
        self.answers = Answers()
        # The tokens that several names share, as the hub is configured with them.
        self.configured: tuple[str, ...] = ()
        self.open()

    def open(self) -> None:
        """Open the store, start a broker on it, and open the operator's session."""
        self.store = self._open_store()
        self.broker = Broker(
            self.store,
            self.clock_and_ids,
            self.limits,
            home_key=token_digest(HOME_KEY),
            shared_tokens=frozenset(map(token_digest, self.configured)),
        )
        self.journal = Journal(self._activity, self.limits)
        self.outcome = Outcome()
        self.operator = self.attach(None)

    def restart(self, *configured: str) -> None:
        """Stop the broker cleanly and start it again. If tokens are given, they become its shared tokens."""
        self.configured = configured or self.configured
        self.broker.close()
        self.open()

    def crash(self) -> None:
        """Start the broker again as after a crash: changes that were not committed are lost."""
        self.store.close()
        self.open()

    def pass_ms(self, milliseconds: int) -> None:
        """Move the clock forward, and let the broker do the work that is due."""
        self.clock_and_ids.time_ms += milliseconds
        self.ask(c.Tick())

    # Asking.

    def decide(self, *commands: c.Command) -> list[Reply]:
        """Let the broker handle commands as one batch. Return the replies. Commit nothing."""
        self.outcome = self.handle(commands)
        assert len(self.outcome.replies) == len(commands)
        return [self._made(reply) for reply in self.outcome.replies]

    def _made(self, reply: Reply | Deferred) -> Reply:
        if not isinstance(reply, Deferred):
            return reply
        # A test of the search passes a query to an index itself.
        made = Done() if isinstance(reply.work, SearchQuery) else self.journal.carry_out(reply.work)[0]
        return made if reply.then is None or isinstance(made, Refusal) else self.decide(reply.then)[0]

    def handle(self, commands: Sequence[c.Command]) -> Outcome:
        """Let the broker handle commands, with the answers of external inboxes. Return the outcome.

        If deliveries waited for an external inbox, settle them afterwards.
        """
        self.answers = Answers()
        while wanted := self.broker.settlement.needs(commands, self.answers):
            name, deliveries = wanted
            for key, message in deliveries:
                self.answers.by_delivery[name, key] = self.external_inboxes[name].reserve(message, key)
        self.broker.external_inboxes.answers = self.answers
        outcome = self.broker.handle(commands)
        self.broker.external_inboxes.answers = Answers()
        if outcome.unsettled:
            answers = self.answers
            self.handle(outcome.settle_commands())
            self.answers.by_delivery |= answers.by_delivery
        return outcome

    def set_external_inbox(self, name: MemberName, inbox: "FakeInbox") -> None:
        """Give a member an inbox outside the hub, such as a folder of files.

        The hub asks this inbox before it takes a delivery.
        """
        self.external_inboxes[name] = inbox
        self.broker.external_inboxes.sessions[name] = inbox.session

    def commit(self) -> None:
        """Commit the broker's changes, and tell the external inboxes which deliveries are settled."""
        self.broker.commit()
        for name, key in self.broker.external_inboxes.finished:
            self.external_inboxes[name].finish((key,))
        self.broker.external_inboxes.finished.clear()

    def roll_back(self) -> None:
        """Undo the changes that are neither committed nor published (told to clients).

        Give unsettled deliveries back to their external inboxes.
        """
        self.broker.roll_back()
        for name, key in self.broker.settlement.unused(self.answers.reserved()):
            self.external_inboxes[name].give_back((key,))

    def ask_all(self, *commands: c.Command) -> list[Reply]:
        """Handle commands as one batch and commit it. Return the replies."""
        replies = self.decide(*commands)
        self.commit()
        self.journal.commit()
        return replies

    def ask(self, command: c.Command) -> Reply:
        """Handle one command and commit it. Return the reply."""
        return self.ask_all(command)[0]

    def expect(self, kind: type[_Kind], command: c.Command) -> _Kind:
        """Handle one command and commit it. Return the reply, which must be of the type `kind`."""
        reply = self.ask(command)
        assert isinstance(reply, kind), reply
        return reply

    def refused(self, command: c.Command) -> Refusal:
        """Handle one command, which must be refused. Return the refusal."""
        return self.expect(Refusal, command)

    # Phrases.

    def add(self, name: str, *permissions: str, kind: MemberKind = MemberKind.AGENT, token: str | None = None) -> str:
        """Make a member. Return its token."""
        return self.expect(
            Issued, c.AddMember(self.operator, name=MemberName(name), kind=kind, permissions=permissions, token=token)
        ).token

    def attach(self, name: str | None, protocol: str = "hub", *, acknowledges: bool = True) -> SessionId:
        """Open a local session of a member, which needs no token. Without a name, open a session of the operator."""
        member = None if name is None else MemberName(name)
        credential = ByHomeKey(HOME_KEY) if member is None else ByPlace()
        command = c.Attach(protocol=protocol, credential=credential, member=member, acknowledges=acknowledges)
        return self.expect(Attached, command).session

    def attach_by_token(self, token: str, protocol: str = "hub", *, acknowledges: bool = True) -> SessionId:
        """Open a session of the member to which a token belongs."""
        command = c.Attach(protocol=protocol, credential=ByToken(token), acknowledges=acknowledges)
        return self.expect(Attached, command).session

    def join(self, name: str, *permissions: str, kind: MemberKind = MemberKind.AGENT) -> SessionId:
        """Make a member and open a session for it, by its own token."""
        return self.attach_by_token(self.add(name, *permissions, kind=kind))

    def remove(self, name: str) -> None:
        """Remove a member."""
        self.expect(Done, c.RemoveMember(self.operator, name=MemberName(name)))

    def subscribe(self, session: SessionId, channel: str) -> None:
        """Subscribe the session's member to a channel."""
        self.expect(Done, c.Subscribe(session, channel=ChannelName(channel)))

    def send(
        self, session: SessionId, target: str, body: str = "hello", *, wire_id: str | None = None, **fields: Any
    ) -> Accepted:
        """Send a message, which must be accepted. Return the reply."""
        return self.expect(Accepted, c.Send(session, content=content(target, body, **fields), wire_id=wire_id))

    def offered(self, session: SessionId, first: int, last: int | None = None) -> None:
        """Tell the broker that the deliveries with the keys `first` to `last` were written to the session's wire."""
        self.expect(Done, c.Offered(session, first=first, last=first if last is None else last))

    def advance(self, session: SessionId, key: int, state: State = State.ACKED, evidence: str = "") -> None:
        """Set the state of one delivery of the session's member, with this evidence."""
        self.expect(Done, c.Advance(session, ranges=((key, key),), state=state, evidence=evidence))

    def claim(self, session: SessionId, message_id: MessageId) -> Delivery | None:
        """Claim a delivery for the session. Return it, or `None` if it was taken before."""
        return self.expect(Claimed, c.Claim(session, message_id=message_id)).delivery

    def fetch(self, session: SessionId, **arguments: Any) -> tuple[Delivery, ...]:
        """Return the unsettled deliveries of the session's member. `arguments` are other fields of `Fetch`."""
        return self.expect(Fetched, c.Fetch(session, **arguments)).deliveries

    def bodies(self, session: SessionId) -> list[str]:
        """Return the bodies of the unsettled deliveries of the session's member, oldest first."""
        return [delivery.message.content.body for delivery in self.fetch(session)]

    def receipts(self, session: SessionId, message_id: MessageId) -> dict[str, Receipt]:
        """Return the receipts of a message, by recipient."""
        answer = self.expect(Receipts, c.ReadReceipts(session, message_id=message_id))
        assert answer.message_id == message_id
        return {receipt.member: receipt for receipt in answer.receipts}

    def state(self, message_id: MessageId, member: str) -> State:
        """Return the state of a message for one recipient."""
        return self.receipts(self.operator, message_id)[member].state

    def roster(self) -> dict[str, Presence]:
        """Return all members, by name."""
        roster = self.expect(Roster, c.ListMembers(self.operator))
        return {presence.member.name: presence for presence in roster.members}

    def log(self, log: str = "main") -> Sequence[LogRow]:
        """Return all committed rows of a log: `main` or `activity`."""
        rows: list[LogRow] = []
        while True:
            page = self.expect(LogRows, c.ReadLog(self.operator, log=log, start=len(rows), limit=self.limits.read_max))
            rows += page.rows
            if len(rows) >= page.end:
                return tuple(rows)

    def events(self) -> list[AnyEvent]:
        """Return all committed events of the main log."""
        return [ledger.decode_event(row.event) for row in self.log()]

"""Test helper for the broker's memory: a store whose calls can raise, and random lives of a broker on it."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import ByHomeKey, MemberKind
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Claimed, ObjectiveState, Reply
from tieline.core import ledger
from tieline.core.outcome import Deferred, Outcome
from tieline.core.rules import Rule
from tieline.core.store import DiskError
from tieline.stores.sqlite import SqliteStore

NAMES = ("ada", "bob", "cy", "di")
HOME_KEY = "the key of the test's home"


class Bug(Exception):
    """Exception that tests raise inside of a command, and that no rule of the broker expects."""


class FaultyStore(SqliteStore):
    """Test double: a real store in which one call raises, before or (with `late`) after the call has done its work."""

    left: int | None = None
    late = False
    full = False

    def count(self) -> bool:
        """Count down the calls until the one that raises. Return true for this call."""
        if self.left is None:
            return False
        self.left -= 1
        return self.left == 0

    def commit(self) -> None:
        """Commit. Raise `DiskError` if `full` is set."""
        if self.full:
            raise DiskError("no space left on device")
        super().commit()


def _watch(name: str) -> Callable[..., Any]:
    def call(self: FaultyStore, *values: Any, **named: Any) -> Any:
        if not self.count():
            return getattr(SqliteStore, name)(self, *values, **named)
        if self.late:
            getattr(SqliteStore, name)(self, *values, **named)
        raise Bug(name)

    return call


_WATCHED = {"accept", "advance", "fall", "record", "save_member", "drop_member", "save_token", "drop_token"} | {
    *("save_setting", "save_owner", "save_grant"),
    *("find_wire_id", "messages", "find_message", "steps", "falls", "names", "history"),
}
for _name in _WATCHED:
    setattr(FaultyStore, _name, _watch(_name))


def open_harness(folder: Path, limits: Limits = DEFAULT_LIMITS) -> BrokerHarness:
    """Return a broker harness with a `FaultyStore`, in which a test can let calls raise."""
    return BrokerHarness(lambda: FaultyStore(folder, synchronous="OFF"), limits)


def store_of(harness: BrokerHarness) -> FaultyStore:
    assert isinstance(harness.store, FaultyStore)
    return harness.store


def work(harness: BrokerHarness, commands: Sequence[c.Command]) -> Outcome:
    """Let the broker handle commands as the local hub does, in several batches if necessary. Return the whole outcome.

    If the broker handled only the first commands of a batch, the others are the next batch.
    """
    outcome = Outcome()
    while len(outcome.replies) < len(commands):
        part = harness.handle(commands[len(outcome.replies) :])
        if part.urgent:
            harness.commit()
        else:
            harness.broker.mark_published()
        for field in ("replies", "changes", "posts", "progress", "faults"):
            getattr(outcome, field).extend(getattr(part, field))
    return outcome


def plain(text: str) -> str:
    """Return a text with all random ids replaced by `…`."""
    return re.sub(r"\d{13}-\d+|session-\d+|obj-\w+-\w+|seal='\w*'|object='\w*'|digest='\w*'", "…", text)


class Walk:
    """Sends random commands to a broker. Two walks with the same seed make the same commands, even if ids differ."""

    def __init__(self, harness: BrokerHarness, seed: int) -> None:
        self.harness = harness
        self.chance = random.Random(seed)
        self.sessions: list[SessionId] = []
        self.messages: list[MessageId] = []
        self.objectives: list[str] = []
        self.poison: c.Command | None = None
        self.raised = False
        self.replies: list[tuple[str, Any]] = []
        self.made = 0
        for name in NAMES:
            kind = MemberKind.HUMAN if name == "di" else MemberKind.AGENT
            permissions = ("objectives.create", "members.manage", "team.manage") if name == "ada" else ()
            harness.add(name, *permissions, kind=kind)
            self.sessions.append(harness.attach(name))
        harness.subscribe(self.sessions[0], "dev")
        harness.subscribe(self.sessions[1], "dev")
        reach = Reach((Leg(Way.PUSH, 400), Leg(Way.PULL, 0)))
        harness.ask(c.SetReach(harness.operator, name=MemberName("cy"), reach=reach))
        # A rollback makes all rules anew.
        broker, load = harness.broker, harness.broker._load

        def load_and_poison(*kept: Any) -> None:
            load(*kept)
            broker._rules = {kind: self._poisoned(rule) for kind, rule in broker._rules.items()}

        broker._load = load_and_poison  # type: ignore[method-assign, assignment]
        broker._rules = {kind: self._poisoned(rule) for kind, rule in broker._rules.items()}

    def _poisoned(self, rule: Rule) -> Rule:
        """Return a rule that raises for the command `poison`, and otherwise does what `rule` does."""

        def decide_or_raise(session: Any, command: c.Command) -> Reply | Deferred:
            if command is not self.poison:
                return rule(session, command)
            self.raised = True
            store = store_of(self.harness)
            store.left, store.late = self.calls, self.late
            try:
                rule(session, command)
            finally:
                store.left = None
            raise Bug("at the end")

        return decide_or_raise

    def command(self) -> c.Command:
        chance, pick = self.chance, self.chance.choice
        session, name = pick(self.sessions), pick(NAMES)
        key = chance.randrange(1, 12)
        self.made += 1
        match chance.randrange(19):
            case 0 | 1 | 2 | 3:
                target = pick((f"@{name}", "#dev", "*"))
                ttl_ms = pick((None, None, 700))
                wire_id = pick((None, f"w{chance.randrange(6)}"))
                reply_to = pick([None, *self.messages[-3:]])
                said = content(target, pick(("hello", "hi")), ttl_ms=ttl_ms, reply_to=reply_to, topic=pick(("", "t")))
                return c.Send(session, content=said, wire_id=wire_id)
            case 4 | 5:
                return c.Offered(session, first=key, last=key + 2, ackless=pick((True, False)))
            case 6 | 7:
                state = pick((State.SEEN, State.ACKED, State.ACKED, State.DEAD))
                return c.Advance(session, ranges=((key, key + chance.randrange(3)),), state=state, evidence="evidence")
            case 8 if self.messages:
                return c.Claim(session, message_id=pick(self.messages))
            case 9 if self.messages:
                return c.Follow(session, message_id=pick(self.messages))
            case 10:
                return pick((c.Subscribe, c.Unsubscribe))(session, channel=ChannelName(pick(("dev", "ops"))))
            case 11:
                return c.AddMember(self.harness.operator, name=MemberName(f"new{self.made}"))
            case 12:
                return c.RotateToken(self.harness.operator, name=MemberName(name))
            case 13:
                return c.UpdateTeam(self.sessions[0], directive=f"do {self.made}")
            case 14:
                assignee = MemberName(name)
                return c.CreateObjective(session=self.sessions[0], title="t", outcome="o", assignee=assignee)
            case 15:
                credential, member = ByHomeKey(HOME_KEY), MemberName(name)
                return c.Attach(protocol="hub", credential=credential, member=member, resumable=pick((True, False)))
            case 16 if len(self.sessions) > len(NAMES):
                return c.Detach(self.sessions[-1])
            case 17:
                return c.Tick()
            case _:
                return c.Send(session, content=content("@nobody"))

    def batch(self, *, poisoned: bool) -> None:
        """Send several random commands to the broker in one batch. With `poisoned`, one of them raises."""
        self.harness.clock_and_ids.time_ms += self.chance.randrange(500)
        commands = [self.command() for _ in range(self.chance.randrange(1, 8))]
        poison, place = self.command(), self.chance.randrange(len(commands) + 1)
        if isinstance(poison, c.Tick):
            # Its chores rest when they fail, which has a test of its own.
            poison = c.ListMembers(self.harness.operator)
        self.calls, self.late = self.chance.randrange(1, 5), self.chance.random() < 0.5
        if poisoned:
            self.poison, self.raised = poison, False
            commands.insert(place, poison)
        outcome = work(self.harness, commands)
        if poisoned:
            reply = outcome.replies.pop(place)
            # No rule is called for a session that has ended.
            refused = Code.INTERNAL_ERROR if self.raised else Code.UNKNOWN_SESSION
            assert isinstance(reply, Refusal) or not self.raised
            assert not isinstance(reply, Refusal) or reply.code is refused
            assert [fault.what for fault in outcome.faults] == [type(poison).__name__] * self.raised
            commands.pop(place)
            self.poison = None
        self.told = (
            [(type(change).__name__, getattr(change, "name", "")) for change in outcome.changes],
            sorted((step.member, step.state) for _, step in outcome.progress),
        )
        for command, reply in zip(commands, outcome.replies, strict=True):
            self.note(command, reply)

    def note(self, command: c.Command, reply: Reply | Deferred) -> None:
        match reply:
            case Accepted():
                self.messages.append(reply.message_id)
                self.replies.append(("accepted", (reply.recipients, reply.duplicate, reply.backlog)))
            case Attached():
                self.sessions.append(reply.session)
                self.replies.append(("attached", (reply.member, reply.next_key, reply.resumed)))
            case Claimed():
                key = None if reply.delivery is None else (reply.delivery.key, reply.delivery.message.content.body)
                self.replies.append(("claimed", key))
            case Refusal():
                self.replies.append((reply.code.value, type(command).__name__))
            case ObjectiveState():
                self.replies.append(("objective", reply.objective.title))
            case _:
                self.replies.append((type(reply).__name__, None))
        if isinstance(command, c.Detach):
            self.sessions.pop()

    def state(self) -> dict[str, Any]:
        """Return all visible state of the broker, without ids and without the times of the last activity."""
        broker = self.harness.broker
        accounts = {account.name: account for account in broker.directory.accounts.values()}
        return {
            "inboxes": {name: list(self.deliveries(name)) for name in accounts},
            "next keys": {name: account.inbox.next_key for name, account in accounts.items()},
            "backlogs": {name: account.inbox.backlog for name, account in accounts.items()},
            "streams": {name: account.streams for name, account in accounts.items()},
            "sessions": {name: len(account.sessions) for name, account in accounts.items()},
            "tokens": {name: len(broker.directory.tokens_of(account)) for name, account in accounts.items()},
            "channels": {name: sorted(members) for name, members in broker.directory.channels.items()},
            "team": broker.directory.team.directive,
            "objectives": len(broker.objectives),
            "follows": sorted(len(one.sessions) for one in broker.followers.by_offset.values()),
            # A deadline may outlive its delivery; it does nothing then.
            "deadlines": sorted(
                due for due in broker.deadlines if broker.directory.accounts[due[1]].inbox.entry(due[2])
            ),
            "waits": sorted(
                (wait.deadline_ms, wait.number, wait.index, key)
                for wait in broker.escalation._waits
                for key in range(wait.first, wait.last + 1)
            ),
            "grants": sorted(grant.number for grant in broker.resumption._by_id.values()),
        }

    def deliveries(self, name: str) -> Iterator[tuple[int, int, State, str]]:
        inbox = self.harness.broker.directory.find(name)
        assert inbox is not None
        for entry in inbox.inbox.read(0, 1000)[0]:
            messages, _ = self.harness.store.messages([entry.offset], 10_000)
            yield entry.key, entry.stream_seq, entry.state, plain(messages[entry.offset].content.body)

    def log(self) -> list[str]:
        """Return the events of the log as texts without ids and hashes, sorted.

        They are sorted because state changes may come before or after the messages of the same batch.
        """
        events = [ledger.decode_event(row.event) for row in self.harness.store.read_log(0, 10_000)[0]]
        return sorted(plain(str(event)) for event in events)

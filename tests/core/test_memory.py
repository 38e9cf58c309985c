"""Tests of the broker's memory: a command that raises changes nothing, and a failed commit ends no session."""

import random
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import apsw
import pytest
from msgspec.structs import replace

from tests.core.doubles import BrokerHarness, content
from tests.core.test_external_inboxes import BOB, Shop
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.keys import Ranges
from tieline.contract.limits import DEFAULT_LIMITS, Limits
from tieline.contract.member import ByHomeKey, ByToken, MemberKind
from tieline.contract.reach import Leg, Reach, Way
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Claimed, Done, History, ObjectiveState, Reply
from tieline.core import ledger
from tieline.core.directory import Account
from tieline.core.external_inboxes import ExternalInboxes
from tieline.core.outcome import Deferred, Outcome
from tieline.core.store import DiskError, StoreError
from tieline.stores.sqlite import SqliteStore
from tieline.stores.sqlite.store import MAIN_FILE

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


@pytest.fixture
def faulty(tmp_path: Path) -> BrokerHarness:
    """Fixture: a broker harness with a `FaultyStore`, in which a test can let calls raise."""
    return open_harness(tmp_path / "faulty")


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
        decide = harness.broker._decide

        def decide_or_raise(command: c.Command) -> Reply | Deferred:
            if command is not self.poison:
                return decide(command)
            store = store_of(harness)
            store.left, store.late = self.calls, self.late
            try:
                decide(command)
            finally:
                store.left = None
            raise Bug("at the end")

        harness.broker._decide = decide_or_raise  # type: ignore[method-assign]

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
            self.poison = poison
            commands.insert(place, poison)
        outcome = work(self.harness, commands)
        if poisoned:
            refusal = outcome.replies.pop(place)
            assert isinstance(refusal, Refusal)
            assert refusal.code is Code.INTERNAL_ERROR
            assert [fault.what for fault in outcome.faults] == [type(poison).__name__]
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
                (wait.deadline_ms, wait.number, wait.place, key)
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


@pytest.mark.parametrize("seed", range(12))
def test_a_life_with_commands_that_raise_is_the_life_without_them(seed: int, tmp_path: Path) -> None:
    calm, troubled = (Walk(open_harness(tmp_path / where), seed) for where in ("a", "b"))
    for _ in range(14):
        calm.batch(poisoned=False)
        troubled.batch(poisoned=True)
        assert troubled.replies == calm.replies
        assert troubled.told == calm.told
        assert troubled.state() == calm.state()
    for walk in (calm, troubled):
        walk.harness.broker.commit()
    assert troubled.log() == calm.log()
    before = troubled.state()
    troubled.harness.crash()
    after = troubled.state()
    for part in (
        "inboxes",
        "next keys",
        "backlogs",
        "streams",
        "tokens",
        "channels",
        "team",
        "objectives",
        "deadlines",
    ):
        assert after[part] == before[part], f"the store keeps the same {part}"


@pytest.mark.parametrize("seed", range(6))
def test_a_life_with_commits_that_fail_is_the_life_without_what_they_held(seed: int, tmp_path: Path) -> None:
    calm, troubled = (Walk(open_harness(tmp_path / where), seed) for where in ("a", "b"))
    for _ in range(14):
        commands = [troubled.command() for _ in range(5)]
        troubled.harness.broker.handle(commands)
        store_of(troubled.harness).full = True
        with pytest.raises(DiskError):
            troubled.harness.broker.commit()
        store_of(troubled.harness).full = False
        troubled.harness.broker.roll_back()
        for _ in range(5):
            calm.command()
        calm.batch(poisoned=False)
        troubled.batch(poisoned=False)
        assert troubled.replies == calm.replies
        assert troubled.state() == calm.state()


# A bad command is refused alone.


@pytest.mark.parametrize("field", ["after", "before"])
@pytest.mark.parametrize("number", [2**63 - 1, 2**63, 2**80, -(2**63) - 1])
def test_a_position_beyond_every_log_is_an_empty_page_or_all_of_it(
    harness: BrokerHarness, field: str, number: int
) -> None:
    alice = harness.join("alice")
    harness.send(alice, "@alice")
    for forward in (True, False):
        command = c.ReadHistory(alice, forward=forward)
        found = harness.expect(History, replace(command, **{field: number})).messages
        everything = (number > 0) == (field == "before")
        assert len(found) == everything


def test_a_token_that_would_expire_after_the_end_of_time_is_refused(harness: BrokerHarness) -> None:
    alice = harness.join("alice")
    refusal = harness.refused(c.IssueToken(alice, name=MemberName("alice"), expires_at_ms=2**63))
    assert refusal.code is Code.INVALID_REQUEST


def test_a_read_that_raises_costs_no_rollback(faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = faulty.join("alice")
    monkeypatch.setattr(faulty.broker, "roll_back", lambda: pytest.fail("nothing had changed"))
    store_of(faulty).left = 1
    first, second = work(faulty, (c.ReadHistory(alice), c.Send(alice, content=content("@alice")))).replies
    assert isinstance(first, Refusal)
    assert first.code is Code.INTERNAL_ERROR
    assert isinstance(second, Accepted)


def test_an_expiry_that_raises_keeps_nobody_from_being_served(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    stuck = faulty.send(alice, "@bob", "stuck", ttl_ms=10).message_id
    monkeypatch.setattr(ExternalInboxes, "reserve", lambda *_: 1 / 0)
    faulty.clock_and_ids.time_ms += 20
    for _ in range(3):
        faulty.expect(Accepted, c.Send(alice, content=content("@alice")))
    assert [fault.what for fault in faulty.broker.faults] == ["Tick"]
    assert faulty.state(stuck, "bob") is State.PENDING
    assert faulty.bodies(bob) == ["stuck"]


def test_an_expiry_that_failed_once_comes_later_and_costs_one_rollback(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = faulty.join("alice")
    faulty.add("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    said = [faulty.send(alice, "@bob", ttl_ms=10).message_id for _ in range(5)]
    with monkeypatch.context() as patch:
        patch.setattr(ExternalInboxes, "reserve", lambda *_: 1 / 0)
        faulty.pass_ms(20)
        faulty.pass_ms(1000)
        assert len(faulty.broker.faults) == 1
    faulty.pass_ms(60_000)
    assert [faulty.state(each, "bob") for each in said] == [State.PENDING] + 4 * [State.EXPIRED]
    faulty.pass_ms(60_000)
    assert faulty.state(said[0], "bob") is State.EXPIRED
    assert len(faulty.broker.faults) == 1


def test_a_delivery_that_never_expires_is_tried_ever_less_and_the_others_expire(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    alice = faulty.join("alice")
    faulty.add("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    tried: list[int] = []

    def fail(_: object, account: Account, ranges: Ranges, *__: object) -> tuple[Ranges, Ranges]:
        if account.name != BOB:
            return ranges, ()
        tried.append(1)
        raise Bug

    faulty.send(alice, "@bob", ttl_ms=10)
    monkeypatch.setattr(ExternalInboxes, "reserve", fail)
    for _ in range(300):
        faulty.pass_ms(60_000)
    assert len(tried) == 1 + 5 + 3, "after 2, 4, 8, 16 and 32 minutes, and then each hour"
    other = faulty.send(alice, "@alice", ttl_ms=10).message_id
    faulty.pass_ms(60_000)
    assert faulty.state(other, "alice") is State.EXPIRED


def test_a_chore_that_raises_rests_and_the_others_are_done(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried: list[int] = []

    def fail(*_: object) -> None:
        tried.append(1)
        raise Bug

    monkeypatch.setattr("tieline.core.retention.Retention.work", fail)
    for _ in range(5):
        assert work(faulty, (c.Tick(),)).replies
        faulty.clock_and_ids.time_ms += 1000
    assert tried == [1]


# Answered work survives a failed commit.


def test_an_acknowledgement_that_was_answered_survives_a_commit_that_fails(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    first, second = faulty.send(alice, "@bob", "1").message_id, faulty.send(alice, "@bob", "2").message_id
    work(faulty, (c.Offered(bob, first=1, last=2), c.Advance(bob, ranges=((1, 1),)), c.Detach(bob)))
    fill(faulty, c.Send(alice, content=content("@bob", "lost")))
    assert faulty.bodies(faulty.attach("bob")) == ["2"]
    faulty.broker.commit()
    faulty.crash()
    assert faulty.state(first, "bob") is State.ACKED
    assert faulty.state(second, "bob") is State.OFFERED
    assert faulty.bodies(faulty.attach("bob")) == ["2"]


def fill(harness: BrokerHarness, *commands: c.Command) -> None:
    """Handle commands, let the commit fail because the disk is full, and roll back."""
    harness.handle(commands)
    store_of(harness).full = True
    with pytest.raises(DiskError):
        harness.commit()
    store_of(harness).full = False
    harness.roll_back()


def test_a_published_right_to_take_up_a_session_needs_no_disk_to_roll_back(tmp_path: Path) -> None:
    harness = open_harness(tmp_path)
    harness.add("alice", token="a token of twenty characters")
    hello = c.Attach(protocol="hub", credential=ByToken("a token of twenty characters"), resumable=True)
    first = harness.expect(Attached, hello)
    second = harness.expect(Attached, replace(hello, resume_token=first.resume_token))
    store_of(harness)._main.set_busy_timeout(0)
    work(harness, (c.Confirm(second.session),))
    blocker = apsw.Connection(str(tmp_path / MAIN_FILE))
    harness.broker.handle((c.Send(second.session, content=content("@alice")),))
    blocker.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreError):
        harness.broker.commit()
    harness.broker.roll_back()
    blocker.execute("ROLLBACK")
    blocker.close()
    store_of(harness).retry()
    harness.broker.commit()
    harness.crash()
    assert harness.refused(replace(hello, resume_token=first.resume_token)).code is Code.RESUME_REFUSED
    assert harness.expect(Attached, replace(hello, resume_token=second.resume_token)).resumed


def test_a_right_of_a_removed_member_is_not_kept(faulty: BrokerHarness) -> None:
    token = faulty.add("alice")
    resumable = c.Attach(protocol="hub", credential=ByToken(token), resumable=True)
    work(faulty, (resumable, c.RemoveMember(faulty.operator, name=MemberName("alice"))))
    assert faulty.store.restore().grants == []


def test_keys_of_a_batch_that_failed_are_given_again(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    fill(
        faulty,
        c.Send(alice, content=content("@bob", "lost"), wire_id="w1"),
        c.Send(alice, content=content("@bob", "lost"), wire_id="w2"),
    )
    kept = faulty.send(alice, "@bob", "kept", wire_id="w1")
    assert [(item.key, item.stream_seq) for item in faulty.fetch(bob)] == [(1, 1)]
    assert not kept.duplicate


def test_sessions_that_a_failed_batch_opened_or_ended_are_as_they_were(faulty: BrokerHarness) -> None:
    token = faulty.add("alice")
    alice = faulty.attach_by_token(token)
    fill(faulty, c.RotateToken(faulty.operator, name=MemberName("alice")))
    assert faulty.outcome is not None
    faulty.expect(Accepted, c.Send(alice, content=content("@alice")))
    assert faulty.roster()["alice"].sessions == ("hub",)
    attach = c.Attach(protocol="x", credential=ByHomeKey(HOME_KEY), member=MemberName("alice"))
    fill(faulty, attach)
    assert faulty.roster()["alice"].sessions == ("hub",)


def test_who_follows_a_message_hears_of_a_step_that_failed_once(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    said = faulty.send(alice, "@bob")
    faulty.ask(c.Follow(alice, message_id=said.message_id))
    fill(faulty, c.Claim(bob, message_id=said.message_id))
    outcome = work(faulty, (c.Claim(bob, message_id=said.message_id),))
    assert [(session, step.state) for session, step in outcome.progress] == [(alice, State.ACKED)]


def test_who_leaves_in_a_batch_that_failed_hears_on_of_what_it_follows(faulty: BrokerHarness) -> None:
    token = faulty.add("alice")
    first, second, bob = faulty.attach_by_token(token), faulty.attach("alice"), faulty.join("bob")
    said = faulty.send(first, "@bob").message_id
    for session in (first, second):
        faulty.ask(c.Follow(session, message_id=said))
    fill(faulty, c.RotateToken(faulty.operator, name=MemberName("alice")))
    outcome = work(faulty, (c.Advance(bob, ranges=((1, 1),), state=State.SEEN),))
    assert {session for session, _ in outcome.progress} == {first, second}
    faulty.ask(c.Detach(first))
    outcome = work(faulty, (c.Claim(bob, message_id=said),))
    assert [(session, step.state) for session, step in outcome.progress] == [(second, State.ACKED)]


def test_what_was_reserved_for_a_failed_commit_is_given_back_and_can_be_reserved_again(
    faulty: BrokerHarness,
) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    said = faulty.send(alice, "@bob").message_id
    fill(faulty, c.Claim(bob, message_id=said))
    assert (shop.given_back, shop.finished) == ([1], [])
    assert faulty.claim(bob, said) is not None
    assert shop.finished == [1]


def test_what_was_reserved_for_an_answered_acknowledgement_is_not_given_back(faulty: BrokerHarness) -> None:
    alice, bob = faulty.join("alice"), faulty.join("bob")
    shop = Shop()
    faulty.set_external_inbox(BOB, shop)
    faulty.send(alice, "@bob")
    work(faulty, (c.Advance(bob, ranges=((1, 1),)),))
    fill(faulty, c.Send(alice, content=content("@alice")))
    assert (shop.given_back, shop.finished) == ([], [])
    faulty.commit()
    assert shop.finished == [1]


def test_a_rollback_after_a_rollback_replays_little(tmp_path: Path) -> None:
    harness = open_harness(tmp_path, Limits(snapshot_rows=100_000))
    alice = harness.join("alice")
    for _ in range(5):
        harness.ask_all(*(c.Send(alice, content=content("@alice")) for _ in range(1000)))
    fill(harness, c.Send(alice, content=content("@alice")))
    harness.send(alice, "@alice")
    replayed = list(harness.store.replay(harness.store.restore().snapshot_end))
    assert len(replayed) < 2000
    harness.broker.roll_back()
    harness.expect(Done, c.Advance(alice, ranges=((1, 5001),)))
    assert harness.fetch(alice) == ()


def test_a_failing_look_ahead_for_wire_ids_costs_nobody_anything(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = faulty.join("ada"), faulty.join("bob")

    def fail(_: object) -> None:
        raise DiskError("disk I/O error")

    monkeypatch.setattr(faulty.broker.store, "prefetch", fail)
    sends = [c.Send(ada, content=content("@bob"), wire_id="one"), c.Send(bob, content=content("@ada"), wire_id="two")]
    assert [type(reply) for reply in faulty.ask_all(*sends)] == [Accepted, Accepted]
    assert [str(fault.error) for fault in faulty.broker.faults] == ["disk I/O error"]
    assert [getattr(reply, "duplicate", None) for reply in faulty.ask_all(*sends)] == [True, True]


def test_a_look_ahead_that_ends_the_transaction_loses_nothing_that_was_answered(
    faulty: BrokerHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada, bob = faulty.join("ada"), faulty.join("bob")
    faulty.send(ada, "@bob", "zero")
    work(faulty, (c.Advance(bob, ranges=((1, 1),)),))
    store = store_of(faulty)

    def fail(_: object) -> None:
        # After some errors, the database ends the transaction by itself, with the acknowledgement in it.
        store._flush()
        store._main.execute("ROLLBACK")
        raise DiskError("disk I/O error")

    monkeypatch.setattr(store, "prefetch", fail)
    sends = [c.Send(ada, content=content("@bob", body), wire_id=body) for body in ("one", "two")]
    assert [type(reply) for reply in faulty.ask_all(*sends)] == [Accepted, Accepted]
    faulty.crash()
    assert faulty.bodies(faulty.attach("bob")) == ["one", "two"]

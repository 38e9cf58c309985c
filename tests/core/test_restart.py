"""Tests that a broker has the same visible state after a restart, whatever happened before and however it stopped.

The state machine decides random commands, commits at random, and at random stops cleanly or crashes. After a crash the
broker must show the state of its last commit; after a clean stop, the state just before. The state machine also
compares the broker with a simple model of streams and claims.
"""

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.core.doubles import BrokerHarness, content
from tieline.contract import command as c
from tieline.contract.delivery import SETTLED, State
from tieline.contract.identifiers import ChannelName, MemberName, MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import ByPlace
from tieline.contract.message import Kind
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Accepted, Channels, Claimed, Done, Fetched, History, Issued, LogRows, Receipts
from tieline.core.store import Store
from tieline.stores.sqlite import SqliteStore

NAMES = ("ada", "bob", "cy")
DAY_MS = 24 * 3600 * 1000

names = st.sampled_from(NAMES)
sayings = st.tuples(
    names,
    st.sampled_from(["@ada", "@bob", "@cy", "#dev", "*"]),
    st.sampled_from(["", "build"]),
    st.sampled_from([None, None, 50, 5000]),
    st.sampled_from([None, None, "1", "2"]),
    st.sampled_from([Kind.STATUS, Kind.STATUS, Kind.CHAT]),
)
moves = st.tuples(
    names,
    st.integers(0, 1),
    st.integers(0, 3),
    st.sampled_from([State.OFFERED, State.OFFERED, State.SEEN, State.ACKED, State.DEAD]),
    st.sampled_from(["", "a reply", "claim"]),
)
Stream = tuple[str, str, str, int]


class Restarts(RuleBasedStateMachine):
    """State machine of Hypothesis: random commands for a broker, with many restarts and crashes."""

    @initialize(snapshot_rows=st.sampled_from([3, 1_000_000]))
    def begin(self, snapshot_rows: int) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="tieline-test-"))
        limits = Limits(snapshot_rows=snapshot_rows, retention_ms=DAY_MS, hops_max=3)
        self.harness = BrokerHarness(self.make_opener(), limits)
        # Every message that was accepted, and those among them that were committed.
        self.sent: list[MessageId] = []
        self.kept = 0
        # Last sequence by (sender, topic, recipient, recipient's generation), now and at the last commit.
        self.streams: dict[Stream, int] = {}
        self.kept_streams: dict[Stream, int] = {}
        self.generation = dict.fromkeys(NAMES, 0)
        # Deliveries that somebody won, at the last commit or since.
        self.won: set[tuple[str, int, MessageId]] = set()
        self.kept_won: set[tuple[str, int, MessageId]] = set()
        for name in ("ada", "bob"):
            self.decide(c.AddMember(self.harness.operator, name=MemberName(name)))
        self.commit()

    def make_opener(self) -> Callable[[], Store]:
        raise NotImplementedError

    def teardown(self) -> None:
        if hasattr(self, "harness"):
            self.harness.store.close()
            shutil.rmtree(self.folder)

    # Checks of the state machine.

    def decide(self, command: c.Command) -> Any:
        """Let the broker handle a command without a commit. Return the reply.

        Check that the accepted messages have the next numbers in their streams.
        """
        (reply,) = self.harness.decide(command)
        for post in self.harness.outcome.posts:
            sender, topic = post.message.sender, post.message.content.topic
            for recipient, stream_seq in zip(post.recipients, post.stream_seqs, strict=True):
                stream = (sender, topic, recipient, self.generation[recipient])
                assert stream_seq == self.streams.get(stream, 0) + 1
                self.streams[stream] = stream_seq
        return reply

    def session(self, name: str, *, acknowledges: bool = True) -> Any:
        member = MemberName(name)
        reply = self.decide(c.Attach(protocol="hub", credential=ByPlace(), member=member, acknowledges=acknowledges))
        return None if isinstance(reply, Refusal) else reply.session

    def view(self) -> dict[str, Any]:
        """Return all visible state of the hub, except sessions."""
        harness = self.harness
        operator = harness.operator
        shown: dict[str, Any] = {}
        for name, presence in harness.roster().items():
            session = self.session(name)
            fetched = self.decide(c.Fetch(session, limit=1000))
            assert isinstance(fetched, Fetched)
            assert len([item for item in fetched.deliveries if item.state not in SETTLED]) == len(fetched.deliveries)
            shown[name] = (presence.member, presence.backlog, fetched)
            self.decide(c.Detach(session))
        channels = self.decide(c.ListChannels(operator))
        history = self.decide(c.ReadHistory(operator, limit=1000))
        log = self.decide(c.ReadLog(operator, log="main", start=0, limit=10_000))
        assert isinstance(channels, Channels)
        assert isinstance(history, History)
        assert isinstance(log, LogRows)
        shown["channels"], shown["history"], shown["log"] = channels, history, log.rows
        shown["activity"] = self.decide(c.ReadLog(operator, log="activity", start=0, limit=10_000)).rows
        for message in history.messages:
            shown[message.id] = self.decide(c.ReadReceipts(operator, message_id=message.id))
            assert isinstance(shown[message.id], Receipts)
        return shown

    # Rules: actions of members.

    @rule(sayings=st.lists(sayings, min_size=1, max_size=5))
    def talk(self, sayings: list[tuple[str, str, str, int | None, str | None, Kind]]) -> None:
        for sender, to, topic, ttl_ms, wire_id, kind in sayings:
            session = self.session(sender)
            if session is None:
                continue
            said = content(to, "hello", topic=topic, ttl_ms=ttl_ms, kind=kind)
            reply = self.decide(c.Send(session, content=said, wire_id=wire_id, allow_empty=True))
            if isinstance(reply, Accepted) and not reply.duplicate:
                assert reply.message_id not in self.sent
                self.sent.append(reply.message_id)

    def first_key(self, name: str) -> int:
        """Return the key of a member's oldest unsettled delivery, or 1, so that most state changes find a delivery."""
        session = self.session(name)
        deliveries = () if session is None else self.decide(c.Fetch(session, limit=1)).deliveries
        return deliveries[0].key if deliveries else 1

    @rule(moves=st.lists(moves, min_size=1, max_size=4), acknowledges=st.booleans())
    def move(self, moves: list[tuple[str, int, int, State, str]], acknowledges: bool) -> None:
        for name, skip, length, state, evidence in moves:
            session = self.session(name, acknowledges=acknowledges)
            if session is None:
                continue
            first = self.first_key(name) + skip
            if state is State.OFFERED:
                self.decide(c.Offered(session, first=first, last=first + length))
            else:
                self.decide(c.Advance(session, ranges=((first, first + length),), state=state, evidence=evidence))

    @precondition(lambda self: self.sent)
    @rule(claimants=st.lists(names, min_size=1, max_size=3), data=st.data())
    def claim(self, claimants: list[str], data: st.DataObject) -> None:
        message_id = data.draw(st.sampled_from(self.sent))
        for name in claimants:
            session = self.session(name)
            if session is None:
                continue
            reply = self.decide(c.Claim(session, message_id=message_id))
            assert isinstance(reply, Claimed)
            if reply.delivery is not None:
                taken = (name, self.generation[name], message_id)
                assert taken not in self.won, "a claim was won twice"
                self.won.add(taken)

    @rule(name=names, what=st.sampled_from(["join", "leave", "add", "remove", "act"]))
    def manage(self, name: str, what: str) -> None:
        session = self.session(name)
        operator, member = self.harness.operator, MemberName(name)
        if what == "add":
            if isinstance(self.decide(c.AddMember(operator, name=member)), Issued):
                self.generation[name] += 1
        elif session is None:
            return
        elif what == "remove":
            self.decide(c.RemoveMember(operator, name=member))
        elif what == "act":
            self.decide(c.RecordActivity(session, events=({"did": len(self.sent)},)))
        else:
            self.decide((c.Subscribe if what == "join" else c.Unsubscribe)(session, channel=ChannelName("dev")))

    @rule(
        name=st.sampled_from(["@ada+@bob", "@ada+@ada", "#dev", "*"]),
        make=st.sampled_from([c.PauseThread, c.PauseThread, c.ResumeThread, c.AllowThread]),
    )
    def steward(self, name: str, make: type[c.PauseThread | c.ResumeThread | c.AllowThread]) -> None:
        assert self.decide(make(self.harness.operator, thread=name)) == Done()

    @rule(milliseconds=st.sampled_from([1, 100, 3600 * 1000, 2 * DAY_MS]))
    def wait(self, milliseconds: int) -> None:
        self.harness.clock_and_ids.time_ms += milliseconds
        self.decide(c.Tick())

    # Rules: commits, crashes and restarts.

    @rule()
    def commit(self) -> None:
        self.harness.broker.commit()
        self.harness.journal.commit()
        self.kept = len(self.sent)
        self.kept_streams = dict(self.streams)
        self.kept_generation = dict(self.generation)
        self.kept_won = set(self.won)
        self.kept_ms = self.harness.clock_and_ids.time_ms
        self.kept_view = self.view()
        # Look at once, before a snapshot hides what a replay would give.
        self.crash(restore_only=True)

    @rule(restore_only=st.booleans())
    def crash(self, restore_only: bool) -> None:
        # Back to the time of the last commit: what would have expired since then is not the subject.
        self.harness.clock_and_ids.time_ms = self.kept_ms
        if restore_only:
            self.harness.broker.restore()
            self.harness.journal.restore()
            self.harness.operator = self.harness.attach(None)
        else:
            self.harness.crash()
        del self.sent[self.kept :]
        self.streams = dict(self.kept_streams)
        self.generation = dict(self.kept_generation)
        self.won = set(self.kept_won)
        assert self.view() == self.kept_view

    @rule()
    def stop_and_start(self) -> None:
        self.commit()
        self.harness.restart()
        assert self.view() == self.kept_view
        # A broker that starts from a snapshot and one that replays the log cannot be told apart either.
        self.harness.crash()
        assert self.view() == self.kept_view


class SqliteRestarts(Restarts):
    """The state machine `Restarts` with a SQLite store in files."""

    def make_opener(self) -> Callable[[], Store]:
        return lambda: SqliteStore(self.folder, synchronous="OFF")


SETTINGS = settings(
    max_examples=80,
    stateful_step_count=30,
    deadline=None,
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
)
TestSqliteRestarts = pytest.mark.slow(SqliteRestarts.TestCase)
TestSqliteRestarts.settings = SETTINGS
# A failure is shrunk before it is shown, which takes longer than any success.
pytestmark = pytest.mark.timeout(600)

"""Tests of the local hub: it tells clients only of durable changes, and a failing store ends no session."""

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.stores import StubbornStore
from tieline.contract import command as c
from tieline.contract.delivery import SLOWED, State
from tieline.contract.hub import (
    Change,
    ChannelAppeared,
    Interest,
    MemberAppeared,
    Notice,
    Posted,
    Said,
    SubscriptionsChanged,
)
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Claimed, Done, Fetched, History, Issued, Progress, Reply, Roster
from tieline.contract.target import to_member
from tieline.core import broker
from tieline.core.broker import Broker
from tieline.core.directory import token_digest
from tieline.core.store import DamagedError, DiskError, StoreError
from tieline.server import local_hub
from tieline.server.clock_and_ids import SystemClockAndIds
from tieline.server.local_hub import LocalHub
from tieline.stores.sqlite import SqliteActivity
from tieline.stores.sqlite.database import IN_MEMORY, open_for_reading
from tieline.stores.sqlite.store import MAIN_FILE

KEY = "the key of the home"


class Ear:
    """Test double: a listener of the hub that records its calls. It raises while `deaf` is set."""

    def __init__(self) -> None:
        self.keys: list[int] = []
        self.free: list[int] = []
        self.steps: list[Progress] = []
        self.ended: list[Refusal] = []
        self.deaf = False

    def released(self, keys: Sequence[int]) -> None:
        self.free += keys

    def offer(self, message: Message, key: int, stream_seq: int) -> None:
        del message, stream_seq
        self.keys.append(key)
        self._hear()

    def progress(self, step: Progress) -> None:
        self.steps.append(step)
        self._hear()

    def end(self, why: Refusal) -> None:
        self.ended.append(why)
        self._hear()

    def _hear(self) -> None:
        if self.deaf:
            raise RuntimeError("a bug in a receiver")


class Eye:
    """Test double: a receiver of notices that records them. It raises while `blind` is set."""

    def __init__(self) -> None:
        self.messages: list[str] = []
        self.changes: list[Change] = []
        self.wakes = 0
        self.blind = False

    def __call__(self, notice: Notice) -> None:
        if isinstance(notice, Posted):
            self.messages.append(notice.message.content.body)
        elif isinstance(notice, Said):
            self.wakes += 1
        else:
            self.changes.append(notice)
        self._see()

    def _see(self) -> None:
        if self.blind:
            raise RuntimeError("a bug in a watcher")


TO_BOB = Interest(members=True, targets=(to_member(MemberName("bob")),))


class Office:
    """Test helper: a local hub with a store whose commits the test controls, an operator and two members."""

    def __init__(self, folder: Path, limits: Limits) -> None:
        self.folder = folder
        self.store = StubbornStore(folder)
        broker = Broker(self.store, SystemClockAndIds(), limits, home_key=token_digest(KEY))
        self.hub = LocalHub(broker, SqliteActivity(IN_MEMORY))

    async def open(self) -> None:
        self.hub.start()
        self.operator = await self.attach(None)
        for name in ("alice", "bob"):
            assert isinstance(await self.hub.ask(c.AddMember(self.operator, name=MemberName(name))), Issued)
        self.alice, self.bob = await self.attach("alice"), await self.attach("bob")

    async def attach(self, name: str | None) -> SessionId:
        member = MemberName(name) if name else None
        reply = await self.hub.ask(c.Attach(protocol="test", credential=ByHomeKey(KEY), member=member))
        assert isinstance(reply, Attached), reply
        return reply.session

    def send(self, body: str = "hello", *, target: str = "@bob") -> c.Send:
        return c.Send(self.alice, content=content(target, body))

    async def accepted(self, body: str = "hello") -> Accepted:
        reply = await self.hub.ask(self.send(body))
        assert isinstance(reply, Accepted), reply
        return reply

    def listen(self) -> Ear:
        ear = Ear()
        self.hub.listen(self.bob, ear, MemberName("bob"))
        return ear

    async def hold(self, *commands: c.Command) -> list[Reply]:
        """Submit commands and wait until their commit has begun. Return a list that gets the replies later."""
        replies: list[Reply] = []
        self.store.entered.clear()
        self.store.gate.clear()
        self.hub.submit(commands, replies.extend)
        await asyncio.to_thread(self.store.entered.wait, 10)
        return replies

    def rows(self) -> int:
        """Return the number of rows of the main log, as another process sees it."""
        connection = open_for_reading(self.folder / MAIN_FILE)
        try:
            count = connection.execute("SELECT count(*) FROM log").get
        finally:
            connection.close()
        assert isinstance(count, int)
        return count


@pytest.fixture
async def office(folder: Path, request: pytest.FixtureRequest) -> AsyncIterator[Office]:
    made = Office(folder, getattr(request, "param", Limits()))
    await made.open()
    yield made
    made.store.gate.set()
    made.store.restore_fails = False
    await made.hub.stop()


# Order


async def test_what_a_session_said_before_it_was_replaced_is_all_accepted(office: Office) -> None:
    def attach(name: str, resume_id: str | None = None) -> c.Attach:
        return c.Attach(
            protocol="test",
            credential=ByHomeKey(KEY),
            member=MemberName(name),
            exclusive=resume_id is None,
            resumable=True,
            resume_id=resume_id,
        )

    first, taken_up = await office.hub.ask(attach("alice")), await office.hub.ask(attach("bob"))
    assert isinstance(first, Attached)
    assert isinstance(taken_up, Attached)
    for old, newer in ((first, attach("alice")), (taken_up, attach("bob", taken_up.resume_id))):
        said: list[Reply] = []
        office.hub.submit(
            [c.Send(old.session, content=content("@bob", f"{number}")) for number in range(600)], said.extend
        )
        office.hub.submit((c.Detach(old.session),))
        assert isinstance(await office.hub.ask(newer), Attached)
        await until(lambda said=said: len(said) == 600)  # type: ignore[misc]
        assert all(isinstance(reply, Accepted) for reply in said)


# Durability first


async def test_a_sender_hears_accepted_and_a_recipient_hears_the_message_only_after_the_commit(office: Office) -> None:
    ear, eye = office.listen(), Eye()
    office.hub.watch(TO_BOB, eye)
    before = office.rows()
    replies = await office.hold(office.send())
    for _ in range(20):
        await asyncio.sleep(0.001)
    assert replies == []
    assert ear.keys == []
    assert eye.messages == []
    assert office.rows() == before
    office.store.gate.set()
    await until(lambda: bool(replies))
    assert isinstance(replies[0], Accepted)
    assert ear.keys == [1]
    assert eye.messages == ["hello"]
    assert office.rows() == before + 1


async def test_a_claim_is_answered_only_after_the_commit(office: Office) -> None:
    sent = await office.accepted()
    replies = await office.hold(c.Claim(office.bob, message_id=sent.message_id))
    # That nothing comes can only be seen when its time is over.
    await asyncio.sleep(0.02)
    assert replies == []
    office.store.gate.set()
    await until(lambda: bool(replies))
    assert isinstance(replies[0], Claimed)
    assert replies[0].delivery is not None


async def test_whatever_queued_during_a_commit_shares_the_next_one(office: Office) -> None:
    first = await office.hold(office.send("first"))
    done = office.store.done
    rest: list[Reply] = []
    for number in range(500):
        office.hub.submit((office.send(f"{number}"),), rest.extend)
    office.store.gate.set()
    await until(lambda: len(rest) == 500)
    assert isinstance(first[0], Accepted)
    assert office.store.done == done + 2
    assert [reply.offset for reply in rest if isinstance(reply, Accepted)] == sorted(
        reply.offset for reply in rest if isinstance(reply, Accepted)
    )


@pytest.mark.parametrize("office", [Limits(batch_max=10)], indirect=True)
async def test_a_batch_is_no_larger_than_its_limit(office: Office) -> None:
    await office.hold(office.send("first"))
    done = office.store.done
    rest: list[Reply] = []
    for number in range(50):
        office.hub.submit((office.send(f"{number}"),), rest.extend)
    office.store.gate.set()
    await until(lambda: len(rest) == 50)
    assert office.store.done >= done + 5


async def test_replies_come_in_the_order_of_the_commands(office: Office) -> None:
    heard: list[int] = []
    for number in range(50):
        command = office.send(str(number)) if number % 3 else c.ListMembers(office.alice)

        def done(_: Sequence[Reply], number: int = number) -> None:
            heard.append(number)

        office.hub.submit((command,), done)
    await until(lambda: len(heard) == 50)
    assert heard == list(range(50))


@pytest.mark.parametrize("office", [Limits(batch_max=256)], indirect=True)
async def test_the_thousand_commands_of_one_session_do_not_stand_before_the_one_of_another(office: Office) -> None:
    await office.hold(office.send("first"))
    answered: list[Sequence[Reply]] = []
    office.hub.submit([office.send(str(number)) for number in range(1000)], answered.append)
    office.hub.submit((c.Send(office.bob, content=content("@alice")),), answered.append)
    office.store.gate.set()
    await until(lambda: len(answered) == 2)
    # Those who ask much are answered when all of it is decided.
    (other,), flood = answered
    offsets = [reply.offset for reply in flood if isinstance(reply, Accepted)]
    assert len(offsets) == 1000
    assert offsets == sorted(offsets), "in the order in which they were asked"
    assert isinstance(other, Accepted)
    assert sum(offset < other.offset for offset in offsets) <= 256


# Work that nobody waits for


@pytest.mark.parametrize("office", [Limits(lazy_commit_ms=20)], indirect=True)
async def test_acknowledgements_are_answered_at_once_and_committed_soon(office: Office) -> None:
    await office.accepted()
    rows = office.rows()
    office.store.gate.clear()
    assert isinstance(await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),))), Done), "before any commit"
    assert office.rows() == rows
    office.store.gate.set()
    started = time.monotonic()
    await until(lambda: office.rows() == rows + 1)
    assert time.monotonic() - started < 5


@pytest.mark.parametrize("office", [Limits(lazy_commit_ms=60_000)], indirect=True)
async def test_acknowledgements_ride_on_the_next_message(office: Office) -> None:
    await office.accepted()
    rows, done = office.rows(), office.store.done
    await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),)))
    assert office.rows() == rows
    await office.accepted("another")
    assert office.rows() == rows + 2
    assert office.store.done == done + 1


@pytest.mark.parametrize("office", [Limits(lazy_commit_ms=20)], indirect=True)
async def test_a_steady_flow_of_lazy_work_does_not_put_its_commit_off_for_ever(office: Office) -> None:
    await office.accepted()
    rows = office.rows()
    await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),)))
    deadline = time.monotonic() + 10
    while office.rows() == rows:
        await office.hub.ask(c.ListMembers(office.alice))
        assert time.monotonic() < deadline


# A store that fails


async def test_what_a_failed_commit_held_is_refused_and_nothing_of_it_is_kept(office: Office) -> None:
    ear = office.listen()
    rows = office.rows()
    office.store.failures = 1
    with capture_logs() as logs:
        reply = await office.hub.ask(office.send("lost"))
    assert isinstance(reply, Refusal)
    assert reply.code is Code.STORE_FAILED
    assert "no space left" in reply.message
    assert ear.keys == []
    assert office.rows() == rows
    assert any(entry["log_level"] == "error" for entry in logs)


async def test_sessions_stay_when_a_commit_fails_and_go_on_with_what_they_had(office: Office) -> None:
    await office.accepted("kept")
    ear, other = office.listen(), Ear()
    office.hub.listen(office.alice, other)
    office.store.failures = 1
    with capture_logs():
        assert isinstance(await office.hub.ask(office.send("lost")), Refusal)
    await office.accepted("again")
    assert ear.keys == [2], "the key of what was lost is given again"
    assert (ear.ended, other.ended) == ([], [])
    page = await office.hub.ask(c.Fetch(office.bob))
    assert isinstance(page, Fetched)
    assert [item.message.content.body for item in page.deliveries] == ["kept", "again"]


async def test_a_failed_commit_refuses_what_waited_for_it_and_nothing_else(office: Office) -> None:
    await office.accepted("kept")
    replies: list[Reply] = []
    office.store.failures = 1
    attach = c.Attach(protocol="test", credential=ByHomeKey(KEY), member=MemberName("bob"))
    commands = (office.send("lost"), c.ListMembers(office.bob), c.Advance(office.bob, ranges=((1, 1),)), attach)
    with capture_logs():
        office.hub.submit(commands, replies.extend)
        await until(lambda: len(replies) == 4)
    assert isinstance(replies[0], Refusal)
    assert [type(reply) for reply in replies[1:]] == [Roster, Done, Attached]
    assert isinstance(replies[3], Attached)
    page = await office.hub.ask(c.Fetch(replies[3].session))
    assert isinstance(page, Fetched)
    assert page.deliveries == (), "what was acknowledged with it stays acknowledged"


async def test_everything_that_shared_the_failed_commit_is_refused_and_what_came_after_is_decided(
    office: Office,
) -> None:
    first = await office.hold(office.send("first"))
    rest: list[Reply] = []
    for number in range(20):
        office.hub.submit((office.send(str(number)),), rest.extend)
    office.store.failures = 1
    with capture_logs():
        office.store.gate.set()
        await until(lambda: len(rest) == 20 and len(first) == 1)
    assert isinstance(first[0], Refusal)
    assert first[0].code is Code.STORE_FAILED
    assert all(isinstance(reply, Accepted) for reply in rest)
    page = await office.hub.ask(c.Fetch(office.bob))
    assert isinstance(page, Fetched)
    assert [item.key for item in page.deliveries] == list(range(1, 21))


@pytest.mark.parametrize("office", [Limits(lazy_commit_ms=10)], indirect=True)
async def test_a_lazy_commit_that_fails_is_tried_again_and_the_acknowledgement_stays(office: Office) -> None:
    await office.accepted()
    ear, rows = office.listen(), office.rows()
    office.store.failures = 2
    with capture_logs():
        await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),)))
        await until(lambda: office.rows() == rows + 1)
    assert ear.ended == []
    page = await office.hub.ask(c.Fetch(office.bob))
    assert isinstance(page, Fetched)
    assert page.deliveries == ()


async def test_a_command_that_raises_is_refused_alone_and_the_rest_of_its_batch_is_decided(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    ear = office.listen()
    accept = office.store.accept

    def raise_for_poison(row: object, message: Message, *rest: object) -> None:
        accept(row, message, *rest)  # type: ignore[arg-type]
        if message.content.body == "poison":
            raise RuntimeError("a bug in a rule")

    monkeypatch.setattr(office.store, "accept", raise_for_poison)
    first = await office.hold(office.send("first"))
    replies: dict[str, list[Reply]] = {}
    bodies = ["one", "poison", "two", "poison", "three"]
    for place, body in enumerate(bodies):
        got = replies[f"{place} {body}"] = []
        office.hub.submit((office.send(body), c.Advance(office.bob, ranges=((1, 1),))), got.extend)
    with capture_logs() as logs:
        office.store.gate.set()
        await until(lambda: all(len(got) == 2 for got in replies.values()) and len(first) == 1)
    for name, got in replies.items():
        if name.endswith("poison"):
            assert isinstance(got[0], Refusal)
            assert got[0].code is Code.INTERNAL_ERROR
        else:
            assert isinstance(got[0], Accepted)
        assert isinstance(got[1], Done)
    assert ear.keys == [1, 2, 3, 4]
    assert ear.ended == []
    assert office.hub.health.faults == 2
    lines = [entry for entry in logs if entry["log_level"] == "error"]
    assert len(lines) == 1, "faults of one kind are one line"


async def test_a_row_that_the_database_refuses_is_the_fault_of_its_own_command(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, clock_and_ids = 0, office.hub._broker.clock_and_ids

    def same_id_twice(now_ms: int) -> MessageId:
        nonlocal made
        made += 1
        return MessageId(f"{now_ms}-{'twice' if made in (2, 3) else made}")

    monkeypatch.setattr(clock_and_ids, "message_id", same_id_twice)
    first = await office.hold(office.send("first"))
    replies: list[Reply] = []
    for body in ("one", "two", "three"):
        office.hub.submit((office.send(body),), replies.extend)
    with capture_logs():
        office.store.gate.set()
        await until(lambda: len(replies) == 3 and len(first) == 1)
    # Decided again, each has an id of its own.
    assert all(isinstance(reply, Accepted) for reply in replies)


async def test_a_log_position_beyond_64_bits_ends_nobodys_session(office: Office) -> None:
    ear = office.listen()
    reply = await office.hub.ask(c.ReadHistory(office.alice, after=2**63 - 1, forward=True))
    assert reply == History(())
    await office.accepted()
    assert ear.keys == [1]
    assert ear.ended == []


async def test_after_a_failed_attempt_all_others_of_its_number_fail_until_the_next(office: Office) -> None:
    def said(body: str, attempt: int) -> c.Send:
        return c.Send(office.alice, content=content("@bob", body), attempt=attempt)

    ear = office.listen()
    office.store.failures = 1
    with capture_logs():
        for attempt, answer in ((0, Refusal), (0, Refusal), (1, Accepted), (0, Accepted)):
            assert isinstance(await office.hub.ask(said("one", attempt)), answer)
        office.store.failures = 1
        assert isinstance(await office.hub.ask(said("two", 0)), Refusal)
        # Nobody else is concerned, nor what a wire says that has refusals.
        assert isinstance(await office.hub.ask(c.Send(office.bob, content=content("@bob"), attempt=0)), Accepted)
        assert isinstance(await office.hub.ask(office.send()), Accepted)
        assert office.hub._failed == {office.alice: 0}
        await office.hub.ask(c.Detach(office.alice))
        assert office.hub._failed == {}
    assert ear.keys == [1, 2, 3, 4]


@pytest.mark.slow
async def test_a_store_that_fails_again_and_again_is_left_alone_for_a_while_and_reads_go_on(office: Office) -> None:
    office.store.failures = 3
    with capture_logs() as logs:
        for _ in range(3):
            assert isinstance(await office.hub.ask(office.send()), Refusal)
        tried = office.store.tried
        for _ in range(50):
            reply = await office.hub.ask(office.send())
            if isinstance(reply, Accepted):
                break
            assert isinstance(await office.hub.ask(c.ListMembers(office.alice)), Roster)
        assert office.store.tried <= tried + 2
        await until(lambda: not office.hub.health.store.rest_seconds)
        await office.accepted()
        await until(lambda: not office.hub.health.problems)
    assert [entry["event"] for entry in logs] == [
        "writing fails; what cannot be kept is refused",
        "writing works again",
    ]
    assert office.hub.health.store.failures == 3


async def test_a_disk_that_fails_under_a_command_is_told_as_a_problem(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object) -> None:
        raise DiskError("held by another process", "end it")

    with capture_logs(), monkeypatch.context() as patch:
        patch.setattr(office.store, "find_message", fail)
        assert isinstance(await office.hub.ask(c.ReadReceipts(office.alice, message_id=MessageId("x"))), Refusal)
        (problem,) = office.hub.health.problems
        assert (problem.reason, problem.do) == ("held by another process", "end it")


@pytest.mark.parametrize("error", [StoreError("SQL logic error"), DamagedError("the file is damaged")])
async def test_a_store_that_cannot_be_tried_again_is_reported_and_the_hub_goes_on(
    office: Office, monkeypatch: pytest.MonkeyPatch, error: StoreError
) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(office.store, "retry", fail)
    office.store.failures = 1
    with capture_logs():
        assert isinstance(await office.hub.ask(office.send()), Refusal)
        await until(lambda: office.hub.health.store.reason == str(error) or office.hub.failure.done())
        assert not office.hub.failure.done()
        assert str(error) in [problem.reason for problem in office.hub.health.problems]
        assert isinstance(await office.hub.ask(c.ListMembers(office.alice)), Roster)


async def test_a_store_that_is_lost_for_good_is_reported_and_everybody_is_refused(office: Office) -> None:
    office.store.failures = 1
    office.store.restore_fails = True
    with capture_logs():
        refused = await office.hub.ask(office.send())
        assert isinstance(refused, Refusal)
        assert refused.code is Code.STORE_FAILED
        async with asyncio.timeout(10):
            lost = await office.hub.failure
        assert "the disk is gone" in str(lost)
        later = await office.hub.ask(c.ListMembers(office.alice))
        assert isinstance(later, Refusal)
        assert later.code is Code.SHUTTING_DOWN


async def test_a_hub_that_lost_its_store_writes_nothing_more_when_it_stops(folder: Path) -> None:
    office = Office(folder, Limits())
    await office.open()
    await office.accepted()
    before = office.rows()
    office.store.failures = 1
    office.store.restore_fails = True
    with capture_logs():
        assert isinstance(await office.hub.ask(office.send("never accepted")), Refusal)
        async with asyncio.timeout(10):
            await office.hub.failure
        await office.hub.stop()
    assert office.rows() == before
    again = StubbornStore(folder)
    try:
        foundation = again.restore()
        assert foundation.snapshot_end <= foundation.log_end == before
        assert not foundation.images, "no snapshot of what was never committed"
    finally:
        again.close()


# Receivers


async def test_a_receiver_that_fails_keeps_nobody_else_from_hearing(office: Office) -> None:
    deaf, ear = office.listen(), Ear()
    office.hub.listen(await office.attach("bob"), ear, MemberName("bob"))
    blind, eye = Eye(), Eye()
    office.hub.watch(TO_BOB, blind)
    office.hub.watch(TO_BOB, eye)
    deaf.deaf = blind.blind = True

    def broken(_: Sequence[Reply]) -> None:
        raise RuntimeError("a bug in a protocol")

    replies: list[Reply] = []
    with capture_logs() as logs:
        office.hub.submit((office.send("one"),), broken)
        office.hub.submit((office.send("two"), c.AddMember(office.operator, name=MemberName("carol"))), replies.extend)
        await until(lambda: len(replies) == 2 and len(ear.keys) == 2)
    assert deaf.keys == ear.keys == [1, 2]
    assert blind.messages == eye.messages == ["one", "two"]
    assert eye.changes == [MemberAppeared(MemberName("carol"))]
    assert len([entry for entry in logs if entry["event"] == "a receiver failed"]) >= 4
    assert office.hub.counters.accepted == 2


async def test_a_listener_that_is_forgotten_hears_nothing_more_and_its_sibling_does(office: Office) -> None:
    ear = office.listen()
    other, sibling = await office.attach("bob"), Ear()
    office.hub.listen(other, sibling, MemberName("bob"))
    await office.accepted()
    office.hub.forget(office.bob)
    office.hub.forget(office.bob)
    await office.accepted()
    assert ear.keys == [1]
    assert sibling.keys == [1, 2]


async def test_a_watch_over_changes_alone_is_shown_no_messages(office: Office) -> None:
    eye = Eye()
    stop = office.hub.watch(Interest(members=True), eye)
    await office.accepted("hello")
    await office.hub.ask(c.AddMember(office.operator, name=MemberName("carol")))
    assert eye.messages == []
    assert eye.changes == [MemberAppeared(MemberName("carol"))]
    stop()
    await office.hub.ask(c.AddMember(office.operator, name=MemberName("dave")))
    assert len(eye.changes) == 1


async def test_a_watch_lasts_until_it_is_stopped(office: Office) -> None:
    eye = Eye()
    stop = office.hub.watch(TO_BOB, eye)
    await office.accepted("seen")
    stop()
    await office.accepted("unseen")
    assert eye.messages == ["seen"]


async def test_a_watch_that_is_stopped_twice_is_stopped_and_no_other_misses_anything(office: Office) -> None:
    told: list[Notice] = []
    second = Eye()

    def leave(notice: Notice) -> None:
        told.append(notice)
        stop()
        stop()

    stop = office.hub.watch(TO_BOB, leave)
    office.hub.watch(TO_BOB, second)
    await office.accepted("one")
    await office.accepted("two")
    assert (len(told), second.messages) == (1, ["one", "two"])


async def test_a_watch_is_told_of_the_targets_and_senders_that_it_named_and_of_nothing_else(office: Office) -> None:
    to_alice, by_alice, both, wakes = Eye(), Eye(), Eye(), Eye()
    alice = MemberName("alice")
    office.hub.watch(Interest(targets=(to_member(alice),)), to_alice)
    office.hub.watch(Interest(senders=(alice,)), by_alice)
    office.hub.watch(msgspec.structs.replace(TO_BOB, senders=(alice,)), both)
    office.hub.watch(Interest(said=True), wakes)
    await office.accepted("to bob")
    assert isinstance(await office.hub.ask(c.Send(office.bob, content=content("@alice", "to alice"))), Accepted)
    await office.hub.ask(c.AddMember(office.operator, name=MemberName("carol")))
    assert (to_alice.messages, by_alice.messages) == (["to alice"], ["to bob"])
    assert both.messages == ["to bob"], "once, although two of its wishes match"
    assert (wakes.wakes, wakes.messages) == (2, [])
    assert [len(eye.changes) for eye in (to_alice, by_alice, both, wakes)] == [0, 0, 1, 0]


async def test_what_is_watched_and_what_is_told_can_be_encoded(office: Office) -> None:
    told: list[Notice] = []
    interest = msgspec.structs.replace(TO_BOB, channels=True, subscriptions=True, said=True)
    assert msgspec.json.decode(msgspec.json.encode(interest), type=Interest) == interest
    office.hub.watch(interest, told.append)
    await office.accepted("to bob")
    await office.hub.ask(c.Subscribe(office.bob, channel=ChannelName("dev")))
    assert {type(notice) for notice in told} == {Said, Posted, ChannelAppeared, SubscriptionsChanged}
    assert msgspec.msgpack.decode(msgspec.msgpack.encode(told), type=list[Notice]) == told


async def test_a_listener_that_leaves_while_it_is_told_something_keeps_its_sibling_from_nothing(office: Office) -> None:
    first = office.listen()
    session, second = await office.attach("bob"), Ear()
    office.hub.listen(session, second, MemberName("bob"))

    def leave(message: Message, key: int, stream_seq: int) -> None:
        del message, key, stream_seq
        office.hub.forget(office.bob)
        office.hub.forget(office.bob)

    first.offer = leave  # type: ignore[method-assign]
    await office.accepted()
    await office.accepted()
    assert second.keys == [1, 2]


async def test_a_listener_that_says_twice_that_it_listens_hears_once_and_is_gone_when_forgotten(office: Office) -> None:
    ear = office.listen()
    office.hub.listen(office.bob, ear, MemberName("bob"))
    await office.accepted()
    office.hub.forget(office.bob)
    await office.accepted()
    assert ear.keys == [1]


async def test_a_session_that_nobody_waits_for_any_more_ends(office: Office) -> None:
    asked = asyncio.create_task(office.attach("bob"))
    await asyncio.sleep(0)
    asked.cancel()
    with pytest.raises(asyncio.CancelledError):
        await asked
    question = c.ListMembers(office.operator, name=MemberName("bob"))
    # The first answer comes after the attach, the second after its end.
    await office.hub.ask(question)
    roster = await office.hub.ask(question)
    assert isinstance(roster, Roster)
    assert len(roster.members[0].sessions) == 1


async def test_a_session_that_follows_a_message_is_told_of_its_steps(office: Office) -> None:
    ear = Ear()
    office.hub.listen(office.alice, ear)
    sent = await office.accepted()
    await office.hub.ask(c.Follow(office.alice, message_id=sent.message_id))
    await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),), state=State.SEEN, evidence="read"))
    await office.hub.ask(c.Advance(office.bob, ranges=((1, 1),)))
    await until(lambda: len(ear.steps) == 2)
    assert [step.state for step in ear.steps] == [State.SEEN, State.ACKED]
    assert {step.message_id for step in ear.steps} == {MessageId(sent.message_id)}


# Stopping


async def test_stopping_finishes_what_was_submitted_and_refuses_what_comes_later(folder: Path) -> None:
    office = Office(folder, Limits())
    await office.open()
    replies: list[Reply] = []
    for number in range(100):
        office.hub.submit((office.send(str(number)),), replies.extend)
    stopping = asyncio.create_task(office.hub.stop())
    await asyncio.sleep(0)
    late = await office.hub.ask(office.send("late"))
    await stopping
    await until(lambda: len(replies) == 100)
    assert all(isinstance(reply, Accepted) for reply in replies)
    assert isinstance(late, Refusal)
    assert late.code is Code.SHUTTING_DOWN
    again = StubbornStore(folder)
    try:
        foundation = again.restore()
        assert foundation.snapshot_end == foundation.log_end, "the next start replays nothing"
    finally:
        again.close()


async def test_stopping_twice_is_no_error(folder: Path) -> None:
    made = Office(folder, Limits())
    await made.open()
    await made.hub.stop()
    await made.hub.stop()


async def test_counters_count_what_passed(office: Office) -> None:
    await office.accepted()
    reply = await office.hub.ask(office.send(target="*"))
    assert isinstance(reply, Accepted)
    counters = office.hub.counters
    assert (counters.accepted, counters.deliveries) == (2, 2)
    assert counters.commits >= 4
    assert counters.commit_seconds > 0
    roster = await office.hub.ask(c.ListMembers(office.alice))
    assert isinstance(roster, Roster)


async def test_a_held_delivery_is_not_offered_before_it_is_released_and_then_its_key_is_told(office: Office) -> None:
    ear = office.listen()
    await office.hub.ask(c.PauseThread(office.operator, thread="@alice+@bob"))
    held = await office.accepted("held")
    assert held.held
    other = await office.hub.ask(c.Send(office.bob, content=content("@bob", "another stream")))
    assert isinstance(other, Accepted)
    assert (ear.keys, ear.free) == ([2], [])
    await office.hub.ask(c.ResumeThread(office.operator, thread="@alice+@bob"))
    assert (ear.keys, ear.free) == ([2], [1])
    page = await office.hub.ask(c.Fetch(office.bob, keys=(1,)))
    assert isinstance(page, Fetched)
    assert [item.message.content.body for item in page.deliveries] == ["held"]


async def test_a_release_in_many_batches_waits_for_no_tick_and_no_command(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(local_hub, "_TICK_SECONDS", 3600)
    monkeypatch.setattr(broker, "_CHORES_MAX", 2)
    office = Office(folder, Limits())
    await office.open()
    try:
        ear = office.listen()
        await office.hub.ask(c.PauseThread(office.operator, thread="@alice+@bob"))
        for _ in range(9):
            await office.accepted("held")
        await office.hub.ask(c.ResumeThread(office.operator, thread="@alice+@bob"))
        await until(lambda: ear.free == [*range(1, 10)])
        assert ear.keys == []
    finally:
        await office.hub.stop()


async def test_what_a_batch_released_before_a_command_raised_is_told_before_what_was_decided_after_it(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    accept = office.store.accept

    def raise_for_poison(row: object, message: Message, *rest: object) -> None:
        accept(row, message, *rest)  # type: ignore[arg-type]
        if message.content.body == "poison":
            raise RuntimeError("a bug in a rule")

    monkeypatch.setattr(office.store, "accept", raise_for_poison)
    await office.hub.ask(c.PauseThread(office.operator, thread="@alice+@bob"))
    assert (await office.accepted("held")).held
    ear, heard = office.listen(), []
    monkeypatch.setattr(ear, "released", lambda keys: heard.append(("released", *keys)))
    monkeypatch.setattr(ear, "offer", lambda message, key, stream_seq: heard.append(("offer", key)))
    resume = c.ResumeThread(office.operator, thread="@alice+@bob")
    replies: list[Reply] = []
    office.hub.submit((resume, office.send("poison"), office.send("after")), replies.extend)
    await until(lambda: len(replies) == 3)
    assert heard == [("released", 1), ("offer", 2)]
    assert [type(reply) for reply in replies] == [Done, Refusal, Accepted]


async def test_a_release_that_the_disk_does_not_take_refuses_nobody_and_comes_when_it_does(folder: Path) -> None:
    office = Office(folder, Limits(pause_ms=300))
    await office.open()
    try:
        ear, ghost = office.listen(), await office.attach("bob")
        await office.hub.ask(c.PauseThread(office.operator, thread="@alice+@bob"))
        assert (await office.accepted("held")).held
        office.store.failures = 1_000_000
        tried = office.store.tried
        # The pause ends, and its end cannot be written.
        await until(lambda: office.store.tried > tried)
        assert isinstance(await office.hub.ask(c.Fetch(office.bob)), Fetched)
        assert isinstance(await office.hub.ask(c.Detach(ghost)), Done)
        await until(lambda: office.hub.health.store.failures >= 3)
        assert isinstance(await office.hub.ask(c.ListMembers(office.operator)), Roster)
        assert ear.free == []
        office.store.failures = 0
        await until(lambda: ear.free == [1])
        roster = await office.hub.ask(c.ListMembers(office.operator))
        assert isinstance(roster, Roster)
        assert [presence.sessions for presence in roster.members if presence.member.name == "bob"] == [("test",)]
    finally:
        await office.hub.stop()


@pytest.mark.slow
async def test_a_slowed_delivery_is_in_the_log_of_the_hub_and_is_released_by_the_clock_alone(folder: Path) -> None:
    office = Office(folder, Limits(hops_soft=0, hop_ms_min=0, space_ms_min=700, space_ms_max=700))
    await office.open()
    try:
        ear = office.listen()
        first = await office.hub.ask(c.Send(office.bob, content=content("@alice")))
        assert isinstance(first, Accepted)
        with capture_logs() as logs:
            reply = await office.hub.ask(c.Send(office.alice, content=content("@bob", reply_to=first.message_id)))
            assert isinstance(reply, Accepted)
            assert reply.held.startswith(SLOWED)
            await until(lambda: [line["event"] for line in logs if line["log_level"] == "warning"] == [reply.held])
        await until(lambda: ear.free == [1])
        assert ear.keys == []
    finally:
        await office.hub.stop()

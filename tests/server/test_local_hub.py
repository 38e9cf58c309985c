"""Tests of the local hub: it tells clients only of durable changes, and a failing store ends no session."""

import asyncio
import gc
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import Office
from tests.server.stores import StubbornStore
from tieline.contract import command as c
from tieline.contract.delivery import SLOWED
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Done, Fetched, Reply, Roster
from tieline.core import broker
from tieline.server import local_hub

# Memory


async def test_replies_that_come_later_are_freed_with_their_callback_and_not_by_the_garbage_collector(
    office: Office,
) -> None:
    gc.disable()
    try:
        called = asyncio.Event()
        callback = Callback(called)
        left = weakref.ref(callback)
        read = c.ReadActivity(office.alice, member=MemberName("alice"))
        office.hub.submit((read, read), callback)
        del callback
        await called.wait()
        # The hub's threads keep their last item until the next one comes.
        await office.hub.ask(read)
        await until(lambda: left() is None)
    finally:
        gc.enable()


class Callback:
    """Test double: a callback that notes that it was called with the replies."""

    def __init__(self, called: asyncio.Event) -> None:
        self._called = called

    def __call__(self, replies: Sequence[Reply]) -> None:
        assert not any(isinstance(reply, Refusal) for reply in replies), replies
        self._called.set()


# Durability first


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


async def test_a_report_of_offers_is_decided_before_every_later_command(office: Office) -> None:
    await office.accepted()
    office.hub.submit((c.Offered(office.bob, first=1, last=1),))
    roster = await office.hub.ask(c.ListMembers(office.operator, name=MemberName("bob")))
    assert isinstance(roster, Roster)
    assert [presence.unoffered for presence in roster.members] == [0]


async def test_a_report_of_offers_alone_is_committed_soon(office: Office) -> None:
    await office.accepted()
    rows = office.rows()
    office.hub.submit((c.Offered(office.bob, first=1, last=1),))
    await until(lambda: office.rows() == rows + 1)


async def test_a_report_of_offers_right_before_the_hub_stops_is_kept(folder: Path) -> None:
    office = Office(folder, Limits())
    await office.open()
    await office.accepted()
    rows = office.rows()
    office.hub.submit((c.Offered(office.bob, first=1, last=1),))
    await office.close()
    assert office.rows() == rows + 1


# Stopping


async def test_stopping_finishes_what_was_submitted_and_refuses_what_comes_later(folder: Path) -> None:
    office = Office(folder, Limits())
    await office.open()
    replies: list[Reply] = []
    for number in range(100):
        office.hub.submit((office.send(str(number)),), replies.extend)
    stopping = asyncio.create_task(office.local.stop())
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
    await made.local.stop()
    await made.local.stop()


async def test_counters_count_what_passed(office: Office) -> None:
    await office.accepted()
    reply = await office.hub.ask(office.send(target="*"))
    assert isinstance(reply, Accepted)
    counters = office.local.counters
    assert (counters.accepted, counters.deliveries) == (2, 2)
    assert counters.commits >= 4
    assert counters.commit_seconds > 0
    roster = await office.hub.ask(c.ListMembers(office.alice))
    assert isinstance(roster, Roster)


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
        await office.local.stop()


@pytest.mark.slow
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


@pytest.mark.slow
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
        await until(lambda: office.local.health.store.failures >= 3)
        assert isinstance(await office.hub.ask(c.ListMembers(office.operator)), Roster)
        assert ear.free == []
        office.store.failures = 0
        await until(lambda: ear.free == [1])
        roster = await office.hub.ask(c.ListMembers(office.operator))
        assert isinstance(roster, Roster)
        assert [presence.sessions for presence in roster.members if presence.member.name == "bob"] == [("test",)]
    finally:
        await office.local.stop()


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
        await office.local.stop()

"""Tests of the local hub: it tells clients only of durable changes, and a failing store ends no session."""

import asyncio
import gc
import time
import weakref
from collections.abc import Sequence
from pathlib import Path

import msgspec
import pytest
from structlog.testing import capture_logs

from tests.core.doubles import content
from tests.server.hubs import until
from tests.server.offices import KEY, TO_BOB, Ear, Eye, Office
from tests.server.stores import StubbornStore
from tieline.contract import command as c
from tieline.contract.delivery import SLOWED, State
from tieline.contract.hub import (
    ChannelAppeared,
    Interest,
    MemberAppeared,
    Notice,
    Posted,
    Said,
    SubscriptionsChanged,
)
from tieline.contract.identifiers import ChannelName, MemberName, MessageId
from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.contract.message import Message
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Claimed, Done, Fetched, Reply, Roster
from tieline.contract.target import to_member
from tieline.core import broker
from tieline.server import local_hub

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


@pytest.mark.slow
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

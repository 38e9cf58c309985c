"""Tests of holds through restarts, rollbacks, large batches and a clock that is set: held messages stay in order."""

from collections.abc import Callable
from typing import Any

import pytest

from tests.core.doubles import BrokerHarness, content
from tests.core.held_rooms import LIMITS, STEP_MS, Room, bodies
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.event import Held, Released
from tieline.contract.identifiers import MemberName
from tieline.contract.message import Kind
from tieline.contract.reply import Accepted, Done, Fetched, Pauses
from tieline.core import broker


@pytest.mark.parametrize("how", [BrokerHarness.restart, BrokerHarness.crash])
def test_what_is_held_stays_held_through_a_restart_and_comes_in_order(
    stuck: Room, how: Callable[[BrokerHarness], None]
) -> None:
    first = stuck.say("bob", "@ada", "held 1").message_id
    stuck.say("bob", "@ada", "held 2", kind=Kind.STATUS)
    how(stuck.harness)
    stuck.attach()
    assert stuck.read("ada") == []
    receipt = stuck.harness.receipts(stuck.sessions["bob"], first)["ada"]
    assert "hops_max = 8" in receipt.held
    assert stuck.say("bob", "@ada", "held 3").held
    how(stuck.harness)
    stuck.attach()
    stuck.harness.expect(Done, c.ResumeThread(stuck.harness.operator, thread="@ada+@bob"))
    how(stuck.harness)
    stuck.attach()
    assert stuck.read("ada") == bodies(4)
    assert not stuck.harness.broker.holds.any


@pytest.mark.parametrize("how", [BrokerHarness.restart, BrokerHarness.crash])
def test_what_was_slowed_comes_in_order_after_a_restart(room: Room, how: Callable[[BrokerHarness], None]) -> None:
    room.alternate("ada", "bob", 5)
    assert room.say("bob", "@ada", "held 0").held
    assert room.say("bob", "@ada", "held 1").held
    how(room.harness)
    room.attach()
    room.harness.pass_ms(0)
    assert room.read("ada") == bodies(2)


@pytest.mark.parametrize("kind", [Kind.CHAT, Kind.STATUS])
@pytest.mark.parametrize("how", [BrokerHarness.restart, BrokerHarness.crash, lambda harness: None])
def test_a_message_behind_another_waits_for_the_same_pauses_before_and_after_a_restart(
    room: Room, how: Callable[[BrokerHarness], None], kind: Kind
) -> None:
    operator = room.harness.operator
    room.harness.expect(Done, c.PauseThread(operator, thread="*"))
    assert room.say("ada", "*", "for all").held
    assert room.say("ada", "@bob", "for bob", kind=kind).held
    # A pause that comes later holds messages of its conversation too, but no pause holds a status by itself.
    room.harness.expect(Done, c.PauseThread(operator, thread="@ada+@bob"))
    how(room.harness)
    room.attach()
    operator = room.harness.operator
    waiting = room.harness.expect(Fetched, c.Fetch(room.sessions["bob"]))
    assert (waiting.held, waiting.held_in) == (2, ("*", "@ada+@bob") if kind is Kind.CHAT else ("*",))
    room.harness.expect(Done, c.ResumeThread(operator, thread="*"))
    room.harness.pass_ms(0)
    assert room.read("bob") == (["for all"] if kind is Kind.CHAT else ["for all", "for bob"])
    room.harness.expect(Done, c.ResumeThread(operator, thread="@ada+@bob"))
    room.harness.pass_ms(0)
    assert room.read("bob") == (["for bob"] if kind is Kind.CHAT else [])


@pytest.mark.parametrize("how", [BrokerHarness.restart, BrokerHarness.crash])
def test_a_hold_goes_on_cooling_down_and_a_lifted_limit_stays_lifted_after_a_restart(
    stuck: Room, how: Callable[[BrokerHarness], None]
) -> None:
    stuck.say("bob", "@ada", "held 1")
    stuck.harness.expect(Done, c.AllowThread(stuck.harness.operator, thread="@ada+@cy", for_ms=10_000_000))
    how(stuck.harness)
    stuck.attach()
    stuck.harness.pass_ms(LIMITS.pause_ms)
    assert stuck.read("ada") == ["held 0"]
    assert stuck.harness.broker.holds.allows(content("@cy"), "ada", stuck.harness.clock_and_ids.time_ms)


def test_what_was_decided_and_not_committed_is_neither_held_nor_released(stuck: Room) -> None:
    stuck.harness.decide(c.ResumeThread(stuck.harness.operator, thread="@ada+@bob"))
    stuck.harness.crash()
    stuck.attach()
    assert stuck.read("ada") == []
    assert stuck.say("bob", "@ada", "held 1").held


def test_what_is_rolled_back_leaves_what_is_held_as_it_was(stuck: Room) -> None:
    harness = stuck.harness
    harness.decide(
        c.Send(stuck.sessions["bob"], content=content("@ada", "taken back")),
        c.PauseThread(harness.operator, thread="#dev"),
    )
    harness.decide(c.ResumeThread(harness.operator, thread="@ada+@bob"))
    harness.broker.roll_back()
    (pause,) = harness.expect(Pauses, c.ListPauses(harness.operator)).pauses
    assert (pause.conversation, pause.held) == ("@ada+@bob", 1)
    stuck.say("bob", "@ada", "held 1")
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    assert stuck.read("ada") == bodies(2)


def test_a_rollback_reads_no_message_that_was_held_before(stuck: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    harness = stuck.harness
    for number in range(1, 4):
        stuck.say("bob", "@ada", f"held {number}", topic="" if number % 2 else "other")
    harness.decide(c.Send(stuck.sessions["bob"], content=content("@ada", "taken back")))
    with monkeypatch.context() as patch:
        patch.setattr(type(harness.store), "messages", lambda *_: pytest.fail("known before"))
        harness.broker.roll_back()
    harness.pass_ms(1000)
    assert stuck.read("ada") == []
    (pause,) = harness.expect(Pauses, c.ListPauses(harness.operator)).pauses
    assert pause.held == 4
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    assert stuck.read("ada") == bodies(4)


def test_held_deliveries_that_expire_together_are_looked_at_once(stuck: Room) -> None:
    class Watched(dict[Any, Any]):
        walks = 0

        def __iter__(self) -> Any:
            Watched.walks += 1
            return super().__iter__()

    harness, holds = stuck.harness, stuck.harness.broker.holds
    for number in range(20):
        stuck.say("bob", "@ada", topic=f"{number}", ttl_ms=1000)
    holds._queues = Watched(holds._queues)
    harness.pass_ms(1000)
    assert Watched.walks == 1
    assert len(holds._queues) == 1


def test_one_batch_releases_a_bounded_number_and_the_next_ones_go_on_in_order(
    stuck: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_CHORES_MAX", 4)
    harness = stuck.harness
    for number in range(1, 10):
        stuck.say("bob", "@ada", f"held {number}")
    harness.expect(Done, c.ResumeThread(harness.operator, thread="@ada+@bob"))
    released = [harness.outcome.released[MemberName("ada")]]
    # Order is kept although something is said meanwhile.
    assert stuck.say("bob", "@ada", "held 10").held
    released.append(harness.outcome.released[MemberName("ada")])
    while harness.outcome.more:
        harness.ask_all()
        released.append(harness.outcome.released[MemberName("ada")])
    assert [len(keys) for keys in released] == [4, 4, 3]
    assert stuck.read("ada") == bodies(11)


def test_one_batch_expires_a_bounded_number_and_the_next_ones_go_on(
    room: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(broker, "_CHORES_MAX", 4)
    said = [room.say("cy", "@ada", ttl_ms=1000).message_id for _ in range(10)]
    room.harness.pass_ms(1000)
    left = [len(room.harness.broker.deadlines)]
    while room.harness.outcome.more:
        room.harness.ask_all()
        left.append(len(room.harness.broker.deadlines))
    assert left == [6, 2, 0]
    assert {room.harness.state(each, "ada") for each in said} == {State.EXPIRED}


def test_the_pauses_of_a_batch_are_written_once(room: Room, monkeypatch: pytest.MonkeyPatch) -> None:
    saved: list[str] = []
    harness = room.harness
    save = type(harness.store).save_setting

    def count(store: Any, key: str, value: bytes) -> None:
        saved.append(key)
        save(store, key, value)

    monkeypatch.setattr(type(harness.store), "save_setting", count)
    harness.ask_all(*(c.PauseThread(harness.operator, thread=f"#c{number}") for number in range(50)))
    assert saved == ["holds"]
    harness.crash()
    assert len(harness.expect(Pauses, c.ListPauses(harness.operator)).pauses) == 50


def test_a_slowed_message_is_still_slowed_after_a_rollback(room: Room) -> None:
    room.alternate("ada", "bob", 5)
    assert room.say("bob", "@ada", "held 0").held
    room.harness.broker.roll_back()
    room.harness.pass_ms(250)
    assert room.read("ada") == []
    room.wait_for("ada")
    assert room.given["ada"][-1] == "held 0"


def test_a_chain_is_counted_and_told_of_although_each_message_failed_once(room: Room) -> None:
    pair, held = ("ada", "bob"), ""
    for turn in range(LIMITS.hops_max + 2):
        speaker, hearer = pair[turn % 2], pair[1 - turn % 2]
        send = c.Send(room.sessions[speaker], content=content(f"@{hearer}", f"{turn}"))
        room.harness.decide(send)
        room.harness.broker.roll_back()
        held = room.harness.expect(Accepted, send).held
        if turn <= LIMITS.hops_max:
            room.wait_for(hearer)
            room.harness.pass_ms(STEP_MS)
    assert held
    assert room.notices("hana") == ["slowed", "held"]


@pytest.mark.parametrize("step_ms", [30 * 24 * 3600 * 1000, -30 * 24 * 3600 * 1000])
def test_a_clock_that_is_set_neither_releases_nor_keeps_anything(stuck: Room, step_ms: int) -> None:
    stuck.say("bob", "@ada", "held 1")
    stuck.harness.clock_and_ids.set_clock(step_ms)
    stuck.harness.pass_ms(1000)
    assert stuck.read("ada") == []
    stuck.harness.restart()
    stuck.attach()
    stuck.harness.pass_ms(LIMITS.pause_ms - 1000)
    assert stuck.read("ada") == ["held 0"]


@pytest.mark.parametrize("step_ms", [30 * 24 * 3600 * 1000, -30 * 24 * 3600 * 1000])
def test_a_clock_that_is_set_neither_hastens_nor_delays_a_slowed_message(room: Room, step_ms: int) -> None:
    room.alternate("ada", "bob", 5)
    assert room.say("bob", "@ada", "slowed").held
    room.harness.clock_and_ids.set_clock(step_ms)
    room.harness.pass_ms(3750)
    assert room.read("ada") == []
    room.harness.pass_ms(250)
    assert room.read("ada") == ["slowed"]


@pytest.mark.parametrize("step_ms", [30 * 24 * 3600 * 1000, -30 * 24 * 3600 * 1000])
@pytest.mark.parametrize("published", [False, True])
def test_a_clock_that_is_set_changes_no_pause_although_its_batch_is_taken_back(
    stuck: Room, step_ms: int, *, published: bool
) -> None:
    harness = stuck.harness
    harness.clock_and_ids.set_clock(step_ms)
    harness.decide(c.Tick())
    if published:
        harness.broker.mark_published()
    harness.broker.roll_back()
    harness.broker.roll_back()
    harness.pass_ms(1000)
    harness.broker.roll_back()
    assert stuck.read("ada") == []
    harness.crash()
    stuck.attach()
    harness.pass_ms(LIMITS.pause_ms - 1000)
    assert stuck.read("ada") == ["held 0"]


def test_a_release_that_fails_is_tried_again_later_and_the_commands_beside_it_are_decided(
    stuck: Room, monkeypatch: pytest.MonkeyPatch
) -> None:
    harness = stuck.harness

    def fail(*_: object) -> None:
        raise RuntimeError("a bug")

    with monkeypatch.context() as patch:
        patch.setattr(type(harness.broker.holds), "_release", fail)
        assert not stuck.say("cy", "@ada", "beside").held
        replies = harness.ask_all(c.ResumeThread(harness.operator, thread="@ada+@bob"), c.Tick())
        assert replies == [Done(), Done()]
        assert [str(fault.error) for fault in harness.outcome.faults] == ["a bug"]
    assert stuck.read("ada") == ["beside"]
    harness.pass_ms(60_000)
    assert stuck.read("ada") == ["held 0"]


def test_the_log_says_what_was_held_why_and_when_it_was_released(stuck: Room) -> None:
    stuck.harness.expect(Done, c.ResumeThread(stuck.harness.operator, thread="@ada+@bob"))
    events = stuck.harness.events()
    held = [event for event in events if isinstance(event, Held)]
    released = [event for event in events if isinstance(event, Released)]
    assert [event.keys for event in held] == [event.keys for event in released]
    assert "hops_max = 8" in held[-1].evidence

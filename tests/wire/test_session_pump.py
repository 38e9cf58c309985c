"""Tests of the session pump with a fake hub: opening, closing, and commands from the protocol."""

from collections.abc import Sequence
from functools import partial

import pytest

from tests.server.hubs import until
from tests.wire.native.fake_hub import FakeHub
from tests.wire.table import ATTACH, BOB, SESSION, FakeWire, Table, turn
from tieline.contract import command as c
from tieline.contract.delivery import State
from tieline.contract.identifiers import MessageId, SessionId
from tieline.contract.limits import Limits
from tieline.contract.message import Content
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Accepted, Attached, Done, Progress, Reply
from tieline.contract.target import to_member
from tieline.wire import session_pump
from tieline.wire.session_pump import SessionPump

# Opening and closing


async def test_the_protocol_hears_of_its_session_before_anything_is_offered() -> None:
    hub, wire = FakeHub(), FakeWire()
    heard: list[Attached | Refusal] = []
    talk = SessionPump(hub, wire)
    talk.open(ATTACH, heard.append)
    assert hub.submitted == [ATTACH]
    assert heard == []
    hub.answer(Attached(session=SESSION, member=BOB, speaker="bob"))
    assert heard == [Attached(session=SESSION, member=BOB, speaker="bob")]
    assert (talk.session, talk.member) == (SESSION, BOB)
    assert hub.listening == {SESSION: (talk, None)}
    assert hub.asked(c.Fetch) == []


async def test_a_refused_attach_is_told_and_leaves_nothing_behind() -> None:
    hub, wire = FakeHub(), FakeWire()
    heard: list[Attached | Refusal] = []
    talk = SessionPump(hub, wire)
    talk.open(ATTACH, heard.append)
    hub.answer(Refusal(Code.UNAUTHORIZED, "no"))
    assert heard == [Refusal(Code.UNAUTHORIZED, "no")]
    assert hub.listening == {}
    talk.close()
    assert hub.asked(c.Detach) == []


async def test_closing_forgets_the_listener_and_detaches_once() -> None:
    table = Table()
    table.talk.close()
    table.talk.close()
    assert table.hub.listening == {}
    assert table.hub.asked(c.Detach) == [c.Detach(SESSION)]


async def test_a_wire_that_is_gone_before_its_session_is_open_detaches_it_and_hears_nothing() -> None:
    hub, wire = FakeHub(), FakeWire()
    heard: list[Attached | Refusal] = []
    talk = SessionPump(hub, wire)
    talk.open(ATTACH, heard.append)
    talk.close()
    assert hub.asked(c.Detach) == []
    hub.answer(Attached(session=SESSION, member=BOB, speaker="bob"))
    assert hub.asked(c.Detach) == [c.Detach(SESSION)]
    assert heard == []
    assert hub.listening == {}


async def test_nothing_is_written_to_a_wire_that_closed_in_the_same_turn() -> None:
    table = Table()
    table.page()
    table.offer(1)
    table.talk.close()
    await turn()
    assert table.wire.keys == []
    assert table.offered == []


async def test_a_page_and_replies_that_come_after_closing_are_dropped() -> None:
    table = Table()
    heard: list[Sequence[Reply]] = []
    table.talk.submit((c.ListMembers(SESSION),), heard.append)
    table.talk.close()
    table.page(1, 2)
    table.hub.answer(Done())
    assert table.wire.keys == []
    assert heard == []


async def test_progress_and_the_end_go_to_the_wire() -> None:
    table = Table()
    step = Progress(message_id=MessageId("m1"), member=BOB, state=State.SEEN, at_ms=7)
    table.talk.progress(step)
    table.talk.end(Refusal(Code.UNAUTHORIZED, "removed"))
    assert table.wire.steps == [step]
    assert table.wire.ended == [Refusal(Code.UNAUTHORIZED, "removed")]


# Inbound


async def test_too_many_unanswered_commands_pause_reading_until_half_are_answered() -> None:
    table = Table(limits=Limits(inflight_max=4))
    table.page()
    answered: list[int] = []
    for number in range(5):
        table.talk.submit((c.ListMembers(SESSION),), partial(lambda number, _: answered.append(number), number))
        assert table.wire.reading is (number < 4)
    for left in (4, 3):
        table.hub.answer(Done())
        assert not table.wire.reading, f"{left} wait"
    table.hub.answer(Done())
    assert table.wire.reading
    assert answered == [0, 1, 2]


async def test_commands_of_one_submission_all_count() -> None:
    table = Table(limits=Limits(inflight_max=4))
    table.page()
    table.talk.submit([c.ListMembers(SESSION)] * 5)
    assert not table.wire.reading
    table.hub.answer(*[Done()] * 5)
    assert table.wire.reading


async def test_commands_that_nobody_waits_for_are_answered_with_a_later_one_and_count_until_then() -> None:
    table = Table(limits=Limits(inflight_max=8))
    table.page()
    answered: list[int] = []
    for number in range(3):
        table.talk.submit((c.Advance(SESSION, ranges=()),), lambda _: answered.append(0), quiet=True)
        assert table.talk.room == 7 - number
        assert len(table.hub.open) == (number == 2), "the third is more than a quarter of the limit"
    table.hub.answer(Done())
    assert (answered, table.talk.room) == ([0], 8)
    table.talk.submit((c.Advance(SESSION, ranges=()),))
    table.talk.submit((c.ListMembers(SESSION),), lambda _: answered.append(1))
    assert table.talk.room == 6
    table.hub.answer(Done())
    assert (answered, table.talk.room) == ([0, 1], 8)


async def test_an_answer_that_comes_after_closing_leaves_the_wire_alone() -> None:
    table = Table(limits=Limits(inflight_max=1))
    table.page()
    table.talk.submit([c.ListMembers(SESSION)] * 2)
    assert not table.wire.reading
    table.talk.close()
    table.hub.answer(Done(), Done())
    assert not table.wire.reading


async def test_a_session_that_is_left_ends_and_the_wire_may_open_another() -> None:
    hub, wire = FakeHub(), FakeWire()
    talk = SessionPump(hub, wire)
    talk.open(ATTACH, lambda _: None)
    hub.answer(Attached(session=SESSION, member=BOB, speaker="bob"))
    talk.suspend_reading(True)
    talk.leave()
    assert hub.asked(c.Detach) == [c.Detach(SESSION)]
    assert hub.listening == {}
    assert not wire.reading, "what the wire was told stays true"
    talk.open(ATTACH, lambda _: None)
    hub.answer(Attached(session=SessionId("session-2"), member=BOB, speaker="bob"))
    talk.suspend_reading(False)
    assert wire.reading
    talk.close()
    assert hub.asked(c.Detach) == [c.Detach(SESSION), c.Detach(SessionId("session-2"))]


# A wire without refusals


FAILED = Refusal(Code.STORE_FAILED, "full")


def send(body: str) -> c.Send:
    return c.Send(SESSION, content=Content(target=to_member(BOB), body=body), attempt=0)


def said(table: Table) -> list[str]:
    return [command.content.body for command in table.hub.submitted if isinstance(command, c.Send)]


@pytest.fixture
def soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_pump, "RETRY_SECONDS", 0)


@pytest.mark.usefixtures("soon")
async def test_what_the_store_fails_at_is_handed_over_again_in_order_and_meanwhile_nothing_is_read() -> None:
    table = Table()
    table.page()
    kept: list[str] = []
    table.talk.submit_with_retry((send("a"), send("b")))
    table.talk.submit_with_retry((send("c"),))
    table.talk.when_decided(lambda: kept.append("all"))
    table.hub.answer(Accepted(message_id=MessageId("m1"), offset=1, recipients=1), FAILED)
    assert not table.wire.reading
    table.hub.answer(FAILED)
    for _ in range(3):
        await until(lambda: len(table.hub.open) == 1)
        table.hub.answer(FAILED, FAILED)
        assert not table.wire.reading
    await until(lambda: len(table.hub.open) == 1)
    table.hub.answer(*[Accepted(message_id=MessageId("m2"), offset=2, recipients=1)] * 2)
    assert said(table) == ["a", "b", "c", *["b", "c"] * 4]
    attempts = [command.attempt for command in table.hub.submitted if isinstance(command, c.Send)]
    assert attempts == [0, 0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert table.talk.attempt == 0
    assert table.wire.reading
    assert kept == ["all"]
    assert table.wire.ended == []


@pytest.mark.usefixtures("soon")
async def test_what_a_wire_submits_with_retry_is_kept_before_its_session_ends_though_the_wire_is_gone() -> None:
    table = Table()
    table.page()
    table.talk.submit_with_retry((send("a"),))
    table.talk.close()
    table.hub.answer(FAILED)
    await until(lambda: len(table.hub.open) == 1)
    assert table.hub.asked(c.Detach) == []
    table.hub.answer(Accepted(message_id=MessageId("m1"), offset=1, recipients=1))
    assert said(table) == ["a", "a"]
    assert table.hub.asked(c.Detach) == [c.Detach(SESSION)]


@pytest.mark.usefixtures("soon")
async def test_a_wire_ends_when_the_store_fails_for_too_long_or_at_too_much(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_pump, "RETRIES_MAX", 2)
    long = Table()
    long.page()
    long.talk.submit_with_retry((send("a"),))
    for _ in range(2):
        await until(lambda: len(long.hub.open) == 1)
        long.hub.answer(FAILED)
    assert long.wire.ended == []
    await until(lambda: len(long.hub.open) == 1)
    long.hub.answer(FAILED)
    assert [why.code for why in long.wire.ended] == [Code.STORE_FAILED]
    much = Table(limits=Limits(unsent_bytes_max=3))
    much.page()
    much.talk.submit_with_retry((send("four"),))
    much.hub.answer(FAILED)
    assert [why.code for why in much.wire.ended] == [Code.STORE_FAILED]
    # There is nothing left to submit.
    await turn()
    assert said(much) == ["four"]


async def test_a_session_whose_wire_is_gone_ends_when_the_store_fails_at_too_much() -> None:
    table = Table(limits=Limits(unsent_bytes_max=3))
    table.page()
    table.talk.submit_with_retry((send("four"),))
    table.talk.close()
    assert table.hub.asked(c.Detach) == []
    table.hub.answer(FAILED)
    assert table.hub.asked(c.Detach) == [c.Detach(SESSION)]
    assert table.wire.ended == [], "nobody is there to be told"

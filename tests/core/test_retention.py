"""Retention: settled messages are forgotten in time, unsettled ones and the chain never."""

import pytest

from tests.core.conftest import MakeDesk
from tests.core.doubles import Desk, content
from tieline.contract import command as c
from tieline.contract.chain import GENESIS, link
from tieline.contract.delivery import State
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code
from tieline.contract.reply import History, Receipts

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


@pytest.fixture
def desk(make_desk: MakeDesk) -> Desk:
    """A desk that keeps settled messages for a day."""
    return make_desk(Limits(retention_ms=DAY_MS))


def remembered(desk: Desk) -> list[str]:
    messages = desk.expect(History, c.ReadHistory(desk.operator)).messages
    return [message.content.body for message in reversed(messages)]


def test_settled_messages_are_forgotten_when_their_time_is_over_and_not_before(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "settled")
    desk.advance(bob, 1)
    desk.pass_ms(DAY_MS)
    assert remembered(desk) == ["settled"]
    desk.pass_ms(HOUR_MS)
    assert remembered(desk) == []


def test_unsettled_messages_are_kept_for_ever(desk: Desk) -> None:
    ada, bob, _ = desk.join("ada"), desk.join("bob"), desk.add("cy")
    desk.send(ada, "*", "bob has it, cy waits")
    desk.send(ada, "@bob", "seen only")
    desk.send(ada, "@bob", "settled")
    desk.advance(bob, 1)
    desk.advance(bob, 2, State.SEEN)
    desk.advance(bob, 3)
    for _ in range(3):
        desk.pass_ms(30 * DAY_MS)
        desk.crash()
    assert remembered(desk) == ["bob has it, cy waits", "seen only"]
    assert desk.bodies(desk.attach("cy")) == ["bob has it, cy waits"]
    desk.advance(desk.attach("cy"), 1)
    desk.pass_ms(DAY_MS)
    assert remembered(desk) == ["seen only"]


def test_a_message_that_nobody_got_is_forgotten_too(desk: Desk) -> None:
    ada = desk.join("ada")
    desk.ask(c.Send(ada, content=content("#empty", "into the void"), allow_empty=True))
    assert remembered(desk) == ["into the void"]
    desk.pass_ms(2 * DAY_MS)
    assert remembered(desk) == []


def test_the_chain_stays_whole_when_messages_are_forgotten(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for key in range(1, 6):
        desk.send(ada, "@bob")
        desk.advance(bob, key)
    before = desk.log()
    desk.pass_ms(2 * DAY_MS)
    assert remembered(desk) == []
    desk.crash()
    rows = desk.log()
    assert list(rows[: len(before)]) == list(before)
    previous = GENESIS
    for offset, row in enumerate(rows):
        assert row.offset == offset
        assert row.hash == link(previous, row.event)
        previous = row.hash


def test_a_forgotten_message_is_unknown(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    sent = desk.send(ada, "@bob", "gone", wire_id="1")
    desk.advance(bob, 1)
    desk.pass_ms(2 * DAY_MS)
    assert desk.refused(c.ReadReceipts(ada, message_id=sent.message_id)).code is Code.UNKNOWN_MESSAGE
    assert desk.claim(bob, sent.message_id) is None
    assert not desk.send(ada, "@bob", "another", wire_id="1").duplicate


def test_what_went_out_on_a_wire_without_acknowledgement_expires_with_its_message(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    ackless = desk.attach("bob", acknowledges=False)
    desk.send(ada, "@bob", "old and ackless")
    desk.offered(ackless, 1)
    desk.pass_ms(DAY_MS)
    assert desk.bodies(ackless) == ["old and ackless"]
    desk.send(ada, "@bob", "young and ackless")
    desk.offered(ackless, 2)
    desk.pass_ms(HOUR_MS)
    assert desk.bodies(ackless) == ["young and ackless"]
    desk.crash()
    assert desk.bodies(desk.attach("bob")) == ["young and ackless"]


def test_a_followed_message_on_a_wire_without_acknowledgement_expires_without_harm(desk: Desk) -> None:
    ada, _ = desk.join("ada"), desk.add("bob")
    sent = desk.send(ada, "@bob")
    desk.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    desk.offered(desk.attach("bob", acknowledges=False), 1)
    desk.pass_ms(2 * DAY_MS)
    assert [step.state for _, step in desk.outcome.progress] == [State.EXPIRED]
    assert remembered(desk) == []


def test_streams_and_keys_go_on_after_everything_was_forgotten(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    for key in (1, 2):
        desk.send(ada, "@bob")
        desk.advance(bob, key)
    desk.pass_ms(2 * DAY_MS)
    desk.crash()
    desk.send(desk.attach("ada"), "@bob")
    (delivery,) = desk.fetch(desk.attach("bob"))
    assert (delivery.key, delivery.stream_seq) == (3, 3)


def test_many_messages_are_forgotten_a_few_at_a_time(make_desk: MakeDesk) -> None:
    desk = make_desk(Limits(retention_ms=DAY_MS))
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.ask_all(*(c.Send(ada, content=content("@bob")) for _ in range(1200)))
    desk.ask(c.Advance(bob, ranges=((1, 1199),)))
    desk.clock_and_ids.time_ms += 2 * DAY_MS
    counts = []
    for _ in range(4):
        desk.ask(c.Tick())
        counts.append(len(desk.expect(History, c.ReadHistory(desk.operator, limit=10_000)).messages))
    assert counts == [700, 200, 1, 1]


def test_a_crash_in_the_middle_of_a_pass_changes_nothing(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.send(ada, "@bob", "one")
    desk.send(ada, "@bob", "two")
    desk.advance(bob, 1)
    desk.pass_ms(1)  # the first pass begins and has nothing to do
    desk.clock_and_ids.time_ms += 2 * DAY_MS
    desk.decide(c.Tick())
    desk.crash()
    assert remembered(desk) == ["one", "two"]
    assert desk.bodies(desk.attach("bob")) == ["two"]
    assert desk.send(desk.attach("ada"), "@bob", "three").recipients == 1


def test_a_message_that_came_while_a_pass_was_under_way_is_kept_however_long_the_pass_takes(desk: Desk) -> None:
    ada, bob = desk.join("ada"), desk.join("bob")
    desk.ask_all(*(c.Send(ada, content=content("@bob")) for _ in range(600)))
    desk.ask(c.Advance(bob, ranges=((1, 600),)))
    desk.pass_ms(2 * DAY_MS)  # the pass begins, and has more to forget than it does at once
    desk.send(ada, "@bob", "nobody has read this")
    desk.pass_ms(2 * DAY_MS)  # the machine slept
    assert desk.bodies(bob) == ["nobody has read this"]
    desk.crash()
    assert desk.bodies(desk.attach("bob")) == ["nobody has read this"]

"""Tests of retention: settled messages are deleted after a time. Unsettled messages and log rows are never deleted."""

from pathlib import Path

import pytest

from tests.core.conftest import MakeHarness
from tests.core.doubles import BrokerHarness, content
from tests.core.test_external_inboxes import Shop
from tieline.contract import command as c
from tieline.contract.chain import GENESIS, link
from tieline.contract.delivery import State
from tieline.contract.identifiers import MemberName
from tieline.contract.limits import Limits
from tieline.contract.refusal import Code
from tieline.contract.reply import History, Receipts
from tieline.stores.sqlite import SqliteStore

DAY_MS = 24 * 3600 * 1000
HOUR_MS = 3600 * 1000


@pytest.fixture
def harness(make_harness: MakeHarness) -> BrokerHarness:
    """Fixture: a broker harness that keeps settled messages for a day."""
    return make_harness(Limits(retention_ms=DAY_MS))


def remembered(harness: BrokerHarness) -> list[str]:
    messages = harness.expect(History, c.ReadHistory(harness.operator)).messages
    return [message.content.body for message in reversed(messages)]


def test_settled_messages_are_forgotten_when_their_time_is_over_and_not_before(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "settled")
    harness.advance(bob, 1)
    harness.pass_ms(DAY_MS)
    assert remembered(harness) == ["settled"]
    harness.pass_ms(HOUR_MS)
    assert remembered(harness) == []


def test_unsettled_messages_are_kept_for_ever(harness: BrokerHarness) -> None:
    ada, bob, _ = harness.join("ada"), harness.join("bob"), harness.add("cy")
    harness.send(ada, "*", "bob has it, cy waits")
    harness.send(ada, "@bob", "seen only")
    harness.send(ada, "@bob", "settled")
    harness.advance(bob, 1)
    harness.advance(bob, 2, State.SEEN)
    harness.advance(bob, 3)
    for _ in range(3):
        harness.pass_ms(30 * DAY_MS)
        harness.crash()
    assert remembered(harness) == ["bob has it, cy waits", "seen only"]
    assert harness.bodies(harness.attach("cy")) == ["bob has it, cy waits"]
    harness.advance(harness.attach("cy"), 1)
    harness.pass_ms(DAY_MS)
    assert remembered(harness) == ["seen only"]


def test_a_message_that_nobody_got_is_forgotten_too(harness: BrokerHarness) -> None:
    ada = harness.join("ada")
    harness.ask(c.Send(ada, content=content("#empty", "into the void"), allow_empty=True))
    assert remembered(harness) == ["into the void"]
    harness.pass_ms(2 * DAY_MS)
    assert remembered(harness) == []


def test_the_chain_stays_whole_when_messages_are_forgotten(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for key in range(1, 6):
        harness.send(ada, "@bob")
        harness.advance(bob, key)
    before = harness.log()
    harness.pass_ms(2 * DAY_MS)
    assert remembered(harness) == []
    harness.crash()
    rows = harness.log()
    assert list(rows[: len(before)]) == list(before)
    previous = GENESIS
    for offset, row in enumerate(rows):
        assert row.offset == offset
        assert row.hash == link(previous, row.at_ms, row.event)
        previous = row.hash


def test_a_forgotten_message_is_unknown(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    sent = harness.send(ada, "@bob", "gone", wire_id="1")
    harness.advance(bob, 1)
    harness.pass_ms(2 * DAY_MS)
    assert harness.refused(c.ReadReceipts(ada, message_id=sent.message_id)).code is Code.UNKNOWN_MESSAGE
    assert harness.claim(bob, sent.message_id) is None
    assert not harness.send(ada, "@bob", "another", wire_id="1").duplicate


def test_what_went_out_on_a_wire_without_acknowledgement_expires_with_its_message(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    ackless = harness.attach("bob", acknowledges=False)
    harness.send(ada, "@bob", "old and ackless")
    harness.offered(ackless, 1)
    harness.pass_ms(DAY_MS)
    assert harness.bodies(ackless) == ["old and ackless"]
    harness.send(ada, "@bob", "young and ackless")
    harness.offered(ackless, 2)
    harness.pass_ms(HOUR_MS)
    assert harness.bodies(ackless) == ["young and ackless"]
    harness.crash()
    assert harness.bodies(harness.attach("bob")) == ["young and ackless"]


def test_what_went_out_on_a_wire_without_acknowledgement_expires_for_an_external_inbox_too(
    harness: BrokerHarness,
) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    ackless = harness.attach("bob", acknowledges=False)
    shop = Shop()
    harness.set_external_inbox(MemberName("bob"), shop)
    for key in (1, 2):
        harness.send(ada, "@bob", "old and ackless")
        harness.offered(ackless, key)
    harness.pass_ms(2 * DAY_MS)
    account = harness.broker.directory.find(MemberName("bob"))
    assert account is not None
    assert account.inbox.first_unsettled == 3, "the external inbox cannot be asked for a deleted message"
    assert shop.reserved == []
    harness.send(ada, "@bob", "young")
    harness.advance(bob, 3)
    assert shop.reserved == ["young"]


def test_a_followed_message_on_a_wire_without_acknowledgement_expires_without_harm(harness: BrokerHarness) -> None:
    ada, _ = harness.join("ada"), harness.add("bob")
    sent = harness.send(ada, "@bob")
    harness.expect(Receipts, c.Follow(ada, message_id=sent.message_id))
    harness.offered(harness.attach("bob", acknowledges=False), 1)
    harness.pass_ms(2 * DAY_MS)
    assert [step.state for _, step in harness.outcome.progress] == [State.EXPIRED]
    assert remembered(harness) == []


def test_streams_and_keys_go_on_after_everything_was_forgotten(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    for key in (1, 2):
        harness.send(ada, "@bob")
        harness.advance(bob, key)
    harness.pass_ms(2 * DAY_MS)
    harness.crash()
    harness.send(harness.attach("ada"), "@bob")
    (delivery,) = harness.fetch(harness.attach("bob"))
    assert (delivery.key, delivery.stream_seq) == (3, 3)


def test_many_messages_are_forgotten_a_few_at_a_time(make_harness: MakeHarness) -> None:
    harness = make_harness(Limits(retention_ms=DAY_MS))
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.ask_all(*(c.Send(ada, content=content("@bob")) for _ in range(1200)))
    harness.ask(c.Advance(bob, ranges=((1, 1199),)))
    harness.clock_and_ids.time_ms += 2 * DAY_MS
    counts = []
    for _ in range(4):
        harness.ask(c.Tick())
        counts.append(len(harness.expect(History, c.ReadHistory(harness.operator, limit=10_000)).messages))
    assert counts == [700, 200, 1, 1]


def test_a_crash_in_the_middle_of_a_pass_changes_nothing(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.send(ada, "@bob", "one")
    harness.send(ada, "@bob", "two")
    harness.advance(bob, 1)
    harness.pass_ms(1)  # the first pass begins and has nothing to do
    harness.clock_and_ids.time_ms += 2 * DAY_MS
    harness.decide(c.Tick())
    harness.crash()
    assert remembered(harness) == ["one", "two"]
    assert harness.bodies(harness.attach("bob")) == ["two"]
    assert harness.send(harness.attach("ada"), "@bob", "three").recipients == 1


def test_a_message_that_came_while_a_pass_was_under_way_is_kept_however_long_the_pass_takes(
    harness: BrokerHarness,
) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.ask_all(*(c.Send(ada, content=content("@bob")) for _ in range(600)))
    harness.ask(c.Advance(bob, ranges=((1, 600),)))
    harness.pass_ms(2 * DAY_MS)  # the pass begins, and has more to forget than it does at once
    harness.send(ada, "@bob", "nobody has read this")
    harness.pass_ms(2 * DAY_MS)  # the machine slept
    assert harness.bodies(bob) == ["nobody has read this"]
    harness.crash()
    assert harness.bodies(harness.attach("bob")) == ["nobody has read this"]


def test_a_rollback_in_the_middle_of_a_pass_keeps_what_is_unsettled_again(harness: BrokerHarness) -> None:
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.ask_all(*(c.Send(ada, content=content("@bob", str(number))) for number in range(600)))
    harness.ask(c.Advance(bob, ranges=((1, 599),)))
    harness.clock_and_ids.time_ms += 2 * DAY_MS
    harness.decide(c.Advance(bob, ranges=((600, 600),)), c.Tick())
    harness.broker.roll_back()
    for _ in range(3):
        harness.ask(c.Tick())
    assert remembered(harness) == ["599"]
    assert harness.bodies(bob) == ["599"]


def test_free_space_is_given_back_in_small_steps_while_the_hub_is_idle(tmp_path: Path) -> None:
    harness = BrokerHarness(lambda: SqliteStore(tmp_path, synchronous="OFF"), Limits(retention_ms=DAY_MS))
    ada, bob = harness.join("ada"), harness.join("bob")
    harness.ask_all(*(c.Send(ada, content=content("@bob", "x" * 50_000)) for _ in range(400)))
    harness.ask(c.Advance(bob, ranges=((1, 400),)))
    connection = harness.store._main  # type: ignore[attr-defined]

    def pages(of: str) -> int:
        return int(connection.pragma(of))

    full = pages("page_count")
    harness.pass_ms(2 * DAY_MS)
    assert remembered(harness) == []
    freed = pages("freelist_count")
    assert freed > 4000
    for _ in range(5):
        harness.send(ada, "@bob", "busy")
        harness.ask(c.Tick())
    assert pages("page_count") == full, "a busy hub moves no pages"
    harness.ask(c.Tick())
    assert full - pages("page_count") <= 80, "a step is small"
    for _ in range(100):
        harness.ask(c.Tick())
    assert pages("freelist_count") <= 1024, "some free pages stay for the next messages"
    assert pages("page_count") < full - freed + 1100
    harness.crash()
    assert harness.bodies(harness.attach("bob")) == ["busy"] * 5

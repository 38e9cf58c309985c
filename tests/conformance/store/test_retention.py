"""Tests of retention in a store: which rows are deleted, in which order, and which rows stay."""

from tests.conformance.store.writer import PAGE_BYTES, Writer
from tieline.contract.delivery import State
from tieline.contract.event import (
    Acknowledged,
    Delivered,
)
from tieline.contract.identifiers import MessageId
from tieline.core.readers import Cutoff
from tieline.core.store import (
    DeliveryRoute,
)


def test_pruning_forgets_the_oldest_first_up_to_a_limit_except_what_is_kept(writer: Writer) -> None:
    for at_ms in (10, 20, 30, 40, 50):
        writer.accept(at_ms=at_ms, wire_id=f"w{at_ms}")
    writer.store.commit()
    assert writer.store.prune(0, Cutoff(50), frozenset({1}), 3) == ([0, 2], 3)
    assert set(writer.store.messages(range(5), PAGE_BYTES)[0]) == {1, 3, 4}
    assert writer.store.prune(3, Cutoff(50), frozenset({1}), 10) == ([3], None)
    assert writer.store.prune(0, Cutoff(50), frozenset({1}), 10) == ([], None)
    writer.store.commit()
    writer.crash()
    assert set(writer.store.messages(range(5), PAGE_BYTES)[0]) == {1, 4}
    assert writer.store.find_message(MessageId("m-0")) is None
    assert writer.store.find_wire_id("ada", "hub", "w10") is None
    assert writer.store.find_wire_id("ada", "hub", "w20") is not None


def test_pruning_goes_on_behind_any_number_of_messages_that_are_kept(writer: Writer) -> None:
    for _ in range(30):
        writer.accept(at_ms=10)
    writer.store.commit()
    keep = frozenset(range(29))
    assert writer.store.prune(0, Cutoff(50), keep, 20) == ([], 20)
    assert writer.store.prune(20, Cutoff(50), keep, 20) == ([29], None)


def test_pruning_leaves_the_rows_of_the_log(writer: Writer) -> None:
    writer.accept(at_ms=10)
    writer.advance(Acknowledged, (1, 1))
    writer.store.commit()
    rows = list(writer.store.read_log(0, 10)[0])
    assert writer.store.prune(0, Cutoff(50), frozenset(), 10) == ([0], None)
    writer.store.commit()
    writer.crash()
    assert list(writer.store.read_log(0, 10)[0]) == rows
    assert len(rows) == 2


def test_pruning_sees_what_is_buffered(writer: Writer) -> None:
    writer.accept(at_ms=10)
    assert writer.store.prune(0, Cutoff(50), frozenset(), 10) == ([0], None)
    writer.store.commit()
    assert writer.crash().log_end == 1
    assert writer.store.messages([0], PAGE_BYTES)[0] == {}


def test_pruning_one_delivery_leaves_the_steps_of_the_others(writer: Writer) -> None:
    writer.accept(route=DeliveryRoute([2], [1], [1]), at_ms=10)
    writer.accept(route=DeliveryRoute([2], [2], [2]), at_ms=90)
    writer.advance(Delivered, (1, 2))
    writer.advance(Acknowledged, (2, 2))
    writer.store.prune(0, Cutoff(50), frozenset(), 10)
    writer.store.commit()
    assert [step.state for step in writer.store.steps(2, 2)] == [State.OFFERED, State.ACKED]


def test_unread_messages_are_kept_as_long_as_the_cutoff_says(writer: Writer) -> None:
    for at_ms in (10, 20, 30, 40, 90):
        writer.accept(at_ms=at_ms)
    writer.store.commit()
    assert writer.store.readers.kept_from == 0
    assert writer.store.prune(0, Cutoff(50, unread=1), frozenset(), 10) == ([0], None)
    assert writer.store.prune(0, Cutoff(50, unread=1, unread_before_ms=25), frozenset(), 10) == ([1], None)
    writer.store.commit()
    writer.crash()
    assert writer.store.readers.kept_from == 2
    assert writer.store.prune(0, Cutoff(50, unread=3), frozenset({2}), 10) == ([], None)
    assert writer.store.readers.kept_from == 2, "nothing was deleted"
    assert writer.store.prune(0, Cutoff(50), frozenset({2}), 10) == ([3], None)
    writer.store.commit()
    assert writer.store.readers.kept_from == 4

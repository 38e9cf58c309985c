"""Tests of the main log of a store: its offsets have no gaps, and only committed rows are read and replayed."""

from contextlib import suppress

import pytest

from tests.conformance.store.rows import member, route_of
from tests.conformance.store.writer import PAGE_BYTES, Writer
from tests.core.doubles import content
from tieline.contract.chain import GENESIS
from tieline.contract.delivery import State
from tieline.contract.event import (
    Acknowledged,
    Claimed,
    Delivered,
    Expired,
    LogRow,
)
from tieline.core.store import (
    DeliveryRoute,
    MovedReplay,
    SentReplay,
    StoreError,
)


def test_a_gap_in_the_log_is_refused(writer: Writer) -> None:
    writer.record()
    with pytest.raises(StoreError):
        writer.store.record(LogRow(offset=2, at_ms=0, event=b"{}", hash=GENESIS))


def test_a_row_that_is_there_already_is_refused(writer: Writer) -> None:
    row = writer.record()
    with pytest.raises(StoreError):
        writer.store.record(row)


def test_the_log_goes_on_where_it_was_committed(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.record()
    writer.restore()
    with pytest.raises(StoreError):
        writer.store.record(LogRow(offset=2, at_ms=0, event=b"{}", hash=GENESIS))
    writer.restore()
    writer.record()
    writer.store.commit()
    assert writer.restore().log_end == 2


def test_a_store_says_whether_what_was_buffered_is_still_there(writer: Writer) -> None:
    writer.record()
    assert writer.store.intact
    with pytest.raises(StoreError):
        writer.store.record(LogRow(offset=5, at_ms=0, event=b"{}", hash=GENESIS))
    assert not writer.store.intact
    writer.restore()
    assert writer.store.intact


def test_after_an_exception_what_was_buffered_is_gone_even_if_somebody_commits(writer: Writer) -> None:
    writer.record()
    writer.store.commit()
    writer.store.save_member(member(1, "ada"))
    writer.record()
    with pytest.raises(StoreError):
        writer.store.record(LogRow(offset=99, at_ms=0, event=b"{}", hash=GENESIS))
    with suppress(StoreError):
        writer.store.commit()
    stored_state = writer.restore()
    assert stored_state.log_end == 1
    assert list(stored_state.members) == []


def test_a_reader_of_the_log_gets_committed_rows_only(writer: Writer) -> None:
    first = writer.record()
    writer.store.commit()
    writer.accept()
    writer.store.messages([1], PAGE_BYTES)[0]  # makes a store with a buffer show it to its own reads
    assert list(writer.store.read_log(0, 10)[0]) == [first]
    writer.store.commit()
    assert len(writer.store.read_log(0, 10)[0]) == 2


def test_a_log_is_read_from_any_offset_on_up_to_a_limit(writer: Writer) -> None:
    rows = [writer.record() for _ in range(5)]
    writer.store.commit()
    for start, limit in ((0, 10), (0, 2), (3, 10), (4, 1), (5, 10), (9, 10)):
        read, end = writer.store.read_log(start, limit)
        assert list(read) == rows[start : start + limit]
        assert end == 5


def test_the_replay_tells_messages_and_moves_in_order_and_nothing_else(writer: Writer) -> None:
    writer.record()
    writer.accept(content("@bob", topic="build"), DeliveryRoute([2, 3], [1, 4], [1, 9]))
    writer.advance(Delivered, (1, 3), (5, 5), ackless=True)
    writer.advance(Claimed, (1, 1))
    writer.record()
    writer.advance(Expired, (2, 2), number=3)
    writer.store.commit()
    replay = list(writer.store.replay(0))
    sent = replay.pop(0)
    assert isinstance(sent, SentReplay)
    assert (sent.offset, sent.sender, sent.topic) == (1, "ada", "build")
    assert route_of(sent.route) == ([2, 3], [1, 4], [1, 9])
    moved = [(m.number, tuple(map(tuple, m.ranges)), m.state, m.ackless) for m in replay if isinstance(m, MovedReplay)]
    assert moved == [
        (2, ((1, 3), (5, 5)), State.OFFERED, True),
        (2, ((1, 1),), State.ACKED, False),
        (3, ((2, 2),), State.EXPIRED, False),
    ]
    assert len(replay) == 3


@pytest.mark.parametrize(("start", "count"), [(0, 3), (1, 2), (2, 1), (3, 0)])
def test_the_replay_begins_where_it_is_told_to(writer: Writer, start: int, count: int) -> None:
    writer.accept()
    writer.advance(Delivered, (1, 1))
    writer.advance(Acknowledged, (1, 1))
    writer.store.commit()
    assert len(list(writer.store.replay(start))) == count

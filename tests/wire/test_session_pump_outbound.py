"""Tests of the session pump with a fake hub: order, credit and back-pressure of deliveries."""

import asyncio

import pytest

from tests.wire.table import BOB, SESSION, Table, turn
from tieline.contract import command as c
from tieline.contract.refusal import Code, Refusal
from tieline.wire import pages

# Outbound, caught up


async def test_receiving_listens_for_the_member_and_reads_the_inbox_first() -> None:
    table = Table(window=3)
    assert table.hub.listening[SESSION] == (table.talk, BOB)
    assert table.fetches == [(0, 3)]
    table.page(1, 2)
    assert table.wire.batches == [[1, 2]]
    assert table.offered == [(1, 2)]


async def test_caught_up_pushes_go_straight_out_as_one_batch_a_turn() -> None:
    table = Table(pending=2)
    table.offer(3, 4, 5)
    assert table.wire.batches == [[1, 2]], "within the turn they are collected"
    await turn()
    table.offer(6)
    await turn()
    assert table.wire.batches == [[1, 2], [3, 4, 5], [6]]
    assert table.offered == [(1, 2), (3, 5), (6, 6)]
    assert table.fetches == [(0, 10)], "nothing is read again"


async def test_a_wire_is_caught_up_when_everything_was_handed_to_it() -> None:
    table = Table()
    assert not table.talk.caught_up
    table.page(1, complete=False)
    assert not table.talk.caught_up
    table.page(2)
    assert table.talk.caught_up
    table.offer(3)
    assert not table.talk.caught_up
    await turn()
    assert table.talk.caught_up


async def test_an_offer_that_a_page_already_covered_is_ignored() -> None:
    table = Table()
    table.page(1, 2, 3)
    table.offer(2, 3, 4)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]


async def test_an_offer_while_the_first_page_is_being_read_comes_with_the_page_alone() -> None:
    table = Table()
    table.offer(1)
    table.page(1)
    table.offer(2)
    await turn()
    assert table.wire.keys == [1, 2]


async def test_a_gap_in_the_offers_is_read_from_the_inbox() -> None:
    table = Table(pending=1)
    table.offer(3)
    await turn()
    assert table.wire.keys == [1]
    assert table.fetches == [(0, 10), (1, 9)]
    table.page(2, 3)
    table.offer(4)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]


async def test_keys_that_are_settled_leave_gaps_and_are_offered_as_separate_ranges() -> None:
    table = Table()
    table.page(1, 2, 5, 7, through=8)
    assert table.offered == [(1, 2), (5, 5), (7, 7)]
    table.offer(9)
    await turn()
    assert table.wire.keys == [1, 2, 5, 7, 9]


# Outbound, behind


async def test_a_full_window_stops_and_an_acknowledgement_resumes_from_the_inbox() -> None:
    table = Table(window=2)
    table.page()
    table.offer(1, 2, 3, 4)
    await turn()
    assert table.wire.keys == [1, 2]
    assert len(table.fetches) == 1, "without credit nothing is read"
    table.talk.acknowledged(1)
    assert table.fetches[1:] == [(2, 1)]
    table.page(3, complete=False)
    assert table.wire.keys == [1, 2, 3]
    table.talk.acknowledged(2)
    assert table.fetches[2:] == [(3, 2)]
    table.page(4)
    table.offer(5)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4, 5]
    assert len(table.fetches) == 3, "it has caught up"


async def test_a_page_never_asks_for_more_than_the_credit() -> None:
    table = Table(window=5)
    assert table.fetches == [(0, 5)]
    table.page(1, 2, 3, complete=False)
    assert table.fetches[1:] == [(3, 2)]


async def test_an_inbox_longer_than_a_page_is_read_page_by_page() -> None:
    table = Table(window=None)
    table.page(*range(1, 257), complete=False)
    assert table.fetches == [(0, 256), (256, 256)]
    table.page(257)
    assert table.wire.keys == list(range(1, 258))


async def test_acknowledging_more_than_was_written_gives_no_more_than_the_window() -> None:
    table = Table(window=2, pending=2)
    table.talk.acknowledged(100)
    table.offer(3, 4, 5)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]


async def test_a_wire_that_takes_no_bytes_stops_and_catches_up_when_it_drains() -> None:
    table = Table()
    table.page()
    table.talk.pause_writing()
    table.offer(1, 2)
    await turn()
    assert table.wire.keys == []
    assert len(table.fetches) == 1
    table.talk.resume_writing()
    assert table.fetches[1:] == [(0, 10)]
    table.page(1, 2)
    table.offer(3)
    await turn()
    assert table.wire.keys == [1, 2, 3]


async def test_a_page_that_comes_while_the_wire_is_full_is_read_again_when_it_drains() -> None:
    table = Table()
    table.talk.pause_writing()
    table.page(1, 2)
    assert table.wire.keys == []
    table.talk.resume_writing()
    table.page(1, 2)
    assert table.wire.keys == [1, 2]
    assert table.offered == [(1, 2)]


async def test_a_page_of_large_messages_goes_out_only_as_far_as_the_wire_has_room() -> None:
    table = Table(window=None)
    table.wire.room = 3_000_000
    table.page(1, 2, 3, 4, 5, 6, 7, 8, size=1_000_000)
    written = len(table.wire.keys)
    assert 3 <= written < 8
    assert table.wire.keys == list(range(1, written + 1))
    assert table.offered[-1][1] == written, "what was not written was not offered"
    table.wire.room = None
    table.talk.resume_writing()
    assert table.fetches[1:] == [(written, 256)]
    table.page(*range(written + 1, 9))
    assert table.wire.keys == list(range(1, 9))


async def test_large_messages_pushed_in_one_turn_go_out_only_as_far_as_the_wire_has_room() -> None:
    table = Table(window=None)
    table.page()
    table.wire.room = 3_000_000
    table.offer(1, 2, 3, 4, 5, 6, 7, 8, size=1_000_000)
    await turn()
    written = len(table.wire.keys)
    assert 3 <= written < 8
    table.wire.room = None
    table.talk.resume_writing()
    table.page(*range(written + 1, 9))
    assert table.wire.keys == list(range(1, 9))


async def test_resuming_a_wire_that_is_caught_up_reads_nothing() -> None:
    table = Table(pending=1)
    table.talk.pause_writing()
    table.talk.resume_writing()
    table.talk.acknowledged(1)
    assert len(table.fetches) == 1


# Deliveries that are not for the wire


async def test_what_the_wire_declines_is_not_noted_as_offered() -> None:
    table = Table()
    table.wire.declined = {2, 4}
    table.page(1, 2, 3)
    table.offer(4)
    await turn()
    assert table.offered == [(1, 1), (3, 3)]


async def test_what_the_wire_declines_uses_no_credit() -> None:
    table = Table(window=1)
    table.wire.declined = {1}
    table.page()
    table.offer(1, 2)
    await turn()
    assert table.fetches[1:] == [(1, 1)], "the second waits in the inbox, and there is credit for it"
    table.page(2)
    assert table.wire.keys == [1, 2]


async def test_only_what_nobody_was_offered_is_fetched_when_the_wire_asks_for_that() -> None:
    table = Table(window=None, unoffered_only=True)
    (fetch,) = table.hub.asked(c.Fetch)
    assert isinstance(fetch, c.Fetch)
    assert fetch.unoffered_until == 1


# Held and released


def asked_keys(table: Table) -> list[tuple[int, ...]]:
    """Return the keys that each fetch by key asked for."""
    return [fetch.keys for fetch in table.hub.asked(c.Fetch) if isinstance(fetch, c.Fetch) and fetch.keys]


async def test_what_is_released_behind_a_wires_back_is_asked_for_by_its_key_and_comes_before_what_is_new() -> None:
    table = Table(pending=1)
    table.offer(4)
    table.page(4)
    table.talk.released([2, 3])
    table.offer(5)
    assert asked_keys(table) == [(2, 3)]
    table.page(2, 3)
    table.page(5)
    assert table.wire.keys == [1, 4, 2, 3, 5]
    assert table.offered == [(1, 1), (4, 4), (2, 3), (5, 5)]
    assert table.talk.caught_up


async def test_what_is_released_ahead_of_a_wire_comes_with_the_inbox() -> None:
    table = Table()
    table.talk.released([1])
    table.page(1, 2)
    assert table.wire.keys == [1, 2]
    # Nothing came after it, so this wire did not pass it.
    table.talk.released([3])
    table.page(3)
    assert asked_keys(table) == []
    assert table.wire.keys == [1, 2, 3]
    assert table.talk.caught_up


async def test_what_is_released_while_a_page_is_being_read_comes_before_what_is_in_it() -> None:
    table = Table(pending=1)
    table.offer(3)
    table.page(3)
    table.offer(5)
    table.talk.released([2])
    # The page has a later message of the same stream.
    table.page(5)
    assert table.wire.keys == [1, 3]
    assert asked_keys(table) == [(2,)]
    table.page(2)
    table.page(5)
    assert table.wire.keys == [1, 3, 2, 5]
    assert table.talk.caught_up


async def test_what_is_released_waits_for_credit() -> None:
    table = Table(window=2, pending=2)
    table.offer(5)
    table.talk.released([1, 2])
    assert asked_keys(table) == []
    table.talk.acknowledged(1)
    assert asked_keys(table) == [(1,)]
    table.page(1)
    table.talk.acknowledged(2)
    assert asked_keys(table) == [(1,), (2,)]


async def test_what_was_released_and_settled_meanwhile_is_passed_over() -> None:
    table = Table(pending=4)
    table.talk.released([1, 2, 3])
    table.page(2, through=3)
    table.page(through=4)
    assert table.wire.keys == [1, 2, 3, 4, 2]
    assert table.talk.caught_up


async def test_a_wire_that_is_full_in_the_middle_of_what_was_released_gets_the_rest_when_it_drains() -> None:
    table = Table(window=None, pending=4)
    table.wire.room = 1
    table.talk.released([1, 2, 3])
    table.page(1, 2, 3, size=300 * 1024)
    assert table.wire.batches[1:] == [[1]]
    table.wire.room = None
    table.talk.resume_writing()
    assert asked_keys(table)[-1] == (2, 3)
    table.page(2, 3)
    assert table.wire.keys == [1, 2, 3, 4, 1, 2, 3]


# A hub that fails at a page


async def test_a_page_that_the_hub_failed_at_is_read_again_and_nothing_is_missed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)
    table = Table()
    for tries, code in enumerate((Code.STORE_FAILED, Code.INTERNAL_ERROR), start=2):
        table.hub.answer(Refusal(code, "not now"))
        # None of these asks: one timer does.
        table.offer(tries)
        table.talk.acknowledged(1)
        table.talk.resume_writing()
        assert not table.talk.caught_up
        assert not table.hub.open
        await asked(table, tries)
    table.page(1, 2, 3)
    table.offer(4)
    await turn()
    assert table.wire.keys == [1, 2, 3, 4]
    assert table.fetches == [(0, 10)] * 3


async def test_released_keys_that_the_hub_failed_to_read_are_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)
    table = Table(pending=1)
    table.offer(3)
    table.page(3)
    table.talk.released([2])
    table.hub.answer(Refusal(Code.STORE_FAILED, "not now"))
    table.offer(4)
    await asked(table, 4)
    assert asked_keys(table) == [(2,), (2,)]
    table.page(2)
    table.page(4)
    assert table.wire.keys == [1, 3, 2, 4]
    assert table.talk.caught_up


async def test_a_session_ends_when_the_hub_fails_at_its_page_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)
    table = Table()
    why = Refusal(Code.INTERNAL_ERROR, "a bug")
    for tries in range(1, 61):
        assert table.wire.ended == []
        await asked(table, tries)
        table.hub.answer(why)
    assert table.wire.ended == [why]
    assert table.hub.asked(c.Detach) == [c.Detach(SESSION)]
    await turn()
    assert not table.hub.open


async def test_a_wire_that_is_gone_asks_for_no_page_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "RETRY_SECONDS", 0)
    table = Table()
    table.hub.answer(Refusal(Code.STORE_FAILED, "not now"))
    table.talk.close()
    await turn()
    assert len(table.fetches) == 1


async def asked(table: Table, count: int) -> None:
    """Wait until the pump has made `count` fetches."""
    async with asyncio.timeout(10):
        while len(table.fetches) < count:
            await turn()


async def test_an_acknowledgement_between_two_deliveries_of_one_turn_keeps_their_order() -> None:
    table = Table(window=2)
    table.page()
    table.offer(1)
    await turn()
    table.offer(2, 3)
    assert table.wire.keys == [1], "the rest of the turn is written together"
    table.talk.acknowledged(1)
    assert table.wire.keys == [1, 2]
    assert table.fetches[-1] == (2, 1), "there is room for one more, and that is read from the inbox"
    table.page(3)
    assert table.wire.keys == [1, 2, 3]
    await turn()
    assert table.offered == [(1, 1), (2, 2), (3, 3)]

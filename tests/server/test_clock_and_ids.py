"""Tests of the clock and the ids of a running hub."""

from uuid import UUID

from tieline.server.clock_and_ids import SystemClockAndIds

_COUNTED = 4096
"""Number of ids in one millisecond that are still different and sorted."""


def test_message_ids_are_version_seven_and_sort_as_they_were_made() -> None:
    clock_and_ids = SystemClockAndIds()
    ids = [
        clock_and_ids.message_id(now_ms) for now_ms in (1_700_000_000_000, 1_700_000_000_001) for _ in range(_COUNTED)
    ]
    assert ids == sorted(ids)
    assert len(set(ids)) == 2 * _COUNTED
    first = UUID(ids[0])
    assert (first.version, first.int >> 80) == (7, 1_700_000_000_000)


def test_more_ids_than_a_millisecond_counts_are_still_distinct() -> None:
    clock_and_ids = SystemClockAndIds()
    assert len({clock_and_ids.message_id(1) for _ in range(2 * _COUNTED)}) == 2 * _COUNTED


def test_ids_of_two_hubs_in_the_same_millisecond_differ() -> None:
    assert SystemClockAndIds().message_id(1) != SystemClockAndIds().message_id(1)

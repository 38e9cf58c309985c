"""Tests of delivery keys as inclusive ranges."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from tieline.contract.keys import (
    Range,
    count_keys,
    each_key,
    extend_ranges,
    join_keys,
    one_key,
    split_ranges,
    without_keys,
)

ascending = st.sets(st.integers(1, 60)).map(sorted)


def test_one_key_is_a_range_of_itself() -> None:
    assert list(each_key(one_key(7))) == [7]


@given(ascending)
def test_joined_keys_are_the_same_keys_in_as_few_ranges_as_can_be(keys: list[int]) -> None:
    ranges = join_keys(keys)
    assert list(each_key(ranges)) == keys
    assert count_keys(ranges) == len(keys)
    assert all(before[1] + 1 < after[0] for before, after in pairwise(ranges))


@given(st.lists(st.integers(1, 20)))
def test_keys_that_come_twice_or_out_of_order_bring_in_no_others(keys: list[int]) -> None:
    assert list(each_key(join_keys(keys))) == sorted(set(keys))


@given(ascending)
def test_ranges_are_joined_one_after_the_other_as_they_are_all_at_once(keys: list[int]) -> None:
    ranges: list[Range] = []
    for key in keys:
        extend_ranges(ranges, one_key(key))
    assert tuple(ranges) == join_keys(keys)


def test_ranges_keep_the_order_in_which_they_came() -> None:
    ranges: list[Range] = []
    extend_ranges(ranges, ((5, 6), (7, 7), (2, 3), (4, 4), (9, 9)))
    assert ranges == [(5, 7), (2, 4), (9, 9)]


@given(ascending, st.integers(1, 5))
def test_parts_hold_the_same_keys_and_no_part_is_too_large(keys: list[int], most: int) -> None:
    ranges = join_keys(keys)
    parts = split_ranges(ranges, most)
    assert tuple(one for part in parts for one in part) == ranges
    assert all(0 < len(part) <= most for part in parts)


@given(ascending, ascending)
def test_ranges_without_other_keys_have_only_the_rest(keys: list[int], gone: list[int]) -> None:
    assert list(each_key(without_keys(join_keys(keys), join_keys(gone)))) == sorted(set(keys) - set(gone))

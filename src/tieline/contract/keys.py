"""Sets of delivery keys, written as inclusive ranges, so that a short value stands for many keys.

A range is a plain pair. On every wire and in every stored event it is a list of two numbers. The functions here build
ranges, count their keys and iterate over them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

Range = tuple[int, int]
"""The first and the last key of a range; the range includes both."""

Ranges = Sequence[Range]

Keys = tuple[Range, ...]
"""A set of keys as ranges. Commands, events and wires use this form."""


def one_key(key: int) -> Keys:
    """Return the ranges for a single key."""
    return ((key, key),)


def join_keys(keys: Collection[int]) -> Keys:
    """Return ascending ranges that contain exactly these keys. The keys may be in any order."""
    distinct = set(keys)
    if not distinct:
        return ()
    first, end = min(distinct), max(distinct)
    if end - first == len(distinct) - 1:
        # Usually the keys have no gaps.
        return ((first, end),)
    ranges: list[Range] = []
    last = first
    for key in sorted(distinct):
        if key > last + 1:
            ranges.append((first, last))
            first = key
        last = key
    return (*ranges, (first, last))


def extend_ranges(ranges: list[Range], more: Iterable[Range]) -> None:
    """Append the ranges in `more` to the list `ranges`.

    If a new range starts right after the last range of the list, the two ranges are joined.
    """
    for first, last in more:
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))


def each_key(ranges: Ranges) -> Iterator[int]:
    """Return an iterator over every key in these ranges."""
    return (key for first, last in ranges for key in range(first, last + 1))


def count_keys(ranges: Ranges) -> int:
    """Return the number of keys in these ranges."""
    return sum(last - first + 1 for first, last in ranges)


def without_keys(ranges: Ranges, gone: Ranges) -> list[Range]:
    """Return the ranges in `ranges`, but leave out all keys that are in the ranges `gone`."""
    left = list(ranges)
    for start, end in gone:
        parts = [part for first, last in left for part in ((first, min(last, start - 1)), (max(first, end + 1), last))]
        left = [(first, last) for first, last in parts if first <= last]
    return left


def split_ranges(keys: Keys, most: int) -> list[Keys]:
    """Split the ranges into shorter lists. Each list has `most` ranges; only the last list may have fewer."""
    return [keys[start : start + most] for start in range(0, len(keys), most)]

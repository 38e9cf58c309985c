"""Keys of a member's deliveries as inclusive ranges, so that one value stands for many of them.

Ranges are plain pairs: on every wire and in every stored event they are lists of two numbers. The functions here build
ranges, count their keys and iterate over them.
"""

from collections.abc import Collection, Iterable, Iterator, Sequence

Range = tuple[int, int]
"""The first and the last of some neighbouring keys."""

Ranges = Sequence[Range]

Keys = tuple[Range, ...]
"""Keys as a value: in commands, in events, on wires."""


def one_key(key: int) -> Keys:
    """A single key."""
    return ((key, key),)


def join_keys(keys: Collection[int]) -> Keys:
    """Any keys, in any order, as ascending ranges. The ranges contain only these keys."""
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
    """Add ranges at the end of a list, joining neighbours; the order stays as it is."""
    for first, last in more:
        if ranges and ranges[-1][1] + 1 == first:
            ranges[-1] = (ranges[-1][0], last)
        else:
            ranges.append((first, last))


def each_key(ranges: Ranges) -> Iterator[int]:
    """Each key in these ranges."""
    return (key for first, last in ranges for key in range(first, last + 1))


def count_keys(ranges: Ranges) -> int:
    """The number of keys in these ranges."""
    return sum(last - first + 1 for first, last in ranges)


def split_ranges(keys: Keys, most: int) -> list[Keys]:
    """The keys, split into parts of at most `most` ranges."""
    return [keys[start : start + most] for start in range(0, len(keys), most)]

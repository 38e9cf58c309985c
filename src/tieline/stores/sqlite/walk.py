"""A walk: reads numbers, such as log offsets, from an index in either direction, with a small read-ahead.

History and objectives use walks. A walk runs a named query. Several walks can be merged into one. So a page
from many walks costs one read for each walk, and one for each row of the page.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_AHEAD_MAX = 64
"""Largest number of values that a walk reads at once. A walk first reads one value, then two, then four…"""

Row = tuple[Any, ...]
Select = Callable[[str, Row], Iterator[Row]]


def walk(select: Select, query: str, what: Row, since: int, before: int, *, forward: bool = False) -> Iterator[int]:
    """Yield the numbers that a named query finds, with `since` <= number < `before`.

    The lowest number comes first if `forward`, else the highest. `select` runs the query with the values in `what`
    (such as sender and target), then `since`, `before`, and a limit.
    """
    ahead = 1
    while since < before:
        numbers = [row[0] for row in select(query, (*what, since, before, ahead))]
        yield from numbers
        if len(numbers) < ahead:
            return
        if forward:
            since = numbers[-1] + 1
        else:
            before = numbers[-1]
        ahead = min(2 * ahead, _AHEAD_MAX)


def merge(walks: Iterable[Iterator[int]], *, forward: bool = False) -> Iterator[int]:
    """Yield all numbers of several walks in one order, each number once.

    The lowest number comes first if `forward`, else the highest. All walks must have this order.
    """
    last = None
    for number in heapq.merge(*walks, reverse=not forward):
        if number != last:
            last = number
            yield number

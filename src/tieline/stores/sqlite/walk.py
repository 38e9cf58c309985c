"""A walk: numbers that an index gives one after the other, in either direction, with a little read ahead at most.

Above: history, the trail, objectives. Below: a query by name. Several walks are merged into one, so that a page of what
stands at many places costs a step into each of them and what the page shows.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_AHEAD_MAX = 64
"""Numbers that a walk reads at once, after it has read one, two, four…"""

Row = tuple[Any, ...]
Select = Callable[[str, Row], Iterator[Row]]


def walk(select: Select, query: str, what: Row, since: int, before: int, *, forward: bool = False) -> Iterator[int]:
    """Numbers that a query gives, from `since` up to `before`. It takes `what`, those two, and how many it may give."""
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
    """All numbers of some walks in order, each once."""
    last = None
    for number in heapq.merge(*walks, reverse=not forward):
        if number != last:
            last = number
            yield number

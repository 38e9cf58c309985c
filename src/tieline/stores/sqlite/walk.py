"""A walk: reads numbers from an index in either direction, with a small read-ahead.

Above: history, the trail, objectives. Below: a query by name. Several walks are merged into one. So a page from many
places costs a step into each place and the rows of the page.
"""

import heapq
from collections.abc import Callable, Iterable, Iterator
from typing import Any

_AHEAD_MAX = 64
"""Most numbers that a walk reads at once. It starts with one, then two, four…"""

Row = tuple[Any, ...]
Select = Callable[[str, Row], Iterator[Row]]


def walk(select: Select, query: str, what: Row, since: int, before: int, *, forward: bool = False) -> Iterator[int]:
    """Yield the numbers of a query from `since` to before `before`. The query's values: `what`, those two, a limit."""
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
    """Yield all numbers of several walks in order, each once."""
    last = None
    for number in heapq.merge(*walks, reverse=not forward):
        if number != last:
            last = number
            yield number

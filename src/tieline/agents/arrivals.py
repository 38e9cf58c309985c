"""Arrivals: the deliveries of a member as they come, each once, through any number of sessions.

Above: the forwarder and other code that hands messages to a program. Below: the SDK. Keys come in order, except the
keys of held deliveries: a held delivery comes late, with a key below others. So the last key does not tell which
deliveries were given already; `Given` does.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator

from tieline.client import Client, Delivery, Item

_POLL_SECONDS = 1.0
"""Time between two reads of the inbox once the window is full of deliveries that were never settled."""
_RANGES_MAX = 1000
"""Ranges of keys that are remembered. Above this limit the oldest gap counts as settled by others."""
_PAGE = 500


class Given:
    """Keys of deliveries that were given, as ranges."""

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    @property
    def last(self) -> int:
        """The highest key; 0 if there is none."""
        return self._lasts[-1] if self._lasts else 0

    def copy(self) -> "Given":
        """A copy with the same keys."""
        other = Given()
        other._firsts, other._lasts = self._firsts[:], self._lasts[:]
        return other

    def __contains__(self, key: int) -> bool:
        place = bisect_right(self._firsts, key)
        return place > 0 and key <= self._lasts[place - 1]

    def add(self, key: int) -> None:
        """Record the key of a delivery that was given."""
        if key in self:
            return
        firsts, lasts = self._firsts, self._lasts
        place = bisect_right(firsts, key)
        joins_left = place > 0 and lasts[place - 1] + 1 == key
        joins_right = place < len(firsts) and firsts[place] == key + 1
        if joins_left and joins_right:
            lasts[place - 1] = lasts[place]
            del firsts[place], lasts[place]
        elif joins_left:
            lasts[place - 1] = key
        elif joins_right:
            firsts[place] = key
        else:
            firsts.insert(place, key)
            lasts.insert(place, key)
            if len(firsts) > _RANGES_MAX:
                del firsts[1], lasts[0]


async def arrivals(client: Client, given: Given) -> AsyncGenerator[Delivery | Item, None]:
    """Deliveries that were not given yet: pushed by the hub, and polled from the inbox once the window is full.

    The hub stops pushing when unsettled deliveries fill the window. A delivery stays unsettled if it is only seen, or
    if a watcher skips it while the watcher waits for something rare.
    """
    # A copy, because the caller records in its own `Given` which deliveries it has handled.
    given = given.copy()
    pushed = client.deliveries()
    coming: asyncio.Task[Delivery] | None = None
    assert client.welcome is not None, "an open session was welcomed"
    room = client.welcome.window
    held = 0
    try:
        while True:
            coming = coming or asyncio.ensure_future(_next(pushed))
            await asyncio.wait((coming,), timeout=None if room > 0 else _POLL_SECONDS)
            if coming.done():
                delivery, coming = coming.result(), None
                room -= 1
                if delivery.key not in given:
                    given.add(delivery.key)
                    yield delivery
                continue
            page = await client.inbox(after=given.last, limit=_PAGE)
            released, held = page.held < held, page.held
            items = [item async for item in unsettled(client)] if released else page.items
            for item in items:
                if item.key not in given:
                    given.add(item.key)
                    yield item
    finally:
        if coming is not None:
            coming.cancel()


async def unsettled(client: Client) -> AsyncIterator[Item]:
    """All unsettled items of the inbox, read page by page."""
    after, complete = 0, False
    while not complete:
        page = await client.inbox(after=after, limit=_PAGE)
        for item in page.items:
            yield item
        after, complete = page.through, page.complete


async def _next(pushed: AsyncIterator[Delivery]) -> Delivery:
    return await anext(pushed)

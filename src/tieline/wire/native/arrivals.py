"""Arrivals: yields each new delivery of a member once, also if the member's session is replaced by another session.

Used by: the forwarder and other code that passes messages to a program. Uses: the SDK. The hub sends deliveries in the
order of their keys, except held deliveries. A held delivery may come after deliveries with higher keys. So it is not
enough to remember the last key: `DeliveredKeys` remembers all keys.
"""

import asyncio
from bisect import bisect_right
from collections.abc import AsyncGenerator, AsyncIterator

from tieline.wire.native.client import Client, Delivery
from tieline.wire.native.frames import Item

_POLL_SECONDS = 1.0
"""Seconds between two reads of the inbox. The inbox is read only while the hub pushes no more deliveries, because the
session's window of unacknowledged deliveries is full."""
_RANGES_MAX = 1000
"""Most ranges of keys in a `DeliveredKeys`. Above this limit, the two lowest ranges are joined. The keys between these
two ranges then count as delivered."""
_PAGE = 500


class DeliveredKeys:
    """Set of the keys of deliveries that were already passed to the caller, stored as ranges.

    The set ensures that no delivery is passed twice.
    """

    __slots__ = ("_firsts", "_lasts")

    def __init__(self) -> None:
        self._firsts: list[int] = []
        self._lasts: list[int] = []

    @property
    def last(self) -> int:
        """The highest key in the set; 0 if the set is empty."""
        return self._lasts[-1] if self._lasts else 0

    def copy(self) -> "DeliveredKeys":
        """Return a copy with the same keys."""
        other = DeliveredKeys()
        other._firsts, other._lasts = self._firsts[:], self._lasts[:]
        return other

    def __contains__(self, key: int) -> bool:
        index = bisect_right(self._firsts, key)
        return index > 0 and key <= self._lasts[index - 1]

    def add(self, key: int) -> None:
        """Add the key of a delivery that was passed to the caller."""
        if key in self:
            return
        firsts, lasts = self._firsts, self._lasts
        index = bisect_right(firsts, key)
        joins_left = index > 0 and lasts[index - 1] + 1 == key
        joins_right = index < len(firsts) and firsts[index] == key + 1
        if joins_left and joins_right:
            lasts[index - 1] = lasts[index]
            del firsts[index], lasts[index]
        elif joins_left:
            lasts[index - 1] = key
        elif joins_right:
            firsts[index] = key
        else:
            firsts.insert(index, key)
            lasts.insert(index, key)
            if len(firsts) > _RANGES_MAX:
                del firsts[1], lasts[0]


async def arrivals(client: Client, given: DeliveredKeys) -> AsyncGenerator[Delivery | Item, None]:
    """Yield new deliveries of the client's member without end. Deliveries whose keys are in `given` are left out.

    The hub pushes deliveries until the session's window of unacknowledged deliveries is full. The window fills if the
    caller does not acknowledge, for example if it only marks deliveries as seen or waits for one rare message. From
    then on, this function reads the inbox once per second.
    """
    # A copy, because the caller uses its own `DeliveredKeys` to record which deliveries it has handled.
    given = given.copy()
    coming: asyncio.Task[Delivery] | None = None
    delivery: Delivery | None
    assert client.welcome is not None, "an open session was welcomed"
    room = client.welcome.window
    held = 0
    try:
        while True:
            if room > 0:
                delivery = await client.next_delivery()
            else:
                coming = coming or asyncio.create_task(client.next_delivery())
                await asyncio.wait((coming,), timeout=_POLL_SECONDS)
                delivery, coming = (coming.result(), None) if coming.done() else (None, coming)
            if delivery is not None:
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
    """Yield all deliveries in the inbox that are not acked, expired or dead. Read the inbox page by page."""
    after, complete = 0, False
    while not complete:
        page = await client.inbox(after=after, limit=_PAGE)
        for item in page.items:
            yield item
        after, complete = page.through, page.complete

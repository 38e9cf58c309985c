"""Unsent bytes: what waits for one reader that is slower than the hub, and the moment at which it is too much.

Above: carriers, which encode and send. It refuses to know sessions and sockets. A reader is *full* when more than
`bytes_max` waits for it, and *drained* when half of that has left. What follows is the source's: a `SessionPump` stops
offering and stops reading, so that everything else stays where it is durable; a stream that has no position to go on
from is cut off, and its reader told where the rest is.

An asyncio transport counts by itself and is only told the limit. ASGI has no such count: its `send` waits while the
socket is full, so there what was written waits in an `Unsent`, from which one task sends.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Generic, TypeVar

_Item = TypeVar("_Item")


def bound(transport: asyncio.WriteTransport, bytes_max: int) -> None:
    """Have a transport say when it is full and when it has drained."""
    transport.set_write_buffer_limits(high=bytes_max)


class Unsent(Generic[_Item]):
    """What was written to one reader and not sent yet, in order. Writing returns at once."""

    __slots__ = ("_bytes", "_bytes_max", "_closed", "_drained", "_full", "_is_full", "_items", "_wake")

    def __init__(self, bytes_max: int, full: Callable[[], None], drained: Callable[[], None] | None = None) -> None:
        self._bytes_max = bytes_max
        # Called when more than that waits, and when half of it has left; without `drained`, being full is final.
        self._full = full
        self._drained = drained
        self._is_full = False
        self._items: list[tuple[_Item, int]] = []
        # Everything that was not sent, with what is being sent now.
        self._bytes = 0
        self._closed = False
        self._wake = asyncio.Event()

    def write(self, item: _Item, size: int) -> None:
        """Put something on its way, unless it is closed."""
        if self._closed:
            return
        self._items.append((item, size))
        self._bytes += size
        self._wake.set()
        if self._bytes > self._bytes_max and not self._is_full:
            self._is_full = True
            self._full()

    def close(self) -> None:
        """Nothing more is written; what waits is still sent."""
        self._closed = True
        self._wake.set()

    def clear(self) -> None:
        """Nobody is there to hear the rest."""
        self._items.clear()
        self.close()

    async def wait(self) -> bool:
        """Wait until something can be sent; false when nothing will be any more."""
        while not self._items:
            if self._closed:
                return False
            self._wake.clear()
            await self._wake.wait()
        return True

    def take(self) -> list[tuple[_Item, int]]:
        """Everything that waits, with its size, to be sent now; `sent` follows."""
        items, self._items = self._items, []
        return items

    def sent(self, size: int) -> None:
        """So much of what was taken has left."""
        self._bytes -= size
        if self._is_full and self._drained is not None and self._bytes <= self._bytes_max // 2:
            self._is_full = False
            self._drained()

    async def send_all(self, send: Callable[[_Item], Awaitable[None]]) -> None:
        """Send one after the other, as the reader takes them, until it is closed and nothing is left."""
        while await self.wait():
            for item, size in self.take():
                # Returns once the socket has room again, or raises because it is gone.
                await send(item)
                self.sent(size)

"""Send buffer for one reader that is slower than the hub, with callbacks when it is full and when it has drained.

Used by: connections to readers, which encode and send messages. This module knows no sessions and no sockets. A buffer
is *full* when it holds more than `bytes_max`, and *drained* when at most half of `bytes_max` is left. The source of the
bytes decides what to do when the buffer is full. A `SessionPump` stops writing deliveries and stops reading, so that
all later deliveries stay in the inbox on disk. A stream that cannot be resumed at a position ends, and its reader is
told where to read the rest.

An asyncio transport counts its own unsent bytes and needs only the limit (`limit_buffer`). ASGI has no such count: its
`send` waits while the socket is full. So a connection over ASGI writes to an `Unsent`, and one task sends the chunks of
this buffer.
"""

import asyncio
from collections.abc import Awaitable, Callable


def limit_buffer(transport: asyncio.WriteTransport, bytes_max: int) -> None:
    """Set the size limit of a transport's send buffer.

    Above `bytes_max`, the transport reports that the buffer is full.
    """
    transport.set_write_buffer_limits(high=bytes_max)


class Unsent:
    """Send buffer for one reader: chunks of bytes that were not sent yet, in order.

    `full` is called when the size of the chunks exceeds `bytes_max`. `drained` is called when the size has fallen to
    half of that limit.
    """

    __slots__ = ("_bytes", "_bytes_max", "_chunks", "_closed", "_drained", "_full", "_is_full", "_wake")

    def __init__(self, bytes_max: int, full: Callable[[], None], drained: Callable[[], None] | None = None) -> None:
        self._bytes_max = bytes_max
        # Callbacks for a full and for a drained buffer. Without `drained`, the buffer stays full for good.
        self._full = full
        self._drained = drained
        self._is_full = False
        self._chunks: list[bytes] = []
        # Size of all unsent chunks, including those that are being sent now.
        self._bytes = 0
        self._closed = False
        # Resolved when there are chunks or the buffer is closed. Set while `take` waits.
        self._wake: asyncio.Future[None] | None = None

    def write(self, chunk: bytes) -> None:
        """Add `chunk` to the buffer, and return at once. Ignore the chunk if the buffer is closed."""
        if self._closed:
            return
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        if self._wake is not None:
            self._end_wait()
        if self._bytes > self._bytes_max and not self._is_full:
            self._is_full = True
            self._full()

    def close(self) -> None:
        """Accept no more chunks. Buffered chunks are still sent."""
        self._closed = True
        self._end_wait()

    def clear(self) -> None:
        """Drop the buffered chunks and close the buffer, because the reader is gone."""
        self._chunks.clear()
        self.close()

    async def take(self) -> list[bytes]:
        """Wait for chunks, and remove and return all of them. The caller sends them and then calls `sent`.

        Return an empty list if the buffer is closed and empty.
        """
        while not self._chunks and not self._closed:
            self._wake = asyncio.get_running_loop().create_future()
            await self._wake
        chunks, self._chunks = self._chunks, []
        return chunks

    def _end_wait(self) -> None:
        wake, self._wake = self._wake, None
        # The task that waited may have been cancelled.
        if wake is not None and not wake.done():
            wake.set_result(None)

    def sent(self, size: int) -> None:
        """Report that `size` bytes of the chunks from `take` were sent."""
        self._bytes -= size
        if self._is_full and self._drained is not None and self._bytes <= self._bytes_max // 2:
            self._is_full = False
            self._drained()

    async def send_all(self, send: Callable[[bytes], Awaitable[None]]) -> None:
        """Send the chunks in order with the function `send`, until the buffer is closed and empty.

        `send` takes one chunk, and returns when the reader can take the next chunk.
        """
        while chunks := await self.take():
            for chunk in chunks:
                # Returns when the socket has room again. Raises if the socket is gone.
                await send(chunk)
                self.sent(len(chunk))

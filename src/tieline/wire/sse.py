"""Server-sent events: one answer that goes on for as long as its reader stays.

Above: a protocol that pushes events. Below: ASGI, whose `send` waits while the socket is full. Writing here returns at
once; what the socket does not take yet waits here, up to a limit, and then the source is asked to pause. So a reader
that does not read costs a bounded amount of memory, and everything behind that stays where it is durable.
"""

import asyncio
import contextlib
from collections.abc import Callable

from starlette.types import Receive, Send

KEEPALIVE_SECONDS = 25.0
"""Below the half minute after which proxies begin to hang up on silence."""

_HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    # Asks a proxy that collects answers before it passes them on not to.
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE = b": keepalive\n\n"


def event(data: bytes) -> bytes:
    """One event. Text of several lines stays one event."""
    return b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


def comment(text: str) -> bytes:
    """What no client acts on, but a person sees."""
    return b": " + " ".join(text.split()).encode() + b"\n\n"


class EventStream:
    """Events to one reader."""

    __slots__ = (
        "_bytes",
        "_bytes_max",
        "_chunks",
        "_closing",
        "_keepalive_seconds",
        "_pause",
        "_paused",
        "_resume",
        "_wake",
    )

    def __init__(
        self,
        unsent_bytes_max: int,
        pause: Callable[[], None],
        resume: Callable[[], None],
        *,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        # Half of it waits here, and as much may be in the socket's own buffer.
        self._bytes_max = unsent_bytes_max // 2
        self._pause = pause
        self._resume = resume
        self._keepalive_seconds = keepalive_seconds
        self._chunks: list[bytes] = []
        self._bytes = 0
        self._paused = False
        self._closing = False
        self._wake = asyncio.Event()

    def write(self, chunk: bytes) -> None:
        """Put an event or a comment on its way."""
        self._chunks.append(chunk)
        self._bytes += len(chunk)
        self._wake.set()
        if self._bytes > self._bytes_max and not self._paused:
            self._paused = True
            self._pause()

    def close(self) -> None:
        """Send what is left and end the answer."""
        self._closing = True
        self._wake.set()

    async def run(self, receive: Receive, send: Send) -> None:
        """Carry events until the reader is gone or the stream is closed."""
        gone = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            while not self._closing or self._chunks:
                await self._send_next(send)
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _send_next(self, send: Send) -> None:
        if not self._chunks:
            self._wake.clear()
            try:
                async with asyncio.timeout(self._keepalive_seconds):
                    await self._wake.wait()
            except TimeoutError:
                self._chunks.append(_KEEPALIVE)
                self._bytes += len(_KEEPALIVE)
            if not self._chunks:
                return
        chunk, taken = b"".join(self._chunks), self._bytes
        self._chunks.clear()
        # Returns once the socket has room again, or is gone.
        await send({"type": "http.response.body", "body": chunk, "more_body": True})
        self._bytes -= taken
        if self._paused and self._bytes <= self._bytes_max // 2:
            self._paused = False
            self._resume()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        # Nobody is there to hear the rest.
        self._chunks.clear()
        self.close()

"""Server-sent events: one answer that goes on for as long as its reader stays.

Above: a protocol that pushes events. Below: ASGI, and `Unsent`, where events wait while the socket is full. Writing
returns at once, and the source hears when its reader does not keep up.
"""

import asyncio
import contextlib
from collections.abc import Callable

from starlette.types import Receive, Send

from tieline.wire.unsent import Unsent

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

    __slots__ = ("_keepalive_seconds", "_unsent")

    def __init__(
        self,
        unsent_bytes_max: int,
        full: Callable[[], None],
        drained: Callable[[], None] | None = None,
        *,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        # Half of it waits here, and as much may be in the socket's own buffer.
        self._unsent: Unsent[bytes] = Unsent(unsent_bytes_max // 2, full, drained)
        self._keepalive_seconds = keepalive_seconds

    def write(self, chunk: bytes) -> None:
        """Put an event or a comment on its way."""
        self._unsent.write(chunk, len(chunk))

    def close(self) -> None:
        """Send what is left and end the answer."""
        self._unsent.close()

    async def run(self, receive: Receive, send: Send) -> None:
        """Carry events until the reader is gone or the stream is closed."""
        gone = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": _HEADERS})
            while await self._wait():
                chunks = self._unsent.take()
                # Returns once the socket has room again, or is gone.
                body = b"".join(chunk for chunk, _ in chunks)
                await send({"type": "http.response.body", "body": body, "more_body": True})
                self._unsent.sent(len(body))
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _wait(self) -> bool:
        try:
            async with asyncio.timeout(self._keepalive_seconds):
                return await self._unsent.wait()
        except TimeoutError:
            self.write(_KEEPALIVE)
            return await self._unsent.wait()

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self._unsent.clear()

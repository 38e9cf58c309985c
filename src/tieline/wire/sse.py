"""Server-sent events: an HTTP answer that sends one event after the other, until its reader disconnects.

Used by: a protocol that pushes events. Uses: ASGI, and `Unsent`, which buffers events while the socket is full. A write
returns at once. If the reader is too slow, the stream calls a callback of the code that writes the events.
"""

import asyncio
import contextlib
from collections.abc import Callable

from starlette.types import Receive, Send

from tieline.wire.unsent import Unsent

KEEPALIVE_SECONDS = 25.0
"""Seconds without events after which a comment is sent. Some proxies close a connection after 30 seconds without
data."""

HEADERS = [
    (b"content-type", b"text/event-stream"),
    (b"cache-control", b"no-cache"),
    # Asks a proxy not to buffer the answer.
    (b"x-accel-buffering", b"no"),
]
_KEEPALIVE = b": keepalive\n\n"


def event(data: bytes, event_id: str = "") -> bytes:
    """Return the bytes of one server-sent event. `data` may have several lines.

    `event_id` is the id of the event. A client that reconnects sends the id of its last event.
    """
    named = b"id: %b\n" % event_id.encode() if event_id else b""
    return named + b"data: " + data.replace(b"\n", b"\ndata: ") + b"\n\n"


def comment(text: str) -> bytes:
    """Return the bytes of a comment in the stream.

    Clients ignore a comment, but a person who reads the stream sees it.
    """
    return b": " + " ".join(text.split()).encode() + b"\n\n"


class EventStream(Unsent):
    """HTTP answer that sends events to one reader. `write` takes an encoded event or comment.

    The callback `full` is called when the reader is too slow. `drained` is called when the reader has caught up.
    """

    __slots__ = ("_keepalive_seconds",)

    def __init__(
        self,
        unsent_bytes_max: int,
        full: Callable[[], None],
        drained: Callable[[], None] | None = None,
        *,
        keepalive_seconds: float = KEEPALIVE_SECONDS,
    ) -> None:
        # Half of the limit is for this buffer, the other half for the socket's own buffer.
        super().__init__(unsent_bytes_max // 2, full, drained)
        self._keepalive_seconds = keepalive_seconds

    async def run(self, receive: Receive, send: Send) -> None:
        """Send events until the reader disconnects or the stream is closed."""
        gone = asyncio.create_task(self._watch(receive))
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            while True:
                try:
                    async with asyncio.timeout(self._keepalive_seconds):
                        chunks = await self.take()
                except TimeoutError:
                    self.write(_KEEPALIVE)
                    continue
                if not chunks:
                    break
                body = b"".join(chunks)
                # Returns when the socket has room again, or is gone.
                await send({"type": "http.response.body", "body": body, "more_body": True})
                self.sent(len(body))
            await send({"type": "http.response.body", "body": b""})
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.clear()

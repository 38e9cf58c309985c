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

    __slots__ = ("_keepalive_seconds", "_sent_at", "_timer")

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
        # Time of the last bytes by the event loop's clock, and the timer of the next comment. Set by `run`.
        self._sent_at: float
        self._timer: asyncio.TimerHandle

    async def run(self, receive: Receive, send: Send) -> None:
        """Send events until the reader disconnects or the stream is closed."""
        gone = asyncio.create_task(self._watch(receive))
        loop = asyncio.get_running_loop()
        self._sent_at = loop.time()
        self._timer = loop.call_later(self._keepalive_seconds, self._keep_alive)
        try:
            await send({"type": "http.response.start", "status": 200, "headers": HEADERS})
            while chunks := await self.take():
                body = b"".join(chunks)
                # Returns when the socket has room again, or is gone.
                await send({"type": "http.response.body", "body": body, "more_body": True})
                self.sent(len(body))
                self._sent_at = loop.time()
            await send({"type": "http.response.body", "body": b""})
        finally:
            self._timer.cancel()
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    def _keep_alive(self) -> None:
        """Send a comment if nothing was sent for long. Nothing is added to bytes that wait for the reader."""
        # One timer for all events, because a timer for each event would cost as much as sending it.
        loop = asyncio.get_running_loop()
        left = self._sent_at + self._keepalive_seconds - loop.time()
        if left <= 0:
            left = self._keepalive_seconds
            if not self._bytes:
                self.write(_KEEPALIVE)
        self._timer = loop.call_later(left, self._keep_alive)

    async def _watch(self, receive: Receive) -> None:
        while (await receive())["type"] != "http.disconnect":
            pass
        self.clear()

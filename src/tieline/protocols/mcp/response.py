"""The answer to one request that may take long.

A quick answer is sent as JSON. A slow answer is sent as a stream of events, and its last event is the answer.

Used by: the HTTP server. Uses: ASGI. While the request runs, the stream has notifications about its progress, if the
client sent a token for them. Otherwise it has comments, which keep the connection open. If the client disconnects, the
request is cancelled.
"""

import asyncio
import contextlib
from collections.abc import Awaitable

from starlette.types import Receive, Send

from tieline.protocols.mcp import codec
from tieline.protocols.mcp.listener import Stream
from tieline.wire.http import Answer, respond
from tieline.wire.sse import comment, event

TICK_SECONDS = 5.0
"""Time until a slow answer becomes a stream of events, and time between two signs of life on that stream. Clients and
proxies wait longer."""


class Response:
    """Waits for the answer to one request, and sends the answer to the client.

    `streams` is true if the client accepts a stream of events. `token` is the client's token for notifications about
    the progress.
    """

    def __init__(
        self,
        receive: Receive,
        send: Send,
        *,
        streams: bool,
        token: int | str | None,
        tick_seconds: float = TICK_SECONDS,
    ) -> None:
        self._receive = receive
        self._send = send
        self._streams = streams
        # The token for notifications of progress.
        self._token = token
        self._tick_seconds = tick_seconds

    async def run(self, answering: Awaitable[Answer]) -> bool:
        """Wait for the answer and send it to the client. Returns false if the client disconnected before that."""
        task = asyncio.ensure_future(answering)
        gone = asyncio.create_task(self._disconnected())
        try:
            stream = await self._wait(task, gone)
            if gone.done():
                return False
            answer = await task
            if stream is None:
                await respond(self._send, answer)
            else:
                await stream.end(event(answer.body))
            return True
        finally:
            for one in (task, gone):
                one.cancel()
            await asyncio.gather(task, gone, return_exceptions=True)

    async def _wait(self, task: "asyncio.Future[Answer]", gone: "asyncio.Task[None]") -> Stream | None:
        """Wait until the answer is ready or the client has disconnected. Returns the stream, if one was opened."""
        stream: Stream | None = None
        ticks = 0
        while True:
            await asyncio.wait((task, gone), timeout=self._tick_seconds, return_when=asyncio.FIRST_COMPLETED)
            if task.done() or gone.done():
                return stream
            if not self._streams:
                continue
            if stream is None:
                stream = Stream(self._send)
                await stream.begin()
            ticks += 1
            await stream.write(self._sign(ticks * self._tick_seconds))

    def _sign(self, seconds: float) -> bytes:
        if self._token is None:
            return comment("waiting")
        return event(codec.progress(self._token, seconds, f"waiting for {seconds:g} seconds"))

    async def _disconnected(self) -> None:
        with contextlib.suppress(asyncio.CancelledError):
            while (await self._receive())["type"] != "http.disconnect":
                pass

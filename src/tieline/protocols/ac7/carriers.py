"""Transports for a stream to its reader: server-sent events, or WebSocket text frames.

Used by: a `Stream`, whose writes return at once. Uses: ASGI, and `Unsent`, which buffers messages while the socket is
full. When the buffer exceeds its limit, the transport tells the stream that its reader is stalled, and the stream ends.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, ClassVar, Protocol

from msgspec import Struct
from starlette.types import Receive, Send

from tieline.wire.http import Answer, ClientGate, deny, respond
from tieline.wire.sse import EventStream, comment
from tieline.wire.unsent import Unsent

_UNREAD_BYTES_MAX = 4096
"""Largest WebSocket message, in bytes, that is accepted from a reader. A reader has no reason to send anything."""
_REASON_BYTES_MAX = 123
"""Largest reason, in bytes, that fits into the frame that closes a WebSocket."""


class Frame(Struct, frozen=True, gc=False):
    """A message that is ready to be sent: encoded once, and shared by all streams that send it."""

    payload: bytes
    """The JSON of the message."""
    event: bytes
    """The same as a server-sent event. Its id is the message's id, which a reader that reconnects names."""


class Carrier(Protocol):
    """Interface of a transport by which a stream reaches its reader: server-sent events or a WebSocket."""

    takes_events: ClassVar[bool]
    """True if `write` takes the event of a frame. False if it takes the payload."""

    async def refuse(self, reply: Answer) -> None:
        """Answer the request with `reply`, an HTTP error, instead of opening the stream."""

    def write(self, chunk: bytes) -> None:
        """Queue an encoded message for sending to the reader."""

    def end(self, code: int, reason: str) -> None:
        """Send the queued messages, then the reason, then close the connection."""

    async def run(self) -> None:
        """Send messages until the reader disconnects or `end` is called."""


class EventCarrier:
    """Transport of a stream as server-sent events, in one long HTTP answer."""

    __slots__ = ("_receive", "_send", "_stream", "write")

    takes_events: ClassVar = True

    def __init__(
        self, receive: Receive, send: Send, bytes_max: int, stalled: Callable[[], None], keepalive_seconds: float
    ) -> None:
        self._receive = receive
        self._send = send
        # `EventStream` buffers only half of its limit, so pass twice the limit.
        self._stream = EventStream(2 * bytes_max, stalled, keepalive_seconds=keepalive_seconds)
        self.write = self._stream.write

    async def refuse(self, reply: Answer) -> None:
        """Answer the request with `reply`, an HTTP error, instead of opening the stream."""
        await respond(self._send, reply)

    def end(self, code: int, reason: str) -> None:
        """Send the queued messages and then the reason, and end the HTTP answer.

        The reason is sent as a comment of the event stream, because clients ignore comments.
        """
        self.write(comment(f"{code} {reason}"))
        self._stream.close()

    async def run(self) -> None:
        """Send messages until the reader disconnects or `end` is called."""
        await self._stream.run(self._receive, self._send)


class SocketCarrier:
    """Transport of a stream as WebSocket text frames. Messages from the reader are ignored."""

    __slots__ = ("_gate", "_last", "_receive", "_send", "_unsent", "write")

    takes_events: ClassVar = False

    def __init__(
        self, client_gate: ClientGate, receive: Receive, send: Send, bytes_max: int, stalled: Callable[[], None]
    ) -> None:
        self._gate = client_gate
        self._receive = receive
        self._send = send
        self._unsent = Unsent(bytes_max, stalled)
        self.write = self._unsent.write
        # The ASGI event that closes the WebSocket.
        self._last: dict[str, Any] = {"type": "websocket.close", "code": 1000, "reason": ""}

    async def refuse(self, reply: Answer) -> None:
        """Answer the upgrade request with `reply`, an HTTP error, instead of opening a WebSocket."""
        with contextlib.suppress(OSError):
            await deny(self._send, reply)

    def end(self, code: int, reason: str) -> None:
        """Send the queued messages, then close the WebSocket with the code and the reason."""
        reason = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        self._last = {"type": "websocket.close", "code": code, "reason": reason}
        self._unsent.close()

    async def run(self) -> None:
        """Send messages until the reader disconnects or `end` is called."""
        self._gate.admit("a reader", _UNREAD_BYTES_MAX)
        gone = asyncio.create_task(self._watch())
        try:
            with contextlib.suppress(OSError):
                await self._send({"type": "websocket.accept"})
                await self._unsent.send_all(self._send_text)
                await self._send(self._last)
        finally:
            gone.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await gone

    async def _send_text(self, payload: bytes) -> None:
        await self._send({"type": "websocket.send", "text": payload.decode()})

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "websocket.disconnect":
            pass
        self._unsent.clear()

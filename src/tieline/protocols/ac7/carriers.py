"""Transports for a stream to its reader: server-sent events, or WebSocket text frames.

Used by: a `Stream`, whose writes return at once. Uses: ASGI, and `Unsent`, which buffers messages while the socket is
full. When the buffer exceeds its limit, the transport tells the stream that its reader is stalled, and the stream ends.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Send

from tieline.wire.http import Answer, ClientGate, deny, respond
from tieline.wire.sse import EventStream, comment, event
from tieline.wire.unsent import Unsent

_UNREAD_BYTES_MAX = 4096
"""Largest WebSocket message, in bytes, that is accepted from a reader. A reader has no reason to send anything."""
_REASON_BYTES_MAX = 123
"""Largest reason, in bytes, that fits into the frame that closes a WebSocket."""


class Frame:
    """A message that is ready to be sent: encoded once, and shared by all streams that send it.

    `payload` is the JSON of the message. `message_id` is sent with it. A reader that reconnects names the last message
    that it got by this id.
    """

    __slots__ = ("_event", "_id", "_text", "payload")

    def __init__(self, payload: bytes, message_id: str = "") -> None:
        self.payload = payload
        self._id = message_id
        self._event: bytes | None = None
        self._text: str | None = None

    @property
    def event(self) -> bytes:
        """The message as a server-sent event."""
        if self._event is None:
            self._event = event(self.payload, self._id)
        return self._event

    @property
    def text(self) -> str:
        """The message as the text of a WebSocket frame."""
        if self._text is None:
            self._text = self.payload.decode()
        return self._text


class Carrier(Protocol):
    """Interface of a transport by which a stream reaches its reader: server-sent events or a WebSocket."""

    async def refuse(self, reply: Answer) -> None:
        """Answer the request with `reply`, an HTTP error, instead of opening the stream."""

    def write(self, frame: Frame) -> None:
        """Queue an encoded message for sending to the reader."""

    def end(self, code: int, reason: str) -> None:
        """Send the queued messages, then the reason, then close the connection."""

    async def run(self) -> None:
        """Send messages until the reader disconnects or `end` is called."""


class EventCarrier:
    """Transport of a stream as server-sent events, in one long HTTP answer."""

    __slots__ = ("_receive", "_send", "_stream")

    def __init__(
        self, receive: Receive, send: Send, bytes_max: int, stalled: Callable[[], None], keepalive_seconds: float
    ) -> None:
        self._receive = receive
        self._send = send
        # `EventStream` buffers only half of its limit, so pass twice the limit.
        self._stream = EventStream(2 * bytes_max, stalled, keepalive_seconds=keepalive_seconds)

    async def refuse(self, reply: Answer) -> None:
        """Answer the request with `reply`, an HTTP error, instead of opening the stream."""
        await respond(self._send, reply)

    def write(self, frame: Frame) -> None:
        """Queue an encoded message for sending to the reader."""
        self._stream.write(frame.event)

    def end(self, code: int, reason: str) -> None:
        """Send the queued messages and then the reason, and end the HTTP answer.

        The reason is sent as a comment of the event stream, because clients ignore comments.
        """
        self._stream.write(comment(f"{code} {reason}"))
        self._stream.close()

    async def run(self) -> None:
        """Send messages until the reader disconnects or `end` is called."""
        await self._stream.run(self._receive, self._send)


class SocketCarrier:
    """Transport of a stream as WebSocket text frames. Messages from the reader are ignored."""

    __slots__ = ("_gate", "_last", "_receive", "_send", "_unsent")

    def __init__(
        self, client_gate: ClientGate, receive: Receive, send: Send, bytes_max: int, stalled: Callable[[], None]
    ) -> None:
        self._gate = client_gate
        self._receive = receive
        self._send = send
        self._unsent: Unsent[Frame] = Unsent(bytes_max, stalled)
        # The ASGI event that closes the WebSocket.
        self._last: dict[str, Any] = {"type": "websocket.close", "code": 1000, "reason": ""}

    async def refuse(self, reply: Answer) -> None:
        """Answer the upgrade request with `reply`, an HTTP error, instead of opening a WebSocket."""
        with contextlib.suppress(OSError):
            await deny(self._send, reply)

    def write(self, frame: Frame) -> None:
        """Queue an encoded message for sending to the reader."""
        self._unsent.write(frame, len(frame.payload))

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

    async def _send_text(self, frame: Frame) -> None:
        await self._send({"type": "websocket.send", "text": frame.text})

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "websocket.disconnect":
            pass
        self._unsent.clear()

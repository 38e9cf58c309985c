"""How a stream reaches its reader: server-sent events, or WebSocket text frames.

Above: a `Stream`, whose writing returns at once. Below: ASGI, and `Unsent`, where messages wait while the socket is
full, up to a limit; then the stream hears that its reader is stalled, and ends.
"""

import asyncio
import contextlib
from collections.abc import Callable
from typing import Any, Protocol

from starlette.types import Receive, Send

from tieline.wire.http import Answer, Door, deny, respond
from tieline.wire.sse import EventStream, comment, event
from tieline.wire.unsent import Unsent

_UNREAD_BYTES_MAX = 4096
"""The largest message of a reader, who has nothing to say."""
_REASON_BYTES_MAX = 123
"""What fits the frame that closes a WebSocket."""


class Frame:
    """One message on its way: encoded once, however many streams it goes to."""

    __slots__ = ("_event", "_text", "payload")

    def __init__(self, payload: bytes) -> None:
        self.payload = payload
        self._event: bytes | None = None
        self._text: str | None = None

    @property
    def event(self) -> bytes:
        """As a server-sent event."""
        if self._event is None:
            self._event = event(self.payload)
        return self._event

    @property
    def text(self) -> str:
        """As the text of a WebSocket frame."""
        if self._text is None:
            self._text = self.payload.decode()
        return self._text


class Carrier(Protocol):
    """What a stream needs of its wire."""

    async def refuse(self, reply: Answer) -> None:
        """Answer instead of streaming."""

    def write(self, frame: Frame) -> None:
        """Put a message on its way."""

    def end(self, code: int, reason: str) -> None:
        """Say why, behind what is on its way, and close."""

    async def run(self) -> None:
        """Carry messages until either side hangs up."""


class Live(Protocol):
    """What is written to a reader as it comes."""

    carrier: Carrier | None
    """Its way to the reader, set before it is opened."""
    unsent_bytes_max: int
    """What may wait for the reader before it is cut off."""

    def stalled(self) -> None:
        """The reader does not keep up."""

    def leave(self) -> None:
        """The reader is gone, or never came."""


class EventCarrier:
    """Server-sent events."""

    __slots__ = ("_receive", "_send", "_stream")

    def __init__(
        self, receive: Receive, send: Send, bytes_max: int, stalled: Callable[[], None], keepalive_seconds: float
    ) -> None:
        self._receive = receive
        self._send = send
        # It counts half of what it is given as its own.
        self._stream = EventStream(2 * bytes_max, stalled, keepalive_seconds=keepalive_seconds)

    async def refuse(self, reply: Answer) -> None:
        """Answer instead of streaming."""
        await respond(self._send, reply)

    def write(self, frame: Frame) -> None:
        """Put a message on its way."""
        self._stream.write(frame.event)

    def end(self, code: int, reason: str) -> None:
        """Say why in a comment, which no client takes for a message, and end the answer."""
        self._stream.write(comment(f"{code} {reason}"))
        self._stream.close()

    async def run(self) -> None:
        """Carry messages until either side hangs up."""
        await self._stream.run(self._receive, self._send)


class SocketCarrier:
    """WebSocket text frames. The reader has nothing to say; what it sends is not looked at."""

    __slots__ = ("_door", "_last", "_receive", "_send", "_unsent")

    def __init__(self, door: Door, receive: Receive, send: Send, bytes_max: int, stalled: Callable[[], None]) -> None:
        self._door = door
        self._receive = receive
        self._send = send
        self._unsent: Unsent[Frame] = Unsent(bytes_max, stalled)
        # The last event.
        self._last: dict[str, Any] = {"type": "websocket.close", "code": 1000, "reason": ""}

    async def refuse(self, reply: Answer) -> None:
        """Answer the request to upgrade as any other."""
        with contextlib.suppress(OSError):
            await deny(self._send, reply)

    def write(self, frame: Frame) -> None:
        """Put a message on its way."""
        self._unsent.write(frame, len(frame.payload))

    def end(self, code: int, reason: str) -> None:
        """Close behind what is on its way."""
        reason = reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore")
        self._last = {"type": "websocket.close", "code": code, "reason": reason}
        self._unsent.close()

    async def run(self) -> None:
        """Carry messages until either side hangs up."""
        self._door.admit("a reader", _UNREAD_BYTES_MAX)
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

"""A minimal client: builds bytes by hand, without a future per message. It separates the hub's cost from the SDK's."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import cast

import msgspec
from msgspec import Struct

from tieline.wire.frames import FrameBuffer, encode_frame

_FRAME_BYTES_MAX = 64 * 1024 * 1024


class _Frame(Struct, tag_field="t"):
    """The fields of a frame that are read; the decoder skips the others."""


class _Welcome(_Frame, tag="welcome"):
    """The session is open."""


class _Refused(_Frame, tag="refused"):
    code: str
    message: str


class _Accepted(_Frame, tag="accepted"):
    n: int


class _Deliver(_Frame, tag="deliver"):
    key: int


_decoder = msgspec.json.Decoder(list[_Welcome | _Refused | _Accepted | _Deliver])


class LeanConnection(asyncio.Protocol):
    """One connection to `hub.sock`: it sends a number of messages, or acknowledges whatever comes."""

    def __init__(self, hello: bytes, delivered: Callable[[int], None]) -> None:
        self._hello = hello
        self._delivered = delivered
        self._buffer = FrameBuffer(_FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self.ready: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        # State of `send`: the form of a message, and how many are still unsent and unanswered.
        self._form = b""
        self._unsent = 0
        self._unanswered = 0
        self._finished: asyncio.Future[None] | None = None

    async def send(self, target: str, body: str, count: int, window: int) -> None:
        """Send a message `count` times, up to `window` at once; returns when all are accepted."""
        self._form = b'{"t":"send","n":%%d,"target":"%s","body":"%s"}' % (target.encode(), body.encode())
        self._unsent = self._unanswered = count
        self._finished = asyncio.get_running_loop().create_future()
        self._send_more(window)
        await self._finished

    def _send_more(self, count: int) -> None:
        count = min(count, self._unsent)
        if count:
            form, last = self._form, self._unsent
            self._unsent -= count
            self._write(b"[" + b",".join([form % number for number in range(last, last - count, -1)]) + b"]")

    def _write(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(payload))

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._write(self._hello)

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        for payload in self._buffer.next_frames():
            self._receive(payload)

    def _receive(self, payload: bytes) -> None:
        accepted = delivered = first = 0
        for frame in _decoder.decode(payload):
            match frame:
                case _Deliver():
                    if not delivered:
                        first = frame.key
                    assert frame.key == first + delivered, "deliveries come in the order of their keys"
                    delivered += 1
                case _Accepted():
                    accepted += 1
                case _Welcome():
                    self.ready.set_result(None)
                case _Refused():
                    self._fail(f"{frame.code}: {frame.message}")
        if delivered:
            self._write(b'[{"t":"ack","keys":[[%d,%d]]}]' % (first, first + delivered - 1))
            self._delivered(delivered)
        if accepted:
            self._unanswered -= accepted
            self._send_more(accepted)
            if not self._unanswered and self._finished is not None:
                self._finished.set_result(None)

    def _fail(self, why: str) -> None:
        for future in (self.ready, self._finished):
            if future is not None and not future.done():
                future.set_exception(ConnectionError(why))

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._fail(f"the server hung up: {exc}")

    def close(self) -> None:
        """Close the connection."""
        if self._transport is not None:
            self._transport.close()


async def dial(
    path: Path, key: str, member: str, *, credit: int = 0, delivered: Callable[[int], None] = lambda _: None
) -> LeanConnection:
    """Open a session as `member`; the session receives deliveries if `credit` is above zero."""
    hello = {"t": "hello", "key": key, "member": member, "receive": credit > 0, "window": credit or 1}
    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(
        lambda: LeanConnection(msgspec.json.encode([hello]), delivered), str(path)
    )
    await connection.ready
    return connection

"""What carries batches to a hub: a Unix socket on its own machine, a WebSocket from elsewhere."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Protocol, cast

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect

from tieline.client.errors import HubUnreachable
from tieline.wire.frames import FrameBuffer, FrameError, encode_frame

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""The largest batch that is taken from a hub: twice what a hub takes, because its answers hold whole pages."""


class Carrier(Protocol):
    """A connection that carries batches both ways."""

    def send(self, payload: bytes) -> None:
        """Send one batch."""

    async def drain(self) -> None:
        """Wait until the carrier takes more."""

    def close(self) -> None:
        """Hang up."""


class Receiver(Protocol):
    """Whom a carrier reports to."""

    def receive_batch(self, payload: bytes | str) -> None:
        """A batch came."""

    def connection_lost(self, why: str) -> None:
        """The connection ended. Comes once, last."""


class UnixCarrier(asyncio.Protocol):
    """A hub's Unix socket."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = FrameBuffer(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an `isinstance` check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        try:
            for payload in self._buffer.next_frames():
                self._receiver.receive_batch(payload)
        except FrameError as error:
            self._receiver.connection_lost(str(error))
            self.close()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._writable.set()
        self._receiver.connection_lost(str(exc) if exc else "the hub hung up")

    def send(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(payload))

    async def drain(self) -> None:
        await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


class WebSocketCarrier:
    """A hub's `/api/stream`."""

    def __init__(self, connection: ClientConnection, receiver: Receiver) -> None:
        self._connection = connection
        self._receiver = receiver
        self._outgoing: asyncio.Queue[bytes | None] = asyncio.Queue()
        self._drained = asyncio.Event()
        self._drained.set()
        self._tasks = [asyncio.create_task(self._read()), asyncio.create_task(self._write())]

    async def _read(self) -> None:
        why = "the hub hung up"
        try:
            async for payload in self._connection:
                self._receiver.receive_batch(payload)
        except websockets.ConnectionClosed as error:
            why = str(error)
        self._outgoing.put_nowait(None)
        self._receiver.connection_lost(why)

    async def _write(self) -> None:
        while (payload := await self._outgoing.get()) is not None:
            try:
                await self._connection.send(payload, text=True)
            except websockets.ConnectionClosed:
                break
            if self._outgoing.empty():
                self._drained.set()
        self._drained.set()
        await self._connection.close()

    def send(self, payload: bytes) -> None:
        self._drained.clear()
        self._outgoing.put_nowait(payload)

    async def drain(self) -> None:
        await self._drained.wait()

    def close(self) -> None:
        self._outgoing.put_nowait(None)


async def dial_socket(path: Path, receiver: Receiver) -> Carrier:
    """Connect to a hub's Unix socket."""
    loop = asyncio.get_running_loop()
    factory: Callable[[], UnixCarrier] = lambda: UnixCarrier(receiver)  # noqa: E731 - mypy needs its type said
    try:
        _, carrier = await loop.create_unix_connection(factory, str(path))
    except OSError as error:
        raise HubUnreachable(f"no hub answers at {path}: {error.strerror or error}") from error
    return carrier


async def dial_url(url: str, receiver: Receiver) -> Carrier:
    """Connect to a hub's `/api/stream`."""
    address = url.rstrip("/").replace("http", "ws", 1) + "/api/stream"
    try:
        connection = await websocket_connect(address, max_size=FRAME_BYTES_MAX, compression=None)
    except (OSError, websockets.WebSocketException) as error:
        raise HubUnreachable(f"no hub answers at {url}: {error}") from error
    return WebSocketCarrier(connection, receiver)

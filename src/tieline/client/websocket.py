"""The carrier to a remote hub: a WebSocket at its `/api/stream`. A module of its own, because it imports slowly."""

import asyncio

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect

from tieline.client.carriers import FRAME_BYTES_MAX, Carrier, Receiver
from tieline.client.errors import HubUnreachable


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


async def dial_url(url: str, receiver: Receiver) -> Carrier:
    """Connect to a hub's `/api/stream`."""
    address = url.rstrip("/").replace("http", "ws", 1) + "/api/stream"
    try:
        connection = await websocket_connect(address, max_size=FRAME_BYTES_MAX, compression=None)
    except (OSError, websockets.WebSocketException) as error:
        raise HubUnreachable(f"no hub answers at {url}: {error}") from error
    return WebSocketCarrier(connection, receiver)

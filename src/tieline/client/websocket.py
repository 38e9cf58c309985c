"""The connection (carrier) to a remote hub: a WebSocket at the hub's path `/api/stream`.

This is a separate module, because its imports are slow.
"""

import asyncio
import ssl

import websockets
from websockets.asyncio.client import ClientConnection
from websockets.asyncio.client import connect as websocket_connect

from tieline.client.carriers import FRAME_BYTES_MAX
from tieline.contract.refusal import Code
from tieline.wire.address import BadPin, split_pin
from tieline.wire.native.client import Carrier, Receiver
from tieline.wire.native.errors import HubRefused, HubUnreachable
from tieline.wire.room import room_of_token
from tieline.wire.tls import client_context, untrusted

_UNAUTHORIZED = 401


class WebSocketCarrier:
    """Connection of a client to a remote hub: a WebSocket at the hub's path `/api/stream`."""

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


async def dial_url(url: str, receiver: Receiver, token: str | None) -> Carrier:
    """Connect to the hub at this URL, and return the connection.

    Raises `HubUnreachable` if no trusted hub answers, and `HubRefused` if the token's room does not exist.

    `receiver` gets every batch (JSON array of answers) from the hub, and is told when the connection ends. If the
    `token` belongs to a room, it is also sent in a header, so that the hub finds the room. A fingerprint at the end of
    the URL (`#sha256=…`) is the one of the hub's certificate: no other certificate is trusted.
    """
    try:
        tls = client_context(url)
    except BadPin as error:
        raise HubUnreachable(str(error)) from error
    url, _ = split_pin(url)
    address = url.rstrip("/").replace("http", "ws", 1) + "/api/stream"
    headers = {"authorization": f"Bearer {token}"} if token is not None and room_of_token(token) else None
    try:
        connection = await websocket_connect(
            address, max_size=FRAME_BYTES_MAX, compression=None, additional_headers=headers, ssl=tls
        )
    except websockets.InvalidStatus as error:
        if headers is None or error.response.status_code != _UNAUTHORIZED:
            raise HubUnreachable(f"no hub answers at {url}: {error}") from error
        raise HubRefused(Code.UNAUTHORIZED, "the token is of a room that does not exist") from error
    except ssl.SSLCertVerificationError as error:
        raise HubUnreachable(f"the hub at {url} cannot be trusted: {untrusted(error)}") from error
    except (OSError, websockets.WebSocketException) as error:
        raise HubUnreachable(f"no hub answers at {url}: {error}") from error
    return WebSocketCarrier(connection, receiver)

"""The hub's own protocol over WebSocket, at `/api/stream` of the HTTP port.

Used by: the HTTP port, and the rooms behind it. Uses: `wire.native`, which has the protocol.
"""

import asyncio
import contextlib

from starlette.types import Receive, Scope, Send
from starlette.websockets import WebSocket, WebSocketDisconnect

from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.wire.http import client_gate, foreign, session_token
from tieline.wire.native.server import NativeConnection, Transport
from tieline.wire.unsent import Unsent

_PATH = "/api/stream"


class _WebSocketTransport(Transport):
    """One client's WebSocket: carries each batch (JSON array of requests or answers) as one text message."""

    __slots__ = ("_closing", "_connection", "_gate", "_readable", "_unsent", "_websocket")

    def __init__(self, websocket: WebSocket, hub: Hub) -> None:
        self._websocket = websocket
        self._gate = client_gate(websocket.scope)
        self._closing = False
        self._readable = asyncio.Event()
        self._readable.set()
        self._connection = NativeConnection(hub, self, local=False, token=session_token(websocket.scope))
        limit = hub.limits.unsent_bytes_max
        self._unsent = Unsent(limit, self._connection.pause_writing, self._connection.resume_writing)

    def send(self, payload: bytes) -> None:
        self._unsent.write(payload)

    def close(self) -> None:
        self._closing = True
        self._unsent.close()
        self._readable.set()

    def await_hello(self) -> None:
        self._gate.await_greeting()

    def admit(self, owner: str) -> None:
        self._gate.admit(owner)

    def abort(self) -> None:
        self.close()
        self._gate.refuse()

    def pause_reading(self) -> None:
        self._readable.clear()

    def resume_reading(self) -> None:
        self._readable.set()

    async def run(self) -> None:
        """Receive and send batches (JSON arrays of requests or answers) until the client or the hub disconnects."""
        self._connection.expect_hello()
        writer = asyncio.create_task(self._write())
        try:
            while not self._closing:
                message = await self._websocket.receive()
                if message["type"] == "websocket.disconnect":
                    break
                self._connection.receive_batch(message.get("bytes") or message.get("text") or "")
                await self._readable.wait()
        except WebSocketDisconnect:
            pass
        finally:
            self._connection.connection_lost()
            if not self._closing:
                writer.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await writer

    async def _write(self) -> None:
        with contextlib.suppress(WebSocketDisconnect, RuntimeError):
            await self._unsent.send_all(self._send_text)
            await self._websocket.close()

    async def _send_text(self, payload: bytes) -> None:
        await self._websocket.send({"type": "websocket.send", "text": payload.decode()})

    def hang_up(self, why: Refusal) -> None:
        """Send the reason `why` and end the connection, because the hub stops."""
        self._connection.end(why)


class NativeStream:
    """HTTP application that serves the hub's own protocol to WebSocket clients at `/api/stream`."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._open: set[_WebSocketTransport] = set()

    def serves(self, scope: Scope) -> bool:
        """Return true if the request opens a WebSocket at `/api/stream`."""
        return bool(scope["type"] == "websocket" and scope["path"] == _PATH)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket until the client or the hub disconnects.

        Refuse a WebSocket that a page of another site opens.
        """
        websocket = WebSocket(scope, receive, send)
        # A page of another site must not reach a hub through its visitor's browser.
        if foreign(scope):
            await websocket.close()
            return
        await websocket.accept()
        transport = _WebSocketTransport(websocket, self._hub)
        self._open.add(transport)
        try:
            await transport.run()
        finally:
            self._open.discard(transport)

    def close(self) -> None:
        """End all connections, because the hub stops."""
        for transport in list(self._open):
            transport.hang_up(Refusal(Code.SHUTTING_DOWN, "the hub is stopping; connect again later"))

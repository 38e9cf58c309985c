"""Peers on the hub's HTTP port: accepts their WebSockets at the paths `/` and `/peerbus`.

Used by: the HTTP port. Uses: a `PeerConnection`.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from starlette.types import Receive, Scope, Send

from tieline.protocols.peerbus.codec import FRAME_BYTES_MAX
from tieline.wire.http import ClientGate, client_gate, foreign
from tieline.wire.unsent import Unsent

if TYPE_CHECKING:
    from tieline.protocols.peerbus.server import PeerbusServer

PATHS = frozenset({"/", "/peerbus"})

_CLOSE_SECONDS = 1.0
"""Seconds in which a peer must read the last frames (protocol messages) before the connection is dropped."""


class PeerbusHttp:
    """ASGI application for peerbus's WebSockets on the hub's HTTP port. It implements `wire.http.HttpApp`."""

    def __init__(self, server: "PeerbusServer") -> None:
        self._server = server

    def serves(self, scope: Scope) -> bool:
        """True if this request is a WebSocket for peerbus: at `/` or `/peerbus`."""
        return scope["type"] == "websocket" and scope["path"] in PATHS

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one WebSocket connection of a peer, from the HTTP request to the end of the connection."""
        await receive()
        if foreign(scope):
            # A close before the accept is answered with 403.
            await send({"type": "websocket.close"})
            return
        await send({"type": "websocket.accept"})
        await _AsgiCarrier(self._server, client_gate(scope), receive, send).run()

    def close(self) -> None:
        """Close the connections of all peers, because the hub stops. Each peer gets this reason."""
        self._server.say_goodbye()


class _AsgiCarrier:
    """One WebSocket connection of a peer on the HTTP port.

    It sends and receives the frames (protocol messages) of a `PeerConnection`.
    """

    __slots__ = ("_closing", "_connection", "_gate", "_last", "_readable", "_receive", "_send", "_unsent", "_writing")

    def __init__(self, server: "PeerbusServer", client_gate: ClientGate, receive: Receive, send: Send) -> None:
        self._gate = client_gate
        self._receive = receive
        self._send = send
        # The close frame; `close` adds code and reason.
        self._last: dict[str, Any] = {"type": "websocket.close"}
        # The task that sends; it may wait long for a peer that does not read.
        self._writing: asyncio.Task[None] | None = None
        # Timer that ends the connection if the peer does not read the frames before the close frame.
        self._closing: asyncio.TimerHandle | None = None
        self._readable = asyncio.Event()
        self._readable.set()
        self._connection = server.connect(self)
        limit = server.hub.limits.unsent_bytes_max
        self._unsent = Unsent(limit, self._connection.pause_writing, self._connection.resume_writing)

    async def run(self) -> None:
        """Read and send frames until the peer or the hub closes the connection."""
        self._connection.expect_handshake()
        writing = self._writing = asyncio.create_task(self._write())
        reading = asyncio.create_task(self._read())
        try:
            # To drop a connection, this function returns without a close frame.
            await asyncio.wait((writing, reading), return_when=asyncio.FIRST_COMPLETED)
        finally:
            self._unsent.close()
            self._connection.connection_lost()
            for task in (writing, reading):
                task.cancel()
            await asyncio.gather(writing, reading, return_exceptions=True)
            # A cancelled task refers back to this carrier.
            self._writing = None
            if self._closing is not None:
                self._closing.cancel()

    async def _read(self) -> None:
        while True:
            message = await self._receive()
            if message["type"] == "websocket.disconnect":
                return
            text = message.get("text")
            if text is None:
                self._connection.receive_binary()
            else:
                self._connection.receive_text(text.encode())
            self._connection.finish_turn()
            await self._readable.wait()

    async def _write(self) -> None:
        # The server raises when the peer is gone; the reader notices that too.
        with contextlib.suppress(OSError, RuntimeError):
            await self._unsent.send_all(self._send_text)
            await self._send(self._last)

    async def _send_text(self, payload: bytes) -> None:
        await self._send({"type": "websocket.send", "text": payload.decode()})

    # Calls of the connection: the Carrier port.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Queue frames (protocol messages) for the peer, in this order. `payloads` are the encoded frames."""
        for payload in payloads:
            self._unsent.write(payload)

    def close(self, code: int, reason: str) -> None:
        """Send the close frame, with this code and reason, after the frames that are queued.

        Drop the connection if the peer does not read all these frames in time.
        """
        self._last = {"type": "websocket.close", "code": code, "reason": reason}
        self._unsent.close()
        self._closing = asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.abort)

    def admit(self, name: str) -> None:
        """Allow frames of full size, because the peer has proved that it owns this name."""
        self._gate.admit(name, FRAME_BYTES_MAX)

    def abort(self) -> None:
        """Drop the connection at once, without a close frame."""
        self._gate.refuse()
        if self._writing is not None:
            self._writing.cancel()

    def pause_reading(self) -> None:
        """Stop reading frames (protocol messages) from the peer."""
        self._readable.clear()

    def resume_reading(self) -> None:
        """Read frames (protocol messages) from the peer again."""
        self._readable.set()

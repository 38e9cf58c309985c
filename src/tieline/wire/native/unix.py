"""The hub's own protocol on a Unix socket.

Before each batch (JSON array of requests or answers) come four bytes with its length.
"""

import asyncio
from pathlib import Path

from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.wire.doors import Closable, Doors, OwnDoors
from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.native.server import NativeConnection, Transport
from tieline.wire.stream import Stream
from tieline.wire.unfinished import TOO_MUCH, Unfinished


class _UnixConnection(Stream, Transport):
    __slots__ = ("_buffer", "_connection", "_connections", "_hub", "_share")

    def __init__(self, hub: Hub, connections: "set[_UnixConnection]", unfinished: Unfinished) -> None:
        super().__init__()
        self._hub = hub
        self._connections = connections
        self._buffer = FrameBuffer(hub.limits.frame_bytes_max)
        self.await_hello()
        self._share = unfinished.share(self._too_much)
        self._connection = NativeConnection(hub, self, local=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        own = self.begin(transport, self._hub.limits.unsent_bytes_max)
        self._connections.add(self)
        self._connection.expect_hello()
        if not own:
            self.end(Refusal(Code.UNAUTHORIZED, "this socket is for the user who runs the hub"))

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        try:
            for payload in self._buffer.next_frames():
                # The first frame was small. Nothing is read after it until the client is admitted.
                self._buffer.frame_bytes_max = self._hub.limits.frame_bytes_max
                self._connection.receive_batch(payload)
                if self.ended:
                    return
        except FrameError as error:
            self.end(Refusal(Code.INVALID_REQUEST, str(error)))
        self._share.report(self._buffer.buffered_bytes)

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        # Half a frame may be large, and garbage collection of the connection may come late.
        self._buffer.reset()
        self._share.close()
        self._connections.discard(self)
        self._connection.connection_lost()

    def send(self, payload: bytes) -> None:
        self.write(encode_frame(payload))

    def close(self) -> None:
        self.hang_up()

    def await_hello(self) -> None:
        limits = self._hub.limits
        self._buffer.frame_bytes_max = min(limits.greeting_bytes_max, limits.frame_bytes_max)

    def admit(self, owner: str) -> None:
        self._share.admit(owner)

    def end(self, why: Refusal) -> None:
        """Send the reason `why` to the client, and close the connection."""
        self._connection.end(why)

    def _too_much(self) -> None:
        self._buffer.reset()
        self.end(Refusal(Code.MESSAGE_TOO_LARGE, TOO_MUCH))


class NativeListener:
    """Server of the hub's own protocol on the Unix socket `<home>/hub.sock`.

    It knows all open connections of this socket.
    """

    def __init__(self, server: Closable, connections: set[_UnixConnection]) -> None:
        self._server = server
        self._connections = connections

    @classmethod
    async def start(
        cls, hub: Hub, path: Path, unfinished: Unfinished | None = None, doors: Doors | None = None
    ) -> "NativeListener":
        """Listen at `path`, and return the server. Only the user who runs the hub may connect.

        `unfinished` limits the memory for incomplete messages of all connections. `doors` open the socket.
        """
        connections: set[_UnixConnection] = set()
        bound = unfinished or Unfinished(hub.limits)
        server = await (doors or OwnDoors()).open_socket(path, lambda: _UnixConnection(hub, connections, bound))
        return cls(server, connections)

    @property
    def connection_count(self) -> int:
        """Number of open connections."""
        return len(self._connections)

    def stop(self) -> None:
        """Stop listening, and close all connections. Each client is told that the hub is stopping."""
        self._server.close()
        for connection in list(self._connections):
            connection.end(Refusal(Code.SHUTTING_DOWN, "the hub is stopping; connect again later"))

"""The hub's own protocol on a Unix socket: every batch is one length-prefixed frame."""

import asyncio
import os
from pathlib import Path
from typing import cast

from tieline.contract.hub import Hub
from tieline.contract.refusal import Code, Refusal
from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.native.server import NativeConnection, Transport
from tieline.wire.unix import UnixServer, listen, peer_uid


class _UnixConnection(asyncio.Protocol, Transport):
    __slots__ = ("_buffer", "_connection", "_connections", "_hub", "_transport")

    def __init__(self, hub: Hub, connections: "set[_UnixConnection]") -> None:
        self._hub = hub
        self._connections = connections
        self._buffer = FrameBuffer(hub.limits.frame_bytes_max)
        self._transport: asyncio.Transport | None = None
        self._connection = NativeConnection(hub, self, local=True)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an `isinstance` check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._hub.limits.unsent_bytes_max)
        self._connections.add(self)
        self._connection.expect_hello()
        if peer_uid(transport) not in (None, os.geteuid()):
            self._connection.end(Refusal(Code.UNAUTHORIZED, "this socket is for the user who runs the hub"))

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        try:
            for payload in self._buffer.next_frames():
                self._connection.receive_batch(payload)
                if self._transport is None or self._transport.is_closing():
                    return
        except FrameError as error:
            self._connection.end(Refusal(Code.INVALID_REQUEST, str(error)))

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connections.discard(self)
        self._connection.connection_lost()

    def send(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(payload))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def pause_reading(self) -> None:
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def hang_up(self, why: Refusal) -> None:
        """The hub stops."""
        self._connection.end(why)


class NativeListener:
    """`<home>/hub.sock`."""

    def __init__(self, server: UnixServer, connections: set[_UnixConnection]) -> None:
        self._server = server
        self._connections = connections

    @classmethod
    async def start(cls, hub: Hub, path: Path) -> "NativeListener":
        """Listen at `path`, for the hub's own user alone."""
        connections: set[_UnixConnection] = set()
        server = await listen(path, lambda: _UnixConnection(hub, connections), mode=0o600)
        return cls(server, connections)

    @property
    def connection_count(self) -> int:
        """Open connections."""
        return len(self._connections)

    def stop(self) -> None:
        """Stop listening and hang up on everybody, saying why."""
        self._server.close()
        for connection in list(self._connections):
            connection.hang_up(Refusal(Code.SHUTTING_DOWN, "the hub is stopping; connect again later"))

"""Connection (carrier) of a client to a hub on this machine, over the hub's Unix socket."""

import asyncio
import contextlib
import os
from collections.abc import Callable
from pathlib import Path
from typing import cast

from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.native.client import Carrier, Receiver
from tieline.wire.native.errors import HubUnreachable

FRAME_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of a batch (JSON array of answers) that a client accepts. It is twice the limit of a hub, because a hub's
answer may contain a whole page of results."""

_READ_BYTES = 1 << 16  # as much as a socket usually holds


class UnixCarrier(asyncio.Protocol):
    """Connection of a client to a hub on the same machine, over the hub's Unix socket."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = FrameBuffer(FRAME_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an `isinstance` check: uvloop's transports do not derive from asyncio's classes.
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
        if exc is not None:
            self._hear_out()
        self._transport = None
        self._writable.set()
        self._receiver.connection_lost(str(exc) if exc else "the hub hung up")

    def _hear_out(self) -> None:
        """Read the last bytes that the hub sent before the connection ended, and pass them to the receiver.

        If the connection ended by a failed write, the client has not read these bytes yet.
        """
        # asyncio keeps the socket open until this method returns. uvloop has closed it already, and its number may be
        # reused.
        if isinstance(self._transport, asyncio.Transport):
            socket = self._transport.get_extra_info("socket")
            with contextlib.suppress(OSError):
                while data := os.read(socket.fileno(), _READ_BYTES):
                    self.data_received(data)

    def send(self, payload: bytes) -> None:
        if self._transport is not None:
            self._transport.write(encode_frame(payload))

    async def drain(self) -> None:
        await self._writable.wait()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()


async def dial_socket(path: Path, receiver: Receiver) -> Carrier:
    """Connect to a hub's Unix socket, and return the connection. Raises `HubUnreachable` if no hub answers.

    `receiver` gets every batch (JSON array of answers) from the hub, and is told when the connection ends.
    """
    loop = asyncio.get_running_loop()
    factory: Callable[[], UnixCarrier] = lambda: UnixCarrier(receiver)  # noqa: E731 - mypy needs its type said
    try:
        _, carrier = await loop.create_unix_connection(factory, str(path))
    except OSError as error:
        raise HubUnreachable(f"no hub answers at {path}: {error.strerror or error}") from error
    return carrier

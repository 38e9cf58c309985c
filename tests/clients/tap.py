"""Proxy for tests on a Unix socket of length-prefixed JSON. It records the frames, and can break connections.

A frame is one JSON message with its length. For a client, the proxy looks like the hub. A test controls losses exactly:
`hold` keeps the frames of one direction in the proxy, `cut` ends the connections without these frames, and after `shut`
no client can connect.
"""

import asyncio
import json
from pathlib import Path
from typing import Any

from tieline.wire.frames import FrameBuffer

Frame = dict[str, Any]

FROM_CLIENT = "from the client"
FROM_HUB = "from the hub"
_FRAME_BYTES_MAX = 16 * 1024 * 1024
_CHUNK_BYTES = 64 * 1024


class Tap:
    """Proxy for tests between clients and the socket of the hub.

    It records the frames (JSON messages) of both directions.
    """

    def __init__(self, path: Path, hub: Path) -> None:
        self.path = path
        self._hub = hub
        # Every frame that came, with its direction, over all connections.
        self.frames: list[tuple[str, Frame]] = []
        self._held: set[str] = set()
        self._server: asyncio.AbstractServer | None = None
        # Connections that are being passed on, and both ends of each.
        self._passing: set[asyncio.Task[None]] = set()
        self._ends: set[asyncio.StreamWriter] = set()

    def seen(self, direction: str, *kinds: str) -> list[Frame]:
        """Return the recorded frames of one direction that have one of the types `kinds`."""
        return [frame for way, frame in self.frames if way == direction and frame["type"] in kinds]

    async def open(self) -> None:
        """Accept clients and pass all their bytes on to the hub."""
        self._held.clear()
        self._server = await asyncio.start_unix_server(self._connected, self.path)

    def shut(self) -> None:
        """Accept no more clients. Open connections stay open."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self.path.unlink(missing_ok=True)  # newer Pythons remove it with the server

    def hold(self, direction: str) -> None:
        """From now on, record the frames of one direction, but do not pass them on."""
        self._held.add(direction)

    async def cut(self) -> None:
        """End every connection, on both sides."""
        for end in self._ends:
            end.transport.abort()
        if self._passing:
            await asyncio.wait(self._passing)

    async def close(self) -> None:
        """Accept no more clients, and end every connection."""
        self.shut()
        await self.cut()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "asyncio runs this as a task"
        self._passing.add(task)
        ends = {writer}
        self._ends |= ends
        try:
            hub_reader, hub_writer = await asyncio.open_unix_connection(self._hub)
            ends.add(hub_writer)
            self._ends |= ends
            if not writer.transport.is_closing():
                ways = self._pass(reader, hub_writer, FROM_CLIENT), self._pass(hub_reader, writer, FROM_HUB)
                await asyncio.gather(*ways)
        except OSError:
            # Nobody is there, or not any more: the other side learns it below.
            pass
        finally:
            for end in ends:
                end.transport.abort()
            self._ends -= ends
            self._passing.discard(task)

    async def _pass(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter, direction: str) -> None:
        frames = FrameBuffer(_FRAME_BYTES_MAX)
        while data := await source.read(_CHUNK_BYTES):
            frames.receive_data(data)
            while (payload := frames.next_frame()) is not None:
                self.frames.append((direction, json.loads(payload)))
            if direction not in self._held:
                sink.write(data)
                await sink.drain()
        sink.write_eof()

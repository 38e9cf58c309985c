"""Test helper: a Unix socket before a hub's socket, whose connections the test can cut."""

import asyncio
import contextlib
from pathlib import Path


class CutCable:
    """Test helper: passes bytes between clients and a hub until the test cuts it. Then clients may connect again."""

    def __init__(self, path: Path, hub: Path) -> None:
        self.path = path
        self._hub = hub
        self._writers: list[asyncio.StreamWriter] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.Server | None = None
        # Connections so far.
        self.count = 0
        # True while new connections are refused.
        self.broken = False

    async def open(self) -> None:
        self._server = await asyncio.start_unix_server(self._connected, self.path)

    async def close(self) -> None:
        assert self._server is not None
        self._server.close()
        await self.cut()

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.count += 1
        self._writers.append(writer)
        if self.broken:
            writer.transport.abort()
            return
        to_reader, to_writer = await asyncio.open_unix_connection(self._hub)
        self._writers.append(to_writer)
        for source, sink in ((reader, to_writer), (to_reader, writer)):
            task = asyncio.create_task(_pass(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def cut(self) -> None:
        """Cut all connections. Bytes on their way are lost."""
        writers, self._writers = self._writers, []
        for writer in writers:
            writer.transport.abort()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for writer in writers:
            with contextlib.suppress(ConnectionError):
                await writer.wait_closed()


async def _pass(source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
    with contextlib.suppress(ConnectionError):
        while data := await source.read(65536):
            sink.write(data)
            await sink.drain()
    sink.transport.abort()

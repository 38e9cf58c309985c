"""Test proxy between a client and the hub's socket. A test can watch its frames, and cut its connections."""

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from tieline.wire.frames import FrameBuffer, encode_frame

Frame = dict[str, Any]
Watch = Callable[[Frame], bool | None]
"""Function that gets a frame before it is passed on. If it returns False, the frame is dropped."""

FRAME_BYTES_MAX = 64 * 1024 * 1024


class Cable:
    """Test proxy: listens at `path`, passes every frame on to and from the hub at `hub`, and records the frames."""

    def __init__(self, path: Path, hub: str | Path) -> None:
        self.path = path
        self.hub = hub
        # Frames that came from the client, and from the hub, of all connections, with those that were not passed on.
        self.said: list[Frame] = []
        self.heard: list[Frame] = []
        self.on_said: Watch | None = None
        self.on_heard: Watch | None = None
        self.connections = 0
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._server: asyncio.AbstractServer | None = None

    async def plug(self) -> None:
        """Start to accept connections."""
        self._server = await asyncio.start_unix_server(self._accept, self.path)

    def unplug(self) -> None:
        """Abort all connections, and accept no more."""
        if self._server is not None:
            self._server.close()
            self._server = None
            self.path.unlink(missing_ok=True)
        self.cut()

    def cut(self) -> None:
        """Abort every connection to the clients and to the hub."""
        for writer in self._writers:
            writer.transport.abort()

    async def close(self) -> None:
        """Stop accepting, abort all connections, and wait until all tasks have ended."""
        self.unplug()
        while self._tasks:
            await asyncio.wait(self._tasks)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        self._writers.add(writer)
        try:
            with contextlib.suppress(OSError):
                far_reader, far_writer = await asyncio.open_unix_connection(self.hub)
                self._writers.add(far_writer)
                try:
                    async with asyncio.TaskGroup() as group:
                        group.create_task(self._pass(reader, far_writer, self.said, lambda: self.on_said))
                        group.create_task(self._pass(far_reader, writer, self.heard, lambda: self.on_heard))
                finally:
                    self._writers.discard(far_writer)
                    far_writer.transport.abort()
        finally:
            self._writers.discard(writer)
            writer.transport.abort()
            self._tasks.discard(task)

    async def _pass(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        seen: list[Frame],
        watch: Callable[[], Watch | None],
    ) -> None:
        buffer = FrameBuffer(FRAME_BYTES_MAX)
        with contextlib.suppress(OSError):
            while data := await reader.read(65536):
                buffer.receive_data(data)
                for payload in buffer.next_frames():
                    frame: Frame = json.loads(payload)
                    seen.append(frame)
                    hook = watch()
                    if (hook is None or hook(frame) is not False) and not writer.transport.is_closing():
                        writer.write(encode_frame(payload))
                        await writer.drain()
        # Whoever is left hears of the end.
        writer.transport.close() if not writer.transport.is_closing() else None


@contextlib.asynccontextmanager
async def cable(path: Path, hub: str | Path) -> AsyncIterator[Cable]:
    """Start a proxy before the hub's socket and yield it. Close it at the end."""
    made = Cable(path, hub)
    await made.plug()
    try:
        yield made
    finally:
        await made.close()

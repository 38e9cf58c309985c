"""Test clients that write raw bytes to a channel's socket, and a log of events with waits for conditions."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any, Self

from tieline.protocols.agent_channels.codec import FrameDecoder, Message, encode
from tieline.protocols.agent_channels.events import Emitter

WAIT_SECONDS = 10


class Peer:
    """Test client: a raw connection, so that a test can send bytes that no library would send."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self._decoder = FrameDecoder()
        self._waiting: list[Message] = []

    @classmethod
    async def unix(cls, path: Path) -> Self:
        """Connect to a channel's Unix socket."""
        return cls(*await asyncio.open_unix_connection(path))

    @classmethod
    async def tcp(cls, port: int) -> Self:
        """Connect to a bridge on this TCP port of the machine."""
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def send(self, *frames: bytes | dict[str, Any]) -> None:
        """Write all frames as one chunk. A dictionary is encoded as a message, bytes are written unchanged."""
        self.writer.write(b"".join(encode(frame) if isinstance(frame, dict) else frame for frame in frames))
        await self.writer.drain()

    async def receive(self) -> Message:
        """Wait for the next message. Return it. Raises `EOFError`."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not self._waiting:
                chunk = await self.reader.read(65536)
                if not chunk:
                    raise EOFError
                self._waiting += self._decoder.push(chunk)
        return self._waiting.pop(0)

    async def texts(self, count: int) -> list[str]:
        """Wait for `count` messages. Return their texts."""
        return [(await self.receive()).msg for _ in range(count)]

    async def closed(self) -> bytes:
        """Wait until the other end closes the connection. Return the bytes that came before."""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                return await self.reader.read()
            except ConnectionError:
                return b""

    def close(self) -> None:
        """Close the connection."""
        self.writer.close()


class Log:
    """Test helper: records all events of an emitter, in order, as (event, details)."""

    def __init__(self, emitter: Emitter, *ignored: str) -> None:
        self.entries: list[tuple[Any, ...]] = []
        self._changed = asyncio.Event()
        for event in emitter.EVENTS:
            if event not in ignored:
                emitter.on(event, self._record(event))

    def of(self, event: str) -> list[Any]:
        """Return the details of all events with this name.

        The details of an event are a tuple, or the only value in it.
        """
        details = [entry[1:] for entry in self.entries if entry[0] == event]
        return [detail[0] if len(detail) == 1 else detail for detail in details]

    async def wait(self, event: str, count: int = 1) -> list[Any]:
        """Wait until an event has happened `count` times. Return the details of all events with this name."""
        await self.until(lambda: len(self.of(event)) >= count)
        return self.of(event)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until `condition` returns true. Check it after each event."""
        async with asyncio.timeout(WAIT_SECONDS):
            while not condition():
                self._changed.clear()
                await self._changed.wait()

    def _record(self, event: str) -> Callable[..., None]:
        def record(*details: object) -> None:
            self.entries.append((event, *details))
            self._changed.set()

        return record

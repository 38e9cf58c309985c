"""Test client of a Unix socket with frames: a length in four bytes, then the payload.

The transcript gets every payload.
"""

import asyncio
from pathlib import Path
from typing import Self

from tests.golden.stage import Stage
from tests.server.hubs import WAIT_SECONDS


class Framed:
    """Test client: one connection to a Unix socket, with all its payloads in the transcript."""

    def __init__(self, stage: Stage, name: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.stage = stage
        self.name = name
        self._reader = reader
        self._writer = writer

    @classmethod
    async def dial(cls, stage: Stage, name: str, path: str | Path) -> Self:
        """Open a connection and send nothing. Return the client."""
        reader, writer = await asyncio.open_unix_connection(path, limit=2**26)
        stage.closing.callback(writer.close)
        return cls(stage, name, reader, writer)

    async def say(self, *payloads: str) -> None:
        """Move the clock by a second, then write frames with these payloads as one chunk."""
        await self.stage.turn()
        self.say_at_once(*payloads)

    def say_at_once(self, *payloads: str) -> None:
        """Write frames with these payloads as one chunk, and leave the clock as it is."""
        for payload in payloads:
            self.stage.recorder.said(self.name, payload)
        framed = [payload.encode() for payload in payloads]
        self._writer.write(b"".join(len(payload).to_bytes(4, "big") + payload for payload in framed))

    async def say_raw(self, data: bytes) -> None:
        """Write bytes that are not a valid frame."""
        await self.stage.turn()
        self.stage.recorder.said(self.name, f"bytes {data.hex(' ')}")
        self._writer.write(data)

    async def hear(self) -> str:
        """Wait for the next frame. Return its payload."""
        async with asyncio.timeout(WAIT_SECONDS):
            size = int.from_bytes(await self._reader.readexactly(4), "big")
            payload = (await self._reader.readexactly(size)).decode()
        self.stage.recorder.heard(self.name, payload)
        return payload

    async def ended(self) -> None:
        """Wait until the hub closes the connection. Fail if the hub sends anything before."""
        async with asyncio.timeout(WAIT_SECONDS):
            assert await self._reader.read() == b""
        self.stage.recorder.heard(self.name, "(hangs up)")
        self._writer.close()

    async def leave(self) -> None:
        """Close the sending side, and wait until the hub closes its side. Fail if a frame was left unread."""
        await self.stage.turn()
        self.stage.recorder.said(self.name, "(hangs up)")
        self._writer.write_eof()
        async with asyncio.timeout(WAIT_SECONDS):
            assert await self._reader.read() == b""
        self._writer.close()
        await self.stage.settle()

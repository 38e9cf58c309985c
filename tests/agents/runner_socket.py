"""Test double for one end of the Unix socket between a runner (`tieline run`) and an MCP server."""

import asyncio

from tieline.agents.runner_frames import AnyFrame, decode, encode


class SocketEnd:
    """One end of a connection over a runner's socket. A test decides which frames (lines of JSON) it sends."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *frames: AnyFrame) -> None:
        """Send frames (lines of JSON) to the other end."""
        for frame in frames:
            self.writer.write(encode(frame))

    async def hear(self) -> AnyFrame:
        """Wait for the next frame (a line of JSON) from the other end and return it."""
        async with asyncio.timeout(10):
            return decode(await self.reader.readline())

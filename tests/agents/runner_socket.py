"""One end of a runner's socket, which says what a test wants."""

import asyncio

from tieline.agents.runner_frames import AnyFrame, decode, encode


class SocketEnd:
    """A connection to the socket, or from it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def say(self, *frames: AnyFrame) -> None:
        """Write frames."""
        for frame in frames:
            self.writer.write(encode(frame))

    async def hear(self) -> AnyFrame:
        """The next frame."""
        async with asyncio.timeout(10):
            return decode(await self.reader.readline())

"""Test helper: a worker that speaks to the hub in raw frames, and reads only when the test wants it."""

import asyncio
import contextlib
from collections.abc import Sequence
from pathlib import Path

from tests.server.offices import LINK_KEY
from tieline.contract import command as c
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.reply import Reply
from tieline.wire.frames import HEADER_BYTES, encode_frame
from tieline.wire.hub_link import codec
from tieline.wire.hub_link.greeting import read_answer, say_hello

WAIT_SECONDS = 10
READ_AHEAD_BYTES = 4096
"""The reader takes about twice as many bytes from the socket before the test asks for them."""


class RawWorker:
    """Test helper: a worker that speaks to the hub in raw frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer
        self._items: list[codec.ToWorker] = []
        self._number = 0
        # Number of frames with items that came from the hub, and the id of the link.
        self.taken = 0
        self.link = ""

    def write(self, data: bytes) -> None:
        self._writer.write(data)

    def put(self, *items: codec.ToHub) -> None:
        self.write(encode_frame(codec.encode(self.taken, items)))

    async def close(self) -> None:
        """Close the connection. The hub may have closed it before."""
        self._writer.close()
        with contextlib.suppress(ConnectionError):
            await self._writer.wait_closed()

    async def frame(self) -> bytes:
        """Return the payload of the next frame."""
        async with asyncio.timeout(WAIT_SECONDS):
            size = int.from_bytes(await self._reader.readexactly(HEADER_BYTES), "big")
            return await self._reader.readexactly(size)

    async def item(self) -> codec.ToWorker:
        """Return the next item of the hub."""
        while not self._items:
            _, self._items = codec.decode_to_worker(await self.frame())
            self.taken += bool(self._items)
        return self._items.pop(0)

    async def ask(self, *commands: c.Command) -> Sequence[Reply]:
        """Submit commands and return their replies. Other items before them are dropped."""
        self._number += 1
        self.put(codec.Submit(self._number, [codec.pack(command) for command in commands]))
        while True:
            item = await self.item()
            if isinstance(item, codec.Replies) and item.number == self._number:
                return [codec.unpack(reply, codec.REPLIES) for reply in item.replies]

    def listen(self, session: SessionId, member: str) -> None:
        self.put(codec.Listen(session, MemberName(member)))

    async def ended(self) -> None:
        """Wait until the hub has closed the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            with contextlib.suppress(ConnectionResetError):
                while await self._reader.read(65536):
                    pass


class RawWorkers:
    """Test helper: makes workers that speak to a hub in raw frames, and closes them."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made: list[RawWorker] = []

    async def dial(self) -> RawWorker:
        """Connect, and say nothing."""
        worker = RawWorker(*await asyncio.open_unix_connection(self._path, limit=READ_AHEAD_BYTES))
        self._made.append(worker)
        return worker

    async def open(self) -> RawWorker:
        """Connect, and say the greeting with the right key."""
        worker = await self.dial()
        worker.write(encode_frame(say_hello(LINK_KEY)))
        worker.link = read_answer(await worker.frame()).link
        return worker

    async def close(self) -> None:
        for worker in self._made:
            await worker.close()

"""Tests of a byte stream to one client: after a close, the client can still read written bytes, up to a time limit."""

import asyncio
import os
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tieline.wire import stream
from tieline.wire.stream import Stream
from tieline.wire.unix import listen

WAIT_SECONDS = 10
MUCH = b"x" * 4_000_000
"""More bytes than the kernel buffers for a socket."""


class Carrier(Stream):
    """Test double: a server's connection that records its received bytes and its end."""

    def __init__(self, made: asyncio.Queue["Carrier"]) -> None:
        super().__init__()
        self._made = made
        self.own = False
        self.lost = asyncio.Event()
        self.received = b""
        self.heard = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.own = self.begin(transport, 1024)
        self._made.put_nowait(self)

    def data_received(self, data: bytes) -> None:
        self.received += data
        self.heard.set()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self.lost.set()


class Place:
    """Test helper: a listener, and clients that connect to it."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.made: asyncio.Queue[Carrier] = asyncio.Queue()

    async def dial(self) -> tuple[Carrier, asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_unix_connection(self.path)
        async with asyncio.timeout(WAIT_SECONDS):
            return await self.made.get(), reader, writer


@pytest.fixture
async def place(folder: Path) -> AsyncIterator[Place]:
    built = Place(folder / "s.sock")
    server = await listen(built.path, lambda: Carrier(built.made))
    yield built
    server.close()


async def test_what_was_written_before_hanging_up_is_read_to_its_end(place: Place) -> None:
    carrier, reader, writer = await place.dial()
    carrier.write(MUCH)
    carrier.hang_up()
    assert carrier.ended
    async with asyncio.timeout(WAIT_SECONDS):
        assert await reader.read() == MUCH
        await carrier.lost.wait()
    writer.close()


async def test_a_client_that_reads_nothing_is_dropped_with_what_is_left(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream, "CLOSE_SECONDS_MAX", 0.05)
    carrier, _, writer = await place.dial()
    writer.transport.pause_reading()  # type: ignore[attr-defined]
    carrier.write(MUCH)
    carrier.hang_up()
    async with asyncio.timeout(WAIT_SECONDS):
        await carrier.lost.wait()
    writer.transport.abort()


async def test_a_client_that_reads_slowly_is_waited_for(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stream, "CLOSE_SECONDS_MAX", 0.2)
    carrier, reader, writer = await place.dial()
    carrier.write(MUCH)
    carrier.hang_up()
    found = b""
    started = asyncio.get_running_loop().time()
    while chunk := await reader.read(len(MUCH) // 16):
        found += chunk
        await asyncio.sleep(0.04)
    assert found == MUCH
    assert asyncio.get_running_loop().time() - started > 0.2, "it took longer than one look"
    writer.close()


async def test_reading_pauses_and_goes_on(place: Place) -> None:
    carrier, _, writer = await place.dial()
    carrier.pause_reading()
    writer.write(b"hello")
    await writer.drain()
    # That nothing comes can only be seen when its time is over.
    await asyncio.sleep(0.02)
    assert carrier.received == b""
    carrier.resume_reading()
    async with asyncio.timeout(WAIT_SECONDS):
        await carrier.heard.wait()
    assert carrier.received == b"hello"
    writer.close()


async def test_after_the_end_everything_is_harmless(place: Place) -> None:
    carrier, _, writer = await place.dial()
    carrier.abort()
    async with asyncio.timeout(WAIT_SECONDS):
        await carrier.lost.wait()
    for late in (carrier.hang_up, carrier.abort, carrier.pause_reading, carrier.resume_reading):
        late()
    carrier.write(b"late")
    assert carrier.ended
    writer.close()


async def test_it_is_known_whether_the_own_user_is_at_the_other_end(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    carrier, _, writer = await place.dial()
    assert carrier.own
    monkeypatch.setattr(stream, "peer_uid", lambda _: os.geteuid() + 1)
    stranger, _, other = await place.dial()
    assert not stranger.own
    for end in (writer, other):
        end.close()

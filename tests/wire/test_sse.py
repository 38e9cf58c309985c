"""Tests of server-sent events: their form, and a stream that pauses its source while its reader does not read."""

import asyncio
from collections.abc import Callable

import pytest
from starlette.types import Message

from tieline.wire.sse import EventStream, comment, event

SECONDS = 10


class Reader:
    """Test double: the reader of a stream. It reads when the test allows it, and can disconnect."""

    def __init__(self, bytes_max: int = 100, keepalive_seconds: float = 60) -> None:
        self.chunks: list[bytes] = []
        self.complete = False
        self.headers: dict[bytes, bytes] = {}
        # Calls to the source: "pause" or "resume".
        self.told: list[str] = []
        self.reads = asyncio.Event()
        self.reads.set()
        self._gone = asyncio.Event()
        self.stream = EventStream(
            bytes_max,
            lambda: self.told.append("pause"),
            lambda: self.told.append("resume"),
            keepalive_seconds=keepalive_seconds,
        )
        self.running = asyncio.create_task(self.stream.run(self._receive, self._send))

    async def _receive(self) -> Message:
        await self._gone.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.headers = dict(message["headers"])
            return
        await self.reads.wait()
        self.chunks.append(message["body"])
        self.complete = not message.get("more_body", False)

    def leave(self) -> None:
        self._gone.set()
        self.reads.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        async with asyncio.timeout(SECONDS):
            while not condition():  # noqa: ASYNC110 - conditions are of many kinds
                await asyncio.sleep(0.001)

    async def end(self) -> bytes:
        async with asyncio.timeout(SECONDS):
            await self.running
        return b"".join(self.chunks)


@pytest.mark.parametrize(("data", "expected"), [(b"{}", b"data: {}\n\n"), (b"a\nb", b"data: a\ndata: b\n\n")])
def test_an_event_is_its_data_and_an_empty_line(data: bytes, expected: bytes) -> None:
    assert event(data) == expected


def test_a_comment_is_one_line_whatever_it_says() -> None:
    assert comment("why\n\ndata: x") == b": why data: x\n\n"


async def test_what_is_written_arrives_in_order_and_closing_completes_the_answer() -> None:
    reader = Reader()
    for number in range(5):
        reader.stream.write(b"%d" % number)
    reader.stream.close()
    assert await reader.end() == b"01234"
    assert reader.complete
    assert reader.headers[b"content-type"] == b"text/event-stream"
    assert reader.headers[b"cache-control"] == b"no-cache"


async def test_while_nothing_happens_a_comment_comes_now_and_then() -> None:
    reader = Reader(keepalive_seconds=0.01)
    await reader.until(lambda: len(reader.chunks) >= 3)
    assert set(reader.chunks) == {b": keepalive\n\n"}
    reader.stream.close()
    await reader.end()


async def test_a_reader_that_does_not_read_pauses_the_source_until_it_has_read() -> None:
    reader = Reader(bytes_max=100)
    reader.reads.clear()
    reader.stream.write(b"x" * 40)
    await asyncio.sleep(0)
    assert reader.told == []
    reader.stream.write(b"y" * 40)
    assert reader.told == ["pause"]
    reader.reads.set()
    await reader.until(lambda: reader.told == ["pause", "resume"])
    reader.stream.write(b"z" * 60)
    assert reader.told == ["pause", "resume", "pause"]
    reader.stream.close()
    assert await reader.end() == b"x" * 40 + b"y" * 40 + b"z" * 60


async def test_a_reader_that_leaves_ends_the_stream_and_is_sent_nothing_more() -> None:
    reader = Reader()
    reader.stream.write(b"first")
    await reader.until(lambda: bool(reader.chunks))
    reader.reads.clear()
    reader.stream.write(b"second")
    reader.stream.write(b"third")
    await asyncio.sleep(0)
    reader.leave()
    await reader.end()
    assert b"".join(reader.chunks) in (b"first", b"firstsecondthird"), "what was on its way went nowhere"


async def test_an_idle_reader_that_leaves_ends_the_stream() -> None:
    reader = Reader()
    reader.leave()
    assert await reader.end() == b""

"""Tests of the buffer of unsent bytes: it reports when it is full and when it is drained, and keeps the order."""

import asyncio

from tieline.wire.unsent import Unsent


class Reader:
    """Test double: a reader that takes items while the test allows it."""

    def __init__(self, bytes_max: int = 100, *, final: bool = False) -> None:
        self.told: list[str] = []
        self.taken: list[str] = []
        self.reads = asyncio.Event()
        drained = None if final else lambda: self.told.append("drained")
        self.unsent = Unsent(bytes_max, lambda: self.told.append("full"), drained)

    def write(self, *items: str) -> None:
        for item in items:
            self.unsent.write(item.encode())

    async def take(self, chunk: bytes) -> None:
        await self.reads.wait()
        self.taken.append(chunk.decode())

    async def end(self) -> None:
        self.reads.set()
        async with asyncio.timeout(10):
            await self.unsent.send_all(self.take)


async def test_what_is_written_is_sent_in_order_and_closing_sends_the_rest_first() -> None:
    reader = Reader()
    reader.write("a", "b")
    sending = asyncio.create_task(reader.unsent.send_all(reader.take))
    await asyncio.sleep(0)
    reader.write("c")
    reader.unsent.close()
    reader.write("too late")
    reader.reads.set()
    async with asyncio.timeout(10):
        await sending
    assert reader.taken == ["a", "b", "c"]


async def test_it_is_full_past_its_limit_once_and_drained_at_half_of_it() -> None:
    reader = Reader(bytes_max=100)
    reader.write("x" * 100)
    assert reader.told == []
    reader.write("x", "x")
    assert reader.told == ["full"]
    first, *rest = await reader.unsent.take()
    assert len(rest) == 2
    reader.write("x" * 49)
    reader.unsent.sent(len(first))
    assert reader.told == ["full"]
    reader.unsent.sent(1)
    assert reader.told == ["full", "drained"]
    reader.write("x" * 60)
    assert reader.told == ["full", "drained", "full"]


async def test_without_a_way_to_go_on_being_full_is_said_once() -> None:
    reader = Reader(bytes_max=10, final=True)
    reader.write("x" * 11)
    reader.unsent.close()
    await reader.end()
    assert reader.told == ["full"]


async def test_a_reader_that_is_gone_is_sent_nothing_more() -> None:
    reader = Reader()
    reader.write("a", "b")
    reader.unsent.clear()
    await reader.end()
    assert reader.taken == []


async def test_waiting_ends_with_the_first_item_or_the_end() -> None:
    reader = Reader()
    waiting = asyncio.create_task(reader.unsent.take())
    await asyncio.sleep(0)
    reader.write("a")
    async with asyncio.timeout(10):
        assert await waiting == [b"a"]
    reader.unsent.close()
    assert await reader.unsent.take() == []

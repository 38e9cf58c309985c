"""Tests of one end of a link: one write for each turn, frames of a limited size, any chunking of the received bytes."""

import asyncio
import socket
from collections.abc import AsyncIterator

import pytest

from tieline.contract.identifiers import SessionId
from tieline.wire.frames import FrameBuffer, encode_frame
from tieline.wire.hub_link import codec, connection
from tieline.wire.hub_link.connection import Connection


class End(Connection[codec.ToHub, codec.ToWorker]):
    """Test double: an end of a link that records the greeting, the items and its failure."""

    def __init__(self) -> None:
        super().__init__(codec.decode_to_hub)
        self.heard: list[object] = []
        self.failed = ""
        self.writes: list[bytes] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begin(transport, 1024)

    def receive_greeting(self, payload: bytes) -> None:
        self.heard.append(payload)
        self.greeted()

    def receive_item(self, item: codec.ToHub) -> None:
        self.heard.append(item)

    def fail(self, why: str) -> None:
        self.failed = why
        super().fail(why)

    def write(self, data: bytes) -> None:
        self.writes.append(data)
        super().write(data)


@pytest.fixture
async def end() -> AsyncIterator[End]:
    """Fixture: an end of a link. Nobody reads at the other end."""
    ours, theirs = socket.socketpair()
    made = End()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: made, sock=ours)
    yield made
    transport.abort()
    theirs.close()
    await asyncio.sleep(0)


def stop(number: int) -> codec.Stop:
    return codec.Stop(number)


def released(*keys: int) -> codec.Released:
    return codec.Released(SessionId("s"), list(keys))


def items_of(data: bytes) -> list[list[codec.ToWorker]]:
    """Return the items of each frame."""
    frames = FrameBuffer(connection.FRAME_BYTES_MAX)
    frames.receive_data(data)
    return [codec.decode_to_worker(payload) for payload in frames.next_frames()]


async def test_all_items_of_a_turn_leave_in_one_write_and_one_frame(end: End) -> None:
    for number in range(100):
        end.put(released(number))
    assert end.writes == []
    await asyncio.sleep(0)
    (written,) = end.writes
    assert items_of(written) == [[released(number) for number in range(100)]]
    end.put(released(100))
    await asyncio.sleep(0)
    assert len(end.writes) == 2


async def test_a_frame_ends_when_it_is_large_enough(end: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "_FRAME_BYTES", 1000)
    for number in range(5):
        end.put(released(number), 450)
    await asyncio.sleep(0)
    (written,) = end.writes
    assert [len(items) for items in items_of(written)] == [2, 2, 1]
    assert [item for items in items_of(written) for item in items] == [released(number) for number in range(5)]


async def test_an_item_may_grow_until_its_turn_ends(end: End) -> None:
    item = released(1)
    end.put(item)
    assert end.last_item is item
    item.keys.append(2)
    await asyncio.sleep(0)
    assert end.last_item is None
    assert items_of(end.writes[0]) == [[released(1, 2)]]


async def test_items_that_wait_leave_before_the_connection_closes(end: End) -> None:
    end.put(released(1))
    end.hang_up()
    assert items_of(b"".join(end.writes)) == [[released(1)]]
    end.put(released(2))
    await asyncio.sleep(0)
    assert len(end.writes) == 1


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_frames_may_come_in_any_pieces(end: End, size: int) -> None:
    data = b"".join(
        [
            encode_frame(b"hello"),
            encode_frame(codec.encode([stop(1), stop(2)])),
            encode_frame(codec.encode([stop(3)])),
        ]
    )
    for start in range(0, len(data), size):
        end.data_received(data[start : start + size])
    assert end.heard == [b"hello", stop(1), stop(2), stop(3)]
    assert not end.failed


async def test_items_wait_while_the_other_side_is_held(end: End) -> None:
    end.data_received(encode_frame(b"hello"))
    end.hold(True)
    end.hold(True)
    end.data_received(encode_frame(codec.encode([stop(1)])) + encode_frame(codec.encode([stop(2)])))
    assert end.heard == [b"hello"]
    end.hold(False)
    await asyncio.sleep(0)
    assert end.heard == [b"hello", stop(1), stop(2)]


@pytest.mark.parametrize("size", [0, 2**32 - 1, connection.FRAME_BYTES_MAX + 1])
async def test_a_frame_of_an_impossible_size_ends_the_connection(end: End, size: int) -> None:
    end.data_received(encode_frame(b"hello") + encode_frame(codec.encode([stop(1)])) + size.to_bytes(4, "big"))
    assert end.heard == [b"hello", stop(1)]
    assert "a frame" in end.failed
    assert end.ended
    end.data_received(encode_frame(codec.encode([stop(2)])))
    assert end.heard == [b"hello", stop(1)]

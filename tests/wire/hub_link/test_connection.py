"""Tests of one connection of a link: any chunking of the received bytes, and frames that wait while it is held."""

import asyncio
import socket
from collections.abc import AsyncIterator, Sequence

import pytest

from tieline.wire.frames import encode_frame
from tieline.wire.hub_link import codec, connection
from tieline.wire.hub_link.connection import Connection
from tieline.wire.hub_link.end import LinkEnd


class End(LinkEnd[codec.ToHub, codec.ToWorker]):
    """Test double: an end of a link that records what it gets."""

    def __init__(self, heard: list[object]) -> None:
        super().__init__(codec.decode_to_hub)
        self.heard = heard

    def receive_item(self, item: codec.ToHub) -> None:
        self.heard.append(item)

    def lost_connection(self) -> None:
        self.heard.append("lost")

    def ended(self) -> None:
        self.heard.append("ended")


class Greeted(Connection):
    """Test double: a connection whose first frame is always valid."""

    def __init__(self) -> None:
        super().__init__()
        self.heard: list[object] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.begin(transport, 1024)

    def receive_greeting(self, payload: bytes) -> None:
        self.heard.append(payload)
        self.serve(End(self.heard), 0)


@pytest.fixture
async def made() -> AsyncIterator[Greeted]:
    """Fixture: a connection. Nobody reads at the other end."""
    ours, theirs = socket.socketpair()
    made = Greeted()
    transport, _ = await asyncio.get_running_loop().create_connection(lambda: made, sock=ours)
    yield made
    transport.abort()
    theirs.close()
    await asyncio.sleep(0)


def frame(*items: codec.ToHub) -> bytes:
    return encode_frame(codec.encode(0, items))


def stops(*numbers: int) -> Sequence[codec.Stop]:
    return [codec.Stop(number) for number in numbers]


@pytest.mark.parametrize("size", [1, 2, 3, 7, 1000])
async def test_frames_may_come_in_any_pieces(made: Greeted, size: int) -> None:
    data = encode_frame(b"hello") + frame(*stops(1, 2)) + frame(*stops(3))
    for start in range(0, len(data), size):
        made.data_received(data[start : start + size])
    assert made.heard == [b"hello", *stops(1, 2, 3)]


async def test_frames_wait_while_the_other_side_is_held(made: Greeted) -> None:
    made.data_received(encode_frame(b"hello"))
    made.hold(True)
    made.hold(True)
    made.data_received(frame(*stops(1)) + frame(*stops(2)))
    assert made.heard == [b"hello"]
    made.hold(False)
    await asyncio.sleep(0)
    assert made.heard == [b"hello", *stops(1, 2)]


@pytest.mark.parametrize("size", [0, 2**32 - 1, connection.FRAME_BYTES_MAX + 1])
async def test_a_frame_of_an_impossible_size_ends_the_link(made: Greeted, size: int) -> None:
    made.data_received(encode_frame(b"hello") + frame(*stops(1)) + size.to_bytes(4, "big"))
    assert made.heard == [b"hello", *stops(1), "ended"]
    assert made.ended
    made.data_received(frame(*stops(2)))
    assert made.heard == [b"hello", *stops(1), "ended"]


async def test_a_lost_connection_is_told_once_and_ends_no_link(made: Greeted) -> None:
    made.data_received(encode_frame(b"hello"))
    made.connection_lost(None)
    made.connection_lost(None)
    assert made.heard == [b"hello", "lost"]

"""Tests of one end of a link: one write for each turn, and each item exactly once over any number of connections."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tieline.contract.identifiers import SessionId
from tieline.wire.frames import FrameBuffer
from tieline.wire.hub_link import codec, connection, end
from tieline.wire.hub_link.codec import BadFrame
from tieline.wire.hub_link.end import LinkEnd


class Cable:
    """Test double: a connection that keeps the written bytes for the test."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.aborted = False

    def write(self, data: bytes) -> None:
        self.writes.append(data)

    def hang_up(self) -> None:
        self.aborted = True

    def abort(self) -> None:
        self.aborted = True

    def hold(self, held: bool) -> None: ...

    def frames(self) -> list[bytes]:
        """Return the payloads of the frames that were written."""
        buffer = FrameBuffer(connection.FRAME_BYTES_MAX)
        buffer.receive_data(b"".join(self.writes))
        return list(buffer.next_frames())


class End(LinkEnd[Any, Any]):
    """Test double: an end of a link that records its items, and the loss and the end of the link."""

    def __init__(self, decode: Any) -> None:
        super().__init__(decode)
        self.heard: list[object] = []
        self.losses = 0
        self.ends = 0

    def receive_item(self, item: object) -> None:
        self.heard.append(item)

    def lost_connection(self) -> None:
        self.losses += 1

    def ended(self) -> None:
        self.ends += 1

    def deliver(self, payloads: Sequence[bytes]) -> None:
        for payload in payloads:
            self.receive_frame(payload)


@pytest.fixture
async def worker() -> End:
    """Fixture: a worker's end of a link."""
    return End(codec.decode_to_worker)


def stop(number: int) -> codec.Stop:
    return codec.Stop(number)


def released(*keys: int) -> codec.Released:
    return codec.Released(SessionId("s"), list(keys))


async def turn() -> None:
    await asyncio.sleep(0)


async def test_all_items_of_a_turn_leave_in_one_write_and_one_frame(worker: End) -> None:
    cable = Cable()
    worker.connect(cable, 0)
    for number in range(100):
        worker.put(stop(number))
    assert cable.writes == []
    await turn()
    (payload,) = cable.frames()
    assert codec.decode_to_hub(payload) == (0, [stop(number) for number in range(100)])
    worker.put(stop(100))
    await turn()
    assert len(cable.writes) == 2


async def test_a_frame_ends_when_it_is_large_enough(worker: End, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(end, "_FRAME_BYTES", 1000)
    cable = Cable()
    worker.connect(cable, 0)
    for number in range(5):
        worker.put(stop(number), 450)
    await turn()
    assert len(cable.writes) == 1
    assert [len(codec.decode_to_hub(payload)[1]) for payload in cable.frames()] == [2, 2, 1]


async def test_an_item_may_grow_until_its_turn_ends() -> None:
    hub, cable = End(codec.decode_to_hub), Cable()
    hub.connect(cable, 0)
    item = released(1)
    hub.put(item)
    assert hub.last_item is item
    item.keys.append(2)
    await turn()
    assert hub.last_item is None
    assert codec.decode_to_worker(cable.frames()[0]) == (0, [released(1, 2)])


async def test_items_that_wait_leave_before_the_connection_closes(worker: End) -> None:
    cable = Cable()
    worker.connect(cable, 0)
    worker.put(stop(1))
    worker.hang_up()
    assert codec.decode_to_hub(cable.frames()[0]) == (0, [stop(1)])
    assert (worker.ends, worker.over, cable.aborted) == (1, True, True)
    worker.put(stop(2))
    worker.disconnect(cable)
    worker.give_up()
    await turn()
    assert len(cable.writes) == 1
    assert (worker.ends, worker.losses) == (1, 0)


async def test_an_end_with_nothing_to_say_says_what_it_has_taken_and_this_is_not_counted(worker: End) -> None:
    hub, up, down = End(codec.decode_to_hub), Cable(), Cable()
    hub.connect(down, 0)
    worker.connect(up, 0)
    hub.put(released(*range(200_000)))
    await turn()
    worker.deliver(down.frames())
    await turn()
    (said,) = up.frames()
    assert codec.decode_to_hub(said) == (1, [])
    hub.deliver([said])
    assert hub.received == 0
    # Nothing is left to repeat.
    again = Cable()
    hub.connect(again, 1)
    assert again.writes == []
    assert down.aborted


async def test_a_number_that_cannot_be_is_refused(worker: End) -> None:
    cable = Cable()
    worker.connect(cable, 0)
    worker.put(stop(1))
    await turn()
    for taken in (2, 99):
        with pytest.raises(BadFrame):
            worker.receive_frame(codec.encode(taken, [released(1)]))
    worker.receive_frame(codec.encode(1, []))
    assert worker.heard == []
    for taken in (-1, 0, 2):
        with pytest.raises(BadFrame):
            worker.connect(Cable(), taken)


@settings(max_examples=100, deadline=None)
@given(
    st.lists(
        st.tuples(st.integers(0, 3), st.integers(0, 3), st.integers(0, 4), st.integers(0, 4), st.booleans()),
        max_size=12,
    )
)
def test_each_item_comes_exactly_once_and_in_order_however_often_the_connection_is_lost(
    turns: list[tuple[int, int, int, int, bool]],
) -> None:
    """Each turn puts some items at both ends, delivers some of the frames, and may cut the connection."""

    async def run() -> None:
        ends = End(codec.decode_to_worker), End(codec.decode_to_hub)
        cables = Cable(), Cable()
        delivered = [0, 0]

        def connect() -> None:
            nonlocal cables
            for one, cable in zip(ends, cables, strict=True):
                one.disconnect(cable)
            cables = Cable(), Cable()
            counts = [one.received for one in ends]
            delivered[:] = 0, 0
            ends[0].connect(cables[0], counts[1])
            ends[1].connect(cables[1], counts[0])

        def deliver(sender: int, most: int) -> None:
            frames = cables[sender].frames()
            start = delivered[sender]
            delivered[sender] = min(len(frames), start + most)
            ends[1 - sender].deliver(frames[start : delivered[sender]])

        connect()
        said: tuple[list[object], list[object]] = ([], [])
        for up, down, taken_up, taken_down, cut in turns:
            for count, side, kind in ((up, 0, stop), (down, 1, released)):
                for _ in range(count):
                    item = kind(len(said[side]))
                    said[side].append(item)
                    ends[side].put(item)
                    if len(said[side]) % 2:
                        await turn()
            await turn()
            deliver(0, taken_up)
            deliver(1, taken_down)
            if cut:
                connect()
        connect()
        deliver(0, 1000)
        deliver(1, 1000)
        assert ends[1].heard == said[0]
        assert ends[0].heard == said[1]

    asyncio.run(run())

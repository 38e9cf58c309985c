"""Tests of frames: any chunks give the same payloads, bad lengths are refused early, and an idle buffer is empty."""

import itertools
import sys
import time
import tracemalloc
from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tieline.wire.frames import FRAME_BYTES_LIMIT, FrameBuffer, FrameError, encode_frame

MAXIMUM = 64

payload_lists = st.lists(st.binary(min_size=1, max_size=MAXIMUM), max_size=20)


def split(stream: bytes, cuts: list[int]) -> list[bytes]:
    """Return a stream cut at the given places."""
    places = sorted({cut % (len(stream) + 1) for cut in cuts} | {0, len(stream)})
    return [stream[start:end] for start, end in itertools.pairwise(places)]


def feed(buffer: FrameBuffer, chunks: list[bytes]) -> list[bytes]:
    """Give chunks to a buffer. Return the payloads of all complete frames."""
    payloads: list[bytes] = []
    for chunk in chunks:
        buffer.receive_data(chunk)
        payloads.extend(buffer.next_frames())
    return payloads


def test_a_frame_is_four_bytes_of_big_endian_length_and_the_payload() -> None:
    assert encode_frame(b"hello") == b"\x00\x00\x00\x05hello"
    assert encode_frame(b"x" * 258)[:4] == b"\x00\x00\x01\x02"


def test_an_empty_payload_has_no_frame() -> None:
    with pytest.raises(FrameError, match="at least 1 byte"):
        encode_frame(b"")


def test_a_payload_larger_than_four_bytes_can_say_has_no_frame() -> None:
    class Huge(bytes):
        def __len__(self) -> int:
            return FRAME_BYTES_LIMIT + 1

    with pytest.raises(FrameError, match="exceeds the maximum of 4294967295"):
        encode_frame(Huge())


@given(payload_lists, st.lists(st.integers(min_value=0)))
def test_any_chunking_of_any_frames_gives_the_same_payloads(payloads: list[bytes], cuts: list[int]) -> None:
    stream = b"".join(map(encode_frame, payloads))
    assert feed(FrameBuffer(MAXIMUM), split(stream, cuts)) == payloads


@given(payload_lists, st.lists(st.integers(min_value=0)), st.lists(st.integers(0, 3), max_size=40))
def test_a_caller_who_takes_frames_late_gets_the_same_payloads(
    payloads: list[bytes], cuts: list[int], takes: list[int]
) -> None:
    buffer = FrameBuffer(MAXIMUM)
    taken: list[bytes] = []
    chunks = split(b"".join(map(encode_frame, payloads)), cuts)
    for chunk, take in zip(chunks, takes + [0] * len(chunks), strict=False):
        buffer.receive_data(chunk)
        taken.extend(payload for _ in range(take) if (payload := buffer.next_frame()) is not None)
    taken.extend(buffer.next_frames())
    assert taken == payloads


@given(st.binary(max_size=200), st.lists(st.integers(min_value=0)))
def test_garbage_gives_payloads_or_a_frame_error_and_chunking_does_not_change_which(
    garbage: bytes, cuts: list[int]
) -> None:
    def outcome(chunks: list[bytes]) -> tuple[list[bytes], str | None]:
        buffer = FrameBuffer(MAXIMUM)
        payloads: list[bytes] = []
        for chunk in chunks:
            buffer.receive_data(chunk)
            try:
                payloads.extend(iter(buffer.next_frame, None))
            except FrameError as error:
                return payloads, str(error)
        return payloads, None

    whole, torn = outcome([garbage]), outcome(split(garbage, cuts))
    assert whole[1] == torn[1]
    if whole[1] is None:
        assert whole == torn


def test_a_frame_of_exactly_the_maximum_is_accepted_and_one_byte_more_is_not() -> None:
    assert feed(FrameBuffer(5), [encode_frame(b"12345")]) == [b"12345"]
    with pytest.raises(FrameError) as caught:
        feed(FrameBuffer(5), [encode_frame(b"123456")])
    assert (caught.value.size, caught.value.maximum) == (6, 5)


@pytest.mark.parametrize("header", [b"\x00\x00\x00\x00", b"\x00\x00\x00\x41", b"\xff\xff\xff\xff"])
def test_a_bad_length_is_refused_when_its_fourth_byte_arrives(header: bytes) -> None:
    buffer = FrameBuffer(MAXIMUM)
    for byte in header[:3]:
        buffer.receive_data(bytes([byte]))
        assert buffer.next_frame() is None
    buffer.receive_data(header[3:])
    with pytest.raises(FrameError):
        buffer.next_frame()


def test_frames_before_a_bad_length_are_given_first() -> None:
    buffer = FrameBuffer(MAXIMUM)
    buffer.receive_data(encode_frame(b"one") + encode_frame(b"two") + bytes(4))
    frames = buffer.next_frames()
    assert [next(frames), next(frames)] == [b"one", b"two"]
    with pytest.raises(FrameError):
        next(frames)


def test_after_a_bad_length_nothing_is_kept_and_the_error_stays_until_reset() -> None:
    buffer = FrameBuffer(MAXIMUM)
    buffer.receive_data(b"\xff\xff\xff\xff")
    for _ in range(3):
        with pytest.raises(FrameError):
            buffer.next_frame()
        buffer.receive_data(encode_frame(b"lost"))
    assert buffer._data == b""
    buffer.reset()
    assert feed(buffer, [encode_frame(b"found")]) == [b"found"]


def test_reset_forgets_half_a_frame() -> None:
    buffer = FrameBuffer(MAXIMUM)
    assert feed(buffer, [encode_frame(b"never finished")[:-1]]) == []
    buffer.reset()
    assert feed(buffer, [encode_frame(b"whole")]) == [b"whole"]


@pytest.mark.parametrize(
    "chunks",
    [
        pytest.param([encode_frame(b"whole")], id="a whole frame"),
        pytest.param([encode_frame(b"torn")[:3], encode_frame(b"torn")[3:]], id="a torn frame"),
        pytest.param([encode_frame(b"a") + encode_frame(b"b")[:5], encode_frame(b"b")[5:]], id="a frame and a half"),
    ],
)
def test_between_frames_a_buffer_holds_no_bytes(chunks: list[bytes]) -> None:
    buffer = FrameBuffer(MAXIMUM)
    feed(buffer, chunks)
    assert buffer._data == b""
    assert sys.getsizeof(buffer) + sys.getsizeof(buffer._data) < 128


def test_half_a_frame_does_not_keep_the_chunk_it_came_in() -> None:
    buffer = FrameBuffer(MAXIMUM)
    tracemalloc.start()
    try:
        feed(buffer, [encode_frame(b"x" * MAXIMUM) * 4000 + b"\x00\x00"])
        held, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 4096


def test_a_buffer_that_is_never_emptied_drops_what_it_gave_back() -> None:
    buffer = FrameBuffer(MAXIMUM)
    frame = encode_frame(b"12345678")
    for _ in range(10):
        buffer.receive_data(frame)
    for _ in range(1000):
        buffer.receive_data(frame)
        assert buffer.next_frame() == b"12345678"
        assert len(buffer._data) <= 24 * len(frame)
    assert list(buffer.next_frames()) == [b"12345678"] * 10


def seconds(work: Callable[[], object]) -> float:
    """Return the processor time of this thread for `work`: the least of three runs, because other processes disturb."""
    times = []
    for _ in range(3):
        started = time.thread_time()
        work()
        times.append(time.thread_time() - started)
    return min(times)


@pytest.mark.parametrize("shape", ["tiny chunks of one frame", "many frames in one chunk", "frames taken one a chunk"])
def test_the_work_grows_linearly_with_the_bytes(shape: str) -> None:
    def work(count: int) -> None:
        buffer = FrameBuffer(2**24)
        if shape == "tiny chunks of one frame":
            for start in range(0, len(stream := encode_frame(bytes(8 * count))), 8):
                buffer.receive_data(stream[start : start + 8])
                buffer.next_frame()
        elif shape == "many frames in one chunk":
            feed(buffer, [encode_frame(b"12345678") * count])
        else:
            frames = encode_frame(b"12345678") * 2
            for _ in range(count):
                buffer.receive_data(frames)
                buffer.next_frame()

    small, large = seconds(lambda: work(4_000)), seconds(lambda: work(64_000))
    # 16 times the bytes; quadratic work would take 256 times as long.
    assert large < 64 * small

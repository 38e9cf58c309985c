"""Length-prefixed frames: four bytes of big-endian length, then that many bytes of payload.

Used by: the codecs of the hub's own protocol and of other protocols with such frames. Uses: nothing. This module knows
no sockets and not the meaning of a payload: it takes bytes and returns whole payloads.

A `FrameBuffer` is designed for thousands of quiet connections and a few busy ones:

- It keeps a chunk as received, and slices frames out of the chunk by an offset that only moves forward. It joins chunks
  into one buffer only while a frame is split across chunks. So the work is linear in the bytes received, no matter if
  they come one by one or as ten thousand frames at a time.
- Between frames it holds no bytes at all.
- It checks the length of a frame as soon as the four bytes of the length are there. So it refuses a frame that is too
  large before it collects the payload.
"""

from collections.abc import Iterator

HEADER_BYTES = 4  # the length of the payload, big-endian

# Largest length that four bytes can hold.
FRAME_BYTES_LIMIT = 2**32 - 1

_NOTHING = b""


class FrameError(ValueError):
    """Raised if the length before a frame is 0 or too large.

    The stream is unusable, because no next frame can be found.
    """

    def __init__(self, size: int, maximum: int) -> None:
        super().__init__(size, maximum)
        self.size = size
        self.maximum = maximum

    def __str__(self) -> str:
        if self.size == 0:
            return "a frame must have at least 1 byte, and this one has 0"
        return f"a frame of {self.size} bytes exceeds the maximum of {self.maximum}"


def encode_frame(payload: bytes) -> bytes:
    """Return the frame of `payload`: four bytes with the length, then the payload.

    Raises `FrameError` if the payload is empty, or has 4 GiB or more.
    """
    size = len(payload)
    if not 0 < size <= FRAME_BYTES_LIMIT:
        raise FrameError(size, FRAME_BYTES_LIMIT)
    return size.to_bytes(HEADER_BYTES, "big") + payload


class FrameBuffer:
    """Decoder for one stream of frames (four bytes with a length, then the payload).

    It returns the payloads, in order.
    """

    __slots__ = ("_data", "_error", "_offset", "frame_bytes_max")

    def __init__(self, frame_bytes_max: int) -> None:
        # The largest accepted payload; one byte more is an error. The value may be changed between two frames.
        self.frame_bytes_max = frame_bytes_max
        # Received bytes; those not returned yet start at `_offset`. `_data` is the chunk itself (bytes) while one chunk
        # is enough, and a bytearray only while a frame is split across several chunks.
        self._data: bytes | bytearray = _NOTHING
        self._offset = 0
        # Set by the first bad length. The error stays until `reset`, because the position in the stream is lost.
        self._error: FrameError | None = None

    @property
    def buffered_bytes(self) -> int:
        """Number of bytes that were received and not returned yet."""
        return len(self._data) - self._offset

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream. After an error, the bytes are ignored."""
        if self._error is not None:
            return
        buffered = self._data
        if not buffered:
            self._data = data
            return
        if isinstance(buffered, bytearray):
            # The cost of dropping returned bytes is at most their number. So the work stays linear, even if the caller
            # never empties the buffer.
            if 2 * self._offset >= len(buffered):
                del buffered[: self._offset]
                self._offset = 0
        else:
            buffered = self._data = bytearray(memoryview(buffered)[self._offset :])
            self._offset = 0
        buffered += data

    def next_frame(self) -> bytes | None:
        """Return the payload of the next frame. Return None if the frame is not complete yet.

        After a bad length, every call raises `FrameError`.
        """
        if self._error is not None:
            raise self._error
        data = self._data
        start = self._offset + HEADER_BYTES
        if len(data) < start:
            self._keep_rest()
            return None
        size = int.from_bytes(data[self._offset : start], "big")
        if not 0 < size <= self.frame_bytes_max:
            self.reset()
            self._error = FrameError(size, self.frame_bytes_max)
            raise self._error
        end = start + size
        if len(data) < end:
            self._keep_rest()
            return None
        payload = data[start:end] if isinstance(data, bytes) else bytes(memoryview(data)[start:end])
        if len(data) == end:
            self._data = _NOTHING
            self._offset = 0
        else:
            self._offset = end
        return payload

    def next_frames(self) -> Iterator[bytes]:
        """Yield the payloads of all complete frames.

        At a bad length, raise `FrameError` after all earlier payloads were yielded.
        """
        while (payload := self.next_frame()) is not None:
            yield payload

    def reset(self) -> None:
        """Forget all received bytes and any error. The next byte is then the first byte of a new stream."""
        self._data = _NOTHING
        self._offset = 0
        self._error = None

    def _keep_rest(self) -> None:
        """Copy the unused rest of a chunk, so that the chunk can be freed.

        A few bytes must not keep 256 KiB in memory.
        """
        if self._offset:
            self._data = self._data[self._offset :]
            self._offset = 0

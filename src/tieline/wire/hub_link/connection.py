"""One end of a link, as both sides have it: frames in, items out, one write for each turn of the event loop.

Used by: `RemoteHub` and `LinkServer`, which know what an item means. Uses: a Unix socket.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Generic, TypeVar

import structlog

from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.hub_link.codec import BadFrame, ToHub, ToWorker, encode
from tieline.wire.stream import Stream

_GREETING_BYTES_MAX = 64 * 1024
"""Largest first frame. It has a key and a version, or all limits of the hub."""

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Largest frame. A frame ends after the item that makes it larger than `_FRAME_BYTES`. The largest item has one value,
such as an upload of activity, which is limited where it enters the hub."""

_FRAME_BYTES = 1024 * 1024
"""Size at which a frame ends. The other side can then handle the frame while the next one is written."""

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""Unsent bytes above which the other side counts as slow: some ten milliseconds of work for it."""

_ITEM_BYTES = 64
"""Estimated size of an item besides its packed values."""

log = structlog.get_logger(__name__)

_In = TypeVar("_In")
_Out = TypeVar("_Out", ToHub, ToWorker)


class Connection(Stream, Generic[_In, _Out]):
    """One end of a link. A subclass handles the greeting and the items, and the slowness of the other side."""

    __slots__ = ("_bytes", "_decode", "_frames", "_full", "_greeted", "_held", "_items", "_loop", "_slow")

    def __init__(self, decode: Callable[[bytes], Sequence[_In]]) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._decode = decode
        self._frames = FrameBuffer(_GREETING_BYTES_MAX)
        # True once this end has received a valid greeting. Then frames have items.
        self._greeted = False
        # Items of this turn that are not encoded yet, and their estimated size. `_full` has the encoded ones.
        self._items: list[_Out] = []
        self._bytes = 0
        self._full: list[bytes] = []
        # True while too many bytes are unsent.
        self._slow = False
        # True while received items wait, and nothing more is read.
        self._held = False

    # Methods of the subclass.

    def receive_greeting(self, payload: bytes) -> None:
        """Handle the first frame of the other side. Call `greeted` if it is valid."""
        raise NotImplementedError

    def receive_item(self, item: _In) -> None:
        """Handle an item of the other side."""
        raise NotImplementedError

    def fail(self, why: str) -> None:
        """Give the connection up, because the other side breaks the rules of the link."""
        log.warning("a link between the hub and a worker is broken", reason=why)
        self.abort()

    # Methods for the subclass.

    def greeted(self) -> None:
        """Take items from now on."""
        self._greeted = True
        self._frames.frame_bytes_max = FRAME_BYTES_MAX

    def put(self, item: _Out, packed_bytes: int = 0) -> None:
        """Send an item at the end of this turn. `packed_bytes` is the size of the packed values in the item."""
        if self.ended:
            return
        if not self._items and not self._full:
            self._loop.call_soon(self._flush)
        self._items.append(item)
        self.grow(packed_bytes + _ITEM_BYTES)

    def grow(self, more_bytes: int) -> None:
        """Count bytes of the last item. If the frame is large enough, it ends with this item."""
        self._bytes += more_bytes
        if self._bytes >= _FRAME_BYTES:
            self._encode()

    def hold(self, held: bool) -> None:
        """Let the other side wait: handle no more frames and read nothing, or go on with both."""
        if held == self._held:
            return
        self._held = held
        if held:
            self.pause_reading()
        else:
            self.resume_reading()
            self._loop.call_soon(self._receive_frames)

    @property
    def last_item(self) -> _Out | None:
        """The last item that was put and is not encoded yet. It may get more recipients; then call `grow`."""
        return self._items[-1] if self._items else None

    def hang_up(self) -> None:
        """Close the connection after all items are sent."""
        if self._items or self._full:
            self._flush()
        super().hang_up()

    def _encode(self) -> None:
        items, self._items, self._bytes = self._items, [], 0
        self._full.append(encode_frame(encode(items)))

    def _flush(self) -> None:
        if self._items:
            self._encode()
        full, self._full = self._full, []
        if full:
            self.write(full[0] if len(full) == 1 else b"".join(full))

    # Calls of the event loop.

    def data_received(self, data: bytes) -> None:
        """Take bytes of the other side, and handle the whole frames among them."""
        self._frames.receive_data(data)
        self._receive_frames()

    def _receive_frames(self) -> None:
        try:
            while not self._held and not self.ended and (payload := self._frames.next_frame()) is not None:
                if self._greeted:
                    for item in self._decode(payload):
                        self.receive_item(item)
                else:
                    self.receive_greeting(payload)
        except (BadFrame, FrameError) as error:
            self.fail(str(error))

    def pause_writing(self) -> None:
        """Note that the other side is slow."""
        self._slow = True

    def resume_writing(self) -> None:
        """Note that the other side is not slow any more."""
        self._slow = False

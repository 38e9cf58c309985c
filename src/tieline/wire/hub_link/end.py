"""One end of a link, which outlives its connections: items in order, one write for each turn, and nothing twice.

Used by: `LinkServer` and `RemoteHub`, which know what an item means. Uses: a `Connection`, while there is one.

Each frame says how many frames its sender has taken. An end keeps a frame until the other end has taken it. When a
connection is lost and the worker connects again, each end sends the frames that the other has not taken. So an item is
handled exactly once, and in its order, however many connections a link has. Frames without items only say the number.
They are neither counted nor kept.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Generic, Protocol, TypeVar

import structlog

from tieline.wire.frames import encode_frame
from tieline.wire.hub_link.codec import BadFrame, ToHub, ToWorker, encode

_FRAME_BYTES = 1024 * 1024
"""Size at which a frame ends. The other side can then handle the frame while the next one is written."""

UNSENT_BYTES_MAX = 4 * 1024 * 1024
"""Unsent bytes above which the other side counts as slow: some ten milliseconds of work for it."""

_ITEM_BYTES = 64
"""Estimated size of an item besides its packed values."""

_UNSAID_BYTES_MAX = 256 * 1024
"""Bytes that are taken before this end says so, if it has nothing else to say. The other end keeps them until then."""

log = structlog.get_logger(__name__)

_In = TypeVar("_In")
_Out = TypeVar("_Out", ToHub, ToWorker)


class Carrier(Protocol):
    """Interface of a connection, as the end of a link uses it."""

    def write(self, data: bytes) -> None:
        """Send bytes."""

    def hang_up(self) -> None:
        """Close the connection after all written bytes are sent."""

    def abort(self) -> None:
        """Close the connection at once."""

    def hold(self, held: bool) -> None:
        """Stop reading from the other side if `held` is true. Continue if it is false."""


class LinkEnd(Generic[_In, _Out]):
    """One end of a link. A subclass handles the items, and the loss of the connection."""

    def __init__(self, decode: Callable[[bytes], tuple[int, Sequence[_In]]]) -> None:
        self._loop = asyncio.get_running_loop()
        self._decode = decode
        self._connection: Carrier | None = None
        # Items of this turn that are not encoded yet, and their estimated size.
        self._items: list[_Out] = []
        self._bytes = 0
        # Encoded frames that were not written yet, and frames that were written and that the other end has not taken.
        self._new: list[bytes] = []
        self._kept: deque[bytes] = deque()
        # Number of frames that the other end has taken.
        self._taken = 0
        # Number of frames that this end has taken, and the bytes of those that it has not said yet.
        self.received = 0
        self._unsaid_bytes = 0
        self._flushing = False
        # True while the other side is slow or away.
        self._slow = True
        # True when the link is over for good.
        self.over = False

    # Methods of the subclass.

    def receive_item(self, item: _In) -> None:
        """Handle an item of the other side."""
        raise NotImplementedError

    def lost_connection(self) -> None:
        """Wait for another connection, or give the link up."""
        raise NotImplementedError

    def ended(self) -> None:
        """Handle the end of the link: no connection will come."""
        raise NotImplementedError

    # Methods for the subclass.

    def put(self, item: _Out, packed_bytes: int = 0) -> None:
        """Send an item at the end of this turn. `packed_bytes` is the size of the packed values in the item."""
        if self.over:
            return
        self._flush_later()
        self._items.append(item)
        self.grow(packed_bytes + _ITEM_BYTES)

    def grow(self, more_bytes: int) -> None:
        """Add the size of what the caller has added to the last item. If the frame is large enough now, end it."""
        self._bytes += more_bytes
        if self._bytes >= _FRAME_BYTES:
            self._encode()

    @property
    def last_item(self) -> _Out | None:
        """The last item that was put, if it is not encoded yet. A caller that adds to this item must call `grow`."""
        return self._items[-1] if self._items else None

    def hold(self, held: bool) -> None:
        """Take no more frames from the other side if `held` is true. Continue if it is false."""
        if self._connection is not None:
            self._connection.hold(held)

    def fail(self, why: str) -> None:
        """End the link for good, and write the reason `why` to the log."""
        log.warning("a link between the hub and a worker is broken", reason=why)
        self.give_up()

    def give_up(self) -> None:
        """End the link for good."""
        if self.over:
            return
        self.over = True
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.abort()
        self._items.clear()
        self._new.clear()
        self._kept.clear()
        self.ended()

    def hang_up(self) -> None:
        """Send the items that wait, close the connection, and end the link for good."""
        self._flush()
        connection, self._connection = self._connection, None
        if connection is not None:
            connection.hang_up()
        self.give_up()

    def _encode(self) -> None:
        items, self._items, self._bytes = self._items, [], 0
        self._new.append(encode_frame(encode(self.received, items)))
        self._unsaid_bytes = 0

    def _flush_later(self) -> None:
        if not self._flushing:
            self._flushing = True
            self._loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self._items:
            self._encode()
        if self._connection is None:
            return
        if self._new:
            new, self._new = self._new, []
            self._kept += new
            self._connection.write(new[0] if len(new) == 1 else b"".join(new))
        elif self._unsaid_bytes >= _UNSAID_BYTES_MAX:
            self._unsaid_bytes = 0
            self._connection.write(encode_frame(encode(self.received, [])))

    # Calls of the connection.

    def connect(self, connection: Carrier, taken: int) -> None:
        """Use another connection. The other end has taken `taken` frames of this end, and gets the others again."""
        self._let_go(taken)
        before, self._connection = self._connection, connection
        if before is not None:
            before.abort()
        self._new[:0] = self._kept
        self._kept.clear()
        self._flush()
        self.speed_up()

    def disconnect(self, connection: Carrier) -> None:
        """Note that a connection is lost."""
        if connection is not self._connection or self.over:
            return
        self._connection = None
        self.slow_down()
        self.lost_connection()

    def receive_frame(self, payload: bytes) -> None:
        """Take a frame of the other end."""
        taken, items = self._decode(payload)
        if taken > self._taken:
            # A frame that is sent again says an older number than the greeting before it.
            self._let_go(taken)
        if not items:
            return
        self.received += 1
        self._unsaid_bytes += len(payload)
        for item in items:
            if not self.over:
                self.receive_item(item)
        if self._unsaid_bytes >= _UNSAID_BYTES_MAX:
            self._flush_later()

    def _let_go(self, taken: int) -> None:
        """Drop the frames that the other end has taken."""
        if not self._taken <= taken <= self._taken + len(self._kept):
            raise BadFrame(f"frame {taken} was never sent, or is long gone")
        for _ in range(taken - self._taken):
            self._kept.popleft()
        self._taken = taken

    def slow_down(self) -> None:
        """Note that the other side is slow, or not connected."""
        self._slow = True

    def speed_up(self) -> None:
        """Note that the other side is connected, and not slow."""
        self._slow = False

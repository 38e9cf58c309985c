"""One connection of a link: a greeting, then frames for the end of the link that the greeting has found.

Used by: `LinkServer` and `RemoteHub`, which handle the greeting. Uses: a Unix socket, and a `LinkEnd`, which outlives
the connection and knows what a frame means.
"""

import asyncio
from typing import Any

import structlog

from tieline.wire.frames import FrameBuffer, FrameError
from tieline.wire.hub_link.codec import BadFrame
from tieline.wire.hub_link.end import LinkEnd
from tieline.wire.stream import Stream

_GREETING_BYTES_MAX = 64 * 1024
"""Largest first frame. It has a key and a version, or all limits of the hub."""

FRAME_BYTES_MAX = 256 * 1024 * 1024
"""Largest frame. A frame ends after the item that makes it larger than a mebibyte. The largest item has one value, such
as an upload of activity, which is limited where it enters the hub."""

log = structlog.get_logger(__name__)


class Connection(Stream):
    """One connection of a link. A subclass handles the greeting."""

    __slots__ = ("_frames", "_held", "_loop", "end")

    def __init__(self) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._frames = FrameBuffer(_GREETING_BYTES_MAX)
        # The end of the link that takes the frames, once the greeting has found it.
        self.end: LinkEnd[Any, Any] | None = None
        # True while received frames wait, and nothing more is read.
        self._held = False

    # Methods of the subclass.

    def receive_greeting(self, payload: bytes) -> None:
        """Handle the first frame of the other side. Call `serve` if it is valid."""
        raise NotImplementedError

    # Methods for the subclass and for the end of the link.

    def serve(self, end: LinkEnd[Any, Any], received: int) -> None:
        """Pass all further frames to `end`, this side's end of the link.

        `received` is the number of frames of this end that the other side has taken.
        """
        self._frames.frame_bytes_max = FRAME_BYTES_MAX
        self.end = end
        end.connect(self, received)

    def fail(self, why: str) -> None:
        """Close the connection and end its link for good, because the other side breaks the rules."""
        if self.end is not None:
            self.end.fail(why)
        else:
            log.warning("a link between the hub and a worker is broken", reason=why)
        self.abort()

    def hold(self, held: bool) -> None:
        """If `held` is true, stop reading, and take no more frames. If it is false, continue with both."""
        if held == self._held:
            return
        self._held = held
        if held:
            self.pause_reading()
        else:
            self.resume_reading()
            self._loop.call_soon(self._receive_frames)

    # Calls of the event loop.

    def data_received(self, data: bytes) -> None:
        """Take bytes of the other side, and handle the whole frames among them."""
        self._frames.receive_data(data)
        self._receive_frames()

    def _receive_frames(self) -> None:
        try:
            while not self._held and not self.ended and (payload := self._frames.next_frame()) is not None:
                if self.end is not None:
                    self.end.receive_frame(payload)
                else:
                    self.receive_greeting(payload)
        except (BadFrame, FrameError) as error:
            self.fail(str(error))

    def pause_writing(self) -> None:
        """Tell the end of the link that the other side is slow."""
        if self.end is not None:
            self.end.slow_down()

    def resume_writing(self) -> None:
        """Tell the end of the link that the other side is not slow any more."""
        if self.end is not None:
            self.end.speed_up()

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the end of the link that it has no connection."""
        super().connection_lost(exc)
        end, self.end = self.end, None
        if end is not None:
            end.disconnect(self)

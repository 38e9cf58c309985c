"""Lines as the carrier of a peer's frames: one JSON object each, ended by a single newline.

Above: a byte stream, such as a Unix socket. Below: a `PeerConnection`. A line has no way to say why a connection ends.
"""

import asyncio
import os
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, cast

from tieline.protocols.peerbus.codec import FRAME_BYTES_MAX
from tieline.wire.unix import peer_uid

if TYPE_CHECKING:
    from tieline.protocols.peerbus.server import PeerbusServer

_NEWLINE = b"\n"


class LineTooLong(ValueError):
    """A line beyond the limit. What follows it cannot be told apart, so the stream is over."""


class LineBuffer:
    """Collects the bytes of one stream and gives back its lines, in order and without their ends."""

    __slots__ = ("_data", "_line_bytes_max", "_searched")

    def __init__(self, line_bytes_max: int = FRAME_BYTES_MAX) -> None:
        self._line_bytes_max = line_bytes_max
        self._data = bytearray()
        # How much of it is known to hold no newline, so that no byte is looked at twice.
        self._searched = 0

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._data += data

    def next_lines(self) -> Iterator[bytes]:
        """Every whole line that says something. Raises `LineTooLong` after those before it were given."""
        start = 0
        data = self._data
        try:
            while (end := data.find(_NEWLINE, max(start, self._searched))) >= 0:
                if end - start > self._line_bytes_max:
                    raise LineTooLong
                line = bytes(data[start:end]).strip()
                start = end + 1
                if line:
                    yield line
            if len(data) - start > self._line_bytes_max:
                raise LineTooLong
        finally:
            del data[:start]
            self._searched = len(data)


def encode_line(payload: bytes) -> bytes:
    """A frame as a line. A newline can only stand between tokens, where a space means the same."""
    return payload.replace(_NEWLINE, b" ") + _NEWLINE


class LineCarrier(asyncio.Protocol):
    """One connection."""

    __slots__ = ("_buffer", "_connection", "_server", "_transport")

    def __init__(self, server: "PeerbusServer") -> None:
        self._server = server
        self._connection = server.connect(self)
        self._buffer = LineBuffer()
        self._transport: asyncio.Transport | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=self._server.hub.limits.unsent_bytes_max)
        if peer_uid(transport) not in (None, os.geteuid()):
            self._transport.abort()
            return
        self._connection.expect_handshake()

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        try:
            for line in self._buffer.next_lines():
                self._connection.receive_text(line)
        except LineTooLong:
            self._connection.connection_lost()
            self.close(0, "")
            return
        self._connection.finish_turn()

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        # The connection ends it, after what there is still to be said.
        return True

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._connection.connection_lost()

    # What the connection calls: the Carrier port.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send frames."""
        if self._transport is not None:
            self._transport.write(b"".join(map(encode_line, payloads)))

    def close(self, code: int, reason: str) -> None:
        """End the connection when everything before is sent."""
        if self._transport is not None:
            self._transport.close()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Take no more bytes."""
        if self._transport is not None:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

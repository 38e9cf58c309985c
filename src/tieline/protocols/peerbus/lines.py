"""Lines as the carrier of a peer's frames: one JSON object each, ended by a single newline.

Above: a byte stream, such as a Unix socket. Below: a `PeerConnection`. A line has no way to say why a connection ends.
"""

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from tieline.protocols.peerbus.codec import FRAME_BYTES_MAX
from tieline.wire.stream import Stream

if TYPE_CHECKING:
    from tieline.protocols.peerbus.server import PeerbusServer

_NEWLINE = b"\n"


class LineTooLong(ValueError):
    """A line beyond the limit. What follows it cannot be told apart, so the stream is over."""


class LineBuffer:
    """Collects the bytes of one stream and gives back its lines, in order and without their ends."""

    __slots__ = ("_data", "_searched", "line_bytes_max")

    def __init__(self, line_bytes_max: int = FRAME_BYTES_MAX) -> None:
        # May be changed between two lines.
        self.line_bytes_max = line_bytes_max
        self._data = bytearray()
        # How much of it is known to hold no newline, so that no byte is looked at twice.
        self._searched = 0

    @property
    def held(self) -> int:
        """Bytes of a line that is not whole yet."""
        return len(self._data)

    def receive_data(self, data: bytes) -> None:
        """Take the next bytes of the stream."""
        self._data += data

    def reset(self) -> None:
        """Forget them."""
        self._data = bytearray()
        self._searched = 0

    def next_lines(self) -> Iterator[bytes]:
        """Every whole line that says something. Raises `LineTooLong` after those before it were given."""
        start = 0
        data = self._data
        try:
            while (end := data.find(_NEWLINE, max(start, self._searched))) >= 0:
                if end - start > self.line_bytes_max:
                    raise LineTooLong
                line = bytes(data[start:end]).strip()
                start = end + 1
                if line:
                    yield line
            if len(data) - start > self.line_bytes_max:
                raise LineTooLong
        finally:
            del data[:start]
            self._searched = len(data)


def encode_line(payload: bytes) -> bytes:
    """A frame as a line. A newline can only stand between tokens, where a space means the same."""
    return payload.replace(_NEWLINE, b" ") + _NEWLINE


class LineCarrier(Stream):
    """One connection."""

    __slots__ = ("_buffer", "_connection", "_server", "_share")

    def __init__(self, server: "PeerbusServer") -> None:
        super().__init__()
        self._server = server
        self._connection = server.connect(self)
        self._buffer = LineBuffer(min(server.hub.limits.greeting_bytes_max, FRAME_BYTES_MAX))
        self._share = server.unfinished.share(self._too_much)

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.begin(transport, self._server.hub.limits.unsent_bytes_max):
            self._connection.expect_handshake()
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        try:
            for line in self._buffer.next_lines():
                # The first was small. Until the peer is let in, nothing is read behind it.
                self._buffer.line_bytes_max = FRAME_BYTES_MAX
                self._connection.receive_text(line)
        except LineTooLong:
            self._too_much()
            return
        self._connection.finish_turn()
        self._share.hold(self._buffer.held)

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        # The connection ends it, after what there is still to be said.
        return True

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        self._buffer.reset()
        self._share.close()
        self._connection.connection_lost()

    # What the connection calls: the Carrier port, with what a stream has of it.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send frames."""
        self.write(b"".join(map(encode_line, payloads)))

    def close(self, code: int, reason: str) -> None:
        """End the connection, which says nothing of why."""
        self.hang_up()

    def admit(self, name: str) -> None:
        """It is known who speaks."""
        self._share.admit(name)

    # Inside.

    def _too_much(self) -> None:
        self._buffer.reset()
        self._connection.connection_lost()
        self.hang_up()

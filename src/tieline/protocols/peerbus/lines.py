"""Carries the frames (protocol messages) of a peer as lines. Each line is one JSON object and ends with a newline.

Used by: a byte stream, such as a Unix socket. Uses: a `PeerConnection`. Lines cannot tell a peer why its connection is
closed.
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
    """Exception: a line of a peer is longer than the limit. The connection must then be closed."""


class LineBuffer:
    """Buffer for the bytes of a peer's stream. It returns the complete lines in order, without the newlines."""

    __slots__ = ("_data", "_searched", "line_bytes_max")

    def __init__(self, line_bytes_max: int = FRAME_BYTES_MAX) -> None:
        # The limit may be changed between two lines.
        self.line_bytes_max = line_bytes_max
        self._data = bytearray()
        # Number of first bytes that are known to hold no newline, so that no byte is searched twice.
        self._searched = 0

    @property
    def buffered_bytes(self) -> int:
        """Number of buffered bytes. They are the beginning of a line that is not complete yet."""
        return len(self._data)

    def receive_data(self, data: bytes) -> None:
        """Add the next bytes of the stream to the buffer."""
        self._data += data

    def reset(self) -> None:
        """Drop the buffered bytes."""
        self._data = bytearray()
        self._searched = 0

    def next_lines(self) -> Iterator[bytes]:
        """Yield every complete line that is not blank.

        Raise `LineTooLong` at a line that is too long, after the lines before it were yielded.
        """
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
    """Return a frame (protocol message) as a line, with a newline at the end.

    Newlines in the frame are replaced by spaces. JSON allows this, because it has newlines only between tokens.
    """
    return payload.replace(_NEWLINE, b" ") + _NEWLINE


class LineCarrier(Stream):
    """One connection of a peer to the hub's Unix socket for peerbus. Each line is one frame (protocol message)."""

    __slots__ = ("_buffer", "_connection", "_server", "_share")

    def __init__(self, server: "PeerbusServer") -> None:
        super().__init__()
        self._server = server
        self._connection = server.connect(self)
        self._buffer = LineBuffer(min(server.hub.limits.greeting_bytes_max, FRAME_BYTES_MAX))
        self._share = server.unfinished.share(self._too_much)

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        if self.begin(transport, self._server.hub.limits.unsent_bytes_max):
            self._connection.expect_handshake()
        else:
            self.abort()

    def data_received(self, data: bytes) -> None:
        self._buffer.receive_data(data)
        try:
            for line in self._buffer.next_lines():
                # The first line was small. No line after it is read until the peer is admitted.
                self._buffer.line_bytes_max = FRAME_BYTES_MAX
                self._connection.receive_text(line)
        except LineTooLong:
            self._too_much()
            return
        self._connection.finish_turn()
        self._share.report(self._buffer.buffered_bytes)

    def eof_received(self) -> bool:
        self._connection.receive_eof()
        # The connection closes the stream, after its last frames.
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

    # Calls of the connection: the Carrier port, as far as a stream has it.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send encoded frames (protocol messages) to the peer, each as a line."""
        self.write(b"".join(map(encode_line, payloads)))

    def close(self, code: int, reason: str) -> None:
        """Close the connection. The code and the reason are not sent, because this protocol has no line for them."""
        self.hang_up()

    def admit(self, name: str) -> None:
        """Count the buffered bytes of this connection for the member `name`.

        The peer has proved that the name belongs to it.
        """
        self._share.admit(name)

    # Inside.

    def _too_much(self) -> None:
        self._buffer.reset()
        self._connection.connection_lost()
        self.hang_up()

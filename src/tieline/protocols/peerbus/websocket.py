"""A WebSocket as the carrier of a peer's frames, on a port that speaks nothing else.

Above: the event loop. Below: a `PeerConnection`. The library's sans-I/O protocol does the opening and the closing
handshake, control frames, fragments and everything that is wrong; a whole text message in one frame, which is what
peers send, is taken out of the bytes here. See docs/adr/0006 for what that gains.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Sequence
from http import HTTPStatus
from typing import TYPE_CHECKING, cast

from websockets.exceptions import InvalidState
from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol

from tieline.protocols.peerbus.codec import FRAME_BYTES_MAX
from tieline.wire.unfinished import TOO_MUCH
from tieline.wire.unsent import bound

if TYPE_CHECKING:
    from tieline.protocols.peerbus.server import PeerbusServer

try:
    from websockets.speedups import apply_mask
except ImportError:
    # A platform without the compiled part of the library.
    from websockets.utils import apply_mask

_REQUEST_BYTES_MAX = 16 * 1024
"""The opening request with all its headers."""
_REASON_BYTES_MAX = 123
"""What fits into a close frame beside its code."""
_SILENCE_SECONDS = 60
"""After so long without a word the system asks whether the peer's machine is still there."""
_STRANGER_UNSENT_BYTES_MAX = 16 * 1024
"""What waits for a stranger before it is read no further."""
_CLOSE_SECONDS = 1.0
"""How long the peer may take to answer a close frame."""

_TEXT = 0x81
"""The first byte of a text message in one frame."""
_MASKED = 0x80
_LENGTH_16, _LENGTH_64 = 126, 127
_SMALL = tuple(bytes((_TEXT, size)) for size in range(_LENGTH_16))
_LENGTH_16_MAX = 0xFFFF  # RFC 6455, 5.2: longer payloads have eight bytes of length

# Strangers can provoke what the library logs; what matters is in the audit chain.
_silent = logging.getLogger("tieline.protocols.peerbus.websocket.library")
_silent.setLevel(logging.CRITICAL + 1)


class WebSocketCarrier(asyncio.Protocol):
    """One connection."""

    __slots__ = (
        "_admitted",
        "_closing",
        "_connection",
        "_fragments",
        "_held",
        "_needed",
        "_protocol",
        "_server",
        "_share",
        "_transport",
    )

    def __init__(self, server: "PeerbusServer") -> None:
        self._server = server
        self._connection = server.connect(self)
        # A stranger has one small message. Behind it frames may be large, because nothing is read until the hub knows
        # the peer.
        self._protocol = ServerProtocol(max_size=self._first_bytes_max, logger=_silent)
        self._admitted = False
        self._share = server.unfinished.share(self._too_much)
        self._transport: asyncio.Transport | None = None
        # Bytes of a frame, or of the opening request, that is not whole yet.
        self._held = bytearray()
        # How many of them make it whole, as far as is known: until then nothing has to be looked at again.
        self._needed = 0
        # A text message that comes in several frames, as far as it came; `None` for any other message.
        self._fragments: bytearray | None = None
        # Ends the connection when the peer does not answer our close frame.
        self._closing: asyncio.TimerHandle | None = None

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an `isinstance` check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        # Pongs are all that a stranger can ask for.
        bound(self._transport, _STRANGER_UNSENT_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            # The protocol has no heartbeat; a peer whose machine is gone must not count as connected for ever.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_SECONDS // 4)
        self._server.enter(self)
        self._connection.expect_handshake()

    def data_received(self, data: bytes) -> None:
        if self._held:
            self._held += data
            if len(self._held) < self._needed:
                self._count()
                return
            data = bytes(self._held)
            self._held.clear()
            self._needed = 0
        if self._protocol.state is State.CONNECTING:
            end = data.find(b"\r\n\r\n") + 4
            if end < len(b"\r\n\r\n"):
                self._hold_request(data)
                return
            self._protocol.receive_data(data[:end])
            self._open()
            data = data[end:]
        self._receive(data)

    def eof_received(self) -> None:
        """The peer says no more, which ends the connection."""

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._forget()
        # The library's protocol and its parser refer to each other.
        self._protocol.parser.close()
        self._server.leave(self)
        if self._closing is not None:
            self._closing.cancel()
        self._connection.connection_lost()

    # What the connection calls: the Carrier port.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send frames."""
        if self._transport is not None and self._protocol.state is State.OPEN:
            self._transport.write(b"".join([part for payload in payloads for part in (_head(len(payload)), payload)]))

    def close(self, code: int, reason: str) -> None:
        """Begin the closing handshake."""
        if self._transport is None:
            return
        if self._protocol.state is not State.OPEN:
            self._transport.abort()
            return
        with contextlib.suppress(InvalidState):
            self._protocol.send_close(code, reason.encode()[:_REASON_BYTES_MAX].decode(errors="ignore"))
        self._write_out()
        if not self._admitted:
            self._protocol.max_message_size = self._first_bytes_max
        self.resume_reading()
        self._closing = asyncio.get_running_loop().call_later(_CLOSE_SECONDS, self.abort)

    def admit(self, name: str) -> None:
        """It is known who speaks."""
        self._admitted = True
        self._share.admit(name)
        if self._transport is not None:
            bound(self._transport, self._server.hub.limits.unsent_bytes_max)

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Take no more bytes."""
        if self._transport is not None and self._protocol.state is State.OPEN:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Inside.

    @property
    def _first_bytes_max(self) -> int:
        return min(self._server.hub.limits.greeting_bytes_max, FRAME_BYTES_MAX)

    def _hold_request(self, data: bytes) -> None:
        if len(data) > _REQUEST_BYTES_MAX:
            self.abort()
        self._held += data
        self._count()

    def _open(self) -> None:
        """Answer the opening request."""
        for event in self._protocol.events_received():
            if not isinstance(event, Request):
                continue
            stranger = self._server.hosts.refusal(event.headers.get_all("Host"))
            if stranger is not None:
                response = self._protocol.reject(HTTPStatus.MISDIRECTED_REQUEST, f"{stranger}\n")
            elif _foreign(event):
                response = self._protocol.reject(403, "this page may not reach the bus\n")
            else:
                response = self._protocol.accept(event)
            self._protocol.send_response(response)
        self._write_out()
        if self._protocol.state is not State.OPEN and self._transport is not None:
            self._transport.close()

    def _receive(self, data: bytes) -> None:
        """Take out every whole frame; what is no text message in one frame goes through the library."""
        at, end = 0, len(data)
        protocol, connection = self._protocol, self._connection
        bytes_max = protocol.max_message_size or FRAME_BYTES_MAX
        while end - at >= 2 and protocol.state is State.OPEN:  # noqa: PLR2004 - the shortest header
            size, start = data[at + 1] & ~_MASKED, at + 2
            if size == _LENGTH_16:
                size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
            elif size == _LENGTH_64:
                size, start = int.from_bytes(data[start : start + 8], "big"), start + 8
            stop = start + 4 + size
            masked = data[at + 1] >= _MASKED
            if start <= end and (size > bytes_max or not masked):
                # It refuses these as soon as it has read the header.
                self._through_library(data[at:])
                return
            if stop > end:
                self._needed = stop - at if start <= end else 0
                break
            if data[at] == _TEXT and protocol.current_size is None:
                bytes_max = protocol.max_message_size = FRAME_BYTES_MAX
                connection.receive_text(apply_mask(data[start + 4 : stop], data[start : start + 4]))
            else:
                self._through_library(data[at:stop])
                bytes_max = protocol.max_message_size or FRAME_BYTES_MAX
            at = stop
        if protocol.state is State.OPEN:
            self._held += data[at:]
            connection.finish_turn()
            self._count()
        elif at < end:
            self._through_library(data[at:])

    def _through_library(self, data: bytes) -> None:
        protocol = self._protocol
        if not protocol.eof_sent:
            protocol.receive_data(data)
        for event in protocol.events_received():
            if isinstance(event, Frame):
                self._gather(event)
        self._write_out()
        if protocol.eof_sent and self._transport is not None:
            self._connection.connection_lost()
            self._transport.close()

    def _gather(self, frame: Frame) -> None:
        """A message in several frames, or one that is no text."""
        match frame.opcode:
            case Opcode.TEXT:
                self._fragments = bytearray(frame.data)
            case Opcode.BINARY:
                self._fragments = None
                self._connection.receive_binary()
            case Opcode.CONT if self._fragments is not None:
                self._fragments += frame.data
            case _:
                return
        if frame.fin and self._fragments is not None:
            fragments, self._fragments = self._fragments, None
            self._protocol.max_message_size = FRAME_BYTES_MAX
            self._connection.receive_text(bytes(fragments))

    def _count(self) -> None:
        self._share.hold(len(self._held) + (self._protocol.current_size or 0))

    def _too_much(self) -> None:
        self._connection.connection_lost()
        self.close(CloseCode.TRY_AGAIN_LATER, TOO_MUCH)
        self._forget()
        if self._transport is not None:
            self._transport.pause_reading()

    def _forget(self) -> None:
        """Let go of what is not whole: it may be large, and the garbage collector takes its time."""
        self._share.close()
        self._held = bytearray()
        self._needed = 0
        self._fragments = None

    def _write_out(self) -> None:
        out = b"".join(self._protocol.data_to_send())
        if out and self._transport is not None:
            self._transport.write(out)


def _head(size: int) -> bytes:
    if size < _LENGTH_16:
        return _SMALL[size]
    if size <= _LENGTH_16_MAX:
        return bytes((_TEXT, _LENGTH_16)) + size.to_bytes(2, "big")
    return bytes((_TEXT, _LENGTH_64)) + size.to_bytes(8, "big")


def _foreign(request: Request) -> bool:
    """Whether a page of another site asks, through its visitor's browser."""
    hosts = [host.lower() for host in request.headers.get_all("Host")]
    return any(origin.partition("://")[2].lower() not in hosts for origin in request.headers.get_all("Origin"))

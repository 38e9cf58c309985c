"""Carries the frames of a peer over a WebSocket, on the separate port (a port for peerbus alone).

Used by: the event loop. Uses: a `PeerConnection`. The library `websockets` handles and checks the handshakes and all
WebSocket frames. It does this without I/O; this module reads and writes the bytes. docs/adr/0008 says how much
processor time the library needs.
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
from tieline.wire.unsent import limit_buffer

if TYPE_CHECKING:
    from tieline.protocols.peerbus.server import PeerbusServer

_REQUEST_BYTES_MAX = 16 * 1024
"""Most bytes of the HTTP request that opens a WebSocket, with all its headers."""
_REASON_BYTES_MAX = 123
"""Most bytes of the reason in a close frame."""
_SILENCE_SECONDS = 60
"""Idle time after which the operating system checks if the peer's machine still answers."""
_STRANGER_UNSENT_BYTES_MAX = 16 * 1024
"""Most unsent bytes for a peer that has not registered. Beyond this limit, the server stops reading from the peer."""
_CLOSE_SECONDS = 1.0
"""Seconds in which the peer must answer a close frame."""

# Unregistered peers could flood the log through the library. Important events are in the audit chain.
_silent = logging.getLogger("tieline.protocols.peerbus.websocket.library")
_silent.setLevel(logging.CRITICAL + 1)


class _Greeted(ServerProtocol):
    """WebSocket protocol in which the first text message must be small, and later messages may be larger.

    So a client that is not authenticated cannot fill the hub's memory.
    """

    # True if the message in progress is text.
    _text = False

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        if frame.opcode in (Opcode.TEXT, Opcode.BINARY):
            self._text = frame.opcode is Opcode.TEXT
        if frame.fin and self._text and frame.opcode in (Opcode.TEXT, Opcode.CONT):
            # Raise the limit here and not after the chunk: the chunk may contain the header of the next frame.
            self.max_message_size = FRAME_BYTES_MAX


class WebSocketCarrier(asyncio.Protocol):
    """One WebSocket connection of a peer on the separate port (the port for peerbus alone).

    It sends and receives the frames (protocol messages) of a `PeerConnection`.
    """

    __slots__ = (
        "_admitted",
        "_closing",
        "_connection",
        "_fragments",
        "_protocol",
        "_request",
        "_server",
        "_share",
        "_transport",
    )

    def __init__(self, server: "PeerbusServer") -> None:
        self._server = server
        self._connection = server.connect(self)
        # An unregistered peer may send one small message. Later frames may be large, because nothing is read until the
        # hub knows the peer.
        self._protocol = _Greeted(max_size=self._first_bytes_max, logger=_silent)
        self._admitted = False
        self._share = server.unfinished.share(self._too_much)
        self._transport: asyncio.Transport | None = None
        # Bytes of an opening request that is not complete yet.
        self._request = bytearray()
        # The received part of a text message in several frames; `None` for any other message.
        self._fragments: bytearray | None = None
        # Timer that ends the connection if the peer does not answer our close frame.
        self._closing: asyncio.TimerHandle | None = None

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No `isinstance` check: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        # An unregistered peer can ask for nothing but pongs.
        limit_buffer(self._transport, _STRANGER_UNSENT_BYTES_MAX)
        sock = transport.get_extra_info("socket")
        with contextlib.suppress(OSError, AttributeError):
            # The protocol has no heartbeat. A peer whose machine is gone must not count as connected for ever.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, _SILENCE_SECONDS)
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, _SILENCE_SECONDS // 4)
        self._server.enter(self)
        self._connection.expect_handshake()

    def data_received(self, data: bytes) -> None:
        if self._protocol.state is State.CONNECTING:
            self._request += data
            end = self._request.find(b"\r\n\r\n") + 4
            if end < len(b"\r\n\r\n"):
                if len(self._request) > _REQUEST_BYTES_MAX:
                    self.abort()
                self._count()
                return
            self._protocol.receive_data(bytes(self._request[:end]))
            data = bytes(self._request[end:])
            self._request.clear()
            self._open()
        self._receive(data)

    def eof_received(self) -> None:
        """Return nothing, because the peer sends nothing more. asyncio then closes the connection."""

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

    # Calls of the connection: the Carrier port.

    def send(self, payloads: Sequence[bytes]) -> None:
        """Send encoded frames (protocol messages) to the peer, each as a WebSocket text message."""
        if self._transport is not None and self._protocol.state is State.OPEN:
            for payload in payloads:
                self._protocol.send_text(payload)
            self._write_out()

    def close(self, code: int, reason: str) -> None:
        """Send the close frame with this code and reason. Drop the connection if the peer does not answer in time."""
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
        """Allow larger buffers for this connection, and count their bytes for the member `name`.

        The peer has proved that the name belongs to it.
        """
        self._admitted = True
        self._share.admit(name)
        if self._transport is not None:
            limit_buffer(self._transport, self._server.hub.limits.unsent_bytes_max)

    def abort(self) -> None:
        """Drop the connection at once, without a close frame."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading bytes from the peer's socket."""
        if self._transport is not None and self._protocol.state is State.OPEN:
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read bytes from the peer's socket again."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    # Inside.

    @property
    def _first_bytes_max(self) -> int:
        return min(self._server.hub.limits.greeting_bytes_max, FRAME_BYTES_MAX)

    def _open(self) -> None:
        """Answer the HTTP request that opens the WebSocket.

        Reject a request for a wrong host name, and a request of another site's web page.
        """
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
        elif protocol.state is State.OPEN:
            self._connection.finish_turn()
            self._count()

    def _gather(self, frame: Frame) -> None:
        """Collect the WebSocket frames of one message.

        When a text message is complete, pass it to the `PeerConnection`.
        """
        match frame.opcode:
            case Opcode.TEXT if frame.fin:
                self._connection.receive_text(bytes(frame.data))
                return
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
            self._connection.receive_text(bytes(fragments))

    def _count(self) -> None:
        unread = len(self._request) + len(self._protocol.reader.buffer)
        self._share.report(unread + (self._protocol.current_size or 0))

    def _too_much(self) -> None:
        self._connection.connection_lost()
        self.close(CloseCode.TRY_AGAIN_LATER, TOO_MUCH)
        self._forget()
        if self._transport is not None:
            self._transport.pause_reading()

    def _forget(self) -> None:
        """Free the memory of incomplete frames at once.

        The data may be large, and the garbage collector may free it late.
        """
        self._share.close()
        self._request = bytearray()
        self._protocol.reader.buffer = bytearray()
        self._fragments = None

    def _write_out(self) -> None:
        out = b"".join(self._protocol.data_to_send())
        if out and self._transport is not None:
            self._transport.write(out)


def _foreign(request: Request) -> bool:
    """True if a web page of another site sent the request. Such a page may not connect."""
    hosts = [host.lower() for host in request.headers.get_all("Host")]
    return any(origin.partition("://")[2].lower() not in hosts for origin in request.headers.get_all("Origin"))

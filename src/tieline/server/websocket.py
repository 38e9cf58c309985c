"""WebSockets with limits: uvicorn's WebSocket protocol, made safe against strangers.

Used by: the HTTP port, and the protocols that have streams on it. A protocol finds a `ClientGate` in the scope, and
uses it to admit a client that it has identified. Uses: uvicorn with the sans-I/O protocol of `websockets`. Uvicorn
would accept a frame of any size from any client. It would also wait for ever if the library answered an opening request
by itself.

Before a client is admitted, it may send one small message with content, its greeting. After the greeting, the hub reads
nothing until the protocol has decided; later frames wait in the socket. If the protocol does not admit the client, the
hub reads nothing more from it, and ends the connection after one second at the latest. When a connection has ended, the
hub frees its objects at once. They refer to each other, so the garbage collector would free them only much later.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol

from tieline.contract.limits import Limits
from tieline.wire.http import CLIENT_GATE
from tieline.wire.unfinished import TOO_MUCH, Unfinished

_REFUSE_SECONDS = 1.0
"""Seconds for which a refused client can still read the reason, before the connection is closed."""
_CLOSE_FRAME = b"\x88"
"""First byte of a WebSocket close frame (the message that ends a WebSocket)."""
_MESSAGES = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class _Greeted(ServerProtocol):
    """Parser of one WebSocket.

    It accepts only a small first message (the greeting), and larger messages after the greeting.
    """

    def __init__(self, first_bytes_max: int, bytes_max: int, **options: Any) -> None:
        self._first_bytes_max = min(first_bytes_max, bytes_max)
        super().__init__(max_size=self._first_bytes_max, **options)
        self.later_bytes_max = bytes_max
        # Number of messages that may still be the greeting: one, and one more for each message without content.
        self._left = 1

    @property
    def greeted(self) -> bool:
        """True after the client has sent its greeting (the first message with content)."""
        return self._left <= 0

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        if frame.fin and frame.opcode in _MESSAGES:
            # Here and not after the chunk: the chunk may contain the header of the next frame.
            self._count(-1)

    def await_greeting(self) -> None:
        """Accept one more small message as the greeting, because the last message had no content.

        The next message may have arrived already, together with the last message.
        """
        self._count(1)

    def _count(self, change: int) -> None:
        self._left += change
        self.max_message_size = self.later_bytes_max if self.greeted else self._first_bytes_max


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """WebSocket connection to one client, with limits on the messages of a client that is not admitted yet.

    It is also the `ClientGate`: the protocol that serves the connection admits or refuses the client.
    """

    conn: _Greeted

    def __init__(self, limits: Limits, unfinished: Unfinished, **options: Any) -> None:
        super().__init__(**options)
        self.conn = _Greeted(limits.greeting_bytes_max, limits.frame_bytes_max, logger=self.logger)
        self._share = unfinished.share(self._too_much)
        self._admitted = False
        # Timer that ends the connection. While it is set, incoming data is ignored.
        self._refusing: asyncio.TimerHandle | None = None

    # The ClientGate port.

    def await_greeting(self) -> None:
        """Let the client send another small message, because its last message had no content."""
        self.conn.await_greeting()
        if not self.conn.greeted:
            self._read_on()

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        """Let the client send messages of up to `bytes_max` bytes, or of full size if it is `None`.

        The protocol has identified the client as the member `owner`.
        """
        self._admitted = True
        self._share.admit(owner)
        if bytes_max is not None:
            self.conn.later_bytes_max = self.conn.max_message_size = bytes_max
        self._read_on()

    def refuse(self) -> None:
        """Refuse the client: ignore all further data, free the data received so far, and disconnect after a second."""
        if self._refusing is None and not self.disconnected:
            self._refusing = self.loop.call_later(_REFUSE_SECONDS, self.transport.abort)
            self._forget()
            if not self.transport.is_closing():
                # Reading goes on only to notice that the client disconnects.
                self.transport.resume_reading()

    # Called by asyncio.

    def data_received(self, data: bytes) -> None:
        if self._refusing is not None:
            if data.startswith(_CLOSE_FRAME):
                # The client answers our close frame, and sent nothing before it.
                self.transport.close()
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # The library refused the opening request; only its answer has to be sent.
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
        self._share.report(len(self.conn.reader.buffer) + (self.conn.current_size or 0))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._refusing is not None:
            self._refusing.cancel()
        self._forget()
        # Two reference cycles: the library's protocol with its parser, and this protocol with the scope that it made.
        self.conn.parser.close()
        if self.handshake_initiated and not self.conn.handshake_exc:
            self.scope["extensions"].clear()

    # Called by uvicorn.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            cast("dict[str, object]", self.scope["extensions"])[CLIENT_GATE] = self

    def handle_cont(self, event: Frame) -> None:
        # Fragments are joined as they come: a million empty fragments must not become a million objects.
        if not isinstance(self.frames[0], bytearray):
            self.frames = [bytearray(self.frames[0])]  # type: ignore[list-item]  # only ever joined and decoded
        self.frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            # A client that sends pings without reading the pongs gets no pongs.
            self.transport.write(pong)

    async def receive(self) -> Any:
        message = await super().receive()
        if self.conn.greeted and not self._admitted and not self.disconnected and self._refusing is None:
            self.transport.pause_reading()
        return message

    async def send(self, message: Any) -> None:
        if self.close_sent and self.handshake_complete:
            # The library closed the connection because of invalid data; the application need not know.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.close" and not self._admitted:
            self.refuse()
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            # The refusal completes the handshake. Otherwise uvicorn would log an error for each refusal, and anybody
            # could cause many.
            self.handshake_complete = True

    # Inside.

    def _read_on(self) -> None:
        if not self.read_paused and not self.disconnected and not self.transport.is_closing():
            self.transport.resume_reading()

    def _too_much(self) -> None:
        """Disconnect this client.

        All connections together hold too many unprocessed bytes, and this connection holds the most.
        """
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.conn.fail(CloseCode.TRY_AGAIN_LATER, TOO_MUCH)
            self.handle_parser_exception()
        else:
            self.transport.abort()
        self.refuse()

    def _forget(self) -> None:
        self._share.close()
        self.frames = []
        self.conn.reader.buffer = bytearray()

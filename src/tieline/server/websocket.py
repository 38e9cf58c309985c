"""WebSockets within bounds: uvicorn's protocol on the sans-I/O one of `websockets`, for strangers to try.

Above: the HTTP port, and the protocols that have streams on it; each says through the `Door` in its scope when it knows
who speaks. Below: uvicorn, which would take a frame of any size from anybody and wait for ever where the library has
answered an opening request by itself.

Until the door is opened a client has one small message that says something. Then nothing is read until the protocol has
decided; frames behind that message wait in the socket. Whoever is not let in is heard no more, and is gone a second
later, whatever it does. What an ended connection held is let go of at once: such objects refer to each other, and the
garbage collector takes its time.
"""

import asyncio
from typing import Any, cast

from uvicorn.protocols.utils import ClientDisconnected
from uvicorn.protocols.websockets.websockets_sansio_impl import WebSocketsSansIOProtocol
from websockets.frames import CloseCode, Frame, Opcode
from websockets.server import ServerProtocol

from tieline.contract.limits import Limits
from tieline.wire.http import DOOR
from tieline.wire.unfinished import TOO_MUCH, Unfinished

_EXPEL_SECONDS = 1.0
"""The time for a client that is not let in to read why."""
_CLOSE_FRAME = b"\x88"
"""The first byte of a close frame."""
_MESSAGES = frozenset({Opcode.TEXT, Opcode.BINARY, Opcode.CONT})


class _Greeted(ServerProtocol):
    """Takes a small message first, and larger ones from then on."""

    def __init__(self, first_bytes_max: int, bytes_max: int, **options: Any) -> None:
        self._first_bytes_max = min(first_bytes_max, bytes_max)
        super().__init__(max_size=self._first_bytes_max, **options)
        self.later_bytes_max = bytes_max
        # Messages that may be the greeting: one, and one more for each that said nothing.
        self._left = 1

    @property
    def greeted(self) -> bool:
        """Whether the first message came that says something."""
        return self._left <= 0

    def recv_frame(self, frame: Frame) -> None:
        super().recv_frame(frame)
        if frame.fin and frame.opcode in _MESSAGES:
            # Here and not after the chunk: the header of the next frame may be in it.
            self._count(-1)

    def await_greeting(self) -> None:
        """A message said nothing. The next may be whole already, in the same chunk."""
        self._count(1)

    def _count(self, change: int) -> None:
        self._left += change
        self.max_message_size = self.later_bytes_max if self.greeted else self._first_bytes_max


class BoundedWebSocket(WebSocketsSansIOProtocol):
    """One connection; also the `Door` of the protocol that serves it."""

    conn: _Greeted

    def __init__(self, limits: Limits, unfinished: Unfinished, **options: Any) -> None:
        super().__init__(**options)
        self.conn = _Greeted(limits.greeting_bytes_max, limits.frame_bytes_max, logger=self.logger)
        self._share = unfinished.share(self._too_much)
        self._admitted = False
        # Set when nothing that comes counts any more; ends the connection.
        self._expelling: asyncio.TimerHandle | None = None

    # The Door port.

    def await_greeting(self) -> None:
        """The last message said nothing: the client has another small one."""
        self.conn.await_greeting()
        if not self.conn.greeted:
            self._read_on()

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        """The protocol knows who speaks: messages may have their full size, or this one."""
        self._admitted = True
        self._share.admit(owner)
        if bytes_max is not None:
            self.conn.later_bytes_max = self.conn.max_message_size = bytes_max
        self._read_on()

    def expel(self) -> None:
        """Hear no more, let go of what was heard, and hang up soon."""
        if self._expelling is None and not self.disconnected:
            self._expelling = self.loop.call_later(_EXPEL_SECONDS, self.transport.abort)
            self._forget()
            if not self.transport.is_closing():
                # To hear when it hangs up.
                self.transport.resume_reading()

    # What asyncio calls.

    def data_received(self, data: bytes) -> None:
        if self._expelling is not None:
            if data.startswith(_CLOSE_FRAME):
                # The answer to our close frame, from whoever had nothing else to say.
                self.transport.close()
            return
        super().data_received(data)
        if self.conn.handshake_exc is not None and not self.handshake_initiated:
            # The library refused the opening request: its answer is all that there is to say.
            self.handshake_initiated = self.handshake_complete = self.close_sent = True
            self.transport.write(b"".join(self.conn.data_to_send()))
            self.transport.close()
        self._share.hold(len(self.conn.reader.buffer) + (self.conn.current_size or 0))

    def connection_lost(self, exc: Exception | None) -> None:
        super().connection_lost(exc)
        if self._expelling is not None:
            self._expelling.cancel()
        self._forget()
        # Two cycles: the library's protocol with its parser, and this one with the scope that it made.
        self.conn.parser.close()
        if self.handshake_initiated and not self.conn.handshake_exc:
            self.scope["extensions"].clear()

    # What uvicorn calls.

    def handle_connect(self, event: Any) -> None:
        super().handle_connect(event)
        if not self.close_sent:
            cast("dict[str, object]", self.scope["extensions"])[DOOR] = self

    def handle_cont(self, event: Frame) -> None:
        # Joined as they come: a million empty fragments must not be a million objects.
        if not isinstance(self.frames[0], bytearray):
            self.frames = [bytearray(self.frames[0])]  # type: ignore[list-item]  # only ever joined and decoded
        self.frames[0] += event.data
        if event.fin:
            self.send_receive_event_to_app()

    def handle_ping(self) -> None:
        pong = b"".join(self.conn.data_to_send())
        if self.writable.is_set():
            # Whoever asks without reading the answers is not answered.
            self.transport.write(pong)

    async def receive(self) -> Any:
        message = await super().receive()
        if self.conn.greeted and not self._admitted and not self.disconnected and self._expelling is None:
            self.transport.pause_reading()
        return message

    async def send(self, message: Any) -> None:
        if self.close_sent and self.handshake_complete:
            # By the library, which was sent what it does not take; whoever serves the client need not know.
            raise ClientDisconnected
        await super().send(message)
        if message["type"] == "websocket.close" and not self._admitted:
            self.expel()
        if message["type"] == "websocket.http.response.body" and self.close_sent:
            # The refusal is all of the handshake; uvicorn would log an error for each, and anybody can ask for them.
            self.handshake_complete = True

    # Inside.

    def _read_on(self) -> None:
        if not self.read_paused and not self.disconnected and not self.transport.is_closing():
            self.transport.resume_reading()

    def _too_much(self) -> None:
        """Hang up: this connection holds most of what all of them may."""
        if self.handshake_complete and not self.close_sent and not self.transport.is_closing():
            self.conn.fail(CloseCode.TRY_AGAIN_LATER, TOO_MUCH)
            self.handle_parser_exception()
        else:
            self.transport.abort()
        self.expel()

    def _forget(self) -> None:
        self._share.close()
        self.frames = []
        self.conn.reader.buffer = bytearray()

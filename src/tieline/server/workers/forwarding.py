"""Forwarded requests: a worker passes an HTTP request whole to the hub's process, which answers it.

Used by: workers, for every request that needs more than the interface `Hub`; the hub's process, which answers them.
Uses: a Unix socket. A request is passed as its ASGI events, which are plain values: the scope, what the client sends,
and what the application sends. The application asks for each event of the client, so that nothing is read too early.
WebSockets and streams are passed in the same way. A connection carries one request after the other.
"""

import asyncio
import contextlib
import hmac
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec
import structlog
from msgspec import Struct
from starlette.types import Message, Receive, Scope, Send

from tieline.server.http import dispatch
from tieline.wire import unix
from tieline.wire.frames import FrameBuffer, FrameError, encode_frame
from tieline.wire.http import CLIENT_GATE, LOGIN_COOKIES, SMALL_BODY, HttpApp, failure, refuse
from tieline.wire.hub_link.connection import FRAME_BYTES_MAX

_IDLE_MAX = 64
"""Most connections that a worker keeps for later requests. More requests at the same time are rare."""
_READ_BYTES = 64 * 1024  # as asyncio reads from a socket
_FIRST_BYTES_MAX = 1024 * 1024
"""Largest first frame of a connection, before its key is known. It has the head of one request."""
_FIRST_SECONDS_MAX = 10.0
"""Longest time until the first frame of a connection is there."""
_FIELDS = (
    *("type", "asgi", "http_version", "server", "client", "scheme", "method", "root_path", "path", "raw_path"),
    *("query_string", "headers", "subprotocols", LOGIN_COOKIES, SMALL_BODY),
)
"""Fields of a scope that are passed on. All others are about the process."""
_LOST = failure(503, "the hub does not answer at the moment; send again later", close=True)
_FAILED = failure(500, "the hub failed at this request", close=True)

log = structlog.get_logger(__name__)


class Want(Struct, frozen=True, tag=True):
    """Frame to a worker: the application waits for the next event of the client, so the worker must send it."""


class Sent(Struct, frozen=True, tag=True):
    """Frame to a worker: the application sends this event to the client."""

    message: dict[str, Any]


class Gate(Struct, frozen=True, tag=True):
    """Frame to a worker: the application calls a method of the `ClientGate`, which admits or refuses the client."""

    method: str
    arguments: tuple[Any, ...] = ()


class End(Struct, frozen=True, tag=True):
    """Frame to a worker: the request is answered, or (with `failed`) the application raised an exception."""

    failed: bool = False


class Request(Struct, frozen=True, tag=True):
    """Frame of a worker: a request of a client. `key` is the secret of the workers."""

    key: str
    scope: dict[str, Any]


class Got(Struct, frozen=True, tag=True):
    """Frame of a worker, as the answer to `Want`: the next event of the client."""

    message: dict[str, Any]


Dial = Callable[[], Awaitable[tuple[asyncio.StreamReader, asyncio.StreamWriter]]]
"""Opens a connection to the hub's process."""

_encode = msgspec.msgpack.Encoder().encode
_to_worker: msgspec.msgpack.Decoder[Want | Sent | Gate | End] = msgspec.msgpack.Decoder(Want | Sent | Gate | End)
_to_hub: msgspec.msgpack.Decoder[Request | Got] = msgspec.msgpack.Decoder(Request | Got)


class _Connection:
    """One end of a connection between a worker and the hub's process.

    All frames that are sent in one turn of the event loop leave in one write.
    """

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, frame_bytes_max: int = FRAME_BYTES_MAX
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._reader = reader
        self._writer = writer
        self._frames = FrameBuffer(frame_bytes_max)
        # Frames of this turn, and their size.
        self._unsent: list[bytes] = []
        self._unsent_bytes = 0

    def trust(self) -> None:
        """Take frames of any permitted size from now on, because the other side has shown the key."""
        self._frames.frame_bytes_max = FRAME_BYTES_MAX

    async def read(self) -> bytes:
        """Return the next frame. Raises `EOFError`, `FrameError` or `OSError` if none comes."""
        while (payload := self._frames.next_frame()) is None:
            data = await self._reader.read(_READ_BYTES)
            if not data:
                raise EOFError
            self._frames.receive_data(data)
        return payload

    def write(self, value: Struct) -> None:
        """Send a frame. Do nothing if the connection is closed; `read` and `drain` raise an error then."""
        frame = encode_frame(_encode(value))
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent.append(frame)
        self._unsent_bytes += len(frame)

    def _flush(self) -> None:
        unsent, self._unsent, self._unsent_bytes = self._unsent, [], 0
        if unsent and not self._writer.is_closing():
            self._writer.write(b"".join(unsent))

    async def drain(self) -> None:
        """Wait until the other side has read most of what was sent. Raises `OSError` if it is gone."""
        if self._unsent_bytes > _READ_BYTES:
            self._flush()
        await self._writer.drain()

    @property
    def is_open(self) -> bool:
        """True if the other side has not closed the connection."""
        return not self._reader.at_eof() and not self._writer.is_closing()

    def close(self) -> None:
        """Close the connection."""
        self._flush()
        self._writer.close()


class Forwarder:
    """HTTP application of a worker: passes each request on to the hub's process. `dial` opens a connection to it."""

    def __init__(self, dial: Dial, key: str) -> None:
        self._dial = dial
        self._key = key
        # Connections for later requests, the newest last.
        self._idle: list[_Connection] = []
        self._closed = False

    def serves(self, scope: Scope) -> bool:
        """Return true: the hub's process has an answer to every request."""
        del scope
        return True

    def close(self) -> None:
        """Close the connections that carry no request. The others end when their request is answered."""
        self._closed = True
        while self._idle:
            self._idle.pop().close()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Let the hub's process answer a request."""
        request = _Forwarded(scope, receive, send)
        connection: _Connection | None = None
        try:
            connection = await self._connect()
            fields = {name: scope[name] for name in _FIELDS if name in scope}
            connection.write(Request(self._key, fields))
            answered = await request.run(connection)
        except (OSError, EOFError, FrameError):
            if connection is not None:
                connection.close()
            if request.started:
                # The client learns from the end of the connection that the answer is not complete.
                raise
            log.warning("the hub's process does not answer a request", path=scope["path"])
            await refuse(scope, receive, send, _LOST)
            return
        except BaseException:
            if connection is not None:
                connection.close()
            raise
        if answered and not self._closed and len(self._idle) < _IDLE_MAX:
            self._idle.append(connection)
        else:
            connection.close()

    async def _connect(self) -> _Connection:
        while self._idle:
            connection = self._idle.pop()
            if connection.is_open:
                return connection
            connection.close()
        return _Connection(*await self._dial())


class _Forwarded:
    """One request of a client, in the worker: passes its events between the client and the hub's process."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope = scope
        self._receive = receive
        self._send = send
        # True when the client has got the beginning of the answer.
        self.started = False
        self._giving: asyncio.Task[None] | None = None

    async def run(self, connection: _Connection) -> bool:
        """Pass events in both directions until the request is answered.

        Return true if `connection` can carry another request. It cannot if the application ended while it waited for an
        event of the client.
        """
        try:
            while True:
                match _to_worker.decode(await connection.read()):
                    case Want():
                        self._giving = asyncio.create_task(self._give(connection))
                    case Sent(message):
                        self.started = True
                        await self._send(message)
                    case Gate(method, arguments):
                        getattr(self._scope["extensions"][CLIENT_GATE], method)(*arguments)
                    case End(failed):
                        if failed and not self.started:
                            await refuse(self._scope, self._receive, self._send, _FAILED)
                        return self._giving is None
        finally:
            if self._giving is not None:
                self._giving.cancel()
                await asyncio.gather(self._giving, return_exceptions=True)

    async def _give(self, connection: _Connection) -> None:
        """Pass on the next event of the client."""
        message = await self._receive()
        self._giving = None
        connection.write(Got(dict(message)))
        with contextlib.suppress(OSError):
            await connection.drain()


class ForwardServer:
    """The hub's side: lets the applications answer the requests of workers. `key` is the secret of the workers."""

    def __init__(self, apps: Sequence[HttpApp], key: str) -> None:
        self._apps = apps
        self._key = key
        self._server: unix.UnixServer | None = None
        self._answering: set[asyncio.Task[None]] = set()

    async def listen(self, path: Path) -> None:
        """Listen for workers at `path`."""
        self._server = await unix.listen(path, self.accept, mode=0o600)

    def accept(self) -> asyncio.Protocol:
        """Return the protocol of a new connection of a worker."""
        reader = asyncio.StreamReader()
        return asyncio.StreamReaderProtocol(reader, self._start)

    def _start(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(self._serve(_Connection(reader, writer, _FIRST_BYTES_MAX)))
        self._answering.add(task)
        task.add_done_callback(self._answering.discard)

    def close_apps(self) -> None:
        """End all answers and WebSockets that are still open, because the hub stops."""
        for app in self._apps:
            app.close()

    async def stop(self) -> None:
        """Answer no more requests."""
        if self._server is not None:
            self._server.close()
        for task in list(self._answering):
            task.cancel()
        await asyncio.gather(*self._answering, return_exceptions=True)

    async def _serve(self, connection: _Connection) -> None:
        """Answer the requests of one connection, one after the other."""
        try:
            # Strangers reach the port for other hubs of a team.
            async with asyncio.timeout(_FIRST_SECONDS_MAX):
                payload = await connection.read()
            while True:
                request = _to_hub.decode(payload)
                if not isinstance(request, Request) or not hmac.compare_digest(
                    request.key.encode(errors="replace"), self._key.encode()
                ):
                    break
                connection.trust()
                if not await _Answering(connection, request.scope).run(self._apps):
                    break
                payload = await connection.read()
        except (OSError, EOFError, FrameError, msgspec.MsgspecError):
            # The worker is gone, or its client.
            pass
        finally:
            connection.close()


class _Answering:
    """One forwarded request, in the hub's process: passes its events between the worker and an application.

    It is also the `ClientGate` of a WebSocket, by which the application admits or refuses the client.
    """

    def __init__(self, connection: _Connection, scope: dict[str, Any]) -> None:
        self._connection = connection
        self._scope = scope
        self._is_websocket = scope["type"] == "websocket"
        # The read of an event that the application waits for, or has waited for.
        self._reading: asyncio.Task[Message] | None = None
        scope["headers"] = [(name, value) for name, value in scope["headers"]]
        scope["state"] = {}
        if self._is_websocket:
            scope["extensions"] = {"websocket.http.response": {}, CLIENT_GATE: self}

    async def run(self, apps: Sequence[HttpApp]) -> bool:
        """Let the applications answer. Return true if the connection can carry another request."""
        failed = False
        try:
            await dispatch(apps, self._scope, self._receive, self._send)
        except Exception:
            log.exception("a request failed", path=self._scope["path"])
            failed = True
        finally:
            reading = self._reading
            if reading is not None:
                reading.cancel()
                await asyncio.gather(reading, return_exceptions=True)
            self._scope.clear()
        self._connection.write(End(failed))
        await self._connection.drain()
        return reading is None

    async def _receive(self) -> Message:
        if self._reading is None:
            self._connection.write(Want())
            self._reading = asyncio.create_task(self._read())
        # Shielded, because the application may stop to wait, and later wait for the same event again.
        message = await asyncio.shield(self._reading)
        self._reading = None
        return message

    async def _read(self) -> Message:
        try:
            got = _to_hub.decode(await self._connection.read())
        except (OSError, EOFError, FrameError, msgspec.MsgspecError):
            got = None
        if isinstance(got, Got):
            return got.message
        return {"type": "websocket.disconnect", "code": 1006} if self._is_websocket else {"type": "http.disconnect"}

    async def _send(self, message: Message) -> None:
        self._connection.write(Sent(dict(message)))
        try:
            await self._connection.drain()
        except OSError:
            # As the HTTP port does it, when the client has disconnected.
            if self._is_websocket:
                raise

    # The ClientGate port.

    def await_greeting(self) -> None:
        """Let the client send another small message."""
        self._connection.write(Gate("await_greeting"))

    def admit(self, owner: str, bytes_max: int | None = None) -> None:
        """Admit the client as the member `owner`."""
        self._connection.write(Gate("admit", (owner, bytes_max)))

    def refuse(self) -> None:
        """Refuse the client."""
        self._connection.write(Gate("refuse"))

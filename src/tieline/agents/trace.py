"""The loopback: where a program under a runner reports what it does, and what its API calls pass through if traced.

Above: the runner, which gives its addresses to the program and takes events from it. Below: sockets. It listens on the
loopback address, at a port of its own for each run; every address begins with a secret, because other users of the
machine can reach the port too.

**Telemetry.** `…/otlp/v1/logs` and `/traces` take what programs report by OTLP. It goes the runner's way to the hub, so
the program needs no token for it.

**The proxy.** `…/anthropic` and `…/openai` are given to the program as the base of its API. Requests go on to where
they would have gone, with the program's own credentials; responses come back piece by piece as they arrive. What passed
is looked at afterwards, on a thread. Compression is not asked for, so that it can be read; nothing else is changed.
If something cannot be understood, it still passes; if the far side cannot be reached, the program is told with 502, as
any proxy does.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tieline.agents import trace_http as http
from tieline.agents.trace_exchange import Passed, event_of
from tieline.services import otlp

ANTHROPIC, OPENAI, OTLP = "anthropic", "openai", "otlp"

UPSTREAMS = {ANTHROPIC: "https://api.anthropic.com", OPENAI: "https://api.openai.com/v1"}
"""Where API calls go if the environment names nothing else."""

CAPTURED_BYTES_MAX = 16 * 1024 * 1024
"""Of a body that is looked at; the rest passes unseen, and the event says so."""

CONNECT_SECONDS = 30.0
"""As long as programs wait themselves."""

_REUSE_SECONDS = 3.0
"""An idle connection is used again only within it: servers close theirs a little later, without a word."""

_CLOSE_SECONDS = 1.0

_DROPPED = frozenset({"host", "connection", "keep-alive", "proxy-connection", "accept-encoding"})

Emit = Callable[[dict[str, Any]], None]


class _Far:
    """The connection that goes on from the program's."""

    def __init__(self, key: tuple[str, str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.key = key
        self.reader = reader
        self.writer = writer
        self.idle_since = time.monotonic()

    def fits(self, key: tuple[str, str, int]) -> bool:
        fresh = time.monotonic() - self.idle_since < _REUSE_SECONDS
        return self.key == key and fresh and not self.reader.at_eof() and not self.writer.is_closing()


class _Captured:
    """The content of one body, as far as it is kept."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._size = 0
        self.cut = False

    def add(self, data: bytes) -> None:
        if self._size + len(data) > CAPTURED_BYTES_MAX:
            self.cut = True
        elif not self.cut:
            self._parts.append(data)
            self._size += len(data)

    def content(self) -> bytes:
        return b"".join(self._parts)


class Loopback:
    """The listener of one run."""

    def __init__(self, emit: Emit, upstreams: Mapping[str, str]) -> None:
        self._emit = emit
        self._upstreams = {name: urlsplit(base) for name, base in upstreams.items()}
        # Without what a person may have written before the host.
        self._bases = {
            name: base._replace(netloc=base.netloc.rpartition("@")[2]).geturl()
            for name, base in self._upstreams.items()
        }
        self._secret = secrets.token_urlsafe(24)
        self._server: asyncio.Server | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._reading: set[asyncio.Task[None]] = set()
        self._tls: ssl.SSLContext | None = None

    async def start(self) -> None:
        """Listen."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=http.HEAD_BYTES_MAX)

    def address(self, name: str) -> str:
        """The base of an address to give to the program."""
        assert self._server is not None, "it was started"
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/{self._secret}/{name}"

    async def close(self) -> None:
        """Listen no more, hang up, and let what passed be looked at."""
        if self._server is not None:
            self._server.close()
        for connection in self._connections:
            connection.cancel()
        await asyncio.gather(*self._connections, return_exceptions=True)
        await asyncio.gather(*self._reading, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None, "a connection is a task"
        self._connections.add(task)
        far: _Far | None = None
        try:
            while (head := await http.read_head(reader)) is not None:
                secret, _, rest = head.first[1].removeprefix("/").partition("/")
                name, slash, path = rest.partition("/")
                target = f"{slash}{path}"
                if not secrets.compare_digest(secret.encode(), self._secret.encode()):
                    await _refuse(writer, "404 Not Found", "nothing is here")
                    return
                if name == OTLP:
                    await self._take_telemetry(head, target, reader, writer)
                elif name in self._upstreams:
                    far = await self._pass_on(_Exchange(name, head, target, reader, writer), far)
                    if far is None:
                        return
                else:
                    await _refuse(writer, "404 Not Found", "nothing is here")
                    return
        except (http.Broken, OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
            # Either side hung up, spoke no HTTP, or the run is over: for the program it is a lost connection.
            pass
        finally:
            self._connections.discard(task)
            await _hang_up(writer)
            if far is not None:
                await _hang_up(far.writer)

    # Telemetry

    async def _take_telemetry(
        self, head: http.Head, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        body = bytearray()
        async for _, content in http.pieces(reader, http.request_size(head)):
            if len(body) <= otlp.BODY_BYTES_MAX:
                body += content
        signal = {"/v1/logs": otlp.Signal.LOGS, "/v1/traces": otlp.Signal.TRACES}.get(target.partition("?")[0])
        kind = head.get("content-type")
        if signal is None:
            # Metrics, and what is still to be invented: there is nothing in it for the log.
            await _answer(writer, "200 OK", b"" if "protobuf" in kind else b"{}", kind or otlp.JSON)
            return
        decoded = await asyncio.to_thread(
            otlp.decode, signal, bytes(body), kind, head.get("content-encoding"), _now_ms()
        )
        if isinstance(decoded, otlp.Malformed):
            await _refuse(writer, f"{decoded.status} Refused", decoded.message)
            return
        for event in decoded.events:
            self._emit(event)
        answer, answer_kind = otlp.encode_answer(signal, kind, decoded)
        await _answer(writer, "200 OK", answer, answer_kind)

    # The proxy

    async def _pass_on(self, exchange: "_Exchange", far: _Far | None) -> _Far | None:
        """Pass one request on and its response back; gives the connection to use for the next, if one may follow."""
        base = self._upstreams[exchange.name]
        secure = base.scheme == "https"
        key = (base.scheme, base.hostname or "", base.port or (443 if secure else 80))
        if far is None or not far.fits(key):
            if far is not None:
                far.writer.close()
            try:
                far = await self._dial(key)
            except (OSError, TimeoutError) as error:
                await exchange.swallow()
                await _refuse(exchange.writer, "502 Bad Gateway", f"{key[1]} cannot be reached: {error}")
                self._look_at(exchange, self._bases[exchange.name])
                return None
        try:
            reusable = await exchange.carry(far, base.path.rstrip("/"), base.netloc.rpartition("@")[2])
        except BaseException:
            far.writer.close()
            raise
        finally:
            self._look_at(exchange, self._bases[exchange.name])
        far.idle_since = time.monotonic()
        if reusable:
            return far
        far.writer.close()
        return None

    async def _dial(self, key: tuple[str, str, int]) -> _Far:
        scheme, host, port = key
        if scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if scheme == "https" else None
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=http.HEAD_BYTES_MAX)
        return _Far(key, reader, writer)

    def _look_at(self, exchange: "_Exchange", base: str) -> None:
        """Make an event of what passed, while the program goes on."""
        task = asyncio.create_task(self._read(exchange.passed(base)))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, passed: Passed) -> None:
        self._emit(await asyncio.to_thread(event_of, passed))


class _Exchange:
    """One request of the program, and its response."""

    def __init__(
        self, name: str, head: http.Head, target: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        self.name = name
        self.writer = writer
        self._head = head
        self._target = target
        self._reader = reader
        self._request = _Captured()
        self._response = _Captured()
        self._answer: http.Head | None = None
        self._started_ms = _now_ms()

    async def carry(self, far: _Far, prefix: str, host: str) -> bool:
        """Carry it both ways; says whether both connections can carry another."""
        kept = tuple((name, value) for name, value in self._head.headers if name.lower() not in _DROPPED)
        upgrade = (("Connection", "Upgrade"),) if self._head.get("upgrade") else ()
        headers = (("Host", host), ("Accept-Encoding", "identity"), *upgrade, *kept)
        method, _, version = self._head.first
        far.writer.write(http.Head((method, f"{prefix}{self._target}" or "/", version), headers).encode())
        sending = asyncio.create_task(self._send_body(far.writer))
        try:
            answer = await self._take_answer(far)
            if http.switches(answer):
                await _tunnel((self._reader, far.writer), (far.reader, self.writer))
                return False
            size = http.response_size(answer, method)
            async for wire, content in http.pieces(far.reader, size):
                self.writer.write(wire)
                self._response.add(content)
                await self.writer.drain()
        finally:
            done = sending.done() and not sending.cancelled() and sending.exception() is None
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return done and size is not http.Framing.UNTIL_CLOSE and not (answer.closes or self._head.closes)

    async def swallow(self) -> None:
        """Take the request without passing it on: a connection that is closed before would lose our answer."""
        async for _, content in http.pieces(self._reader, http.request_size(self._head)):
            self._request.add(content)

    async def _send_body(self, writer: asyncio.StreamWriter) -> None:
        async for wire, content in http.pieces(self._reader, http.request_size(self._head)):
            writer.write(wire)
            self._request.add(content)
            await writer.drain()
        await writer.drain()

    async def _take_answer(self, far: _Far) -> http.Head:
        while True:
            answer = await http.read_head(far.reader)
            if answer is None:
                raise http.Broken("no response came")
            self._answer = answer
            self.writer.write(answer.encode())
            await self.writer.drain()
            if not http.is_interim(answer):
                return answer

    def passed(self, base: str) -> Passed:
        """What there is to look at."""
        answer = self._answer
        return Passed(
            provider=self.name,
            method=self._head.first[0],
            url=f"{base.rstrip('/')}{self._target}",
            started_ms=self._started_ms,
            ended_ms=_now_ms(),
            request_headers=self._head.headers,
            request=self._request.content(),
            status=answer.status if answer is not None else None,
            response_headers=answer.headers if answer is not None else (),
            response=self._response.content(),
            cut=self._request.cut or self._response.cut,
        )


async def _hang_up(writer: asyncio.StreamWriter) -> None:
    """Close a connection; one whose other side does not read is dropped."""
    writer.close()
    try:
        async with asyncio.timeout(_CLOSE_SECONDS):
            await writer.wait_closed()
    except (OSError, TimeoutError, asyncio.CancelledError):
        writer.transport.abort()


async def _tunnel(*ways: tuple[asyncio.StreamReader, asyncio.StreamWriter]) -> None:
    """Carry bytes both ways until one side is done."""
    carrying = [asyncio.create_task(_carry(reader, writer)) for reader, writer in ways]
    try:
        await asyncio.wait(carrying, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in carrying:
            task.cancel()
        await asyncio.gather(*carrying, return_exceptions=True)


async def _carry(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    async for wire, _ in http.pieces(reader, http.Framing.UNTIL_CLOSE):
        writer.write(wire)
        await writer.drain()


async def _refuse(writer: asyncio.StreamWriter, status: str, message: str) -> None:
    body = msgspec.json.encode({"error": {"type": "tieline", "message": message}})
    await _answer(writer, status, body, otlp.JSON)


async def _answer(writer: asyncio.StreamWriter, status: str, body: bytes, kind: str) -> None:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n"
    writer.write(head.encode("latin-1", errors="replace") + body)
    await writer.drain()


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def loopback(emit: Emit, upstreams: Mapping[str, str]) -> AsyncIterator[Loopback]:
    """A loopback for as long as it is needed."""
    listener = Loopback(emit, upstreams)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()

"""The loopback: a local HTTP listener of one run. It takes the program's telemetry, or is a proxy for its API calls.

Used by: the runner, which gives the listener's addresses to the program and takes events from the listener. Uses:
sockets. Each run listens on the loopback address, at a port of its own. Every path begins with a secret, because other
users of the machine can reach the port too.

**Telemetry.** `…/otlp/v1/logs` and `/traces` take the program's OTLP reports. The reports go to the hub through the
runner, so the program needs no token for them.

**The proxy.** `…/anthropic` and `…/openai` are given to the program as the base URL of its API. The proxy sends
requests on to their original destination, with the program's own credentials. Each part of a response is passed back as
soon as it arrives. The proxy reads each call afterwards, on a thread, to make an event of the call. The proxy asks for
no compression, so that it can read the responses. Apart from this, and from the host and connection headers, the proxy
changes nothing. A call that the proxy does not understand still passes. If the API cannot be reached, the program gets
a 502.
"""

import asyncio
import contextlib
import secrets
import ssl
import time
from collections.abc import AsyncIterator, Callable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import urlsplit

import h11
import msgspec

from tieline.agents.loopback_http import HEAD_BYTES_MAX, Side, header, headers_of
from tieline.agents.model_call import ModelCall, event_of
from tieline.services import otlp

ANTHROPIC, OPENAI, OTLP = "anthropic", "openai", "otlp"

UPSTREAMS = {ANTHROPIC: "https://api.anthropic.com", OPENAI: "https://api.openai.com/v1"}
"""Default base URL of the API of each model provider. The environment can name another URL."""

CAPTURED_BYTES_MAX = 16 * 1024 * 1024
"""Maximum number of bytes that the proxy copies from one body for the activity event. A longer body still passes the
proxy, and the event says that the body was cut."""

CONNECT_SECONDS = 30.0
"""Seconds to wait for a new connection to the API. Programs wait about as long for a direct connection."""

_REUSE_SECONDS = 3.0
"""Idle time, in seconds, after which the proxy does not use a connection again. Servers close idle connections a little
later."""

_SWITCHING_PROTOCOLS = 101

_DROPPED = frozenset({b"host", b"connection", b"keep-alive", b"proxy-connection", b"accept-encoding"})

Emit = Callable[[dict[str, Any]], None]


class _Far(Side):
    """The connection from the proxy to the API of the model. Later requests of the same program use it again."""

    def __init__(self, key: tuple[str, str, int], reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(h11.CLIENT, reader, writer)
        self.key = key
        self.idle_since = time.monotonic()

    def fits(self, key: tuple[str, str, int]) -> bool:
        return self.key == key and time.monotonic() - self.idle_since < _REUSE_SECONDS and self.usable


class _Captured:
    """Copy of one HTTP body that passed the proxy, for the activity event.

    It has at most `CAPTURED_BYTES_MAX` bytes.
    """

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
    """Local HTTP server of one run (`tieline run`): takes the program's telemetry, and is a proxy for its API calls."""

    def __init__(self, emit: Emit, upstreams: Mapping[str, str]) -> None:
        self._emit = emit
        self._upstreams = {name: urlsplit(base) for name, base in upstreams.items()}
        # Without credentials that a person may have written before the host.
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
        """Start to listen on a free port of the loopback address."""
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0, limit=HEAD_BYTES_MAX)

    def address(self, name: str) -> str:
        """Return the base URL for the program's telemetry, or for its API calls through the proxy.

        `name` is the service: `OTLP`, or the provider of the API.
        """
        assert self._server is not None, "it was started"
        port = self._server.sockets[0].getsockname()[1]
        return f"http://127.0.0.1:{port}/{self._secret}/{name}"

    async def close(self) -> None:
        """Stop listening, close the connections, and wait until all recorded API calls have become activity events."""
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
        near, far = Side(h11.SERVER, reader, writer), None
        try:
            while isinstance(request := await near.receive(), h11.Request):
                secret, _, rest = request.target.decode("ascii").removeprefix("/").partition("/")
                name, slash, path = rest.partition("/")
                target = f"{slash}{path}"
                if not secrets.compare_digest(secret.encode(), self._secret.encode()):
                    await _refuse(near, 404, "Not Found", "nothing is here")
                    return
                if name == OTLP:
                    await self._take_telemetry(request, target, near)
                elif name in self._upstreams:
                    far = await self._pass_on(_ProxiedCall(name, request, target, near), far)
                    if far is None:
                        return
                else:
                    await _refuse(near, 404, "Not Found", "nothing is here")
                    return
                if not near.start_next():
                    return
        except (h11.ProtocolError, OSError, asyncio.CancelledError):
            # A side hung up or spoke no HTTP, or the run is over. The program sees a lost connection.
            pass
        finally:
            self._connections.discard(task)
            await near.hang_up()
            if far is not None:
                await far.hang_up()

    # Telemetry

    async def _take_telemetry(self, request: h11.Request, target: str, near: Side) -> None:
        body = bytearray()
        while isinstance(piece := await near.receive(), h11.Data):
            if len(body) <= otlp.BODY_BYTES_MAX:
                body += piece.data
        signal = {"/v1/logs": otlp.Signal.LOGS, "/v1/traces": otlp.Signal.TRACES}.get(target.partition("?")[0])
        kind = header(request, b"content-type")
        if signal is None:
            # Metrics, or a signal that we do not know: the activity log needs neither.
            await near.answer(200, "OK", b"" if "protobuf" in kind else b"{}", kind or otlp.JSON)
            return
        decoded = await asyncio.to_thread(
            otlp.decode, signal, bytes(body), kind, header(request, b"content-encoding"), _now_ms()
        )
        if isinstance(decoded, otlp.Malformed):
            await _refuse(near, decoded.status, "Refused", decoded.message)
            return
        for event in decoded.events:
            self._emit(event)
        answer, answer_kind = otlp.encode_answer(signal, kind, decoded)
        await near.answer(200, "OK", answer, answer_kind)

    # The proxy

    async def _pass_on(self, call: "_ProxiedCall", far: _Far | None) -> _Far | None:
        """Pass one request of the program on to the API, and the response back to the program.

        `far` is the open connection to the API, or `None`. Return the connection for the next request; `None` if it was
        closed.
        """
        base = self._upstreams[call.name]
        secure = base.scheme == "https"
        key = (base.scheme, base.hostname or "", base.port or (443 if secure else 80))
        if far is None or not far.fits(key):
            if far is not None:
                far.close()
            try:
                far = await self._dial(key)
            except (OSError, TimeoutError) as error:
                await call.swallow()
                await _refuse(call.near, 502, "Bad Gateway", f"{key[1]} cannot be reached: {error}")
                self._look_at(call, self._bases[call.name])
                return None
        try:
            reusable = await call.carry(far, base.path.rstrip("/"), base.netloc.rpartition("@")[2])
        except BaseException:
            far.close()
            raise
        finally:
            self._look_at(call, self._bases[call.name])
        far.idle_since = time.monotonic()
        if reusable:
            return far
        far.close()
        return None

    async def _dial(self, key: tuple[str, str, int]) -> _Far:
        scheme, host, port = key
        if scheme == "https" and self._tls is None:
            self._tls = ssl.create_default_context()
        tls = self._tls if scheme == "https" else None
        async with asyncio.timeout(CONNECT_SECONDS):
            reader, writer = await asyncio.open_connection(host, port, ssl=tls, limit=HEAD_BYTES_MAX)
        return _Far(key, reader, writer)

    def _look_at(self, call: "_ProxiedCall", base: str) -> None:
        """Start a task that makes an activity event of a finished API call. The program does not wait for this task."""
        task = asyncio.create_task(self._read(call.passed(base)))
        self._reading.add(task)
        task.add_done_callback(self._reading.discard)

    async def _read(self, passed: ModelCall) -> None:
        self._emit(await asyncio.to_thread(event_of, passed))


class _ProxiedCall:
    """One API request of the program through the proxy, and its response.

    Copies of both bodies are kept, because the activity event about this call contains them.
    """

    def __init__(self, name: str, request: h11.Request, target: str, near: Side) -> None:
        self.name = name
        self.near = near
        self._head = request
        self._target = target
        self._request = _Captured()
        self._response = _Captured()
        self._answer: h11.Response | h11.InformationalResponse | None = None
        self._started_ms = _now_ms()

    async def carry(self, far: _Far, prefix: str, host: str) -> bool:
        """Send the request to the API over the connection `far`.

        Send each part of the response to the program as it arrives. `prefix` is put before the request's path, and
        `host` is the API's host. Return true if `far` can carry another request.
        """
        kept = [(name, value) for name, value in self._head.headers.raw_items() if name.lower() not in _DROPPED]
        upgrade = [(b"Connection", b"Upgrade")] if header(self._head, b"upgrade") else []
        headers = [(b"Host", host.encode()), (b"Accept-Encoding", b"identity"), *upgrade, *kept]
        target = f"{prefix}{self._target}" or "/"
        await far.send(h11.Request(method=self._head.method, target=target, headers=headers))
        sending = asyncio.create_task(self._send_body(far))
        try:
            if await self._take_answer(far):
                await self.near.tunnel(far)
                return False
            while isinstance(event := await far.receive(), h11.Data):
                self._response.add(event.data)
                await self.near.send(event)
            if isinstance(event, h11.EndOfMessage):
                await self.near.send(event)
        finally:
            sending.cancel()
            await asyncio.gather(sending, return_exceptions=True)
        return far.start_next()

    async def swallow(self) -> None:
        """Read the rest of the program's request, but do not pass it on, because the API cannot be reached.

        If the proxy answered and closed the connection before that, the program could miss the answer.
        """
        while isinstance(event := await self.near.receive(), h11.Data):
            self._request.add(event.data)

    async def _send_body(self, far: _Far) -> None:
        while isinstance(event := await self.near.receive(), h11.Data):
            self._request.add(event.data)
            await far.send(event)
        if isinstance(event, h11.EndOfMessage):
            await far.send(event)

    async def _take_answer(self, far: _Far) -> bool:
        """Pass the status line and headers of the API's response on to the program, also informational ones (1xx).

        Return true if the connection changes to another protocol, such as a WebSocket.
        """
        while isinstance(event := await far.receive(), h11.Response | h11.InformationalResponse):
            self._answer = event
            # The far side may speak HTTP/1.0. The program always gets an answer in HTTP/1.1.
            await self.near.send(replace(event, http_version=b"1.1"))
            if isinstance(event, h11.Response) or event.status_code == _SWITCHING_PROTOCOLS:
                return isinstance(event, h11.InformationalResponse)
        raise h11.RemoteProtocolError("no response came")

    def passed(self, base: str) -> ModelCall:
        """Return the data of the finished API call, with copies of both bodies. `base` is the API's base URL."""
        answer = self._answer
        return ModelCall(
            provider=self.name,
            method=self._head.method.decode(),
            url=f"{base.rstrip('/')}{self._target}",
            started_ms=self._started_ms,
            ended_ms=_now_ms(),
            request_headers=headers_of(self._head),
            request=self._request.content(),
            status=answer.status_code if answer is not None else None,
            response_headers=headers_of(answer) if answer is not None else (),
            response=self._response.content(),
            cut=self._request.cut or self._response.cut,
        )


async def _refuse(near: Side, status: int, reason: str, message: str) -> None:
    body = msgspec.json.encode({"error": {"type": "tieline", "message": message}})
    await near.answer(status, reason, body, otlp.JSON)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@contextlib.asynccontextmanager
async def open_loopback(emit: Emit, upstreams: Mapping[str, str]) -> AsyncIterator[Loopback]:
    """Yield a started loopback (the local HTTP server of one run), and close it at the end of the `with` block.

    `emit` is called with each activity event. `upstreams` are the base URLs of the APIs, by provider.
    """
    listener = Loopback(emit, upstreams)
    await listener.start()
    try:
        yield listener
    finally:
        await listener.close()

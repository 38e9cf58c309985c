"""The HTTP port: the routes of the protocols, health, metrics, and the hub's own protocol at `/api/stream`.

Used by: the code that assembles the hub, which adds the applications with HTTP routes: of protocols and of the console.
Each application says which requests it answers, and answers them as an ASGI application.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from ssl import SSLContext
from typing import cast

import uvicorn
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4
from prometheus_client.registry import Collector
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send
from websockets.exceptions import InvalidState

from tieline import __version__
from tieline.contract.command import Attach, Detach, ListMembers, ListReaders
from tieline.contract.member import Credential, Unnamed
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Readers, Roster
from tieline.protocols import protocols
from tieline.server.bounds import BoundedProtocol
from tieline.server.local_hub import LocalHub
from tieline.server.native_stream import NativeStream
from tieline.server.websocket import BoundedWebSocket
from tieline.wire.address import reachable
from tieline.wire.hosts import Hosts
from tieline.wire.http import LOGIN_COOKIES, Answer, HttpApp, failure, refuse
from tieline.wire.tls import BACKLOG, TlsListener
from tieline.wire.unfinished import Unfinished

_IDLE_SECONDS = 75
"""Longest time in seconds between two requests on one connection. A client that sends a request once a minute need not
reconnect."""
_UNREAD_SECONDS = 120.0
"""Longest time in seconds for which a client may leave sent data unread. Without this limit, a client that the hub
disconnects could keep its connection open for ever, if it never reads the reason."""
_PATIENCE_SECONDS = 0.5
"""Longest time in seconds for which a client that does not read may delay the stop of the hub."""


class _Collector(Collector):
    """Source of the hub's metrics for Prometheus (`/metrics`): messages, commits, sessions, failures and others."""

    def __init__(self, hub: LocalHub, roster: Roster, readers: Readers) -> None:
        self._hub = hub
        self._roster = roster
        self._readers = readers

    def collect(self) -> Iterator[Metric]:
        counters, recorder, health = self._hub.counters, self._hub.recorder, self._hub.health
        for name, text, value in (
            ("tieline_messages_accepted", "Messages made durable since the start", counters.accepted),
            ("tieline_deliveries_created", "Deliveries of those messages", counters.deliveries),
            ("tieline_batches", "Batches of commands decided", counters.batches),
            ("tieline_commits", "Transactions committed", counters.commits),
            ("tieline_commit_seconds", "Time spent in commits", counters.commit_seconds),
            ("tieline_commit_failures", "Transactions that failed", health.store.failures),
            ("tieline_checkpoint_failures", "Moves of the write-ahead log that failed", health.checkpoint.failures),
            ("tieline_activity_commit_failures", "Transactions of activity that failed", health.activity.failures),
            ("tieline_search_failures", "Failures of the search index", health.search.failures),
            ("tieline_faults", "Commands at which the hub failed", health.faults),
            ("tieline_activity_events", "Events of activity made durable since the start", recorder.counters.events),
            ("tieline_activity_commits", "Transactions of the activity log", recorder.counters.commits),
            ("tieline_activity_commit_seconds", "Time spent in those", recorder.counters.commit_seconds),
        ):
            yield CounterMetricFamily(name, text, value=value)
        severe = any(problem.severe for problem in health.problems)
        yield GaugeMetricFamily("tieline_store_failing", "1 while something cannot be kept or read", value=severe)
        if health.clock is not None:
            jump = health.clock.jump_ms / 1000
            yield GaugeMetricFamily("tieline_clock_jump_seconds", "How far the system's clock is off", value=jump)
            yield CounterMetricFamily("tieline_clock_jumps", "Jumps of the system's clock", value=health.clock.jumps)
        yield GaugeMetricFamily("tieline_activity_waiting", "Uploads and questions that wait", value=recorder.waiting)
        yield GaugeMetricFamily("tieline_members", "Members", value=len(self._roster.members))
        sessions = GaugeMetricFamily("tieline_sessions", "Open sessions of members", labels=["protocol"])
        counts: dict[str, int] = {}
        for presence in self._roster.members:
            for protocol in presence.sessions:
                counts[protocol] = counts.get(protocol, 0) + 1
        for protocol, count in sorted(counts.items()):
            sessions.add_metric([protocol], count)
        yield sessions
        held = sum(presence.held for presence in self._roster.members)
        yield GaugeMetricFamily("tieline_held", "Deliveries that are held or slowed", value=held)
        backlog = sum(presence.backlog for presence in self._roster.members)
        yield GaugeMetricFamily("tieline_backlog", "Deliveries that wait for an acknowledgement", value=backlog)
        yield from self._logs()

    def _logs(self) -> Iterator[Metric]:
        ends = {one.log: one.end for one in self._readers.logs}
        rows = GaugeMetricFamily("tieline_log_rows", "The offset that the next row of a log will have", labels=["log"])
        for log, end in ends.items():
            rows.add_metric([log], end)
        yield rows
        labels = ["reader", "log"]
        unread = GaugeMetricFamily("tieline_reader_unread", "Rows of a log that a reader has not read", labels=labels)
        missed = CounterMetricFamily("tieline_reader_missed", "Rows that were deleted unread", labels=labels)
        late = GaugeMetricFamily("tieline_reader_late", "1 if retention will soon stop to wait", labels=labels)
        for one in self._readers.readers:
            unread.add_metric([one.name, one.log], ends[one.log] - one.position)
            missed.add_metric([one.name, one.log], one.missed)
            late.add_metric([one.name, one.log], one.warned)
        yield from (unread, missed, late)
        limits = self._hub.limits
        for name, text, value in (
            ("tieline_reader_wait_seconds", "How much longer unread rows are kept", limits.reader_wait_ms / 1000),
            ("tieline_reader_wait_bytes", "Size of a database that ends the waiting", limits.reader_wait_bytes),
        ):
            yield GaugeMetricFamily(name, text, value=value)


def _matters(record: logging.LogRecord) -> bool:
    """Log filter: return true if a log record of the HTTP server should become a line in the log.

    Return false for invalid UTF-8 from a client, because the client itself is told about this error.
    """
    return record.exc_info is None or not isinstance(record.exc_info[1], UnicodeDecodeError)


class _Server(uvicorn.Server):
    """The HTTP server uvicorn, changed in three ways: it handles no signals, stops quickly, and limits TLS handshakes.

    The hub itself handles signals, and stops its listeners in order.
    """

    def __init__(self, config: uvicorn.Config, certificate: Callable[[], SSLContext] | None) -> None:
        super().__init__(config)
        self._certificate = certificate
        self._asked = asyncio.Event()

    def ask_to_stop(self) -> None:
        """Make `serve` return, which stops the HTTP server."""
        self.should_exit = True
        self._asked.set()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._certificate is None:
            await super().startup(sockets)
            return
        kind = cast("type[BoundedProtocol]", self.config.http_protocol_class)
        make = partial(kind, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)
        for sock in sockets or ():
            sock.listen(BACKLOG)
        listeners = [TlsListener(sock, make, self._certificate) for sock in sockets or ()]
        # Uvicorn only ever closes them.
        self.servers = cast("list[asyncio.Server]", listeners)
        self.started = True

    async def main_loop(self) -> None:
        # Uvicorn checks ten times a second if it should stop; once a second is enough for the Date header (tick 0).
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._asked.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Unlike uvicorn's own method, this one accepts a WebSocket that is closing already, and waits no longer than
        # necessary.
        state = self.server_state
        for server in self.servers:
            server.close()
        for sock in sockets or []:
            sock.close()
        for connection in list(state.connections):
            with contextlib.suppress(InvalidState):
                connection.shutdown()
        if not await self._emptied():
            # A cancelled task would be an error in the log. A task whose connection is gone ends by itself.
            for connection in list(state.connections):
                connection.transport.abort()
            if not await self._emptied():
                for task in list(state.tasks):
                    task.cancel()

    async def _emptied(self) -> bool:
        state = self.server_state
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                while state.connections or state.tasks:  # noqa: ASYNC110 - nothing tells when uvicorn's sets change
                    await asyncio.sleep(0.002)
        return not state.connections and not state.tasks


class HttpListener:
    """The hub's HTTP port.

    Each request goes to the first application in `apps` that serves it, or else to the pages for health and metrics.
    `names` are the host names that the port accepts. With `certificate`, which returns the current TLS settings,
    the port speaks HTTPS. From `trusted_proxies` (IP addresses and networks), the port believes the headers that tell a
    client's address and scheme.
    """

    def __init__(
        self,
        hub: LocalHub,
        apps: Sequence[HttpApp] = (),
        names: Sequence[str] = (),
        unfinished: Unfinished | None = None,
        operator: Credential | None = None,
        metrics: Sequence[Collector] = (),
        *,
        certificate: Callable[[], SSLContext] | None = None,
        trusted_proxies: Sequence[str] = (),
    ) -> None:
        self._hub = hub
        # More sources of numbers for `/metrics`.
        self._more_metrics = metrics
        self._certificate = certificate
        self._trusted_proxies = list(trusted_proxies)
        # Credential for reading the numbers about the logs. Without it, `/metrics` does not show them.
        self._operator = operator
        self._names = names
        self._unfinished = unfinished or Unfinished(hub.limits)
        # Set by `start`, because the value depends on the address.
        self._hosts: Hosts
        # The protocols that have routes here; the first that claims a request answers it.
        self._apps = (*apps, NativeStream(hub))
        self._login_cookies = tuple(protocol.login_cookie for protocol in protocols() if protocol.login_cookie)
        self._pages = Starlette(
            routes=[
                Route("/healthz", self._health),
                Route("/metrics", self._metrics),
            ]
        )
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        """Listen at this address. With port 0, the system chooses a free port.

        `address` then holds the address in use, as other machines can use it.
        """
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        # With an explicit protocol number, asyncio sends small answers on accepted connections without delay.
        sock = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            if hasattr(socket, "TCP_USER_TIMEOUT"):
                # Accepted connections inherit this option.
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, int(1000 * _UNREAD_SECONDS))
            sock.bind((host, port))
        except OSError:
            sock.close()
            raise
        bound_host, bound_port = sock.getsockname()[:2]
        self._hosts = Hosts(self._names, bound_host)
        shown = reachable(bound_host)
        self.address = f"[{shown}]:{bound_port}" if ":" in shown else f"{shown}:{bound_port}"
        config = uvicorn.Config(
            self._serve,
            interface="asgi3",
            # Uvicorn only ever calls these two.
            http=cast("type[BoundedProtocol]", partial(BoundedProtocol, self._unfinished)),
            proxy_headers=bool(self._trusted_proxies),
            forwarded_allow_ips=self._trusted_proxies,
            timeout_keep_alive=_IDLE_SECONDS,
            log_config=None,
            access_log=False,
            lifespan="off",
            ws=cast("type[BoundedWebSocket]", partial(BoundedWebSocket, self._hub.limits, self._unfinished)),
            ws_per_message_deflate=False,
            server_header=False,
        )
        logging.getLogger("uvicorn.error").addFilter(_matters)
        self._server = _Server(config, self._certificate)
        self._serving = asyncio.create_task(self._server.serve(sockets=[sock]))
        while not self._server.started:
            if self._serving.done():
                await self._serving
                raise OSError("the HTTP server did not start")
            await asyncio.sleep(0.001)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await refuse(scope, receive, send, refusal)
            return
        scope[LOGIN_COOKIES] = self._login_cookies
        for app in self._apps:
            if app.serves(scope):
                await app(scope, receive, send)
                return
        await self._pages(scope, receive, send)

    def _refusal(self, scope: Scope) -> Answer | None:
        """Return the error answer to a request that is refused before any route gets it.

        Return `None` if the request is accepted. A request is refused if its host name is wrong or its token is too
        large.
        """
        token_bytes_max = self._hub.limits.token_bytes_max
        too_large = False
        for name, value in scope["headers"]:
            if name == b"host" and (stranger := self._hosts.refusal((str(value, "latin-1"),))) is not None:
                return failure(421, stranger, close=True)
            if name == b"authorization" and len(value) > token_bytes_max:
                too_large = True
        if too_large:
            return failure(431, f"the Authorization header is larger than {token_bytes_max} bytes", close=True)
        return None

    async def stop(self) -> None:
        """Close all connections and stop listening."""
        for app in self._apps:
            app.close()
        if self._server is not None and self._serving is not None:
            self._server.ask_to_stop()
            await self._serving

    async def _health(self, _request: Request) -> Response:
        if self._hub.failure.done():
            reason = str(self._hub.failure.result())
            return JSONResponse({"status": "failed", "version": __version__, "reason": reason}, 503)
        problems = self._hub.health.problems
        if not problems:
            return JSONResponse({"status": "ok", "version": __version__})
        severe = any(problem.severe for problem in problems)
        reasons = [{"what": one.what, "reason": one.reason, "do": one.do} for one in problems]
        status = "failing" if severe else "impaired"
        return JSONResponse({"status": status, "version": __version__, "reasons": reasons}, 503 if severe else 200)

    async def _metrics(self, _request: Request) -> Response:
        registry = CollectorRegistry(auto_describe=False)
        for collector in (_Collector(self._hub, *await self._figures()), *self._more_metrics):
            registry.register(collector)
        return Response(generate_latest(registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    async def _figures(self) -> tuple[Roster, Readers]:
        """Return data for the metrics: the members, and the readers of the logs.

        Both are empty if the hub does not answer.
        """
        roster: Roster | Refusal = Roster(())
        readers: Readers | Refusal = Readers((), ())
        # A new session each time: a kept session would end when the store fails once.
        credential = self._operator or Unnamed("metrics", "http")
        attached = await self._hub.ask(Attach(protocol="http", credential=credential))
        if isinstance(attached, Attached):
            roster = await self._hub.ask(ListMembers(attached.session))
            if self._operator is not None:
                readers = await self._hub.ask(ListReaders(attached.session))
            self._hub.submit((Detach(attached.session),))
        return (
            roster if isinstance(roster, Roster) else Roster(()),
            readers if isinstance(readers, Readers) else Readers((), ()),
        )

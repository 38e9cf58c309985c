"""The HTTP port: passes each request to the application that answers it.

Used by: the code that assembles the hub or a worker, which adds the applications: of protocols, of the console, and of
the hub itself. Each application says which requests it answers, and answers them as an ASGI application.
"""

import asyncio
import contextlib
import logging
import socket
from collections.abc import Callable, Sequence
from functools import partial
from ssl import SSLContext
from typing import cast

import uvicorn
from starlette.types import Receive, Scope, Send
from websockets.exceptions import InvalidState

from tieline.contract.limits import Limits
from tieline.protocols import protocols
from tieline.server.bounds import BoundedProtocol
from tieline.server.websocket import BoundedWebSocket
from tieline.wire.doors import Doors, OwnDoors, Port
from tieline.wire.hosts import Hosts
from tieline.wire.http import LOGIN_COOKIES, Answer, HttpApp, failure, refuse
from tieline.wire.unfinished import Unfinished

_IDLE_SECONDS = 75
"""Longest time in seconds between two requests on one connection. A client that sends a request once a minute need not
reconnect."""
_PATIENCE_SECONDS = 0.5
"""Longest time in seconds for which a client that does not read may delay the stop of the hub."""


def _matters(record: logging.LogRecord) -> bool:
    """Log filter: return true if a log record of the HTTP server should become a line in the log.

    Return false for invalid UTF-8 from a client, because the client itself is told about this error.
    """
    return record.exc_info is None or not isinstance(record.exc_info[1], UnicodeDecodeError)


class _Server(uvicorn.Server):
    """The HTTP server uvicorn, changed in three ways: it handles no signals, stops quickly, and opens no port itself.

    The hub itself handles signals, and stops its listeners in order.
    """

    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self._asked = asyncio.Event()

    def prepare(self) -> Callable[[], asyncio.Protocol]:
        """Return the function that makes the asyncio protocol of a connection."""
        self.config.load()
        self.lifespan = self.config.lifespan_class(self.config)
        kind = cast("type[BoundedProtocol]", self.config.http_protocol_class)
        return partial(kind, config=self.config, server_state=self.server_state, app_state=self.lifespan.state)

    async def serve_at(self, port: Port) -> None:
        """Serve the connections of an open port, until `ask_to_stop`."""
        self.started = True
        await self.main_loop()
        port.close()
        await self.shutdown()

    def ask_to_stop(self) -> None:
        """Make `serve_at` close all connections and return."""
        self.should_exit = True
        self._asked.set()

    async def main_loop(self) -> None:
        # Uvicorn checks ten times a second if it should stop; once a second is enough for the Date header (tick 0).
        while not await self.on_tick(0):
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(1):
                    await self._asked.wait()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        # Unlike uvicorn's own method, this one accepts a WebSocket that is closing already, and waits no longer than
        # necessary.
        del sockets
        state = self.server_state
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

    Each request goes to the first application in `apps` that serves it; the last one must serve every request. `names`
    are the host names that the port accepts. With `certificate`, which returns the current TLS settings, the port
    speaks HTTPS. From `trusted_proxies` (IP addresses and networks), the port believes the headers that tell a client's
    address and scheme. `doors` open the port.
    """

    def __init__(
        self,
        limits: Limits,
        apps: Sequence[HttpApp],
        names: Sequence[str] = (),
        unfinished: Unfinished | None = None,
        *,
        certificate: Callable[[], SSLContext] | None = None,
        trusted_proxies: Sequence[str] = (),
        doors: Doors | None = None,
    ) -> None:
        self._limits = limits
        self._apps = apps
        self._names = names
        self._unfinished = unfinished or Unfinished(limits)
        self._certificate = certificate
        self._trusted_proxies = list(trusted_proxies)
        self._doors = doors or OwnDoors()
        # Set by `start`, because the value depends on the address.
        self._hosts: Hosts
        self._login_cookies = tuple(protocol.login_cookie for protocol in protocols() if protocol.login_cookie)
        self._server: _Server | None = None
        self._serving: asyncio.Task[None] | None = None
        self.address = ""

    async def start(self, host: str, port: int) -> None:
        """Listen at this address. With port 0, the system chooses a free port.

        `address` then holds the address in use, as other machines can use it.
        """
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
            ws=cast("type[BoundedWebSocket]", partial(BoundedWebSocket, self._limits, self._unfinished)),
            ws_per_message_deflate=False,
            server_header=False,
        )
        logging.getLogger("uvicorn.error").addFilter(_matters)
        self._server = _Server(config)
        opened = await self._doors.open_port(host, port, self._server.prepare(), self._certificate)
        self._hosts = Hosts(self._names, opened.host)
        self.address = opened.address
        self._serving = asyncio.create_task(self._server.serve_at(opened))

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._refusal(scope)
        if refusal is not None:
            await refuse(scope, receive, send, refusal)
            return
        scope[LOGIN_COOKIES] = self._login_cookies
        await dispatch(self._apps, scope, receive, send)

    def _refusal(self, scope: Scope) -> Answer | None:
        """Return the error answer to a request that is refused before any route gets it.

        Return `None` if the request is accepted. A request is refused if its host name is wrong or its token is too
        large.
        """
        token_bytes_max = self._limits.token_bytes_max
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


async def dispatch(apps: Sequence[HttpApp], scope: Scope, receive: Receive, send: Send) -> None:
    """Let the first application that serves a request answer it."""
    for app in apps:
        if app.serves(scope):
            await app(scope, receive, send)
            return
    raise LookupError("the last application serves every request")

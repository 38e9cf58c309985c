"""The program of a worker: serves clients of a hub whose broker is in another process.

Used by: the hub's process, which starts it with one end of the control line. Uses: the hub, over a link; the doors that
the hub's process opens; and servers of protocols that may run in workers. A worker has no store and no data of its own.
It ends when the hub's process ends. It also ends when its link is over; the hub then starts a new worker.
"""

import asyncio
import contextlib
import logging
import os
import select
import signal
import socket
import sys
import threading
import time
from functools import partial
from pathlib import Path
from typing import Any

import structlog
import uvloop
from msgspec.structs import replace
from starlette.types import Receive, Scope, Send

from tieline.contract.limits import Limits
from tieline.contract.member import ByHomeKey
from tieline.protocols import protocols
from tieline.server.certificate import certificate_of
from tieline.server.config import ConfigError, decode_config
from tieline.server.http import HttpListener
from tieline.server.native_stream import NativeStream
from tieline.server.runtime import raise_file_limit, spare_collector, suspend_collector
from tieline.server.workers.control import (
    Begin,
    ControlLine,
    Handed,
    NotOpened,
    NotReady,
    Opened,
    Ready,
    Stop,
    ToWorker,
)
from tieline.server.workers.forwarding import Forwarder
from tieline.server.workers.handed_doors import HandedDoors
from tieline.wire.address import CannotListen, is_loopback, parse_address, reachable
from tieline.wire.home import HUB_SOCKET, read_key
from tieline.wire.http import HttpApp
from tieline.wire.hub_link.remote_hub import connect
from tieline.wire.native.unix import NativeListener
from tieline.wire.protocol import Host, Server
from tieline.wire.room import room_of
from tieline.wire.unfinished import Unfinished

_LAST_SECONDS = 5.0
"""Time after the end of the hub's process in which a worker must end by itself. One that hangs is ended then."""

log = structlog.get_logger(__name__)


class Worker:
    """The worker of this process. It waits for the hub's first message, then serves clients until the hub stops."""

    def __init__(self, sock: socket.socket) -> None:
        # Set when the process shall end. The result is the exit code.
        self._end: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._begin: asyncio.Future[Begin] = asyncio.get_running_loop().create_future()
        self._closing = contextlib.AsyncExitStack()
        self._doors = HandedDoors()
        self._line = self._doors.line = ControlLine(sock, ToWorker, self._receive, lambda _: self._finish())

    def _receive(self, message: ToWorker, connection: socket.socket | None) -> None:
        match message:
            case Begin():
                self._begin.set_result(message)
            case Opened() | NotOpened():
                self._doors.answer(message)
            case Handed(door):
                assert connection is not None, "it comes with the message"
                self._doors.take(door, connection)
            case Stop():
                self._finish()

    def _finish(self, code: int = 0) -> None:
        if not self._end.done():
            self._end.set_result(code)

    async def run(self) -> int:
        """Serve clients until the hub stops. Return the exit code of the process."""
        loop = asyncio.get_running_loop()
        # Ctrl-C reaches all processes of a terminal. The hub stops its workers itself.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
        loop.add_signal_handler(signal.SIGTERM, self._finish)
        starting = asyncio.create_task(self._start())
        try:
            await asyncio.wait((starting, self._end), return_when=asyncio.FIRST_COMPLETED)
            if starting.done():
                self._line.send(starting.result())
                spare_collector()
                await self._end
        except (ConfigError, OSError, ValueError) as error:
            self._line.send(NotReady(str(error), isinstance(error, ConfigError)))
            self._finish(1)
        finally:
            starting.cancel()
            await asyncio.gather(starting, return_exceptions=True)
            await self._closing.aclose()
            self._line.close()
        return self._end.result()

    async def _start(self) -> Ready:
        begin = await self._begin
        config = decode_config(begin.config)
        home = Path(begin.home)
        hub = await connect(Path(begin.link), begin.key)
        self._closing.callback(hub.close)
        hub.lost.add_done_callback(lambda _: self._finish(1))
        address = parse_address(config.http.listen)
        certificate = certificate_of(home, config.http, reachable(address[0]))
        key = read_key(home)
        assert key is not None, "the hub made it"
        unfinished = Unfinished(_share_of(hub.limits, begin.workers))
        host = Host(
            hub=hub,
            home=home,
            home_named=begin.home_named,
            operator=ByHomeKey(key),
            unfinished=unfinished,
            now_ms=lambda: time.time_ns() // 1_000_000,
            services=None,
            names=config.http.all_names,
            is_loopback=is_loopback(address[0]) and not config.http.is_proxied,
            certificate=certificate.context if certificate else None,
            is_insecure=config.http.insecure,
            doors=self._doors,
        )
        servers: dict[str, Server] = {}
        for protocol in protocols():
            settings = config.protocols[protocol.name]
            if protocol.in_workers and settings.starts:
                server = servers[protocol.name] = protocol.server(host, settings)
                self._closing.push_async_callback(server.stop)
        native = await NativeListener.start(hub, home / HUB_SOCKET, unfinished, self._doors)
        self._closing.callback(native.stop)
        for server in servers.values():
            try:
                await server.start()
            except CannotListen as error:
                raise ConfigError(str(error)) from error
        apps = [server.http for server in servers.values() if server.http is not None]
        forwarder = Forwarder(partial(asyncio.open_unix_connection, begin.requests), begin.key)
        http = HttpListener(
            hub.limits,
            [_RoomsFirst(forwarder), *apps, NativeStream(hub), forwarder],
            config.http.all_names,
            unfinished,
            certificate=host.certificate,
            trusted_proxies=config.http.trusted_proxies,
            doors=self._doors,
        )
        self._closing.push_async_callback(http.stop)
        await http.start(*address)
        places = {place: at for server in servers.values() for place, at in server.places().items()}
        return Ready(hub.link_id, http.address, places)


class _RoomsFirst:
    """HTTP application that passes requests for rooms on to the hub's process, because workers cannot serve rooms.

    A room is a hub with its own members behind the same HTTP port.
    """

    def __init__(self, forwarder: HttpApp) -> None:
        self._forwarder = forwarder
        self._headers = tuple(protocol.room_header for protocol in protocols() if protocol.room_header)

    def serves(self, scope: Scope) -> bool:
        """Return true if the request names a room."""
        return room_of(scope, self._headers) is not None

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on to the hub's process."""
        await self._forwarder(scope, receive, send)

    def close(self) -> None:
        """Do nothing: the forwarder is closed as an application of its own."""


def _share_of(limits: Limits, workers: int) -> Limits:
    """Return the limits of one worker, which has its share of the hub's limits for unfinished bytes.

    Each worker may hold at least one whole frame.
    """
    return replace(
        limits,
        strangers_bytes_max=max(limits.strangers_bytes_max // workers, limits.greeting_bytes_max),
        unfinished_bytes_max=max(limits.unfinished_bytes_max // workers, limits.frame_bytes_max),
    )


def _end_with(descriptor: int) -> None:
    """Wait until the hub's process is gone, and end this process if it does not end by itself.

    `descriptor` is the open file of the control line.
    """
    poll = select.poll()
    # The end of the other process is always reported.
    poll.register(descriptor, 0)
    poll.poll()
    time.sleep(_LAST_SECONDS)
    os._exit(1)


def _configure_logs() -> None:
    """Write the log as lines of JSON, which the hub's process reads."""
    stamp: list[Any] = [structlog.processors.add_log_level, structlog.processors.format_exc_info]
    last: list[Any] = [*stamp, structlog.processors.JSONRenderer()]
    structlog.configure(processors=last, logger_factory=structlog.PrintLoggerFactory(sys.stdout))
    handler = logging.StreamHandler(sys.stdout)
    strip = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    handler.setFormatter(structlog.stdlib.ProcessorFormatter(foreign_pre_chain=[], processors=[strip, *last]))
    logging.basicConfig(level=logging.WARNING, handlers=[handler])


async def _work(sock: socket.socket) -> int:
    return await Worker(sock).run()


def main() -> None:
    """Run a worker. The argument is the number of the open file that is the control line."""
    _configure_logs()
    suspend_collector()
    raise_file_limit()
    sock = socket.socket(fileno=int(sys.argv[1]))
    threading.Thread(target=_end_with, args=(os.dup(sock.fileno()),), daemon=True).start()
    sys.exit(uvloop.run(_work(sock)))


if __name__ == "__main__":
    main()

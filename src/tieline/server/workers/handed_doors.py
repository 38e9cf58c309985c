"""The doors (ports and Unix sockets) of a worker: the hub's process listens at them, and hands the connections over.

Used by: the servers in a worker, which use these doors like doors of their own process. Uses: the control line. The
hub's process opens a door when the first worker asks for it, and keeps it open while workers come and go.
"""

import asyncio
import socket
import weakref
from collections.abc import Callable
from pathlib import Path
from ssl import SSLContext

from tieline.server.workers.control import ControlLine, Load, NotOpened, Opened, OpenPort, OpenSocket
from tieline.wire.acceptor import Acceptor
from tieline.wire.doors import Closable, Doors, Make, Port
from tieline.wire.tls import TlsListener

_LOAD_SECONDS = 0.05
"""Time between two messages about the number of connections: a client that connects again does not return sooner."""


class HandedDoors(Doors):
    """Ports and Unix sockets at which the hub's process listens for this worker."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        # Set when the control line is there.
        self.line: ControlLine
        self._doors: dict[int, Acceptor] = {}
        # Doors that the hub's process has been asked to open, by number.
        self._asked: dict[int, asyncio.Future[tuple[str, int] | None]] = {}
        # Number of open connections, and of all connections.
        self._connections = 0
        self._taken = 0
        self._telling: asyncio.TimerHandle | None = None

    # The Doors port.

    async def open_socket(self, path: Path, make: Make) -> Closable:
        """Ask the hub's process to listen at the Unix socket `path`, and serve the connections that it hands over.

        `make` makes the asyncio protocol of a connection.
        """
        acceptor = Acceptor(None, lambda _: make())
        await self._open(acceptor, lambda door: OpenSocket(door, str(path)))
        return acceptor

    async def open_port(
        self, host: str, port: int, make: Make, certificate: Callable[[], SSLContext] | None = None
    ) -> Port:
        """Ask the hub's process to listen at a port, and serve the connections that it hands over.

        `make` makes the asyncio protocol of a connection. `certificate` returns the TLS settings, if the port speaks
        TLS. This process does the TLS handshakes.
        """
        acceptor = Acceptor(None, lambda _: make()) if certificate is None else TlsListener(None, make, certificate)
        address = await self._open(acceptor, lambda door: OpenPort(door, host, port))
        assert address is not None, "a port has an address"
        return Port(acceptor, *address)

    async def _open(
        self, acceptor: Acceptor, message: Callable[[int], OpenSocket | OpenPort]
    ) -> tuple[str, int] | None:
        door = len(self._doors)
        self._doors[door] = acceptor
        asked: asyncio.Future[tuple[str, int] | None] = self._loop.create_future()
        self._asked[door] = asked
        self.line.send(message(door))
        return await asked

    # Messages of the hub's process.

    def answer(self, answer: Opened | NotOpened) -> None:
        """Handle the answer of the hub's process to the request to open a door."""
        asked = self._asked.pop(answer.door)
        if isinstance(answer, Opened):
            asked.set_result(answer.address)
        else:
            asked.set_exception(OSError(answer.error, answer.why) if answer.error else OSError(answer.why))

    def take(self, door: int, connection: socket.socket) -> None:
        """Serve a client's connection, which the hub's process accepted at the door with the number `door`."""
        self._taken += 1
        self._count(1)
        # The transport drops the socket when the connection is over.
        weakref.finalize(connection, self._count, -1).atexit = False
        self._doors[door].take(connection)

    def _count(self, change: int) -> None:
        self._connections += change
        if self._telling is None:
            self._telling = self._loop.call_later(_LOAD_SECONDS, self._tell)

    def _tell(self) -> None:
        self._telling = None
        self.line.send(Load(self._connections, self._taken))

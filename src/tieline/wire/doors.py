"""Doors: the sockets at which clients reach a hub. A server says where it wants to listen, and gets connections.

Used by: the HTTP port, the hub's own protocol, and servers of protocols that may run in workers. Uses: the event loop.
`Doors` is the interface. `OwnDoors` listens in this process. In a worker, the hub's process listens and hands over the
connections. A server cannot tell one from the other.
"""

import asyncio
import socket
from collections.abc import Callable
from pathlib import Path
from ssl import SSLContext
from typing import Protocol

from tieline.wire.address import reachable
from tieline.wire.tls import BACKLOG, TlsListener
from tieline.wire.unix import UnixServer, listen

Make = Callable[[], asyncio.Protocol]
"""Makes the asyncio protocol of a new connection."""

_UNREAD_SECONDS = 120.0
"""Longest time in seconds for which a client may leave sent data unread. Without this limit, a client that the hub
disconnects could keep its connection open for ever, if it never reads the reason."""


class Closable(Protocol):
    """Interface of an object that accepts connections and can stop that, such as a server on a port."""

    def close(self) -> None:
        """Accept no more connections. Accepted connections stay open."""


class Port:
    """An open port. `host` and `port` are the address at which it listens."""

    def __init__(self, listening: Closable, host: str, port: int) -> None:
        self.host = host
        self.port = port
        self._listening = listening

    @property
    def address(self) -> str:
        """The address as other machines can use it, as `HOST:PORT`."""
        shown = reachable(self.host)
        return f"[{shown}]:{self.port}" if ":" in shown else f"{shown}:{self.port}"

    def close(self) -> None:
        """Accept no more connections. Accepted connections stay open."""
        self._listening.close()


class Doors(Protocol):
    """Interface for opening the doors of a hub: its Unix sockets and its ports."""

    async def open_socket(self, path: Path, make: Make) -> Closable:
        """Open a Unix socket at `path`, for the user of the hub alone.

        `make` makes the asyncio protocol of each connection. Raises an `OSError` if the socket cannot be opened, for
        example because another process listens at the path.
        """

    async def open_port(
        self, host: str, port: int, make: Make, certificate: Callable[[], SSLContext] | None = None
    ) -> Port:
        """Open a port. With port 0, the system chooses a free port. Raises `OSError` if the port cannot be opened.

        `make` makes the asyncio protocol of a connection. `certificate` returns the current TLS settings. Without it,
        the port does not speak TLS.
        """


class OwnDoors(Doors):
    """Unix sockets and ports at which this process itself listens."""

    async def open_socket(self, path: Path, make: Make) -> UnixServer:
        """Listen on a Unix socket."""
        return await listen(path, make, mode=0o600)

    async def open_port(
        self, host: str, port: int, make: Make, certificate: Callable[[], SSLContext] | None = None
    ) -> Port:
        """Listen on a port."""
        sock = bound(host, port)
        address = sock.getsockname()[:2]
        if certificate is not None:
            sock.listen(BACKLOG)
            return Port(TlsListener(sock, make, certificate), *address)
        server = await asyncio.get_running_loop().create_server(make, sock=sock, backlog=BACKLOG)
        return Port(server, *address)


def bound(host: str, port: int) -> socket.socket:
    """Return a socket that is bound to an address and does not listen yet.

    Raises `OSError` if the address is in use or not allowed.
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
    return sock

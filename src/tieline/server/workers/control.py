"""The control line between the hub's process and a worker: messages in order, some with an open connection.

Used by: both processes. Uses: a pair of connected Unix sockets. A message is a line of JSON. A connection of a client
travels beside its message, as the kernel passes open files between processes. When one process ends in any way, the
other one learns it at once.
"""

import asyncio
import socket
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec
import structlog
from msgspec import Raw, Struct

_READ_BYTES = 256 * 1024  # a line with the configuration is much smaller
_FILES_MAX = 64  # the kernel never passes more than the files of one message at once

log = structlog.get_logger(__name__)


class Begin(Struct, frozen=True, tag=True):
    """The hub's first message to a worker: everything that the worker needs to start."""

    number: int
    """Number of the worker, from 1."""
    workers: int
    """Number of all workers."""
    home: str
    home_named: bool
    config: Raw
    """The configuration of the hub, as `Config.encode` returns it."""
    link: str
    """Path of the socket for links."""
    requests: str
    """Path of the socket for forwarded requests."""
    key: str
    """Secret for both sockets."""


class Opened(Struct, frozen=True, tag=True):
    """The hub's answer to `OpenSocket` or `OpenPort`: the door (socket or port) with this number is open.

    `address` is the host and the port; `None` for a Unix socket.
    """

    door: int
    address: tuple[str, int] | None = None


class NotOpened(Struct, frozen=True, tag=True):
    """The hub's answer to `OpenSocket` or `OpenPort`: the door cannot be opened. `error` is the number of the error."""

    door: int
    error: int | None
    why: str


class Handed(Struct, frozen=True, tag=True):
    """Message of the hub: a client has connected at this door. The connection itself comes with the message."""

    door: int


class Stop(Struct, frozen=True, tag=True):
    """Message of the hub, because it stops: the worker must end all its connections, and itself."""


class OpenSocket(Struct, frozen=True, tag=True):
    """Request of a worker for the connections of a Unix socket. `door` is the worker's own number for this door."""

    door: int
    path: str


class OpenPort(Struct, frozen=True, tag=True):
    """Request of a worker for the connections of a port. `door` is the worker's own number for this door."""

    door: int
    host: str
    port: int


class Ready(Struct, frozen=True, tag=True):
    """Message of a worker: all its doors (sockets and ports) are open."""

    link: str
    """Id of the worker's link."""
    http: str
    """Address of the HTTP port."""
    places: Mapping[str, str]
    """Addresses of the worker's protocols, for `run.json`."""


class NotReady(Struct, frozen=True, tag=True):
    """Message of a worker: it cannot start, for the reason `why`, and ends."""

    why: str
    is_setting: bool
    """True if a setting is the reason, and `why` says it all."""


class Load(Struct, frozen=True, tag=True):
    """Message of a worker: the number of connections that it has at this moment."""

    connections: int
    taken: int
    """Number of all connections that the worker has got, with those that are over."""


ToWorker = Begin | Opened | NotOpened | Handed | Stop
ToPool = OpenSocket | OpenPort | Ready | NotReady | Load

Unsent = tuple[ToWorker | ToPool, socket.socket]
"""A message that was not sent, with its connection."""

_encode = msgspec.json.Encoder().encode


class ControlLine:
    """One end of the control line between the hub's process and a worker.

    `receive` is called with each message of the other process, and with the connection if there is one. `lost` is
    called when the other process is gone, with the connections that could not be sent, and their messages.
    """

    def __init__(
        self,
        sock: socket.socket,
        kinds: Any,
        receive: Callable[[Any, socket.socket | None], None],
        lost: Callable[[Sequence[Unsent]], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        sock.setblocking(False)
        self._sock: socket.socket | None = sock
        self._decoder = msgspec.json.Decoder(kinds)
        self._receive = receive
        self._lost = lost
        # Bytes of a line that is not complete yet, and connections whose lines have not been handled.
        self._buffer = b""
        self._files: deque[socket.socket] = deque()
        # Bytes that the kernel has not taken yet, each with the message and the connection that go with them.
        self._unsent: deque[tuple[bytes, Unsent | None]] = deque()
        self._loop.add_reader(sock.fileno(), self._read)

    def send(self, message: ToWorker | ToPool, connection: socket.socket | None = None) -> None:
        """Send a message, and with it a connection, if given. Close the connection in this process when it was sent."""
        if self._sock is None:
            if connection is not None:
                connection.close()
            return
        self._unsent.append((_encode(message) + b"\n", None if connection is None else (message, connection)))
        if len(self._unsent) == 1:
            self._write()

    def close(self) -> None:
        """Close this end."""
        sock, self._sock = self._sock, None
        if sock is None:
            return
        self._loop.remove_reader(sock.fileno())
        self._loop.remove_writer(sock.fileno())
        sock.close()
        for _, unsent in self._unsent:
            if unsent is not None:
                unsent[1].close()
        for connection in self._files:
            connection.close()

    def _write(self) -> None:
        assert self._sock is not None, "a closed line writes nothing"
        try:
            while self._unsent:
                data, unsent = self._unsent[0]
                if unsent is None:
                    sent = self._sock.send(data)
                else:
                    # The connection goes with the first byte.
                    sent = socket.send_fds(self._sock, [data], [unsent[1].fileno()])
                    unsent[1].close()
                if sent < len(data):
                    self._unsent[0] = (data[sent:], None)
                else:
                    self._unsent.popleft()
        except BlockingIOError:
            self._loop.add_writer(self._sock.fileno(), self._write)
        except OSError:
            self._end()
        else:
            self._loop.remove_writer(self._sock.fileno())

    def _read(self) -> None:
        assert self._sock is not None, "a closed line reads nothing"
        try:
            data, files, _, _ = socket.recv_fds(self._sock, _READ_BYTES, _FILES_MAX)
        except BlockingIOError:
            return
        except OSError:
            data, files = b"", []
        self._files += [socket.socket(fileno=number) for number in files]
        if not data:
            self._end()
            return
        *lines, self._buffer = (self._buffer + data).split(b"\n")
        for line in lines:
            try:
                message = self._decoder.decode(line)
            except msgspec.MsgspecError:
                log.exception("a control line is broken")
                self._end()
                return
            self._receive(message, self._files.popleft() if isinstance(message, Handed) else None)

    def _end(self) -> None:
        unsent = [each for _, each in self._unsent if each is not None]
        self._unsent.clear()
        self.close()
        self._loop.call_soon(self._lost, unsent)

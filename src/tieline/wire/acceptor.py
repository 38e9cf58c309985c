"""The acceptor: accepts the waiting connections of a listening socket, also in the middle of an event loop's turn.

Used by: a server for which the order between a new connection and a message matters. Uses: the event loop.

For a client, its connection is open as soon as the kernel has queued it. An event loop accepts the connection some
turns later. If the server reads a message of another client in between, it does not know the new client yet, and the
new client misses the message. So such a server calls `accept_all` before it handles a message that it has read.
`accept_all` makes the asyncio protocol of each new connection at once. The transport is made a few turns later.
"""

import asyncio
import socket
from collections.abc import Callable

import structlog

_ACCEPT_MAX = 1024
"""Most connections that one call of `accept_all` accepts."""

_REST_SECONDS = 1.0
"""Pause in seconds after a failed accept, for example because too many files are open. Without the pause, the event
loop would retry without end and use the whole processor."""

log = structlog.get_logger(__name__)


class Acceptor:
    """Accepts the connections of the listening socket `listener`.

    `factory` makes the asyncio protocol of each connection. Without a listening socket, another process accepts the
    connections, and `take` gets them.
    """

    def __init__(
        self, listener: socket.socket | None, factory: Callable[[socket.socket], asyncio.BaseProtocol]
    ) -> None:
        self._loop = asyncio.get_running_loop()
        # None once closed, or if another process has it.
        self._listener: socket.socket | None = listener
        self._factory = factory
        # Tasks that make transports.
        self._opening: set[asyncio.Task[None]] = set()
        # Timer that ends a pause after a failure.
        self._resting: asyncio.TimerHandle | None = None
        if listener is not None:
            self._loop.add_reader(listener.fileno(), self.accept_all)

    def accept_all(self) -> None:
        """Accept all connections in the kernel's queue, and make the asyncio protocol of each at once."""
        if self._resting is not None:
            return
        for _ in range(_ACCEPT_MAX):
            if self._listener is None:
                return
            try:
                accepted, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except ConnectionAbortedError:
                continue
            except OSError as error:
                self._rest(error)
                return
            self.take(accepted)

    def take(self, accepted: socket.socket) -> None:
        """Make the asyncio protocol of an accepted connection, and open the connection."""
        accepted.setblocking(False)
        task = self._loop.create_task(self._open(accepted, self._factory(accepted)))
        self._opening.add(task)
        task.add_done_callback(self._opening.discard)

    async def _open(self, accepted: socket.socket, protocol: asyncio.BaseProtocol) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, accepted)
        except OSError as error:
            accepted.close()
            protocol.connection_lost(error)

    def _rest(self, error: OSError) -> None:
        assert self._listener is not None, "it has just failed"
        log.warning("connections wait: none can be accepted now", error=str(error))
        self._loop.remove_reader(self._listener.fileno())
        self._resting = self._loop.call_later(_REST_SECONDS, self._resume)

    def _resume(self) -> None:
        self._resting = None
        if self._listener is not None:
            self._loop.add_reader(self._listener.fileno(), self.accept_all)

    def close(self) -> None:
        """Stop listening. Accepted connections stay open."""
        listener, self._listener = self._listener, None
        if self._resting is not None:
            self._resting.cancel()
        if listener is not None:
            self._loop.remove_reader(listener.fileno())
            listener.close()

    async def wait_closed(self) -> None:
        """Wait until the event loop has made the transport of every accepted connection."""
        if self._opening:
            await asyncio.wait(self._opening)

    def is_serving(self) -> bool:
        """Return true until `close` is called."""
        return self._listener is not None

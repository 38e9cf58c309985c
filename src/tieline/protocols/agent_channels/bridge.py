"""Bridges: a bridge connects a local channel to TCP, and forwards messages both ways.

Used by: agents that talk across machines. Uses: `client` (a bridge is an ordinary client of its channel), `connection`
and TCP. A bridge gives no meaning to messages, and it does not authenticate, although agents act on the messages that
they read. So a bridge leaves this machine only with TLS, or if its user says that the network is safe (`insecure`), as
a VPN or a tunnel is.

A fault of a TCP peer closes only its own connection. When TCP delivers faster than the local channel accepts, the
bridge stops reading from TCP until the channel has caught up. A TCP peer that does not read is disconnected when too
many bytes wait for it.
"""

import asyncio
import os
import random
from collections.abc import Awaitable, Callable
from pathlib import Path
from ssl import SSLContext
from typing import Literal, Protocol

from tieline.protocols.agent_channels.client import ChannelClient
from tieline.protocols.agent_channels.codec import MESSAGE_BYTES_MAX, InvalidMessage, Message, encode
from tieline.protocols.agent_channels.connection import UNSENT_BYTES_MAX, Connection
from tieline.protocols.agent_channels.events import Emitter
from tieline.wire.address import is_loopback
from tieline.wire.backoff import Backoff
from tieline.wire.tls import TlsListener, listen_tls

Status = Literal["running", "stopped", "error"]


class Bridge(Protocol):
    """Interface of a bridge. A bridge forwards messages between a local channel and another transport, such as TCP."""

    async def start(self) -> None:
        """Connect the bridge to the local channel and to the other transport."""

    async def stop(self) -> None:
        """Disconnect from the local channel and from the other transport.

        It is no error if the bridge is already stopped or was never started.
        """

    @property
    def status(self) -> Status:
        """State of the bridge. "error" means that one of the two connections is lost, and is not opened again."""


def _check_exposure(host: str, tls: SSLContext | None, *, insecure: bool) -> None:
    if tls is None and not insecure and not is_loopback(host):
        raise ValueError(f"a bridge to {host} needs TLS (tls=…), or insecure=True if the network itself is safe")


class _TcpBridge(Emitter):
    """Base class of both TCP bridges. It has the connection to the local channel, and the order of start and stop."""

    def __init__(self, channel_path: str | os.PathLike[str]) -> None:
        super().__init__()
        self.channel_path = Path(channel_path)
        self._status: Status = "stopped"
        self._starting = False
        # The bridge's own client of the channel, from `start` to `stop`.
        self._local: ChannelClient | None = None

    @property
    def status(self) -> Status:
        """State of the bridge. "error" means that one of the two connections is lost, and is not opened again."""
        return self._status

    async def start(self) -> None:
        """Connect to the local channel, then open TCP. If either step fails, both are closed again."""
        if self._starting or self._status == "running":
            raise RuntimeError("Bridge already running")
        self._starting = True
        try:
            # After an error, one side of the bridge may still be open.
            await self.stop()
            await self._open_local()
            await self._open_tcp()
            if self._local is None:
                raise ConnectionAbortedError("Bridge stopped during connect")
            self._status = "running" if self._local.connected else "error"
        except BaseException:
            await self.stop()
            raise
        finally:
            self._starting = False

    async def stop(self) -> None:
        """Disconnect from the local channel and from TCP.

        It is no error if the bridge is already stopped or was never started.
        """
        self._status = "stopped"
        # Clear `_local` first, so that any new TCP connection is refused.
        local, self._local = self._local, None
        await self._close_tcp()
        if local is not None:
            local.disconnect()

    async def _open_tcp(self) -> None:
        raise NotImplementedError

    async def _close_tcp(self) -> None:
        raise NotImplementedError

    def _tcp_connections(self) -> tuple[Connection, ...]:
        raise NotImplementedError

    def _connection(self, name: str) -> Connection:
        return Connection(self, name, MESSAGE_BYTES_MAX, UNSENT_BYTES_MAX)

    async def _open_local(self) -> None:
        local = self._local = ChannelClient(self.channel_path, max_message_size=MESSAGE_BYTES_MAX)
        local.on("message", self._hear_local)
        local.on("drain", self._resume_tcp)
        local.on("disconnect", self._lose_local)
        local.on("error", self._hear_local_error)
        await local.connect()

    def _hear_local(self, message: Message) -> None:
        self._to_tcp(message, sender=None)
        self._emit("message", message, "channel")

    def _hear_local_error(self, error: Exception) -> None:
        self._emit("error", error)
        # Invalid input disconnects the client without a "disconnect" event.
        if self._local is not None and not self._local.connected:
            self._lose_local()

    def _lose_local(self) -> None:
        if self._local is None:
            return
        self._status = "error"
        self._resume_tcp()
        self._emit("error", ConnectionError("Local channel disconnected"))

    def _resume_tcp(self) -> None:
        for connection in self._tcp_connections():
            connection.resume_reading()

    def _to_tcp(self, message: Message, *, sender: Connection | None) -> None:
        receivers = [connection for connection in self._tcp_connections() if connection is not sender]
        if not receivers:
            return
        try:
            frame = encode(message, max_size=MESSAGE_BYTES_MAX)
        except InvalidMessage as error:
            self._emit("error", error)
            return
        for connection in receivers:
            connection.write(frame)

    # Callbacks of the TCP connections

    def connection_opened(self, connection: Connection) -> None:
        """Register a new TCP connection."""
        raise NotImplementedError

    def data_arrived(self) -> None:
        """Do nothing: asyncio accepts the TCP clients, so the bridge has no waiting clients to accept here."""

    def message_received(self, connection: Connection, message: Message) -> None:
        """Forward a message from a TCP peer to the local channel and to the other TCP clients."""
        local = self._local
        if local is not None and local.connected:
            try:
                local.send(message)
            except InvalidMessage as error:
                # Our encoding of a number can be longer than the sender's, so the message can exceed the size limit.
                connection.fail(error)
                return
            except ConnectionError:
                # The local client has already emitted an event for this.
                pass
            if not local.writable:
                for reader in self._tcp_connections():
                    reader.pause_reading()
        # spec, Server Mode: what a TCP client says goes to the channel and to the other TCP clients.
        self._to_tcp(message, sender=connection)
        self._emit("message", message, connection.id)

    def connection_drained(self, connection: Connection) -> None:
        """Do nothing: the bridge never waits for a slow TCP peer.

        If too many bytes wait for a peer, the bridge disconnects the peer.
        """

    def connection_failed(self, connection: Connection, error: Exception) -> None:
        """Emit an "error" event with the reason why a TCP connection is being closed."""
        del connection
        self._emit("error", error)

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        """Unregister a closed TCP connection."""
        raise NotImplementedError


class TcpBridgeServer(_TcpBridge):
    """Bridge that offers a local channel to TCP clients.

    Each TCP client receives the messages of the channel and of the other TCP clients. Events, with the arguments of
    their handlers: "tcp-connect" (client_id); "tcp-disconnect" (client_id); "message" (the message, and its origin:
    "channel" or a client_id); "error" (an exception). Client ids are `tcp-0`, `tcp-1`, … in the order of connection.
    """

    EVENTS = ("tcp-connect", "tcp-disconnect", "message", "error")

    def __init__(
        self,
        channel_path: str | os.PathLike[str],
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        tls: SSLContext | None = None,
        insecure: bool = False,
    ) -> None:
        """Set the parameters of the bridge. `start` opens it.

        `tls` are the TLS settings with the bridge's certificate. Without them, raise `ValueError` for a host that other
        machines can reach, unless `insecure` is true.
        """
        _check_exposure(host, tls, insecure=insecure)
        super().__init__(channel_path)
        self.host = host
        self._tls = tls
        # The requested port. With 0, the operating system chooses a port at each start.
        self._port_wanted = port
        self._server: asyncio.Server | TlsListener | None = None
        self._remotes: dict[str, Connection] = {}
        self._next_remote = 0

    @property
    def port(self) -> int:
        """The port that the bridge listens on. Before `start`, it is the requested port."""
        if self._server is None or not self._server.sockets:
            return self._port_wanted
        port: int = self._server.sockets[0].getsockname()[1]
        return port

    def connection_opened(self, connection: Connection) -> None:
        """Register a TCP client. If the bridge was stopped while the client connected, disconnect the client."""
        if self._local is None:
            connection.abort()
            return
        self._remotes[connection.id] = connection
        self._emit("tcp-connect", connection.id)

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        """Unregister a TCP client that has disconnected, and emit "tcp-disconnect"."""
        if self._remotes.pop(connection.id, None) is None:
            return
        if error is not None:
            self._emit("error", error)
        self._emit("tcp-disconnect", connection.id)

    async def _open_tcp(self) -> None:
        tls = self._tls
        if tls is not None:
            self._server = listen_tls((self.host, self._port_wanted), self._accept, lambda: tls)
            return
        self._server = await asyncio.get_running_loop().create_server(self._accept, self.host, self._port_wanted)

    async def _close_tcp(self) -> None:
        server, self._server = self._server, None
        if server is None:
            return
        server.close()
        leaving = tuple(self._remotes.values())
        for remote in leaving:
            remote.close()
        await asyncio.gather(*(remote.wait_closed() for remote in leaving))
        await server.wait_closed()

    def _tcp_connections(self) -> tuple[Connection, ...]:
        return tuple(self._remotes.values())

    def _accept(self) -> Connection:
        client_id = f"tcp-{self._next_remote}"
        self._next_remote += 1
        return self._connection(client_id)


class TcpBridgeClient(_TcpBridge):
    """Bridge that connects a local channel to a remote `TcpBridgeServer`. It reconnects when TCP is lost.

    Messages that arrive while TCP is down are dropped. Events, with the arguments of their handlers: "tcp-connect" ();
    "tcp-disconnect" (); "reconnecting" (number of the attempt, delay in ms); "message" (the message, and its origin:
    "channel" or "tcp"); "error" (an exception).
    """

    EVENTS = ("tcp-connect", "tcp-disconnect", "reconnecting", "message", "error")

    def __init__(  # noqa: PLR0913 - where to, how to come back, and what tests replace
        self,
        channel_path: str | os.PathLike[str],
        host: str,
        port: int,
        reconnect: bool = True,
        reconnect_delay: int = 500,
        max_reconnect_delay: int = 30_000,
        *,
        tls: SSLContext | None = None,
        insecure: bool = False,
        sleep: Callable[[float], Awaitable[object]] = asyncio.sleep,
        chance: Callable[[], float] = random.random,
    ) -> None:
        """Set the parameters of the bridge. `start` opens it. Delays are in milliseconds.

        The delay before attempt n is `reconnect_delay` doubled n - 1 times, with a jitter of 25 % either way, and never
        more than `max_reconnect_delay`. The jitter keeps many bridges from reconnecting at the same instant. `sleep`
        waits for a number of seconds. `chance` returns a number from 0 to 1. `tls` are the TLS settings of the client.
        Without them, raise `ValueError` for a host on another machine, unless `insecure` is true.
        """
        _check_exposure(host, tls, insecure=insecure)
        super().__init__(channel_path)
        self._tls = tls
        self.host = host
        self.port = port
        self.reconnect = reconnect
        self.reconnect_delay = reconnect_delay
        self.max_reconnect_delay = max_reconnect_delay
        self._sleep = sleep
        self._chance = chance
        # The open TCP connection, if any.
        self._remote: Connection | None = None
        # Task that runs from the loss of TCP until TCP is back or the bridge is stopped.
        self._reconnecting: asyncio.Task[None] | None = None

    def connection_opened(self, connection: Connection) -> None:
        """Register the new TCP connection. If the bridge was stopped meanwhile, close the connection."""
        if self._local is None:
            connection.abort()
            return
        self._remote = connection
        self._emit("tcp-connect")

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        """Unregister the lost TCP connection, and start to reconnect if `reconnect` is set."""
        if connection is not self._remote:
            return
        self._remote = None
        if error is not None:
            self._emit("error", error)
        self._emit("tcp-disconnect")
        # A handler may have stopped the bridge.
        if self._local is None:
            return
        # spec, Client Mode: it reconnects with exponential backoff.
        if self.reconnect:
            self._reconnecting = asyncio.get_running_loop().create_task(self._return_to_tcp())
        else:
            self._status = "error"

    async def _open_tcp(self) -> None:
        await asyncio.get_running_loop().create_connection(
            lambda: self._connection("tcp"), self.host, self.port, ssl=self._tls
        )

    async def _close_tcp(self) -> None:
        task, self._reconnecting = self._reconnecting, None
        remote, self._remote = self._remote, None
        if remote is not None:
            remote.close()
            await remote.wait_closed()
        elif task is not None:
            task.cancel()
        if task is not None:
            await asyncio.wait([task])

    def _tcp_connections(self) -> tuple[Connection, ...]:
        return () if self._remote is None else (self._remote,)

    async def _return_to_tcp(self) -> None:
        attempt = 0
        while self._remote is None:
            attempt += 1
            delay = self._delay(attempt)
            self._emit("reconnecting", attempt, delay)
            await self._sleep(delay / 1000)
            try:
                await self._open_tcp()
            except OSError:
                # The remote server does not listen yet, so try again.
                continue
            return

    def _delay(self, attempt: int) -> int:
        # Apply the maximum after the jitter, so that the longest delay does not vary.
        backoff = Backoff(self.reconnect_delay, 2 * self.max_reconnect_delay, jitter=0.25, attempts_max=None)
        return min(round(backoff.wait_ms(attempt - 1, self._chance)), self.max_reconnect_delay)

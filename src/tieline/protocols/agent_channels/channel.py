"""A channel: a Unix socket that forwards each message of a client to all other clients.

Used by: `group`, and the hub's server. The server stores each message first, and then forwards it itself. Uses:
`connection` and `wire.unix`. A channel knows no names of clients and no history, and gives no meaning to messages.
Client ids are `client-0`, `client-1`, … in the order of connection. A client cannot choose one receiver, because each
message goes to the whole channel.

A faulty client harms only itself. Invalid input closes the client's connection, after the messages before the invalid
input were delivered. A client that does not read is closed when its write buffer exceeds the limit. A client that stops
in the middle of a frame (an encoded message) delays no other client.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tieline.protocols.agent_channels.codec import MESSAGE_BYTES_MAX, InvalidMessage, Message, encode
from tieline.protocols.agent_channels.connection import UNSENT_BYTES_MAX, Connection
from tieline.protocols.agent_channels.events import Emitter
from tieline.protocols.agent_channels.large import LargeMessage
from tieline.wire import unix
from tieline.wire.acceptor import Acceptor
from tieline.wire.frames import encode_frame
from tieline.wire.unfinished import Unfinished

Post = Callable[[str, Message], None]
PostLarge = Callable[[str, LargeMessage], None]


class ClientError(Exception):
    """Exception of the "error" event: the reason why a client is closed, or an error of its socket.

    It has the client's id and the text of the cause.
    """

    def __init__(self, client_id: str, text: str) -> None:
        super().__init__(text)
        self.client_id = client_id


class Channel(Emitter):
    """A Unix socket server that forwards each client's messages to the other clients.

    Events, with the arguments of their handlers: "message" (message, client_id); "connect" (client_id), before anything
    is read from the client, so that a handler can `disconnect` the client before its first message; "disconnect"
    (client_id); "drain" (client_id), when a full write buffer has room again; "error" (a `ClientError`).
    """

    EVENTS = ("message", "connect", "disconnect", "drain", "error")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        echo_to_sender: bool = False,
        max_message_size: int = MESSAGE_BYTES_MAX,
        mode: int | None = None,
        post: Post | None = None,
        post_large: PostLarge | None = None,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        unfinished: Unfinished | None = None,
    ) -> None:
        """Set the parameters of the channel. `start` opens it.

        With `echo_to_sender`, a client also gets its own messages back. `mode` sets the permissions of the socket file.
        If `mode` is None, the umask decides. `post` is a callback that
        handles each client's message. With `post`, the channel does not forward messages: its owner calls `send`,
        `send_all` or `broadcast`. `post_large` is the callback for a message with very many values, which it gets
        undecoded. Without `post_large`, such a message is decoded and passed to `post`. `unfinished` limits the memory
        for messages that clients have sent only in part. Several channels can share this limit.
        """
        super().__init__()
        self.path = Path(path)
        self.echo_to_sender = echo_to_sender
        self.max_message_size = max_message_size
        self.unsent_bytes_max = unsent_bytes_max
        self._mode = mode
        self._unfinished = unfinished
        self._post = post
        self._post_large = post_large
        # True while `start` runs. The first clients may connect before `start` returns.
        self._starting = False
        # Set from `start` to `stop`.
        self._server: unix.UnixServer | None = None
        self._acceptor: Acceptor | None = None
        # Every open connection, by client id, in the order of connection.
        self._clients: dict[str, Connection] = {}
        self._next_client = 0

    @property
    def started(self) -> bool:
        """True if the channel accepts clients."""
        return self._server is not None

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        return len(self._clients)

    @property
    def client_ids(self) -> list[str]:
        """Ids of the connected clients, in the order of connection."""
        return list(self._clients)

    async def start(self) -> None:
        """Open the socket and accept clients.

        Raises `RuntimeError` when already started, and an `OSError` if it cannot listen, for example because another
        process listens at the path.
        """
        if self._starting or self._server is not None:
            raise RuntimeError("Channel already started")
        # spec, Channel, Stale socket detection: `unix.listen_with` replaces a stale socket and refuses a live one.
        self._starting = True
        try:
            self._server = await unix.listen_with(self.path, self._serve, mode=self._mode)
        finally:
            self._starting = False

    async def stop(self) -> None:
        """Disconnect all clients and remove the socket.

        Messages that the channel sent before still reach the clients.
        """
        server, self._server = self._server, None
        if server is None:
            return
        leaving = tuple(self._clients.values())
        for client in leaving:
            client.close()
        await server.retire()
        await asyncio.gather(*(client.wait_closed() for client in leaving))
        await server.wait_closed()

    # Sending to all clients

    def broadcast(self, message: Message | Mapping[str, Any], *, exclude: str | None = None) -> None:
        """Send a message to every client except `exclude`. Raises `InvalidMessage` if the value is not a message."""
        self.send_all(encode(message, max_size=self.max_message_size), exclude=exclude)

    def send_all(self, frame: bytes, *, exclude: str | None = None) -> int:
        """Send a complete frame (an encoded message) to every client except `exclude`, at the end of this turn.

        All frames of one turn of the event loop go to a client in one write. Returns the number of clients.
        """
        sent = 0
        # Iterate over a copy, because a write may remove a client that is too slow.
        for client_id, client in tuple(self._clients.items()):
            if client_id != exclude and client.write_soon(frame):
                sent += 1
        return sent

    # Methods for one client. An id that is not connected is no error, because clients disconnect at any time.

    def send(self, client_id: str, frame: bytes) -> bool:
        """Send one or several complete frames (encoded messages) to one client. Returns False if the client is gone."""
        client = self._clients.get(client_id)
        return client is not None and client.write(frame)

    def unsent_bytes(self, client_id: str) -> int:
        """Return the number of bytes in a client's write buffer that the operating system has not taken yet."""
        client = self._clients.get(client_id)
        return 0 if client is None else client.unsent_bytes

    def pause_reading(self, client_id: str) -> None:
        """Stop reading from a client.

        Messages in the bytes that were already read (at most 256 KiB) are still handled.
        """
        if client := self._clients.get(client_id):
            client.pause_reading()

    def resume_reading(self, client_id: str) -> None:
        """Read from a client again, after `pause_reading`."""
        if client := self._clients.get(client_id):
            client.resume_reading()

    def disconnect(self, client_id: str, reason: str) -> None:
        """Close the connection of one client.

        The "error" event has the reason, because the protocol cannot send the reason to the client.
        """
        if client := self._clients.get(client_id):
            client.fail(ConnectionError(reason))

    def peer_uid(self, client_id: str) -> int | None:
        """Return the user id of a client's process. None if the client is gone or the user id is unknown."""
        client = self._clients.get(client_id)
        return None if client is None or client.accepted is None else unix.socket_uid(client.accepted)

    # Callbacks of the connections

    def connection_opened(self, connection: Connection) -> None:
        """Register a client, unless the channel was stopped while the client connected."""
        # spec, Channel: stop() disconnects all, so nobody connects after it.
        if self._server is None and not self._starting:
            connection.abort()
            return
        self._clients[connection.id] = connection
        self._emit("connect", connection.id)

    def data_arrived(self) -> None:
        """Accept the clients that wait for a connection, so that they also get the messages that were just read."""
        if self._acceptor is not None:
            self._acceptor.accept_all()

    def message_received(self, connection: Connection, message: Message) -> None:
        """Forward a message to the other clients. If the callback `post` is set, pass the message to it instead."""
        if self._post is None:
            self._fan_out(connection, message)
        else:
            self._post(connection.id, message)
        self._emit("message", message, connection.id)

    def _receive_large(self, connection: Connection, large: LargeMessage) -> None:
        """Forward a large message to the other clients, or pass it to `post_large` or `post` if one of them is set.

        The message is decoded only for `post` or for a handler of "message".
        """
        if self._post is None:
            self.send_all(encode_frame(large.payload), exclude=None if self.echo_to_sender else connection.id)
        elif self._post_large is not None:
            self._post_large(connection.id, large)
        else:
            self._post(connection.id, large.message())
        if self._has_handler("message"):
            self._emit("message", large.message(), connection.id)

    def connection_drained(self, connection: Connection) -> None:
        """Emit "drain", because a client's full write buffer has room again."""
        self._emit("drain", connection.id)

    def connection_failed(self, connection: Connection, error: Exception) -> None:
        """Emit an "error" event with the reason why a client is being closed."""
        self._report(connection.id, error)

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        """Unregister a client whose connection is closed, and emit "disconnect"."""
        if self._clients.pop(connection.id, None) is None:
            return
        if error is not None:
            self._report(connection.id, error)
        self._emit("disconnect", connection.id)

    # Helpers

    async def _serve(self, listener: socket.socket) -> Acceptor:
        self._acceptor = Acceptor(listener, self._accept)
        return self._acceptor

    def _accept(self, accepted: socket.socket) -> Connection:
        client_id = f"client-{self._next_client}"
        self._next_client += 1
        connection = Connection(
            self,
            client_id,
            self.max_message_size,
            self.unsent_bytes_max,
            self._unfinished,
            accepted,
            self._receive_large,
        )
        # spec, Channels: all connected clients receive a message. A client is connected before its transport is there.
        self.connection_opened(connection)
        return connection

    def _fan_out(self, sender: Connection, message: Message) -> None:
        try:
            frame = encode(message, max_size=self.max_message_size)
        except InvalidMessage as error:
            # Our encoding of a number can be longer than the sender's (1e9), so the message can exceed the size limit.
            sender.fail(error)
            return
        # spec, Channels: all other clients receive it; the sender is excluded by default.
        self.send_all(frame, exclude=None if self.echo_to_sender else sender.id)

    def _report(self, client_id: str, cause: Exception) -> None:
        error = ClientError(client_id, str(cause))
        error.__cause__ = cause
        self._emit("error", error)

"""A channel: a Unix socket on which what one client says, all the others hear.

Above: `group`, and the hub's server, which takes over the fan-out to make messages durable first.
Below: `connection` and `wire.unix`. It refuses to know names, history and what a message means: clients are
`client-0`, `client-1`, … in the order they came, and which channel a message is on is all its addressing.

One client can hurt only itself. Input that is not a message closes its connection, after the messages before it were
delivered; a client that does not read is closed when too much waits for it; a client that goes silent in the middle of
a frame delays nobody.
"""

import asyncio
import os
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from tieline.protocols.agent_channels.codec import MESSAGE_BYTES_MAX, InvalidMessage, Message, encode
from tieline.protocols.agent_channels.connection import UNSENT_BYTES_MAX, Connection
from tieline.protocols.agent_channels.events import Emitter
from tieline.wire import unix
from tieline.wire.unfinished import Unfinished

Post = Callable[[str, Message], None]


class ClientError(Exception):
    """Why one client was closed, or what its socket reported. The text is the cause's; `client_id` says whose."""

    def __init__(self, client_id: str, text: str) -> None:
        super().__init__(text)
        self.client_id = client_id


class Channel(Emitter):
    """A Unix socket server that hands each client's messages to the others.

    Events: "message" (message, client_id); "connect" (client_id), before anything is read from the client, so that a
    handler may still `disconnect` it unheard; "disconnect" (client_id); "drain" (client_id), when a full write buffer
    has room again; "error" (a `ClientError`).
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
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
        held: Unfinished | None = None,
    ) -> None:
        """Describe a channel; `start` opens it.

        `mode` is the permissions of the socket file (None: the umask decides). `post` takes over what happens to a
        client's message: with it the channel sends nothing by itself, and `send`, `send_all` and `broadcast` do. `held`
        bounds what clients of this and other channels may leave unfinished.
        """
        super().__init__()
        self.path = Path(path)
        self.echo_to_sender = echo_to_sender
        self.max_message_size = max_message_size
        self.unsent_bytes_max = unsent_bytes_max
        self._mode = mode
        self._held = held
        self._post = post
        # True while `start` runs; the first clients may come before it returns.
        self._starting = False
        # Set from `start` to `stop`.
        self._server: unix.UnixServer | None = None
        # Every connection from when it opens until it is gone, in the order they came.
        self._clients: dict[str, Connection] = {}
        self._next_client = 0

    @property
    def started(self) -> bool:
        """Whether it listens."""
        return self._server is not None

    @property
    def client_count(self) -> int:
        """The number of connected clients."""
        return len(self._clients)

    @property
    def client_ids(self) -> list[str]:
        """The connected clients, in the order they came."""
        return list(self._clients)

    async def start(self) -> None:
        """Listen. Raises `RuntimeError` when already started, and what `wire.unix.listen` raises."""
        if self._starting or self._server is not None:
            raise RuntimeError("Channel already started")
        self._starting = True
        try:
            self._server = await unix.listen(self.path, self._accept, mode=self._mode)
        finally:
            self._starting = False

    async def stop(self) -> None:
        """Disconnect everybody and remove the socket. What was broadcast before still arrives."""
        server, self._server = self._server, None
        if server is None:
            return
        leaving = tuple(self._clients.values())
        for client in leaving:
            client.close()
        await server.retire()
        await asyncio.gather(*(client.wait_closed() for client in leaving))
        await server.wait_closed()

    # To everybody

    def broadcast(self, message: Message | Mapping[str, Any], *, exclude: str | None = None) -> None:
        """Send a message to every client but `exclude`. A value that is not a message raises `InvalidMessage`."""
        self.send_all(encode(message, max_size=self.max_message_size), exclude=exclude)

    def send_all(self, frame: bytes, *, exclude: str | None = None) -> int:
        """Send bytes that are already framed to every client but `exclude`, and tell to how many."""
        sent = 0
        # A copy, because a client that is too slow may leave meanwhile.
        for client_id, client in tuple(self._clients.items()):
            if client_id != exclude and client.write(frame):
                sent += 1
        return sent

    # To one client. An id that is not connected is no error: clients leave whenever they like.

    def send(self, client_id: str, frame: bytes) -> bool:
        """Send bytes that are already framed to one client. False when it is gone."""
        client = self._clients.get(client_id)
        return client is not None and client.write(frame)

    def unsent_bytes(self, client_id: str) -> int:
        """How much was sent to a client and not yet taken by the operating system."""
        client = self._clients.get(client_id)
        return 0 if client is None else client.unsent_bytes

    def pause_reading(self, client_id: str) -> None:
        """Stop reading from a client. Messages of the chunk already read (at most 256 KiB) still come."""
        if client := self._clients.get(client_id):
            client.pause_reading()

    def resume_reading(self, client_id: str) -> None:
        """Take back `pause_reading`."""
        if client := self._clients.get(client_id):
            client.resume_reading()

    def disconnect(self, client_id: str, reason: str) -> None:
        """Close one client. The wire has no form for the reason: it goes to the "error" event."""
        if client := self._clients.get(client_id):
            client.fail(ConnectionError(reason))

    def peer_uid(self, client_id: str) -> int | None:
        """Give the user id of a client's process, or None when the client or the answer is not there."""
        client = self._clients.get(client_id)
        return None if client is None or client.transport is None else unix.peer_uid(client.transport)

    # What the connections tell

    def connection_opened(self, connection: Connection) -> None:
        """Take a client in, unless the channel was stopped while it was being accepted."""
        if self._server is None and not self._starting:
            connection.abort()
            return
        self._clients[connection.id] = connection
        self._emit("connect", connection.id)

    def message_received(self, connection: Connection, message: Message) -> None:
        """Hand a message on."""
        if self._post is None:
            self._fan_out(connection, message)
        else:
            self._post(connection.id, message)
        self._emit("message", message, connection.id)

    def connection_drained(self, connection: Connection) -> None:
        """Say that a client reads again."""
        self._emit("drain", connection.id)

    def connection_failed(self, connection: Connection, error: Exception) -> None:
        """Say why a client is being closed."""
        self._report(connection.id, error)

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        """Let a client go."""
        if self._clients.pop(connection.id, None) is None:
            return
        if error is not None:
            self._report(connection.id, error)
        self._emit("disconnect", connection.id)

    # Steps of the above

    def _accept(self) -> Connection:
        client_id = f"client-{self._next_client}"
        self._next_client += 1
        return Connection(self, client_id, self.max_message_size, self.unsent_bytes_max, self._held)

    def _fan_out(self, sender: Connection, message: Message) -> None:
        try:
            frame = encode(message, max_size=self.max_message_size)
        except InvalidMessage as error:
            # Numbers can be longer in our words than in the sender's (1e9), and the others' limit is the same.
            sender.fail(error)
            return
        self.send_all(frame, exclude=None if self.echo_to_sender else sender.id)

    def _report(self, client_id: str, cause: Exception) -> None:
        error = ClientError(client_id, str(cause))
        error.__cause__ = cause
        self._emit("error", error)

"""A client of a channel: sends messages to it and receives the messages of the other clients.

Used by: agents and scripts, and `bridge`. Uses: `connection` and `wire.unix`. A client does not reconnect by itself,
because only its user knows if missed messages matter.

A client receives messages in two ways. A handler of "message" is called for each message. `async for message in client`
takes one message at a time and ends when the connection ends. While such a loop is busy, at most `INBOX_MAX` messages
are buffered. Then the client stops reading, and the channel disconnects it when too many bytes wait for it. Without a
handler and without a loop, the client buffers the newest `INBOX_MAX` messages for a later loop, and drops older ones.
So a client that only sends never makes the channel wait.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from tieline.protocols.agent_channels.codec import MESSAGE_BYTES_MAX, Message, encode
from tieline.protocols.agent_channels.connection import UNSENT_BYTES_MAX, Connection
from tieline.protocols.agent_channels.events import Emitter
from tieline.wire import unix

# Messages buffered for a loop: enough for a burst while the loop awaits something else.
INBOX_MAX = 1024


class ChannelClient(Emitter):
    """Client of one channel. It has at most one connection at a time.

    Events, with the arguments of their handlers: "message" (message); "connect" (); "disconnect" (), when the
    connection is lost, not when `disconnect` is called; "drain" (), when a full write buffer has room again; "error"
    (an exception). Invalid input causes an "error" and closes the connection, without a "disconnect".
    """

    EVENTS = ("message", "connect", "disconnect", "drain", "error")

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        max_message_size: int = MESSAGE_BYTES_MAX,
        unsent_bytes_max: int = UNSENT_BYTES_MAX,
    ) -> None:
        super().__init__()
        self.path = Path(path)
        self.max_message_size = max_message_size
        self.unsent_bytes_max = unsent_bytes_max
        # Set from the start of `connect` until the connection is lost or closed.
        self._connection: Connection | None = None
        # Buffered messages for loops over this client.
        self._inbox: deque[Message] = deque()
        # The number of running loops.
        self._loops = 0
        # Set by every change that a loop or `drain` may wait for. The waiter checks its condition and clears the event.
        self._changed = asyncio.Event()

    @property
    def connected(self) -> bool:
        """True if the client is connected to the channel, so that messages can be sent."""
        return self._connection is not None and self._connection.open

    @property
    def writable(self) -> bool:
        """True if the write buffer has room. If False, call `drain` or wait for the "drain" event."""
        return self._connection is None or self._connection.writable

    async def connect(self) -> None:
        """Connect to the channel's socket.

        Raises `RuntimeError` when already connected, and `OSError` when no channel listens on the socket.
        """
        if self._connection is not None:
            raise RuntimeError("Already connected")
        connection = Connection(self, str(self.path), self.max_message_size, self.unsent_bytes_max)
        self._connection = connection
        try:
            await unix.connect(self.path, lambda: connection)
        except BaseException:
            if self._connection is connection:
                self._connection = None
            raise

    def disconnect(self) -> None:
        """Close the connection. Messages that were sent before are still transmitted. Emits no event.

        It is no error if the client is not connected.
        """
        connection, self._connection = self._connection, None
        self._changed.set()
        if connection is not None:
            connection.close()

    def send(self, message: Message | Mapping[str, Any]) -> None:
        """Send a message to the channel. Raises `InvalidMessage`, or `ConnectionError` when not connected."""
        connection = self._connected()
        if not connection.write(encode(message, max_size=self.max_message_size)):
            raise ConnectionError("Not connected")

    async def drain(self) -> None:
        """Wait until the write buffer has room. Raises `ConnectionError` when the connection is lost meanwhile."""
        while not self._connected().writable:
            self._changed.clear()
            await self._changed.wait()

    async def __aenter__(self) -> Self:
        await self.connect()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        connection = self._connection
        self.disconnect()
        if connection is not None:
            await connection.wait_closed()

    async def __aiter__(self) -> AsyncIterator[Message]:
        self._loops += 1
        try:
            while True:
                while not self._inbox:
                    if not self.connected:
                        return
                    self._changed.clear()
                    await self._changed.wait()
                message = self._inbox.popleft()
                if len(self._inbox) <= INBOX_MAX // 2 and self._connection is not None:
                    self._connection.resume_reading()
                yield message
        finally:
            self._loops -= 1
            if not self._loops and self._connection is not None:
                self._connection.resume_reading()

    # Callbacks of the connection

    def connection_opened(self, connection: Connection) -> None:
        """Emit "connect", unless `disconnect` was called first."""
        if connection is self._connection:
            self._emit("connect")
        else:
            connection.abort()

    def data_arrived(self) -> None:
        """Do nothing: only a channel has waiting clients to accept before it handles messages."""

    def message_received(self, connection: Connection, message: Message) -> None:
        """Pass a message to the handlers of "message", and buffer it for the `async for` loops over this client."""
        if connection is not self._connection:
            return
        heard = self._has_handler("message")
        if self._loops or not heard:
            self._keep(connection, message)
        if heard:
            self._emit("message", message)

    def connection_drained(self, connection: Connection) -> None:
        """Emit "drain", because the full write buffer has room again."""
        if connection is self._connection:
            self._changed.set()
            self._emit("drain")

    def connection_failed(self, connection: Connection, error: Exception) -> None:
        """Emit an "error" event with the reason why the connection is being closed."""
        if connection is self._connection:
            self._connection = None
            self._changed.set()
            self._emit("error", error)

    def connection_closed(self, connection: Connection, error: Exception | None) -> None:
        """Emit "disconnect", because the connection is lost."""
        if connection is not self._connection:
            return
        self._connection = None
        self._changed.set()
        if error is not None:
            self._emit("error", error)
        # spec, ChannelClient: there is no automatic reconnect; "disconnect" tells the user.
        self._emit("disconnect")

    # Helpers

    def _connected(self) -> Connection:
        if self._connection is None or not self._connection.open:
            raise ConnectionError("Not connected")
        return self._connection

    def _keep(self, connection: Connection, message: Message) -> None:
        self._inbox.append(message)
        self._changed.set()
        if len(self._inbox) < INBOX_MAX:
            return
        if self._loops:
            connection.pause_reading()
        elif len(self._inbox) > INBOX_MAX:
            self._inbox.popleft()

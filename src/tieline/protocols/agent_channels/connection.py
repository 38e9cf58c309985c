"""One connection that speaks frames of messages, over a Unix socket or TCP, from either end.

Above: `channel`, `client`, `bridge`; each is the `Owner` of its connections. Below: `codec` and an asyncio transport.
It refuses to know who else is connected, and what a message is for.

Thousands of these sit idle in a hub, so it is a protocol with slots and no task, queue or buffer of its own.
"""

import asyncio
import contextlib
import os
from typing import Protocol, cast

from tieline.protocols.agent_channels.codec import DecodeError, FrameDecoder, Message
from tieline.wire.unfinished import TOO_MUCH, Share, Unfinished

# Four messages of the largest size. Whoever is further behind than that is not slow but stuck, and what it does not
# read stays in our memory.
UNSENT_BYTES_MAX = 64 * 1024 * 1024

# Read at once from a connection that is ending.
_CHUNK = 256 * 1024

# What was written before a close gets this long to leave. On one machine it takes microseconds; only a peer that does
# not read ever uses it up.
CLOSE_SECONDS_MAX = 1.0


class SlowReader(ConnectionError):
    """The other end does not read, and too much waits for it."""

    def __init__(self, unsent: int, maximum: int) -> None:
        super().__init__(f"Unsent bytes {unsent} exceed maximum {maximum}: the other end does not read")


class Owner(Protocol):
    """Who hears what happens on a connection. Calls come in this order, and none after `connection_closed`."""

    def connection_opened(self, connection: "Connection") -> None:
        """Hear that it is open, before anything is read from it."""

    def message_received(self, connection: "Connection", message: Message) -> None:
        """Hear one message."""

    def connection_drained(self, connection: "Connection") -> None:
        """Hear that a full write buffer has room again."""

    def connection_failed(self, connection: "Connection", error: Exception) -> None:
        """Hear why it is being closed: bad input, or too much unsent. Nothing more is read from it."""

    def connection_closed(self, connection: "Connection", error: Exception | None) -> None:
        """Hear, once, that it is gone. `error` is None when either end hung up, however rudely."""


class Connection(asyncio.Protocol):
    """One connection and its half-received frame."""

    __slots__ = (
        "_closed",
        "_decoder",
        "_leaving",
        "_owner",
        "_reading",
        "_share",
        "_transport",
        "_unsent_bytes_max",
        "_writable",
        "id",
    )

    def __init__(
        self,
        owner: Owner,
        name: str,
        max_message_size: int,
        unsent_bytes_max: int,
        held: Unfinished | None = None,
    ) -> None:
        # What the owner calls it.
        self.id = name
        self._owner = owner
        self._decoder = FrameDecoder(max_message_size)
        self._unsent_bytes_max = unsent_bytes_max
        # Counts half a frame, where the connections of a whole hub have a bound.
        self._share: Share | None = None if held is None else held.share(self._too_much, f"{id(owner)}/{name}")
        # None before it opens and after it is gone.
        self._transport: asyncio.Transport | None = None
        # False between `pause_reading` and `resume_reading`.
        self._reading = True
        # False while the transport says that its write buffer is full.
        self._writable = True
        # Whether this end hung up, or wants nothing more of the other.
        self._leaving = False
        # Made by the first `wait_closed`.
        self._closed: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        """Whether messages can be sent and received."""
        return self._transport is not None and not self._transport.is_closing()

    @property
    def writable(self) -> bool:
        """Whether the write buffer has room; `connection_drained` tells when it has again."""
        return self._writable

    @property
    def unsent_bytes(self) -> int:
        """How much was written and not yet taken by the operating system."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size()

    @property
    def transport(self) -> asyncio.Transport | None:
        """The transport, to ask it about the other end."""
        return self._transport

    # Commands of the owner

    def write(self, frame: bytes) -> bool:
        """Send bytes that are already framed. False when it is closed, or has just been for reading too slowly."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return False
        transport.write(frame)
        unsent = transport.get_write_buffer_size()
        if unsent <= self._unsent_bytes_max:
            return True
        self._owner.connection_failed(self, SlowReader(unsent, self._unsent_bytes_max))
        self.abort()
        return False

    def fail(self, error: Exception) -> None:
        """Close it and tell the owner why."""
        if self.open:
            self._owner.connection_failed(self, error)
            self.close()

    def close(self) -> None:
        """Hang up, after what was written has left or `CLOSE_SECONDS_MAX` has passed."""
        transport = self._transport
        if transport is None or transport.is_closing():
            return
        self._leaving = True
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSE_SECONDS_MAX, transport.abort)
        transport.close()

    def abort(self) -> None:
        """Hang up, and throw away what was not sent."""
        self._leaving = True
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Leave what comes in the operating system's buffers, so that the other end has to wait."""
        if self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = False
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Take back `pause_reading`."""
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._reading = True
            self._transport.resume_reading()

    async def wait_closed(self) -> None:
        """Wait, after `close`, until it is gone."""
        if self._transport is None:
            return
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
        # Bounded, because uvloop does not report the end of a connection whose `connect` was cancelled at the last.
        await asyncio.wait([self._closed], timeout=2 * CLOSE_SECONDS_MAX)

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember the transport and tell the owner."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        self._owner.connection_opened(self)

    def data_received(self, data: bytes) -> None:
        """Hand on the messages of a chunk; those before a bad frame count."""
        fault: DecodeError | None = None
        messages: list[Message] | tuple[Message, ...]
        try:
            messages = self._decoder.push(data)
        except DecodeError as error:
            fault, messages = error, error.messages
        for message in messages:
            # The owner may have hung up while it handled the one before.
            if self._transport is None or self._transport.is_closing():
                return
            self._owner.message_received(self, message)
        if fault is not None:
            self.fail(fault)
        elif self._share is not None:
            self._share.hold(self._decoder.held)

    def pause_writing(self) -> None:
        """Note that the write buffer is full."""
        self._writable = False

    def resume_writing(self) -> None:
        """Note that the write buffer has room, and tell the owner."""
        self._writable = True
        self._owner.connection_drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell the owner and whoever waits."""
        hung_up = isinstance(exc, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
        if hung_up and not self._leaving:
            self._take_last_words()
        self._transport = None
        self._decoder.reset()
        if self._share is not None:
            self._share.close()
        if self._closed is not None and not self._closed.done():
            self._closed.set_result(None)
        self._owner.connection_closed(self, None if hung_up else exc)

    def _too_much(self) -> None:
        self._decoder.reset()
        self.fail(ConnectionError(TOO_MUCH))

    def _take_last_words(self) -> None:
        """Hand on what the other end said before it hung up, if writing to it found that out before reading did.

        A failed write ends the transport, which reads no more. Who only comes to say something, and does not wait to
        hear what others say meanwhile, would not be heard.
        """
        socket = None if self._transport is None else self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            while socket is not None and (chunk := os.read(socket.fileno(), _CHUNK)):
                try:
                    messages, more = self._decoder.push(chunk), True
                except DecodeError as error:
                    messages, more = list(error.messages), False
                for message in messages:
                    self._owner.message_received(self, message)
                if not more:
                    return

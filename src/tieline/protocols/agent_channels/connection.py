"""One connection that sends and receives message frames over a Unix socket or TCP, for clients and servers.

Used by: `channel`, `client`, `bridge`; each is the `Owner` of its connections. Uses: `codec` and an asyncio transport.
A connection does not know the other connections, and gives no meaning to messages.

A hub has thousands of idle connections. `Connection` is therefore an asyncio protocol with slots, and has no task,
queue or buffer of its own.
"""

import asyncio
import contextlib
import os
import socket
from collections import deque
from collections.abc import Callable, Sequence
from typing import Protocol, cast

from tieline.protocols.agent_channels.codec import DecodeError, FrameDecoder, Message
from tieline.protocols.agent_channels.large import LargeCheck, LargeMessage, is_large
from tieline.wire.unfinished import TOO_MUCH, Share, Unfinished

# Four messages of the largest size. A peer that is further behind is stuck, and its unread data uses our memory.
UNSENT_BYTES_MAX = 64 * 1024 * 1024

# Frames of one turn of the event loop are joined into writes of about this size.
_JOINED_BYTES_MAX = 64 * 1024

# Bytes per read from a connection that is ending.
_CHUNK = 256 * 1024

# Timeout for sending the write buffer at a close. On one machine, sending takes microseconds; only a peer that does not
# read reaches the timeout.
CLOSE_SECONDS_MAX = 1.0


class SlowReader(ConnectionError):
    """Raised if the other end does not read, and the unsent bytes for it exceed the limit."""

    def __init__(self, unsent: int, maximum: int) -> None:
        super().__init__(f"Unsent bytes {unsent} exceed maximum {maximum}: the other end does not read")


class Owner(Protocol):
    """Interface of the object that gets a connection's callbacks: a channel, a client or a bridge.

    The first callback is `connection_opened`, the last one is `connection_closed`.
    """

    def connection_opened(self, connection: "Connection") -> None:
        """Called when the connection is open, before anything is read from it.

        For a connection that the owner accepted, the owner calls this method itself, before there is a transport.
        """

    def data_arrived(self) -> None:
        """Called after a chunk of bytes was read and before its messages are passed on.

        So a channel can first accept the clients that wait for a connection.
        """

    def message_received(self, connection: "Connection", message: Message) -> None:
        """Called for each message that the other end sent."""

    def connection_drained(self, connection: "Connection") -> None:
        """Called when a full write buffer has room again."""

    def connection_failed(self, connection: "Connection", error: Exception) -> None:
        """Called before the connection is closed for bad input or too many unsent bytes.

        Nothing more is read from the connection.
        """

    def connection_closed(self, connection: "Connection", error: Exception | None) -> None:
        """Called once, when the connection is gone.

        `error` is None if either end closed the connection, even by a reset.
        """


class Connection(asyncio.Protocol):
    """One open socket: sends frames (encoded messages), and passes received messages to its owner."""

    __slots__ = (
        "_check",
        "_closed",
        "_decoder",
        "_early",
        "_ended",
        "_joined",
        "_joined_bytes",
        "_large",
        "_leaving",
        "_owner",
        "_reading",
        "_share",
        "_transport",
        "_unsent_bytes_max",
        "_waiting",
        "_writable",
        "accepted",
        "id",
    )

    def __init__(
        self,
        owner: Owner,
        name: str,
        max_message_size: int,
        unsent_bytes_max: int,
        unfinished: Unfinished | None = None,
        accepted: socket.socket | None = None,
        large: "Callable[[Connection, LargeMessage], None] | None" = None,
    ) -> None:
        """Set the parameters of the connection.

        `unfinished` limits the memory for messages that have arrived only in part. `accepted` is the socket, if a
        server accepted the connection. `large` is a callback that gets large messages undecoded. Without `large`, every
        message is decoded.
        """
        # The owner's name for the connection.
        self.id = name
        self._owner = owner
        self._decoder = FrameDecoder(max_message_size)
        self._unsent_bytes_max = unsent_bytes_max
        # Counts the bytes of the unfinished frame, if a limit over all connections of a hub is set.
        self._share: Share | None = (
            None if unfinished is None else unfinished.share(self._too_much, f"{id(owner)}/{name}")
        )
        # The socket, if a server accepted the connection.
        self.accepted = accepted
        # Frames for an accepted connection that has no transport yet; else None.
        self._early: list[bytes] | None = None if accepted is None else []
        # Frames of this turn of the event loop that leave together at its end; else None. And their size.
        self._joined: list[bytes] | None = None
        self._joined_bytes = 0
        self._large = large
        # The check of a large payload, if one runs; and the queue of messages, payloads and errors that came after the
        # payload. Both are None if no large payload is being handled.
        self._check: LargeCheck | None = None
        self._waiting: deque[Message | bytes | DecodeError] | None = None
        # Set if the connection was lost while a large payload was being handled: a tuple with the error of the loss.
        self._ended: tuple[Exception | None] | None = None
        # None before the connection opens and after it is gone.
        self._transport: asyncio.Transport | None = None
        # False between `pause_reading` and `resume_reading`.
        self._reading = True
        # False while the transport says that its write buffer is full.
        self._writable = True
        # True after this end called `close` or `abort`.
        self._leaving = False
        # Created by the first `wait_closed`.
        self._closed: asyncio.Future[None] | None = None

    @property
    def open(self) -> bool:
        """True if the connection is open, so that messages can be sent and received."""
        if self._transport is None:
            return self._early is not None and not self._leaving
        return not self._transport.is_closing()

    @property
    def writable(self) -> bool:
        """True if the write buffer has room. `connection_drained` reports when a full buffer has room again."""
        return self._writable

    @property
    def unsent_bytes(self) -> int:
        """Number of bytes that the operating system has not taken yet."""
        return 0 if self._transport is None else self._transport.get_write_buffer_size() + self._joined_bytes

    # Methods that the owner calls

    def write(self, frame: bytes) -> bool:
        """Send a complete frame (an encoded message), or several that are joined.

        Returns False if the connection is closed. If the other end reads too slowly, the connection is closed now, and
        the result is False, too.
        """
        if self._joined is None and self._transport is not None:
            self._joined = [frame]
            return self._flush()
        return self.write_soon(frame) and self._flush()

    def write_soon(self, frame: bytes) -> bool:
        """Send a frame like `write`, but at the end of this turn of the event loop, together with the other frames."""
        if self._joined is None:
            if self._transport is None and self._early is not None and not self._leaving:
                self._early.append(frame)
                return True
            if self._transport is None or self._transport.is_closing():
                return False
            self._joined = []
            asyncio.get_running_loop().call_soon(self._flush)
        self._joined.append(frame)
        self._joined_bytes += len(frame)
        return self._joined_bytes <= _JOINED_BYTES_MAX or self._flush()

    def _flush(self) -> bool:
        """Write the frames that `write_soon` collected.

        Return False if the connection was closed before, or is closed now because too many bytes are unsent.
        """
        frames, self._joined, self._joined_bytes = self._joined, None, 0
        transport = self._transport
        if not frames or transport is None or transport.is_closing():
            return self.open
        transport.write(frames[0] if len(frames) == 1 else b"".join(frames))
        unsent = transport.get_write_buffer_size()
        if unsent <= self._unsent_bytes_max:
            return True
        self._owner.connection_failed(self, SlowReader(unsent, self._unsent_bytes_max))
        self.abort()
        return False

    def fail(self, error: Exception) -> None:
        """Report the error to the owner's `connection_failed`, and close the connection."""
        if self.open:
            self._owner.connection_failed(self, error)
            self.close()

    def close(self) -> None:
        """Close the connection after the write buffer was sent, or after `CLOSE_SECONDS_MAX`."""
        transport = self._transport
        if transport is None:
            # An accepted connection closes as soon as it has a transport.
            self._leaving = self._leaving or self._early is not None
            return
        if not self._flush():
            return
        self._leaving = True
        if transport.get_write_buffer_size():
            asyncio.get_running_loop().call_later(CLOSE_SECONDS_MAX, transport.abort)
        transport.close()

    def abort(self) -> None:
        """Close the connection at once. Bytes that are not sent yet are dropped."""
        self._leaving = True
        self._joined = None
        if self._early is not None:
            self._early.clear()
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading from the other end.

        Then the buffers of the operating system fill up, and the other end must wait before it can send more.
        """
        if self._reading and self.open:
            self._reading = False
            if self._transport is not None:
                self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Read from the other end again, after `pause_reading`."""
        if not self._reading and self.open:
            self._reading = True
            if self._transport is not None and self._waiting is None:
                self._transport.resume_reading()

    async def wait_closed(self) -> None:
        """Wait until the connection is gone. Call `close` first."""
        if self._transport is None and self._early is None:
            return
        if self._closed is None:
            self._closed = asyncio.get_running_loop().create_future()
        # With a timeout, because uvloop does not report the end of a connection whose `connect` was cancelled late.
        await asyncio.wait([self._closed], timeout=2 * CLOSE_SECONDS_MAX)

    # Callbacks of the transport

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Store the transport. Call the owner's `connection_opened` if the owner does not know the connection yet."""
        # uvloop's transports are not subclasses of asyncio's.
        self._transport = cast("asyncio.Transport", transport)
        early, self._early = self._early, None
        if early is None:
            self._owner.connection_opened(self)
            return
        for frame in early:
            self.write(frame)
        if self._leaving:
            self.close()
        elif not self._reading:
            # uvloop starts to read after this callback, whatever the callback says.
            asyncio.get_running_loop().call_soon(self._pause_transport)

    def _pause_transport(self) -> None:
        if not self._reading and self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        """Pass the messages in a chunk of bytes to the owner, including messages before invalid input."""
        self._owner.data_arrived()
        received = self._decode(data)
        if self._waiting is not None:
            self._waiting += received
            return
        for index, item in enumerate(received):
            # The owner may have closed the connection while it handled the previous message.
            if self._transport is None or self._transport.is_closing():
                return
            if isinstance(item, bytes):
                self._transport.pause_reading()
                self._waiting = deque(received[index:])
                self._step()
                return
            self._receive(item)
        if self._share is not None and not self._leaving:
            self._share.report(self._decoder.buffered_bytes)

    def _decode(self, data: bytes) -> list[Message | bytes | DecodeError]:
        """Return the messages in a chunk of bytes. Large ones stay undecoded, as bytes. The error, if any, is last."""
        try:
            if self._large is None:
                return [*self._decoder.push(data)]
            return [*self._decoder.push_some(data, is_large)]
        except DecodeError as error:
            return [*error.messages, error]

    def _receive(self, item: Message | DecodeError) -> None:
        if isinstance(item, DecodeError):
            self.fail(item)
        else:
            self._owner.message_received(self, item)

    def _step(self) -> None:
        """Check the next part of a large message, or pass on the next message that came after it.

        Then schedule the next step. The event loop serves other connections between two steps.
        """
        waiting = self._waiting
        if waiting is None or self._leaving:
            self._finish_steps()
            return
        if self._check is not None:
            try:
                large = self._check.step()
            except DecodeError as error:
                self._check = None
                waiting.clear()
                self.fail(error)
            else:
                if large is not None and self._large is not None:
                    self._check = None
                    self._large(self, large)
        elif waiting:
            item = waiting.popleft()
            if isinstance(item, bytes):
                self._check = LargeCheck(item)
                if self._share is not None:
                    self._share.report(len(item) + self._decoder.buffered_bytes)
            else:
                self._receive(item)
        else:
            self._finish_steps()
            return
        asyncio.get_running_loop().call_soon(self._step)

    def _finish_steps(self) -> None:
        """Read from the socket again after a large message, or end the connection if the other end is gone."""
        self._check = self._waiting = None
        if self._ended is not None:
            self._end(*self._ended)
        elif self._transport is not None and not self._transport.is_closing():
            if self._share is not None:
                self._share.report(self._decoder.buffered_bytes)
            if self._reading:
                self._transport.resume_reading()

    def pause_writing(self) -> None:
        """Record that the write buffer is full. asyncio calls this method."""
        self._writable = False

    def resume_writing(self) -> None:
        """Record that the write buffer has room again, and call the owner's `connection_drained`.

        asyncio calls this method.
        """
        self._writable = True
        self._owner.connection_drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        """Report to the owner and to the callers of `wait_closed` that the connection is gone."""
        hung_up = isinstance(exc, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
        if hung_up and not self._leaving:
            self._take_last_words()
        if self._waiting is not None and not self._leaving:
            # Messages that were received before the loss are passed on first.
            self._ended = (exc,)
        else:
            self._end(exc)

    def _end(self, exc: Exception | None) -> None:
        hung_up = isinstance(exc, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)
        self._check = self._waiting = self._ended = None
        self._transport = self._early = self.accepted = None
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
        """Read and pass on the last messages of the other end, which has closed the connection.

        When a write fails, the transport ends and reads no more. Without this method, the last messages of a client
        would be lost if the client sends them and closes the connection without reading.
        """
        ended = None if self._transport is None else self._transport.get_extra_info("socket")
        with contextlib.suppress(OSError):
            while ended is not None and (chunk := os.read(ended.fileno(), _CHUNK)):
                received = self._decode(chunk)
                faulty = received and isinstance(received[-1], DecodeError)
                self._hand_on(received[:-1] if faulty else received)
                if faulty:
                    return

    def _hand_on(self, received: "Sequence[Message | bytes | DecodeError]") -> None:
        for index, item in enumerate(received):
            if self._waiting is None and isinstance(item, bytes):
                self._waiting = deque()
                asyncio.get_running_loop().call_soon(self._step)
            if self._waiting is not None:
                self._waiting += received[index:]
                return
            assert not isinstance(item, bytes), "these wait"
            self._receive(item)

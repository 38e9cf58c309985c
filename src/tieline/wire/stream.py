"""A byte stream to one client on a Unix socket: the base class of connections that use frames or lines.

Used by: a subclass, which finds the end of each message. Uses: an asyncio transport. This module does not know what the
bytes mean.

After `hang_up`, a client that reads still gets the bytes that were written before. A client that reads nothing for
`CLOSE_SECONDS_MAX` is disconnected and loses the bytes that are left. So no connection stays open for ever.
"""

import asyncio
import os
from typing import cast

from tieline.wire.unix import peer_uid
from tieline.wire.unsent import limit_buffer

CLOSE_SECONDS_MAX = 5.0
"""Seconds after `hang_up` in which the client must read some bytes. Otherwise the client is disconnected."""


class Stream(asyncio.Protocol):
    """Base class for the connection to one client on a Unix socket. It writes bytes and closes the connection.

    A subclass finds the messages in the received bytes. It must call `begin` before all other methods.
    """

    __slots__ = ("_closing", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        # Timer that checks whether the client still reads after `hang_up`.
        self._closing: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.BaseTransport, unsent_bytes_max: int) -> bool:
        """Use `transport` for this connection. At most `unsent_bytes_max` bytes may wait in the transport's buffer.

        Return true if the client belongs to the user who runs this process, or if the client's user is not known.
        """
        # No `isinstance` check: uvloop's transports do not inherit from asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        limit_buffer(self._transport, unsent_bytes_max)
        return peer_uid(transport) in (None, os.geteuid())

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the transport, because the connection is lost."""
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()

    @property
    def ended(self) -> bool:
        """True if the connection is closed or closing. Then received bytes are ignored."""
        return self._transport is None or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes to the client. Do nothing if the connection is lost."""
        if self._transport is not None:
            self._transport.write(data)

    def hang_up(self) -> None:
        """Close the connection after all written bytes are sent.

        If the client stops reading, close the connection earlier.
        """
        if self._transport is not None:
            self._transport.close()
            self._watch(self._transport.get_write_buffer_size())

    def _watch(self, unsent: int) -> None:
        if unsent:
            if self._closing is not None:
                self._closing.cancel()
            self._closing = asyncio.get_running_loop().call_later(CLOSE_SECONDS_MAX, self._look, unsent)

    def _look(self, unsent: int) -> None:
        assert self._transport is not None, "`connection_lost` cancels this timer"
        left = self._transport.get_write_buffer_size()
        if left < unsent:
            self._watch(left)
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Close the connection at once. Bytes that are not sent yet are lost."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Stop reading bytes from the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Continue to read bytes from the client."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

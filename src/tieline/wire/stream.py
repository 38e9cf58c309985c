"""A byte stream to one client on a Unix socket: what the carriers of frames and of lines have in common.

Above: such a carrier, which knows where a message ends. Below: an asyncio transport. It refuses to know what passes.

Whoever is hung up on still gets what was written before, for as long as it takes any of it: a client that reads nothing
for a while is dropped with what is left, so that no connection stays behind for ever.
"""

import asyncio
import os
from typing import cast

from tieline.wire.unix import peer_uid
from tieline.wire.unsent import bound

CLOSE_SECONDS_MAX = 5.0
"""How long a client that is hung up on may go without reading."""


class Stream(asyncio.Protocol):
    """One connection, as far as bytes go. A carrier calls `begin` first."""

    __slots__ = ("_closing", "_transport")

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        # Looks after a client that is hung up on.
        self._closing: asyncio.TimerHandle | None = None

    def begin(self, transport: asyncio.BaseTransport, unsent_bytes_max: int) -> bool:
        """Take the transport; tells whether the user who runs this process is at its other end."""
        # Not an `isinstance` check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        bound(self._transport, unsent_bytes_max)
        return peer_uid(transport) in (None, os.geteuid())

    def connection_lost(self, exc: Exception | None) -> None:
        """The transport is gone."""
        self._transport = None
        if self._closing is not None:
            self._closing.cancel()

    @property
    def ended(self) -> bool:
        """Whether nothing that comes now counts any more."""
        return self._transport is None or self._transport.is_closing()

    def write(self, data: bytes) -> None:
        """Send bytes."""
        if self._transport is not None:
            self._transport.write(data)

    def hang_up(self) -> None:
        """End the connection when everything before is sent, or nothing of it leaves any more."""
        if self._transport is not None:
            self._transport.close()
            self._watch(self._transport.get_write_buffer_size())

    def _watch(self, unsent: int) -> None:
        if unsent:
            if self._closing is not None:
                self._closing.cancel()
            self._closing = asyncio.get_running_loop().call_later(CLOSE_SECONDS_MAX, self._look, unsent)

    def _look(self, unsent: int) -> None:
        if self._transport is None:
            return
        left = self._transport.get_write_buffer_size()
        if left < unsent:
            self._watch(left)
        else:
            self._transport.abort()

    def abort(self) -> None:
        """Drop the connection."""
        if self._transport is not None:
            self._transport.abort()

    def pause_reading(self) -> None:
        """Take no more bytes."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.pause_reading()

    def resume_reading(self) -> None:
        """Go on."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

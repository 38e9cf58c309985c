"""One connection of a client to the hub: sends frames, receives envelopes, and checks that the hub still answers.

Used by: `client`. Uses: `wire.frames` and `codec`. This module knows nothing about sessions. A link is one connection:
after a disconnect, the client makes a new link.
"""

import asyncio
import time
import uuid
from typing import Any, Protocol, cast

from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import Envelope, EnvelopeError
from tieline.protocols.agent_relay.lifecycle import Beat, Payload, Silence
from tieline.wire.frames import FrameBuffer, FrameError

RECEIVED_BYTES_MAX = 64 * 1024 * 1024
"""Most bytes of a frame that the client accepts from a hub. The limit is large, because hubs have different limits."""

_UNSENT_BYTES_MAX = 256 * 1024  # buffer for a broker that does not read; when it is full, sends wait


class Receiver(Protocol):
    """Interface of the callbacks that a `Link` (one connection) calls. The client implements it."""

    def link_received(self, link: "Link", envelope: Envelope) -> None:
        """Handle a frame (protocol message) that came from the hub. PING and PONG are not passed on."""

    def link_drained(self, link: "Link") -> None:
        """Continue to write, because the socket of `link` accepts bytes again."""


class Link(asyncio.Protocol):
    """One connection of a client to a hub, over agent-relay's socket."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = FrameBuffer(RECEIVED_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._silence = Silence()
        # Timer of the handshake, then of the check for a silent hub.
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_ms = 0.0
        # The reason why the connection ended, as text; valid once `closed` is done.
        self.why = "the hub hung up"
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.writable = True
        self.reading = True

    # Callbacks of asyncio.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No `isinstance` check: uvloop's transports are not subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self._silence.heard()
        self._buffer.receive_data(data)
        try:
            while not self.closed.done() and (payload := self._buffer.next_frame()) is not None:
                envelope = codec.decode(payload)
                if envelope.type == "PING":
                    self.send("PONG", envelope.payload)
                elif envelope.type != "PONG":
                    self._receiver.link_received(self, envelope)
        except (EnvelopeError, FrameError) as error:
            self.abort(f"the hub sent what is no envelope: {error}")

    def pause_writing(self) -> None:
        self.writable = False

    def resume_writing(self) -> None:
        self.writable = True
        if not self.closed.done():
            self._receiver.link_drained(self)

    def connection_lost(self, exc: Exception | None) -> None:
        self._transport = None
        self._close(str(exc) if exc else self.why)

    # Calls of the client.

    def send(self, kind: str, payload: Payload, **fields: Any) -> None:
        """Send one envelope of the type `kind`. `fields` are header fields of the envelope, such as `to`."""
        self.write(frame(kind, payload, **fields))

    def write(self, data: bytes) -> None:
        """Write bytes to the hub. `data` are frames that are already encoded."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def read(self, reading: bool) -> None:
        """Start (`reading` is true) or stop (false) to read bytes from the hub."""
        if self._transport is not None and reading is not self.reading:
            self.reading = reading
            self._silence.heard()
            self._transport.resume_reading() if reading else self._transport.pause_reading()

    def expect(self, seconds: float) -> None:
        """Start the timeout of the handshake: close the connection if `watch` is not called within these seconds."""
        self._timer = self._loop.call_later(seconds, self.abort, "the hub did not answer the handshake")

    def watch(self, heartbeat_ms: float) -> None:
        """Start to watch the hub: close the connection if the hub sends nothing for two heartbeat intervals."""
        self._cancel_timer()
        self._heartbeat_ms = heartbeat_ms
        self._silence.heard()
        self._timer = self._loop.call_later(Silence.seconds(heartbeat_ms), self._beat)

    def abort(self, why: str) -> None:
        """Close the connection at once, for the reason `why`."""
        self._close(why)
        if self._transport is not None:
            self._transport.abort()

    # Inside.

    def _beat(self) -> None:
        if not self.reading:
            # The client reads nothing now, but the hub still expects a sign of life.
            self.send("PONG", {})
            self._silence.heard()
        match self._silence.beat():
            case Beat.DEAD:
                self.abort(f"the hub was silent for {2 * self._heartbeat_ms:g} ms")
                return
            case Beat.ASK:
                self.send("PING", {"nonce": new_id()})
            case Beat.FINE:
                pass
        self._timer = self._loop.call_later(Silence.seconds(self._heartbeat_ms), self._beat)

    def _close(self, why: str) -> None:
        self._cancel_timer()
        if not self.closed.done():
            self.why = why
            self.closed.set_result(None)

    def _cancel_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None


def frame(kind: str, payload: Payload, **fields: Any) -> bytes:
    """Return a new envelope of the type `kind`, encoded as bytes. `fields` are its header fields, such as `to`."""
    fields.setdefault("id", new_id())
    return codec.encode(Envelope(kind, ts=time.time_ns() // 1_000_000, payload=payload, **fields))


def new_id() -> str:
    """Return a new id for an envelope."""
    return str(uuid.uuid4())

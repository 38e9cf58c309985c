"""One connection of a client: frames out, envelopes in, and an ear for whether the hub is still there.

Above: `client`. Below: `codec`. It refuses to know sessions: it lives from one dial to one hang-up.
"""

import asyncio
import time
import uuid
from typing import Any, Protocol, cast

from tieline.protocols.agent_relay import codec
from tieline.protocols.agent_relay.codec import Envelope, EnvelopeBuffer, EnvelopeError
from tieline.protocols.agent_relay.lifecycle import Beat, Payload, Silence

RECEIVED_BYTES_MAX = 64 * 1024 * 1024
"""The largest frame that is taken from a hub, whose limit for our frames may be configured."""

_UNSENT_BYTES_MAX = 256 * 1024  # waits for a broker that does not read before sends wait too


class Receiver(Protocol):
    """Whom a connection reports to."""

    def link_received(self, link: "Link", envelope: Envelope) -> None:
        """A frame came that is no heartbeat."""

    def link_drained(self, link: "Link") -> None:
        """There is room to write again."""


class Link(asyncio.Protocol):
    """One connection."""

    def __init__(self, receiver: Receiver) -> None:
        self._receiver = receiver
        self._buffer = EnvelopeBuffer(RECEIVED_BYTES_MAX)
        self._transport: asyncio.Transport | None = None
        self._loop = asyncio.get_running_loop()
        self._silence = Silence()
        # First for the handshake, then for the silence.
        self._timer: asyncio.TimerHandle | None = None
        self._heartbeat_ms = 0.0
        # Why it ended, in words, once `closed` is done.
        self.why = "the hub hung up"
        self.closed: asyncio.Future[None] = self._loop.create_future()
        self.writable = True
        self.reading = True

    # What asyncio calls.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # Not an `isinstance` check: uvloop's transports are none of asyncio's classes.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=_UNSENT_BYTES_MAX)

    def data_received(self, data: bytes) -> None:
        self._silence.heard()
        self._buffer.receive_data(data)
        try:
            while not self.closed.done() and (envelope := self._buffer.next_envelope()) is not None:
                if envelope.type == "PING":
                    self.send("PONG", envelope.payload)
                elif envelope.type != "PONG":
                    self._receiver.link_received(self, envelope)
        except EnvelopeError as error:
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

    # What the client calls.

    def send(self, kind: str, payload: Payload, **fields: Any) -> None:
        """Write one envelope."""
        self.write(frame(kind, payload, **fields))

    def write(self, data: bytes) -> None:
        """Write what is encoded already."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.write(data)

    def read(self, reading: bool) -> None:
        """Whether to take bytes from the hub."""
        if self._transport is not None and reading is not self.reading:
            self.reading = reading
            self._silence.heard()
            self._transport.resume_reading() if reading else self._transport.pause_reading()

    def expect(self, seconds: float) -> None:
        """Hang up unless `watch` is called within this time."""
        self._timer = self._loop.call_later(seconds, self.abort, "the hub did not answer the handshake")

    def watch(self, heartbeat_ms: float) -> None:
        """Hang up when the hub is silent for two heartbeats from now on."""
        self._cancel_timer()
        self._heartbeat_ms = heartbeat_ms
        self._silence.heard()
        self._timer = self._loop.call_later(Silence.seconds(heartbeat_ms), self._beat)

    def abort(self, why: str) -> None:
        """Hang up at once."""
        self._close(why)
        if self._transport is not None:
            self._transport.abort()

    # Inside.

    def _beat(self) -> None:
        if not self.reading:
            # Nothing can be heard, but the hub wants to hear us.
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
    """The frame of a new envelope."""
    fields.setdefault("id", new_id())
    return codec.encode(Envelope(kind, ts=time.time_ns() // 1_000_000, payload=payload, **fields))


def new_id() -> str:
    """An id for an envelope."""
    return str(uuid.uuid4())

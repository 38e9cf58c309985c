"""The stream of an agent's messages: all unread messages, then each new one, until the reader disconnects.

Above: the relay. Below: a `SessionPump` for each reader. The only back-pressure is the reader's socket. Writing a
message to a stream offers it and claims nothing: until the message is taken, each new stream has it again.
"""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.types import Receive, Send

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.member import ByToken
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Progress
from tieline.protocols.backchannel import view
from tieline.wire.http import Answer, failure
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.sse import EventStream, comment, event

_encode = msgspec.json.Encoder().encode


def not_yours(owner: str, name: str) -> Answer:
    """Answer a client that asks for another agent's messages."""
    return failure(403, f'token is for "{owner}", not "{name[:140]}"')


class _Reader:
    """One stream: the Wire of its session pump."""

    __slots__ = ("pump", "stream")

    def __init__(self, hub: Hub, keepalive_seconds: float) -> None:
        self.pump = SessionPump(hub, self)
        self.stream = EventStream(
            hub.limits.unsent_bytes_max,
            self.pump.pause_writing,
            self.pump.resume_writing,
            keepalive_seconds=keepalive_seconds,
        )

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Push messages."""
        for message, _, _ in parcels:
            self.stream.write(event(_encode(view.received(message))))
        return parcels

    def write_progress(self, step: Progress) -> None:
        """Never called: a stream follows no message."""

    def end(self, why: Refusal) -> None:
        """Write the reason as a comment, for a person to read, and end the stream."""
        self.stream.write(comment(why.message))
        self.stream.close()

    def pause_reading(self) -> None:
        """Nothing to pause: a reader of a stream sends nothing."""

    def resume_reading(self) -> None:
        """See `pause_reading`."""


class Events:
    """All open streams."""

    def __init__(self, hub: Hub, protocol: str, keepalive_seconds: float) -> None:
        self._hub = hub
        self._protocol = protocol
        self._keepalive_seconds = keepalive_seconds
        self._readers: set[_Reader] = set()

    async def serve(self, token: str, name: str, receive: Receive, send: Send) -> Answer | Refusal | None:
        """Stream an agent's messages to a client with its token. Return the reason if the stream never began."""
        reader = _Reader(self._hub, self._keepalive_seconds)
        pump = reader.pump
        attached: asyncio.Future[Attached | Refusal] = asyncio.get_running_loop().create_future()

        def opened(reply: Attached | Refusal) -> None:
            # The caller may have stopped waiting.
            if not attached.done():
                attached.set_result(reply)

        pump.open(c.Attach(protocol=self._protocol, credential=ByToken(token)), opened)
        self._readers.add(reader)
        try:
            reply = await attached
            if isinstance(reply, Refusal):
                return reply
            if pump.member != name:
                return not_yours(str(pump.member), name)
            pump.receive(window=None)
            await reader.stream.run(receive, send)
            return None
        finally:
            self._readers.discard(reader)
            pump.close()

    def close(self) -> None:
        """End all streams, because the hub stops."""
        for reader in list(self._readers):
            reader.end(Refusal(Code.SHUTTING_DOWN, "the hub is stopping; connect again later"))

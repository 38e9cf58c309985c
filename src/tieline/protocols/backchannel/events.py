"""The HTTP event stream of an agent: sends all its unread messages, then each new one, until the reader disconnects.

Used by: the relay. Uses: a `SessionPump` for each reader. Only a full socket of the reader slows a stream down. A
stream does not claim the messages that it sends. Until a message is claimed, each new stream sends it again.
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
from tieline.protocols.backchannel.message_ids import MessageIds
from tieline.wire.http import Answer, failure
from tieline.wire.session_pump import Parcel, SessionPump
from tieline.wire.sse import EventStream, comment, event

_encode = msgspec.json.Encoder().encode


def not_yours(owner: str, name: str) -> Answer:
    """Return the refusal for a client that asks for the messages of another agent.

    The client's token belongs to `owner`, but the client asks for the messages of `name`.
    """
    return failure(403, f'token is for "{owner}", not "{name[:140]}"')


class _Reader:
    """One open event stream of a client. The session pump calls its methods to write deliveries to the stream."""

    __slots__ = ("_ids", "pump", "stream")

    def __init__(self, hub: Hub, ids: MessageIds, keepalive_seconds: float) -> None:
        self._ids = ids
        self.pump = SessionPump(hub, self)
        self.stream = EventStream(
            hub.limits.unsent_bytes_max,
            self.pump.pause_writing,
            self.pump.resume_writing,
            keepalive_seconds=keepalive_seconds,
        )

    def write_deliveries(self, parcels: Sequence[Parcel]) -> Sequence[Parcel]:
        """Write messages to the stream. Return the deliveries that were written."""
        for message, _, _ in parcels:
            self.stream.write(event(_encode(view.received(message, self._ids))))
        return parcels

    def write_progress(self, step: Progress) -> None:
        """Do nothing.

        This is never called, because a stream's session does not ask for the progress of sent messages.
        """

    def end(self, why: Refusal) -> None:
        """End the stream, because the hub ended the session. Write the reason as a comment that people can read."""
        self.stream.write(comment(why.message))
        self.stream.close()

    def pause_reading(self) -> None:
        """Do nothing, because the client of a stream sends nothing that could be paused."""

    def resume_reading(self) -> None:
        """Do nothing, because the client of a stream sends nothing, so reading was never paused."""


class Events:
    """All open event streams of the hub's relay.

    A stream is an HTTP response through which an agent gets new messages.
    """

    def __init__(self, hub: Hub, protocol: str, ids: MessageIds, keepalive_seconds: float) -> None:
        self._hub = hub
        self._ids = ids
        self._protocol = protocol
        self._keepalive_seconds = keepalive_seconds
        self._readers: set[_Reader] = set()

    async def serve(self, token: str, name: str, receive: Receive, send: Send) -> Answer | Refusal | None:
        """Stream the messages of the agent `name` to a client, until the client disconnects.

        `token` is the client's token, and must belong to the agent. If the stream cannot begin, return the refusal.
        Otherwise return `None` at the end.
        """
        reader = _Reader(self._hub, self._ids, self._keepalive_seconds)
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

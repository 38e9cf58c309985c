"""A listener: pushes to one client the messages of its member, and notices that its tools changed.

Used by: the HTTP server, which opens a stream. Uses: the forwarder, over a session in the hub's own process. A client
may open one stream after the other. The session receives deliveries while a stream is open. An idle stream costs the
hub this object, a session and two tasks. It needs no timer, because one task of the server keeps all streams alive.

A client opens its stream even if it does not show pushed messages to its model. So a tool call does not prove that the
agent saw a push. A message counts as seen only if the agent names it or takes it by a tool.
"""

import asyncio
import contextlib
from collections import deque
from collections.abc import Callable, Coroutine
from typing import Any

from starlette.types import Receive, Send

from tieline.contract.hub import Hub
from tieline.contract.refusal import Code
from tieline.protocols.mcp import codec
from tieline.protocols.mcp.forwarder import WINDOW, Forwarder
from tieline.protocols.mcp.framing import channel_params
from tieline.protocols.mcp.open_objectives import Open, OpenObjectives, fetch_open
from tieline.protocols.mcp.tools.tool import Answer, list_open
from tieline.wire.native.client import Delivery
from tieline.wire.native.errors import HubError, HubRefused
from tieline.wire.native.frames import Item, Message
from tieline.wire.native.in_process import Session, open_session
from tieline.wire.sse import HEADERS, comment, event

UNPROVED_MAX = 256
UNPROVED_BYTES_MAX = 512 * 1024
"""Limits for the events that are kept since a client's last tool call: their number, and their total size in bytes.
These events are sent again if the client opens its stream again. Older events are dropped, but the inbox has all
messages."""


class Stream:
    """HTTP answer that carries server-sent events until the hub or the client ends it.

    A write waits for a slow client.
    """

    __slots__ = ("_is_open", "_send", "_writing")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._writing = asyncio.Lock()
        self._is_open = True

    async def begin(self, *headers: tuple[bytes, bytes]) -> None:
        """Send the status and the headers of the answer. `headers` are further headers for it."""
        await self._send({"type": "http.response.start", "status": 200, "headers": [*HEADERS, *headers]})
        # Sent at once, or a client may wait for the headers.
        await self._send({"type": "http.response.body", "body": b"", "more_body": True})

    async def write(self, chunk: bytes) -> None:
        """Send an encoded event or comment to the client, unless the answer has ended."""
        async with self._writing:
            if self._is_open:
                await self._send({"type": "http.response.body", "body": chunk, "more_body": True})

    async def end(self, chunk: bytes = b"") -> None:
        """Send the last event, `chunk`, and end the answer."""
        async with self._writing:
            if self._is_open:
                self._is_open = False
                await self._send({"type": "http.response.body", "body": chunk})

    @property
    def is_quiet(self) -> bool:
        """True if no event is being written to the client now."""
        return not self._writing.locked()


class Listener:
    """Pushes the messages of one member to one client.

    `over` is called when the hub refuses the token. `subscription` is the id of the stream, in the stateless versions
    of MCP.
    """

    __slots__ = (
        "_channels",
        "_forwarder",
        "_hub",
        "_member",
        "_now_ms",
        "_number",
        "_open_objectives",
        "_over",
        "_pushing",
        "_session",
        "_stream",
        "_subscription",
        "_telling",
        "_token",
        "_unproved",
        "_unproved_bytes",
        "_wants_tools",
    )

    def __init__(
        self,
        hub: Hub,
        token: str,
        member: str,
        over: Callable[[], None],
        now_ms: Callable[[], int],
        subscription: int | str | None = None,
    ) -> None:
        self._hub = hub
        # Called when the hub refuses the token.
        self._over = over
        self._now_ms = now_ms
        self._token = token
        self._member = member
        self._subscription = subscription
        self._wants_tools = True
        self._forwarder = Forwarder(member, self._push, hear=self._hear, left_out=self._say_left_out, reported=True)
        self._open_objectives: OpenObjectives | None = None
        self._session: Session | None = None
        self._stream: Stream | None = None
        self._channels: dict[str, str] = {}
        # Number of the last event, and the events since the client's last tool call, with their numbers and the ids of
        # their messages.
        self._number = 0
        self._unproved: deque[tuple[int, bytes, str]] | None = None
        self._unproved_bytes = 0
        self._telling: asyncio.Task[None] | None = None
        self._pushing: asyncio.Task[None] | None = None

    @property
    def stream(self) -> Stream | None:
        """The open stream to the client, or `None`."""
        return self._stream

    def want(self, *, tools: bool) -> None:
        """Choose the notices for the client. With `tools`, the client is notified when its tools change."""
        self._wants_tools = tools

    async def run(self, stream: Stream, receive: Receive, after: int = 0) -> None:
        """Push messages to the stream until the client disconnects or the hub ends the session.

        `after` is the number of the last event that the client has.
        """
        self.end()
        self._stream = stream
        self._pushing = pushing = asyncio.create_task(self._forward(stream, after, self._pushing))
        try:
            while (await receive())["type"] != "http.disconnect":
                pass
        finally:
            if self._stream is stream:
                self._stream = None
            pushing.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await pushing

    def end(self) -> None:
        """End the open stream, because another stream replaces it, or because the client's session is over."""
        stream, self._stream = self._stream, None
        if stream is not None:
            self._tell_soon(stream.end(self._last()))

    # Called after each tool call of the same token.

    def learn(self, answer: Answer) -> None:
        """Tell the forwarder which messages the agent has: those that its tool call took, or named by their ids.

        `answer` is the answer of that call.
        """
        for message_id in answer.named:
            self._forwarder.named(message_id)
        for claim in answer.claims:
            self._forwarder.settled(claim.item.message.id)

    def proved(self) -> None:
        """Forget the events that are stored for the case that the client reconnects.

        The client called a tool, which proves that it got these events.
        """
        self._unproved = None
        self._unproved_bytes = 0

    def redacted(self, message_id: str) -> None:
        """Drop the stored event of a message that was redacted. The inbox has the note in its place."""
        kept = [one for one in self._unproved or () if one[2] != message_id]
        self._unproved = deque(kept) if kept else None
        self._unproved_bytes = sum(len(chunk) for _, chunk, _ in kept)

    # Pushes.

    async def _forward(self, stream: Stream, after: int, before: asyncio.Task[None] | None) -> None:
        """Push messages to a stream until its session with the hub ends.

        `after` is the number of the last event that the client has. `before` is the task that pushed to the previous
        stream. That task is ended first.
        """
        if before is not None:
            before.cancel()
            await asyncio.gather(before, return_exceptions=True)
        for one in list(self._unproved or ()):
            # A write waits for the client, and meanwhile the message may be redacted.
            if one[0] > after and one in (self._unproved or ()):
                await stream.write(one[1])
        try:
            self._session = await open_session(self._hub, self._token, codec.PROTOCOL, receive=True, window=WINDOW)
            objectives = OpenObjectives(self._fetch, self._objectives_changed)
            await objectives.refresh()
            self._open_objectives = objectives
            await self._forwarder.forward(self._session)
        except HubError as error:
            await stream.end(comment(str(error)) + self._last())
            if isinstance(error, HubRefused) and error.code is Code.UNAUTHORIZED:
                self._over()
        finally:
            session, self._session = self._session, None
            if self._open_objectives is not None:
                await self._open_objectives.close()
                self._open_objectives = None
            if session is not None:
                await session.close()

    async def _push(self, delivery: Delivery | Item) -> None:
        message, session = delivery.message, self._session
        if message.target.startswith("#") and message.target[1:] not in self._channels and session is not None:
            self._channels = {one.name: one.id for one in await session.channels() if one.id}
        params = channel_params(message, member=self._member, now_ms=self._now_ms(), channels=self._channels)
        await self._notify(codec.CHANNEL_METHOD, params, message.id)

    async def _say_left_out(self, count: int) -> None:
        text = f"{count} more messages wait for you and were not pushed: take them with your tools."
        await self._notify(codec.CHANNEL_METHOD, {"content": text, "meta": {"kind": "digest", "waiting": str(count)}})

    async def _notify(self, method: str, params: dict[str, Any], message_id: str = "") -> None:
        chunk = self._event(method, params)
        if self._subscription is None:
            self._keep(chunk, message_id)
        if self._stream is not None:
            # Returns when the client reads. Meanwhile deliveries stay in the inbox.
            await self._stream.write(chunk)
        # A long text takes 10 ms to write, and a backlog has many. Others have their turn in between.
        await asyncio.sleep(0)

    def _keep(self, chunk: bytes, message_id: str) -> None:
        """Store the last event for a client that opens its stream again. Only clients with a session can do this."""
        if self._unproved is None:
            self._unproved = deque()
        self._unproved.append((self._number, chunk, message_id))
        self._unproved_bytes += len(chunk)
        while len(self._unproved) > UNPROVED_MAX or self._unproved_bytes > UNPROVED_BYTES_MAX:
            self._unproved_bytes -= len(self._unproved.popleft()[1])

    def _event(self, method: str, params: dict[str, Any] | None) -> bytes:
        if self._subscription is not None:
            params = {**(params or {}), "_meta": {codec.SUBSCRIPTION_KEY: self._subscription}}
        self._number += 1
        return event(codec.notification(method, params), str(self._number) if self._subscription is None else "")

    def _last(self) -> bytes:
        """Return the last event of a stream, as bytes.

        In the stateless versions of MCP (those without sessions), it is the answer to the request that opened the
        stream. In the other versions, it is empty.
        """
        if self._subscription is None:
            return b""
        return event(codec.answer(self._subscription, codec.stateless({}, self._subscription)))

    # Objectives.

    def _hear(self, message: Message) -> None:
        if self._open_objectives is not None:
            self._open_objectives.hear(message)

    async def _fetch(self) -> Open:
        return await fetch_open(self._session, self._member) if self._session is not None else ()

    def _objectives_changed(self, before: Open, after: Open) -> None:
        # The program is notified only if the description of a tool changes. The first list is no change.
        is_change = self._open_objectives is not None and list_open(before) != list_open(after)
        if is_change and self._wants_tools and self._stream is not None:
            self._tell_soon(self._stream.write(self._event(codec.TOOLS_CHANGED_METHOD, None)))

    def _tell_soon(self, telling: Coroutine[Any, Any, None]) -> None:
        self._telling = asyncio.create_task(telling)

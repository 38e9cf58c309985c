"""The agent session: one agent's tools and messages, through any number of sessions with the hub.

Used by: the MCP server, or a runner, which has the agent's program. Uses: the SDK, the forwarder, the open objectives
and the tools. This module uses no stdio, no sockets and no processes: one callback opens a session with the hub,
another callback notifies the program. If the hub goes away, the agent session reconnects. If the hub left a call
unanswered, the agent session repeats the call, but only if the tool is repeatable.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Any

from msgspec import structs

from tieline.protocols.mcp.codec import CHANNEL_METHOD, TOOLS_CHANGED_METHOD
from tieline.protocols.mcp.forwarder import ANSWERED, NAMED, Forwarder, Takes, anywhere
from tieline.protocols.mcp.framing import channel_params
from tieline.protocols.mcp.open_objectives import Open, OpenObjectives, fetch_open
from tieline.protocols.mcp.tools import DEFAULT, Answer, Tool, ToolContext, tools_of
from tieline.protocols.mcp.tools.tool import Unanswered, fail, list_open
from tieline.wire.backoff import SESSION_BACKOFF
from tieline.wire.native.client import Client, Delivery
from tieline.wire.native.errors import Disconnected, HubError, is_passing
from tieline.wire.native.frames import Item, Message

AWAY_SECONDS = 5.0
"""Time that a tool call, and so the agent, waits for a hub that cannot be reached. A restart of the hub takes less."""

FIRST_SESSION_SECONDS = 1.0
"""Longest time that the first list of tools waits for a session. Programs give up on an MCP server that is slow."""

_CLOSE_SECONDS = 1.0  # a hub that hangs must not delay the end of the agent
_NAME_CHARS = 100
_TAKEN_MAX = 1_000  # agents answer what they took lately
_LOOKED_AT_MAX = 100  # an inbox may have a million deliveries, and the agent waits

OpenSession = Callable[[], Awaitable[Client]]
"""Callback that opens a session of the member with the hub. If the agent session has no `arrivals`, the opened session
must receive deliveries, with the window (largest number of unacknowledged deliveries) `forwarder.WINDOW`. Raises
`HubError`."""

Arrivals = Callable[[], contextlib.AbstractAsyncContextManager[asyncio.Event]]
"""Callback that returns a context manager. The context manager yields an event that is set whenever a message for the
member arrives."""

Notify = Callable[[str, dict[str, Any] | None], Awaitable[None]]
"""Callback that sends an MCP notification to the agent's program. The arguments are the method and the parameters of
the notification."""


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


class UnknownTool(Exception):
    """Raised by `call_tool` if the agent's set of tools has no tool with this name."""


class AgentSession:
    """Serves one agent: lists and calls its tools, pushes its messages, and keeps its session with the hub open.

    Not thread-safe: use it only in one event loop.
    """

    def __init__(  # noqa: PLR0913 - the agent's program, its way to the hub, and what it is shown
        self,
        open_session: OpenSession,
        notify: Notify,
        *,
        tools: str = DEFAULT,
        push: bool = True,
        hooked: bool = False,
        takes: Takes = anywhere,
        tell: Callable[[str], None] = lambda _text: None,
        arrivals: Arrivals | None = None,
        now_ms: Callable[[], int] = _now_ms,
    ) -> None:
        """Set the parameters of the agent session. `keep` opens its session with the hub.

        `tools` is the name of a set of tools. With `push`, messages are pushed to the agent's program. With `hooked`,
        hooks (commands that the program runs at certain events) report which messages the agent saw. `takes` selects
        the messages for the agent by scope. `tell` gets texts about the connection, such as that the hub went away.
        Pass `arrivals` if the agent session only calls tools, and its sessions with the hub receive no deliveries.
        """
        self._open_session = open_session
        self._notify = notify
        self._tools: dict[str, Tool] = {tool.name: tool for tool in tools_of(tools)}
        self._takes = takes
        self._tell = tell
        self._now_ms = now_ms
        self._receives = arrivals is None
        # Set whenever a message comes.
        self._arrived = asyncio.Event()
        self._arrivals = arrivals or (lambda: contextlib.nullcontext(self._arrived))
        self.open_objectives = OpenObjectives(self._fetch_open, self._objectives_changed)
        # The agent's member name, and its forwarder. The first session sets both.
        self.member = ""
        self.forwarder: Forwarder | None = None
        self._push_takes = takes if push or hooked else _nothing
        self._pushes = push
        self._hooked = hooked
        self._client: Client | None = None
        self._permissions: frozenset[str] = frozenset()
        self._channels: dict[str, str] = {}
        # Claims without an answer from the hub.
        self._unanswered: list[Unanswered] = []
        # Ids of the messages that tools took lately. Taking acknowledges them, so an answer has nothing to settle.
        self._taken: deque[str] = deque(maxlen=_TAKEN_MAX)
        # Set while there is a session; and set once the program is ready for notifications.
        self._connected = asyncio.Event()
        self._ready = asyncio.Event()
        # The error after which no session will be opened any more.
        self._over: HubError | None = None
        self._notifying: set[asyncio.Task[None]] = set()

    # Called by the MCP server or the runner.

    def begin(self) -> None:
        """Start to push messages to the agent's program, because the program is ready for notifications."""
        self._ready.set()

    async def keep(self, client: Client | None = None) -> None:
        """Keep a session with the hub open until this task is cancelled. Reconnect whenever the session ends.

        `client` is the first session, if it is already open. Returns if the hub refuses the member for good, for
        example because its token was revoked.
        """
        try:
            while True:
                try:
                    if client is None:
                        client = await SESSION_BACKOFF.retry(self._open_session, is_passing)
                    await self._serve(client)
                except HubError as error:
                    if not is_passing(error):
                        self._over = error
                        self._tell(f"the hub ended the session: {error}")
                        return
                    self._tell("the hub went away; trying until it is back")
                finally:
                    self._client = None
                    self._connected.clear()
                    if client is not None:
                        await _close(client)
                client = None
        finally:
            await self.open_objectives.close()
            for task in self._notifying:
                task.cancel()

    async def wait_for_hub(self) -> None:
        """Wait for a session with the hub, at most `FIRST_SESSION_SECONDS`.

        Then the first list of tools can show the open objectives.
        """
        await self._wait_for_session(FIRST_SESSION_SECONDS)

    def list_tools(self) -> list[dict[str, Any]]:
        """Return the tools for the answer to MCP's `tools/list`.

        The descriptions of some tools list the objectives that are open now.
        """
        return [
            {
                "name": tool.name,
                "description": tool.described(self.open_objectives.current),
                "inputSchema": tool.schema(),
            }
            for tool in self._tools.values()
            if not tool.permission or tool.permission in self._permissions
        ]

    async def call_tool(self, name: str, arguments: Mapping[str, Any] | None) -> Answer:
        """Call the tool of this name and return its answer. Raises `UnknownTool` if there is no such tool."""
        tool = self._tools.get(name)
        if tool is None:
            raise UnknownTool(f"there is no tool {name[:_NAME_CHARS]!r}")
        if self.forwarder is not None:
            self.forwarder.evidence(f"tool call: {name}")
        wire_id = secrets.token_hex(16)
        started = time.monotonic()
        for is_last in (not tool.repeatable, True):
            client = await self._wait_for_session(AWAY_SECONDS)
            if client is None:
                return fail(str(self._over or "the hub is away, nothing was done; it is tried again: call later"))
            context = self._context(client, wire_id, time.monotonic() - started)
            is_shown = False
            try:
                answer = await tool.call(context, arguments)
                is_shown = not answer.failed
            except Disconnected:
                # The task in `keep` may notice the lost session later than this call.
                if self._client is client:
                    self._connected.clear()
                if is_last:
                    return fail("the hub went away before it answered: see whether it was done before you try again")
                continue
            finally:
                if not is_shown:
                    # The call was cancelled, or failed after it claimed messages. The next call shows these messages.
                    self._unanswered += context.claims
            if not is_shown:
                # The hub refused the answer, so the message that it names is not answered.
                context.named.clear()
            await acknowledge_answered(client, self._learn(context))
            claims = tuple(context.claims) if is_shown else ()
            return structs.replace(answer, claims=claims, named=tuple(context.named))
        raise AssertionError("the last attempt returns")

    def lost(self, answer: Answer) -> None:
        """Note that the answer of a tool call did not reach the agent.

        The next tool call that takes messages shows the messages of the lost answer again.
        """
        self._unanswered += answer.claims

    @property
    def has_unshown(self) -> bool:
        """True if messages were taken from the inbox and perhaps not shown to the agent."""
        return bool(self._unanswered)

    # Sessions.

    async def _serve(self, client: Client) -> None:
        assert client.welcome is not None, "an open session was welcomed"
        self.member = member = client.welcome.speaker
        if self.forwarder is None and self._receives:
            self.forwarder = Forwarder(
                member,
                self._push,
                hear=self.hear,
                left_out=self._say_left_out,
                takes=self._push_takes,
                reported=self._hooked,
            )
        self._client = client
        await self._learn_channels(client)
        if any(tool.permission for tool in self._tools.values()):
            own = (one for one in await client.members() if one.name == member)
            self._permissions = frozenset(word for one in own for word in one.permissions)
        await self.open_objectives.refresh()
        self._connected.set()
        if self.forwarder is not None:
            await self.forwarder.forward(client)
        else:
            # Nothing is delivered: this waits until the session ends.
            await anext(client.deliveries())

    async def _wait_for_session(self, seconds: float) -> Client | None:
        if self._over is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(seconds):
                    await self._connected.wait()
        return self._client if self._connected.is_set() else None

    async def _learn_channels(self, client: Client) -> None:
        self._channels = {one.name: one.id for one in await client.channels() if one.id}

    # Deliveries.

    def hear(self, message: Message) -> None:
        """Note that a message arrived for the agent.

        A program that uses a forwarder of its own calls this method for each message.
        """
        self._arrived.set()
        self.open_objectives.hear(message)

    async def _push(self, delivery: Delivery | Item) -> None:
        if not self._pushes:
            return
        message = delivery.message
        await self._ready.wait()
        if message.target.startswith("#") and message.target[1:] not in self._channels and self._client is not None:
            await self._learn_channels(self._client)
        await self._notify(CHANNEL_METHOD, self._params(message))

    def _params(self, message: Message) -> dict[str, Any]:
        return channel_params(message, member=self.member, now_ms=self._now_ms(), channels=self._channels)

    async def _say_left_out(self, count: int) -> None:
        if not self._pushes:
            return
        await self._ready.wait()
        text = f"{count} more messages wait for you and were not pushed: take them with your tools."
        await self._notify(CHANNEL_METHOD, {"content": text, "meta": {"kind": "digest", "waiting": str(count)}})

    # Objectives.

    async def _fetch_open(self) -> Open:
        client = self._client
        if client is None:
            raise Disconnected("there is no session")
        return await fetch_open(client, self.member)

    def _objectives_changed(self, before: Open, after: Open) -> None:
        # The program is notified only if the description of a tool changes.
        if self._ready.is_set() and list_open(before) != list_open(after):
            task = asyncio.ensure_future(self._notify(TOOLS_CHANGED_METHOD, None))
            self._notifying.add(task)
            task.add_done_callback(self._notifying.discard)

    # Calls.

    def _context(self, client: Client, wire_id: str, waited_seconds: float) -> ToolContext:
        return ToolContext(
            client=client,
            member=self.member,
            now_ms=self._now_ms(),
            wire_id=wire_id,
            open=self.open_objectives.current,
            channels=self._channels,
            takes=self._takes,
            unanswered=self._unanswered,
            waited_seconds=waited_seconds,
            arrivals=self._arrivals,
        )

    def _learn(self, context: ToolContext) -> list[str]:
        """Report to the forwarder the messages that a tool call named, took from the inbox, or showed to the agent.

        By this report, the forwarder decides which pushed deliveries it acknowledges or forgets. Return the ids of the
        messages that the call named and that neither the forwarder nor a tool of this session acknowledged.
        """
        unknown = context.named
        if self.forwarder is not None:
            unknown = [message_id for message_id in unknown if not self.forwarder.named(message_id)]
            for message_id in context.taken:
                self.forwarder.settled(message_id)
            for message_id in context.shown:
                self.forwarder.shown(message_id)
        self._taken.extend(context.taken)
        return [message_id for message_id in unknown if message_id not in self._taken]


def result_of(answer: Answer) -> dict[str, Any]:
    """Return a tool's answer in the form of MCP's result of `tools/call`."""
    result: dict[str, Any] = {"content": [{"type": "text", "text": answer.text}]}
    if answer.data is not None:
        result["structuredContent"] = answer.data
    if answer.failed:
        result["isError"] = True
    return result


async def acknowledge_answered(
    client: Client, message_ids: Sequence[str], *, named: str = NAMED, answered: str = ANSWERED
) -> None:
    """Acknowledge messages that the member of `client` answered, if they still wait in its inbox.

    An agent knows such a message from a hook of its program, or from a tool, and not from a push. `named` is the
    evidence that the member has seen a message. `answered` is the evidence that it has handled the message.
    """
    if not message_ids:
        return
    # The answer was sent. If the hub goes away now, the messages stay in the inbox.
    with contextlib.suppress(HubError):
        # Evidence needs the key of the delivery, and the hub finds no key by the id of a message. So only the first
        # page is read. A claim settles a message in the rest of a long inbox, with the evidence 'claim'.
        page = await client.inbox(limit=_LOOKED_AT_MAX)
        waiting = {item.message.id: item for item in page.items}
        for message_id in message_ids:
            item = waiting.get(message_id)
            if item is not None:
                client.see(item, evidence=named)
                client.ack(item, evidence=answered)
            elif not page.complete:
                await client.claim(message_id)


async def _close(client: Client) -> None:
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(_CLOSE_SECONDS):
            await client.close()


def _nothing(_scope: str | None) -> bool:
    return False

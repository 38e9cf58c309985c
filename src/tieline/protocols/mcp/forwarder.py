"""The forwarder: pushes a member's deliveries to its agent, and keeps them open until there is evidence of reading.

Used by: the MCP server, or a runner, which provides the push callback and reports evidence. Uses: sessions with a hub,
one after the other when the hub restarts.

A push is no evidence: the program may drop the push, or end before its model reads it. So the hub keeps a delivery as
`offered` until the agent does something that is only possible after its program took the push. Then the delivery
becomes `seen`, and the hub records the evidence. After a crash, the next run pushes the offered deliveries again, but
not the seen ones. Within one run a delivery is pushed once, also if the hub restarts.

A seen delivery stays in the inbox, because some programs take a push and show it to nobody: the agent's own tools can
still find the delivery. A seen delivery is acknowledged when the agent takes or answers its message. If an agent names
a message that it can only know from a push, this proves that the agent is shown pushes. From then on every seen
delivery is acknowledged at once.
"""

from collections.abc import Awaitable, Callable, Collection
from typing import NamedTuple, TypeVar

from tieline.protocols.mcp.echo import should_suppress_self_echo
from tieline.wire.native.arrivals import DeliveredKeys, arrivals, unsettled
from tieline.wire.native.client import Client, Delivery
from tieline.wire.native.frames import Item, Message

WINDOW = 1024
"""Window of the session: the largest number of unacknowledged deliveries that the hub pushes. A seen delivery that is
not acknowledged counts, too."""

BACKLOG_PUSHED_MAX = 50
"""Largest number of waiting deliveries that are pushed when the agent's program starts, because more would fill the
agent's context. The agent can take the other deliveries by a tool."""

AWAITING_MAX = 10_000
"""Largest number of pushed deliveries that wait for evidence that they were read. Above this limit the oldest
deliveries are forgotten, and the next start of the agent's program pushes them again."""

NAMED = "named by the agent"
"""Evidence that the agent has seen a message: the agent named its id, for example in an answer."""

ANSWERED = "answered by the agent"
"""Evidence that the agent has handled a message."""

Push = Callable[[Delivery | Item], Awaitable[None]]
"""Callback that writes one delivery to the agent's program. Returns when the delivery is written."""

Takes = Callable[[str | None], bool]
"""Callback that returns true if messages with this scope (a repository, for example) are for this agent."""


def anywhere(_scope: str | None) -> bool:
    """Return true for every scope.

    This function is the filter (`Takes`) for an agent that takes messages of all projects.
    """
    return True


Hear = Callable[[Message], None]
K = TypeVar("K")
V = TypeVar("V")

LeftOut = Callable[[int], Awaitable[None]]
"""Callback that gets the number of waiting deliveries that were not pushed."""


class _Pushed(NamedTuple):
    """Record of a pushed delivery: its key, and the id of its message.

    The message itself may be large, so it is left out.
    """

    key: int
    id: str


class Forwarder:
    """Pushes the deliveries of one member to its agent, as long as the agent's program runs.

    Not thread-safe: use it only in one event loop.
    """

    def __init__(
        self,
        member: str,
        push: Push,
        *,
        hear: Hear | None = None,
        left_out: LeftOut | None = None,
        takes: Takes = anywhere,
        reported: bool = False,
    ) -> None:
        self._member = member
        self._push = push
        # Callback for every message, pushed or not.
        self._hear = hear
        self._left_out = left_out
        # Selects messages by scope. Other messages stay in the inbox.
        self._takes = takes
        # True if hooks or the program itself report which messages were seen. Then a tool call proves nothing about
        # pushes, and an action on one message never settles another one.
        self._reported = reported
        # The current session, if there is one.
        self._client: Client | None = None
        # Keys of deliveries that were handled, in any session.
        self._given = DeliveredKeys()
        # True once the deliveries that waited at the start were handled.
        self._begun = False
        # Pushed deliveries without evidence, by key.
        self._awaiting: dict[int, _Pushed] = {}
        # Deliveries seen lately, with their evidence; and deliveries settled lately. A session may end before the hub
        # gets these reports, so they are repeated in the next session. A repeated report changes nothing.
        self._told: dict[int, tuple[_Pushed, str]] = {}
        self._acked: dict[int, tuple[_Pushed, str]] = {}
        # Seen deliveries that are not settled, by the message's id.
        self._unsettled: dict[str, _Pushed] = {}
        # Ids of messages that the agent can only know from a push.
        self._provable: dict[str, None] = {}
        # True once the agent named such a message.
        self.proved = False

    # Called by the agent session.

    async def forward(self, client: Client) -> None:
        """Push the member's deliveries to the agent as they come, until the session `client` ends with a `HubError`."""
        self._client = client
        try:
            self._tell_again(client)
            await self._catch_up(client)
            async for delivery in arrivals(client, self._given):
                await self._deal_with(client, delivery)
                self._given.add(delivery.key)
        finally:
            self._client = None

    # Evidence of reading.

    def evidence(self, text: str, *, keys: Collection[int] | None = None) -> int:
        """Mark pushed deliveries as seen, because the agent did something that proves that its program took them.

        `text` describes the evidence. `keys` are the keys of the deliveries that the evidence covers. `None` means all
        pushed deliveries. If hooks or the agent's program report which messages were seen, evidence without `keys` is
        ignored. Returns the number of deliveries that are newly seen.
        """
        if self._reported and keys is None:
            return 0
        seen = [delivery for key, delivery in self._awaiting.items() if keys is None or key in keys]
        for delivery in seen:
            del self._awaiting[delivery.key]
            self._see(delivery, text)
        return len(seen)

    def named(self, message_id: str) -> bool:
        """Acknowledge the seen delivery of a message that the agent named in an answer.

        If the agent can know the message only from a push, the name proves that the agent's program shows pushes to the
        agent. Then all seen deliveries are acknowledged. But if hooks or the agent's program report which messages were
        seen, a named message proves only that this message was seen.

        Return true if the delivery is acknowledged now or was acknowledged lately. Return false if the forwarder does
        not know it, for example because it pushes nothing.
        """
        if self._reported:
            pushed = next((one for one in self._awaiting.values() if one.id == message_id), None)
            if pushed is not None:
                del self._awaiting[pushed.key]
                self._see(pushed, NAMED)
        elif message_id in self._provable:
            self.proved = True
        if message_id not in self._unsettled:
            return any(delivery.id == message_id for delivery, _ in self._acked.values())
        self.finished(message_id, ANSWERED)
        for one in list(self._unsettled) if self.proved else ():
            self.finished(one)
        return True

    def finished(self, message_id: str, evidence: str = "") -> None:
        """Acknowledge the seen delivery of one message, because the agent is done with it.

        `evidence` may say how this is known.
        """
        known = self._unsettled.pop(message_id, None)
        if known is not None:
            self._settle(known, evidence)

    def withdraw(self, key: int) -> None:
        """Forget the push of the delivery with this key, because the push did not reach the agent.

        Later evidence does not cover this delivery, and the next start of the agent's program pushes it again.
        """
        self._awaiting.pop(key, None)

    def shown(self, message_id: str) -> None:
        """Note that a tool showed this message to the agent.

        If the agent names the message later, this does not prove that the agent saw a push.
        """
        self._provable.pop(message_id, None)

    def settled(self, message_id: str) -> None:
        """Forget the delivery of a message that the agent took by a tool. The tool has acknowledged the delivery."""
        known = self._unsettled.pop(message_id, None)
        if known is None:
            known = next((one for one in self._awaiting.values() if one.id == message_id), None)
        if known is not None:
            self._awaiting.pop(known.key, None)

    def _see(self, delivery: _Pushed, text: str) -> None:
        _keep(self._told, delivery.key, (delivery, text))
        if self._client is not None:
            self._client.see(delivery, evidence=text)
        if self.proved:
            self._settle(delivery)
        else:
            _keep(self._unsettled, delivery.id, delivery)

    def _settle(self, delivery: _Pushed, evidence: str = "") -> None:
        _keep(self._acked, delivery.key, (delivery, evidence))
        if self._client is not None:
            self._client.ack(delivery, evidence=evidence)

    def _tell_again(self, client: Client) -> None:
        by_evidence: dict[str, list[_Pushed]] = {}
        for delivery, text in self._told.values():
            by_evidence.setdefault(text, []).append(delivery)
        for text, deliveries in by_evidence.items():
            client.see(*deliveries, evidence=text)
        for delivery, text in self._acked.values():
            client.ack(delivery, evidence=text)

    # Deliveries.

    async def _catch_up(self, client: Client) -> None:
        """Push the deliveries that wait in the inbox at the start of a session, except deliveries that were seen."""
        pushed = passed_over = 0
        async for item in unsettled(client):
            if item.key in self._given:
                continue
            if item.state == "seen":
                self._note_unsettled(item)
            elif not self._begun and pushed >= BACKLOG_PUSHED_MAX:
                passed_over += 1
                self._listen_to(item)
            else:
                pushed += await self._deal_with(client, item)
            self._given.add(item.key)
        self._begun = True
        if passed_over and self._left_out is not None:
            await self._left_out(passed_over)

    def _note_unsettled(self, item: Item) -> None:
        self._listen_to(item)
        _keep(self._unsettled, item.message.id, _Pushed(item.key, item.message.id))

    async def _deal_with(self, client: Client, delivery: Delivery | Item) -> bool:
        """Push one delivery, unless the agent itself wrote its message or the message is for another scope.

        Returns true if the delivery was pushed.
        """
        self._listen_to(delivery)
        if should_suppress_self_echo(delivery.message, member=self._member):
            client.ack(delivery)
            return False
        if not self._takes(delivery.message.scope):
            return False
        await self._push(delivery)
        _keep(self._awaiting, delivery.key, _Pushed(delivery.key, delivery.message.id))
        _keep(self._provable, delivery.message.id, None)
        return True

    def _listen_to(self, delivery: Delivery | Item) -> None:
        if self._hear is not None:
            self._hear(delivery.message)


def _keep(among: dict[K, V], key: K, value: V) -> None:
    among[key] = value
    if len(among) > AWAITING_MAX:
        del among[next(iter(among))]

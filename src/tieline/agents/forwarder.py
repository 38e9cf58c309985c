"""The forwarder: pushes a member's deliveries to its agent, and keeps them open until there is evidence of reading.

Above: the MCP server, or a runner, which provides the push callback and reports evidence. Below: sessions with a hub,
one after the other when the hub restarts.

A push is no evidence: the program may drop the push, or end before its model reads it. So the hub keeps a delivery as
`offered` until the agent does something that is only possible after its program took the push. Then the delivery
becomes `seen`, and the hub records the evidence. After a crash, the next run pushes the offered deliveries again, but
not the seen ones. Within one run a delivery is pushed once, also if the hub restarts.

A seen delivery stays in the inbox, because some programs take a push and show it to nobody: the agent's own tools can
still find the delivery. A seen delivery is settled when the agent takes or answers its message. If an agent names a
message that it can only know from a push, this proves that the agent is shown pushes. From then on every seen delivery
is settled at once.
"""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tieline.agents.arrivals import Given, arrivals, unsettled
from tieline.agents.echo import should_suppress_self_echo
from tieline.client import Client, Delivery, Item, Message

WINDOW = 1024
"""Window of the session: the maximum of unsettled deliveries. A delivery that is only seen still counts."""

BACKLOG_PUSHED_MAX = 50
"""Waiting deliveries that are pushed at the start: more would fill the agent's context. The agent can take the rest."""

AWAITING_MAX = 10_000
"""Pushes that wait for evidence. Above this limit the oldest are forgotten, and the next run pushes them again."""

Push = Callable[[Delivery | Item], Awaitable[None]]
"""Writes one delivery to the agent's program. Returns when the delivery is written."""

Takes = Callable[[str | None], bool]
"""True if this agent takes messages of the given scope."""


def anywhere(_scope: str | None) -> bool:
    """Take every scope: for an agent without a context of its own."""
    return True


Hear = Callable[[Message], None]
K = TypeVar("K")
V = TypeVar("V")

LeftOut = Callable[[int], Awaitable[None]]
"""Callback with the number of waiting deliveries that were not pushed."""


class Forwarder:
    """Pushes the deliveries of one member. Belongs to one event loop, and lives as long as the agent's program."""

    def __init__(
        self,
        member: str,
        push: Push,
        *,
        hear: Hear | None = None,
        left_out: LeftOut | None = None,
        takes: Takes = anywhere,
    ) -> None:
        self._member = member
        self._push = push
        # Callback for every message, pushed or not.
        self._hear = hear
        self._left_out = left_out
        # Selects messages by scope. Other messages stay in the inbox.
        self._takes = takes
        # The current session, if there is one.
        self._client: Client | None = None
        # Keys of deliveries that were handled, in any session.
        self._given = Given()
        # True once the deliveries that waited at the start were handled.
        self._begun = False
        # Pushed deliveries without evidence, by key.
        self._awaiting: OrderedDict[int, Delivery | Item] = OrderedDict()
        # Deliveries seen lately, with their evidence; and deliveries settled lately. A session may end before the hub
        # gets these reports, so they are repeated in the next session. A repeated report changes nothing.
        self._told: deque[tuple[Delivery | Item, str]] = deque(maxlen=AWAITING_MAX)
        self._acked: deque[Delivery | Item] = deque(maxlen=AWAITING_MAX)
        # Seen deliveries that are not settled, by the message's id.
        self._unsettled: OrderedDict[str, Delivery | Item] = OrderedDict()
        # Ids of messages that the agent can only know from a push.
        self._provable: OrderedDict[str, None] = OrderedDict()
        # True once the agent named such a message.
        self.proved = False

    # Called by the agent session.

    async def forward(self, client: Client) -> None:
        """Push deliveries as they come, until the session ends with a `HubError`."""
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

    def evidence(self, text: str, *, through: int | None = None) -> int:
        """Mark pushed deliveries as seen, up to the key `through` if given: the agent's program must have taken them.

        Returns the number of newly seen deliveries. The same evidence again returns 0.
        """
        seen = [delivery for key, delivery in self._awaiting.items() if through is None or key <= through]
        for delivery in seen:
            del self._awaiting[delivery.key]
            self._see(delivery, text)
        return len(seen)

    def named(self, message_id: str) -> None:
        """The agent named a message. Settle its seen delivery; once pushes are proved, all seen deliveries."""
        if message_id in self._provable:
            self.proved = True
        if message_id in self._unsettled:
            for one in list(self._unsettled) if self.proved else [message_id]:
                self.finished(one)

    def finished(self, message_id: str) -> None:
        """The agent is done with a message. Settle its delivery, and no other."""
        known = self._unsettled.pop(message_id, None)
        if known is not None:
            self._settle(known)

    def withdraw(self, key: int) -> None:
        """A push did not reach the agent. Later evidence does not cover this push, and the next run repeats it."""
        self._awaiting.pop(key, None)

    def shown(self, message_id: str) -> None:
        """A tool showed a message. If the agent names this message, that proves nothing about pushes."""
        self._provable.pop(message_id, None)

    def settled(self, message_id: str) -> None:
        """The agent took a message by a tool. Stop waiting for evidence of its delivery."""
        known = self._unsettled.pop(message_id, None)
        if known is None:
            known = next((one for one in self._awaiting.values() if one.message.id == message_id), None)
        if known is not None:
            self._awaiting.pop(known.key, None)

    def _see(self, delivery: Delivery | Item, text: str) -> None:
        self._told.append((delivery, text))
        if self._client is not None:
            self._client.see(delivery, evidence=text)
        if self.proved:
            self._settle(delivery)
        else:
            _keep(self._unsettled, delivery.message.id, delivery)

    def _settle(self, delivery: Delivery | Item) -> None:
        self._acked.append(delivery)
        if self._client is not None:
            self._client.ack(delivery)

    def _tell_again(self, client: Client) -> None:
        by_evidence: dict[str, list[Delivery | Item]] = {}
        for delivery, text in self._told:
            by_evidence.setdefault(text, []).append(delivery)
        for text, deliveries in by_evidence.items():
            client.see(*deliveries, evidence=text)
        for delivery in self._acked:
            client.ack(delivery)

    # Deliveries.

    async def _catch_up(self, client: Client) -> None:
        """Handle the waiting items of the inbox. Only the inbox knows their states: seen items are not pushed again."""
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
        _keep(self._unsettled, item.message.id, item)

    async def _deal_with(self, client: Client, delivery: Delivery | Item) -> bool:
        """Push one delivery, unless it is the agent's own chat or of another scope. Returns true if pushed."""
        self._listen_to(delivery)
        if should_suppress_self_echo(delivery.message, member=self._member):
            client.ack(delivery)
            return False
        if not self._takes(delivery.message.scope):
            return False
        await self._push(delivery)
        _keep(self._awaiting, delivery.key, delivery)
        _keep(self._provable, delivery.message.id, None)
        return True

    def _listen_to(self, delivery: Delivery | Item) -> None:
        if self._hear is not None:
            self._hear(delivery.message)


def _keep(among: OrderedDict[K, V], key: K, value: V) -> None:
    among[key] = value
    if len(among) > AWAITING_MAX:
        among.popitem(last=False)

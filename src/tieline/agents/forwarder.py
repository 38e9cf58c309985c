"""The forwarder: a member's deliveries, pushed to its agent, and kept open until something shows that they were read.

Above: the MCP server, or a runner, which says how to push and what is evidence. Below: sessions with a hub, one after
the other when the hub restarts.

A push is no evidence: the program may drop it, or end before its model reads it. So the hub keeps a delivery as
`offered` until the agent does something that it can only do after its program took the push; only then it is `seen`,
with what showed it. Whoever pushes after a crash therefore pushes what was offered and never seen again, and what was
seen not again. Within one run a delivery is pushed once, however often the hub comes and goes.

A delivery that was seen stays in the inbox, because some programs take a push and show it to nobody: the agent's own
tools can still find it. It is settled when the agent takes it, or answers it. An agent that names a message it can only
know from a push has proved that it is shown pushes, and from then on what is seen is settled too.
"""

from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable
from typing import TypeVar

from tieline.agents.arrivals import Given, arrivals, unsettled
from tieline.agents.echo import should_suppress_self_echo
from tieline.client import Client, Delivery, Item, Message

WINDOW = 1024
"""Deliveries that may be on their way here: those that are only seen stay unsettled and keep their place in it."""

BACKLOG_PUSHED_MAX = 50
"""Of what waited when the agent came: more at once would be all that it reads. The rest is for it to take."""

AWAITING_MAX = 10_000
"""Pushes that wait for evidence: the oldest are given up first, and are pushed again by the next run."""

Push = Callable[[Delivery | Item], Awaitable[None]]
"""Writes one delivery to the agent's program; returns when it is written."""

Takes = Callable[[str | None], bool]
"""Whether a message of this scope is for here."""


def anywhere(_scope: str | None) -> bool:
    """For an agent that has no context of its own: every scope is for it."""
    return True


Hear = Callable[[Message], None]
K = TypeVar("K")
V = TypeVar("V")

LeftOut = Callable[[int], Awaitable[None]]
"""Is told how many deliveries wait that were not pushed."""


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
        # Is told of every message, pushed or not.
        self._hear = hear
        self._left_out = left_out
        # Which messages are for here; others are left in the inbox.
        self._takes = takes
        # The session now, if there is one.
        self._client: Client | None = None
        # Deliveries that were dealt with, in any session.
        self._given = Given()
        # Whether what waited at the start was dealt with.
        self._begun = False
        # Pushed, and no evidence yet, by key.
        self._awaiting: OrderedDict[int, Delivery | Item] = OrderedDict()
        # What was seen lately, and by what; and what was settled. A session may end before the hub hears of it, so the
        # next one is told again: what the hub knows already changes nothing.
        self._told: deque[tuple[Delivery | Item, str]] = deque(maxlen=AWAITING_MAX)
        self._acked: deque[Delivery | Item] = deque(maxlen=AWAITING_MAX)
        # Seen and not settled, by the message's id.
        self._unsettled: OrderedDict[str, Delivery | Item] = OrderedDict()
        # Ids that the agent can only know from a push.
        self._provable: OrderedDict[str, None] = OrderedDict()
        # Whether it named one of them.
        self.proved = False

    # What the session's keeper calls.

    async def forward(self, client: Client) -> None:
        """Push what comes, until the session ends with a `HubError`."""
        self._client = client
        try:
            self._tell_again(client)
            await self._catch_up(client)
            async for delivery in arrivals(client, self._given):
                await self._deal_with(client, delivery)
                self._given.add(delivery.key)
        finally:
            self._client = None

    # What shows that something was read.

    def evidence(self, text: str, *, through: int | None = None) -> int:
        """The agent did what it can only do after its program took what was pushed, up to a key if one is given.

        Returns how many deliveries that is news about; the same evidence again is none.
        """
        seen = [delivery for key, delivery in self._awaiting.items() if through is None or key <= through]
        for delivery in seen:
            del self._awaiting[delivery.key]
            self._see(delivery, text)
        return len(seen)

    def named(self, message_id: str) -> None:
        """The agent named a message. One that was pushed is settled: it is being dealt with."""
        if message_id in self._provable:
            self.proved = True
        if message_id in self._unsettled:
            for one in list(self._unsettled) if self.proved else [message_id]:
                self.finished(one)

    def finished(self, message_id: str) -> None:
        """The agent is done with a message: it is settled, and no other."""
        known = self._unsettled.pop(message_id, None)
        if known is not None:
            self._settle(known)

    def withdraw(self, key: int) -> None:
        """A push did not reach the agent after all: nothing is evidence for it, and the next run pushes it again."""
        self._awaiting.pop(key, None)

    def shown(self, message_id: str) -> None:
        """A tool showed a message: naming it proves nothing about pushes."""
        self._provable.pop(message_id, None)

    def settled(self, message_id: str) -> None:
        """The agent took a message by itself: nothing is awaited any more."""
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
        """Deal with what waits in the inbox, whose states only the inbox knows: what was seen is not pushed again."""
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
        """Push one, unless it is the agent's own; says whether it was."""
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

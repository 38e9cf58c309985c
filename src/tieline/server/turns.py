"""Turns: whose commands are decided next, so that nobody's thousand stand before somebody else's one.

Above: the local hub. Below: nothing. What one session asks is decided in its order; between sessions everybody gets a
share in turn. A session that takes the place of others opens after all that they had asked before. A command counts by
what it may cost the broker, so that what is decided in one go is soon over.
"""

from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from itertools import count
from typing import NamedTuple

from tieline.contract import command as c
from tieline.contract.identifiers import SessionId
from tieline.contract.reply import Reply

Done = Callable[[Sequence[Reply]], None]
Item = tuple[Sequence[c.Command], Done | None]
Replaced = Callable[[c.Attach], Iterable[SessionId]]
"""The sessions that end when this one opens."""

_COSTS: dict[type, int] = {
    **dict.fromkeys((c.Send, c.Offered, c.Advance, c.Discard, c.Claim, c.Confirm, c.Detach, c.Tick), 1),
    **dict.fromkeys((c.Fetch, c.Search, c.ReadActivity, c.FollowActivity, c.RecordActivity, c.ViewChannel), 128),
    **dict.fromkeys((c.ListMembers, c.ListChannels, c.ReadHistory, c.ReadLog, c.ReadReceipts, c.Follow), 512),
    **dict.fromkeys((c.ReadStreams, c.ListObjectives, c.ViewObjective, c.RemoveMember), 512),
}
"""In units of some twenty microseconds, at the most that its limits allow."""
_COST = 16
"""Of all others."""

_SHARE = 256
"""What one session is given before the next one has its turn."""


def _cost(commands: Sequence[c.Command]) -> int:
    return sum([_COSTS.get(type(command), _COST) for command in commands])


def pieces(commands: Sequence[c.Command]) -> Iterator[Sequence[c.Command]]:
    """Commands in pieces of a share at most, or of one command."""
    start = cost = 0
    for index, command in enumerate(commands):
        more = _COSTS.get(type(command), _COST)
        if index > start and cost + more > _SHARE:
            yield commands[start:index]
            start, cost = index, 0
        cost += more
    yield commands[start:]


class _Entry(NamedTuple):
    number: int
    """In the order in which everything was asked."""
    item: Item
    cost: int


class Turns:
    """The commands that wait for the broker, by who asked them. Belongs to the broker's thread."""

    def __init__(self, replaced: Replaced) -> None:
        self._replaced = replaced
        self._numbers = count()
        # By session, the next one first.
        self._waiting: dict[Hashable, deque[_Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting)

    def add(self, item: Item) -> None:
        """Somebody asks something."""
        commands = item[0]
        who = getattr(commands[0], "session", None) if commands else None
        entry = _Entry(next(self._numbers), item, _cost(commands))
        waiting = self._waiting.get(who)
        if waiting is None:
            self._waiting[who] = deque((entry,))
        else:
            waiting.append(entry)

    def take(self, most: int) -> list[Item]:
        """The items to decide next, up to a cost, though always one."""
        items: list[Item] = []
        while self._waiting:
            who = next(iter(self._waiting))
            waiting = self._waiting.pop(who)
            share = _SHARE
            while waiting and share > 0:
                if items and waiting[0].cost > most:
                    # It is the first to go on from here.
                    self._waiting = {who: waiting, **self._waiting}
                    return items
                entry = waiting.popleft()
                if self._put_behind(entry):
                    continue
                items.append(entry.item)
                share -= entry.cost
                most -= entry.cost
            if waiting:
                self._waiting[who] = waiting
            if most <= 0:
                break
        return items

    def _put_behind(self, entry: _Entry) -> bool:
        """Let a new session wait with one that it ends, if that has something to say first."""
        commands = entry.item[0]
        if not commands or not isinstance(commands[0], c.Attach):
            return False
        for session in self._replaced(commands[0]):
            waiting = self._waiting.get(session)
            if waiting and waiting[0].number < entry.number:
                place = len(waiting)
                while waiting[place - 1].number > entry.number:
                    place -= 1
                waiting.insert(place, entry)
                return True
        return False

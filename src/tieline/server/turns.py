"""Turns: the queue of commands, in a fair order, so that many commands of one session do not delay another session.

Used by: the local hub. Uses: nothing. Any thread puts commands into the queue, and the broker's thread takes them out
in batches. The commands of one session are executed in their order. Sessions take turns. A turn ends when the total
cost of its commands reaches `_SHARE`. If a new session replaces older sessions, it opens after all earlier commands of
the older sessions. The cost of a command is the longest time that the broker (decision logic) may need for it. So the
time for a batch is limited.
"""

import queue
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import count
from typing import NamedTuple

from tieline.contract import command as c
from tieline.contract.identifiers import SessionId
from tieline.contract.reply import Reply

Done = Callable[[Sequence[Reply]], None]
Item = tuple[Sequence[c.Command], Done | None]
"""Commands that are executed together, and the callback that gets their replies."""
Replaced = Callable[[c.Attach], Iterable[SessionId]]
"""Function that returns the sessions which the new session of an `Attach` command replaces. These sessions end when the
new session opens."""

_COSTS: dict[type, int] = {
    **dict.fromkeys((c.Send, c.Offered, c.Advance, c.Discard, c.Claim, c.Confirm, c.Detach, c.Tick), 1),
    **dict.fromkeys((c.Fetch, c.Search, c.ReadActivity, c.FollowActivity, c.RecordActivity, c.ViewChannel), 128),
    **dict.fromkeys(
        (c.ListMembers, c.ListChannels, c.ReadHistory, c.ReadLog, c.ReadReceipts, c.Follow, c.ReadStuck), 512
    ),
    **dict.fromkeys((c.ReadStreams, c.ListObjectives, c.ViewObjective, c.RemoveMember), 512),
}
"""Highest possible cost of each command, in units of about twenty microseconds of the time of the broker (decision
logic)."""
_COST = 16
"""Cost of all commands that are not in `_COSTS`."""

_SHARE = 256
"""Total cost of the commands that are executed in one turn of a session. Then the next session has its turn."""


def pieces(commands: Sequence[c.Command]) -> Iterator[Sequence[c.Command]]:
    """Yield `commands` in groups. Each group costs at most `_SHARE`, the cost at which the turn of a session ends.

    A single command that costs more is a group of its own.
    """
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
    """Position of the item in the order of submission."""
    item: Item
    cost: int


class Turns:
    """Queue of commands that are not executed yet. The sessions of the commands take turns.

    Any thread may call `put`. Only the broker's thread, which executes the commands, may call the other methods.
    """

    def __init__(self, replaced: Replaced) -> None:
        self._replaced = replaced
        self._new: queue.SimpleQueue[Item | Callable[[], None]] = queue.SimpleQueue()
        # Queue an item (commands with the callback for replies) behind the earlier items of its session. Or queue a
        # function, which `take` calls when it comes to it.
        self.put = self._new.put
        self._numbers = count()
        # Items and functions that `drain` found, and that stay.
        self._kept: deque[Item | Callable[[], None]] = deque()
        # By session; the session with the next turn comes first.
        self._waiting: dict[Hashable, deque[_Entry]] = {}

    def __bool__(self) -> bool:
        return bool(self._waiting or self._kept) or not self._new.empty()

    def drain(self, timeout: float, stays: Callable[[Item], bool]) -> list[Item]:
        """Remove and return all items except those for which `stays` is true. The caller refuses the returned items.

        If the queue is empty, wait up to `timeout` seconds for the first item. Queued functions stay in the queue, too,
        until the next `take`.
        """
        waiting = [entry.item for entries in self._waiting.values() for entry in entries]
        self._waiting.clear()
        with suppress(queue.Empty):
            new = self._new.get(timeout=0 if waiting else timeout)
            while True:
                if isinstance(new, tuple):
                    waiting.append(new)
                else:
                    self._kept.append(new)
                new = self._new.get_nowait()
        self._kept += [item for item in waiting if stays(item)]
        return [item for item in waiting if not stays(item)]

    def take(self, most: int, timeout: float | None = None) -> list[Item]:
        """Remove and return the next items (commands with a callback) to execute.

        If there are none, wait for an item or a function. Return an empty list after `timeout` seconds, or if only
        functions came. `most` limits the total cost of the items. A first item that costs more is returned alone.
        """
        # First, everything new goes to the queue of its session.
        wait = not (self._waiting or self._kept)
        while wait or self._kept or not self._new.empty():
            try:
                new = self._kept.popleft() if self._kept else self._new.get(timeout=timeout)
            except queue.Empty:
                return []
            wait = False
            if isinstance(new, tuple):
                commands = new[0]
                session = getattr(commands[0], "session", None) if commands else None
                cost = sum([_COSTS.get(type(command), _COST) for command in commands])
                entry = _Entry(next(self._numbers), new, cost)
                waiting = self._waiting.get(session)
                if waiting is None:
                    self._waiting[session] = deque((entry,))
                else:
                    waiting.append(entry)
            else:
                new()
        # Then each session has its turn.
        items: list[Item] = []
        while self._waiting:
            session = next(iter(self._waiting))
            waiting = self._waiting.pop(session)
            share = _SHARE
            while waiting and share > 0:
                if items and waiting[0].cost > most:
                    # This session comes first the next time.
                    self._waiting = {session: waiting, **self._waiting}
                    return items
                entry = waiting.popleft()
                if self._put_behind(entry):
                    continue
                items.append(entry.item)
                share -= entry.cost
                most -= entry.cost
            if waiting:
                self._waiting[session] = waiting
            if most <= 0:
                break
        return items

    def _put_behind(self, entry: _Entry) -> bool:
        """Queue an `Attach` command behind the earlier commands of the session that it replaces, and return true.

        Return false if `entry` is no `Attach` command, or if no earlier commands of such a session wait.
        """
        commands = entry.item[0]
        if not commands or not isinstance(commands[0], c.Attach):
            return False
        for session in self._replaced(commands[0]):
            waiting = self._waiting.get(session)
            if waiting and waiting[0].number < entry.number:
                index = len(waiting)
                while waiting[index - 1].number > entry.number:
                    index -= 1
                waiting.insert(index, entry)
                return True
        return False

"""The inlet: passes commands from the event loop to the broker's thread, with few wake-ups of that thread.

Used by: the local hub, on the event loop. Uses: the queue of commands. Each wake-up of a thread takes about as long as
a command. Nobody waits for a report of offered deliveries, so it goes into the queue right before the next command.
"""

import asyncio
from collections.abc import Callable, Sequence

from tieline.contract import command as c
from tieline.server.turns import Done, Item

_OFFERED_SECONDS = 0.02
"""Longest time for which a report of offered deliveries waits for another command. An acknowledgement or the next
message usually comes sooner."""


class Inlet:
    """Queues commands by calls of `put`, in the order of `add`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, put: Callable[[Item], None]) -> None:
        self._loop = loop
        self._put = put
        # Reports of offered deliveries that wait for another command.
        self._waiting: list[Item] = []
        # True while a timer runs, which queues what waits then. It is not stopped earlier: that would cost more.
        self._is_timed = False

    def add(self, commands: Sequence[c.Command], done: Done | None) -> None:
        """Queue commands behind all earlier ones, at once or, if they only report offered deliveries, soon."""
        if done is None and commands and type(commands[0]) is c.Offered:
            self._waiting.append((commands, done))
            if not self._is_timed:
                self._is_timed = True
                self._loop.call_later(_OFFERED_SECONDS, self._expire)
            return
        if self._waiting:
            self.flush()
        self._put((commands, done))

    def flush(self) -> None:
        """Queue what waits now."""
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            self._put(item)

    def _expire(self) -> None:
        self._is_timed = False
        self.flush()

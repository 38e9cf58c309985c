"""Reach: in which ways a member is to be reached, one after the other, until there is evidence that it saw a message.

A way is given a time. A delivery without evidence by then falls to the next way; the last way is where it stays. What
a message's sender sees of it is where it stands on its ladder (`contract.delivery`) and at which way.
"""

from enum import StrEnum

from msgspec import Struct


class Way(StrEnum):
    """How a message is brought before a member."""

    PUSH = "push"
    """Written to a session that listens: a channel notification, a stream, a socket."""
    HOOK = "hook"
    """Shown by the member's program at a turn's boundary, by a hook that asks for what is unread."""
    PTY = "pty"
    """Printed or typed by the wrapper around a terminal program."""
    PULL = "pull"
    """Read by the member itself: a tool call, a command."""
    NOTIFY = "notify"
    """Told to a human: by a message to a member, or by the command that the hub's configuration names."""


class Leg(Struct, frozen=True):
    """One way, and how long it is given."""

    way: Way
    wait_ms: int


class Reach(Struct, frozen=True, omit_defaults=True):
    """The ways of one member, in order. Without any, nothing falls."""

    legs: tuple[Leg, ...] = ()
    urgent_ms: int | None = None
    """How long each way is given for an urgent message; `None` for as long as for any other."""
    notify: str = ""
    """The member that `notify` writes to; without one, only the hub's own command tells of it."""

    def wait_ms(self, index: int, *, urgent: bool) -> int:
        """How long the way at this place is given."""
        leg_ms = self.legs[index].wait_ms
        return leg_ms if not urgent or self.urgent_ms is None else min(leg_ms, self.urgent_ms)

    def place_of(self, way: str) -> int:
        """Where a way stands in the list; the first place, if it is none of them any more."""
        return next((place for place, leg in enumerate(self.legs) if leg.way == way), 0)

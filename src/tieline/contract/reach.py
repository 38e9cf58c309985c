"""Reach: the ways to reach a member, tried one after the other until evidence shows that the member saw a message.

Each way has a timeout. A delivery without evidence by then is escalated to the next way; at the last way it stays. The
sender of a message sees the state of each delivery on the ladder (`contract.delivery`) and its current way.
"""

from enum import StrEnum

from msgspec import Struct


class Way(StrEnum):
    """How a message is brought before a member."""

    PUSH = "push"
    """Written to a session that listens: a channel notification, a stream, a socket."""
    HOOK = "hook"
    """Shown by the member's program between two turns, by a hook that asks for unread messages."""
    PTY = "pty"
    """Printed or typed by the wrapper around a terminal program."""
    PULL = "pull"
    """Read by the member itself: a tool call, a command."""
    NOTIFY = "notify"
    """Sent to a human: by a message to a member, or by the command in the hub's configuration."""


class Leg(Struct, frozen=True):
    """One way, and how long it is given."""

    way: Way
    wait_ms: int


class Reach(Struct, frozen=True, omit_defaults=True):
    """The ways of one member, in order. Without any, nothing falls."""

    legs: tuple[Leg, ...] = ()
    urgent_ms: int | None = None
    """Longest timeout of each way for an urgent message; `None` for the same timeout as for any other message."""
    notify: str = ""
    """The member that `notify` writes to; if empty, only the hub's own command runs."""

    def wait_ms(self, index: int, *, urgent: bool) -> int:
        """Timeout of the way at this index."""
        leg_ms = self.legs[index].wait_ms
        return leg_ms if not urgent or self.urgent_ms is None else min(leg_ms, self.urgent_ms)

    def place_of(self, way: str) -> int:
        """Index of a way in the list; 0 if the way is not in the list any more."""
        return next((place for place, leg in enumerate(self.legs) if leg.way == way), 0)

"""Reach: the ways to reach a member, tried one after the other until evidence shows that the member saw a message.

Each way has a timeout. If there is no evidence when the timeout ends, the delivery is escalated to the next way. A
delivery at the last way stays there. The sender of a message sees the state and the current way of each delivery.
"""

from enum import StrEnum

from msgspec import Struct


class Way(StrEnum):
    """A way to show a message to a member."""

    PUSH = "push"
    """The hub sends the message to an open session of the member: a channel notification, a stream, a socket."""
    HOOK = "hook"
    """The member's program shows the message between two turns: a hook of the program asks for unread messages."""
    PTY = "pty"
    """The wrapper that runs the member's terminal program prints the message, or types it into the program."""
    PULL = "pull"
    """The member asks for its messages by itself: by a tool call or a command."""
    NOTIFY = "notify"
    """The hub tells a human: by a message to a human member, or by the command in the hub's configuration."""


class Leg(Struct, frozen=True):
    """One way to show messages to a member. After `wait_ms` without evidence, the hub tries the next way."""

    way: Way
    wait_ms: int


class Reach(Struct, frozen=True, omit_defaults=True):
    """The ways to show messages to one member, in the order in which the hub tries them.

    If there are no ways, the hub escalates nothing.
    """

    legs: tuple[Leg, ...] = ()
    urgent_ms: int | None = None
    """Longest timeout of each way for an urgent message. `None` means that urgent messages have the usual timeouts."""
    notify: str = ""
    """Name of the member that gets a message by the way `notify`. If empty, `notify` only runs the hub's command."""

    def wait_ms(self, index: int, *, urgent: bool) -> int:
        """Return the timeout of the way at this index, in milliseconds. For an urgent message, `urgent_ms` limits it.

        After the timeout, the hub tries the next way.
        """
        leg_ms = self.legs[index].wait_ms
        return leg_ms if not urgent or self.urgent_ms is None else min(leg_ms, self.urgent_ms)

    def index_of(self, way: str) -> int:
        """Return the index of a way in `legs`; 0 if the member no longer has that way."""
        return next((index for index, leg in enumerate(self.legs) if leg.way == way), 0)

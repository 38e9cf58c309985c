"""The ladder: collects the status changes (moves) of deliveries, so that one log row covers many of them."""

from collections.abc import Iterator

from tieline.contract import event
from tieline.contract.delivery import State, Step
from tieline.contract.event import Moved
from tieline.contract.keys import Keys, Range, extend_ranges
from tieline.core.directory import Account

EVENTS: dict[State, type[Moved]] = {
    State.PENDING: event.Held,
    State.OFFERED: event.Delivered,
    State.SEEN: event.Seen,
    State.ACKED: event.Acknowledged,
    State.EXPIRED: event.Expired,
    State.DEAD: event.Died,
}
"""The type of the log event for deliveries that reached a state. For `PENDING`, the event says that they are held.

A claim has an event type of its own.
"""

STATES: dict[type[Moved], State] = {
    **{kind: state for state, kind in EVENTS.items()},
    event.Claimed: State.ACKED,
    event.Released: State.PENDING,
}
"""For each type of log event, the state that the deliveries have after the event."""


class Move:
    """A status change of deliveries of one member: all reached the same state at the same time by the same evidence."""

    __slots__ = ("account", "ackless", "kind", "ranges", "step")

    def __init__(self, account: Account, step: Step, kind: type[Moved], *, ackless: bool) -> None:
        self.account = account
        self.step = step
        # True if the deliveries were offered on a wire without acknowledgement.
        self.ackless = ackless
        # The type of the log event.
        self.kind = kind
        self.ranges: list[Range] = []

    def add(self, ranges: list[Range]) -> None:
        """Add ranges of delivery keys. Adjacent ranges are joined."""
        extend_ranges(self.ranges, ranges)

    def event(self) -> Moved:
        """Return the event for the main log that records this status change."""
        step = self.step
        keys: Keys = tuple(self.ranges)
        name, number = self.account.member.name, self.account.number
        # The time is in the row, and the row's hash covers it.
        return self.kind(name, number, keys, 0, step.session, step.protocol, step.evidence, self.ackless)


class Ladder:
    """Collection of the status changes (moves) of deliveries in this batch that are not written to the log yet."""

    __slots__ = ("_moves",)

    def __init__(self) -> None:
        self._moves: dict[tuple[int, Step, type[Moved], bool], Move] = {}

    def __bool__(self) -> bool:
        return bool(self._moves)

    def note(
        self,
        account: Account,
        ranges: list[Range],
        step: Step,
        kind: type[Moved] | None = None,
        *,
        ackless: bool = False,
    ) -> None:
        """Collect a status change: deliveries of a member (`ranges` of keys) reached the state of `step`.

        `kind` is the type of the log event. Without `kind`, the event is the default event of the state. With
        `ackless`, the deliveries were offered on a wire without acknowledgement.
        """
        kind = kind or EVENTS[step.state]
        key = (account.number, step, kind, ackless)
        move = self._moves.get(key)
        if move is None:
            move = self._moves[key] = Move(account, step, kind, ackless=ackless)
        move.add(ranges)

    def take(self) -> Iterator[Move]:
        """Return all collected status changes, oldest first, and remove them from this object."""
        moves, self._moves = self._moves, {}
        return iter(moves.values())

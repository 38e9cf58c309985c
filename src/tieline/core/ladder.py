"""The ladder: collects moves of deliveries, so that one log row covers many moves."""

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
"""The event for each state that deliveries reach. A claim has its own event. `PENDING` means held here."""

STATES: dict[type[Moved], State] = {
    **{kind: state for state, kind in EVENTS.items()},
    event.Claimed: State.ACKED,
    event.Released: State.PENDING,
}
"""The state that deliveries reach by each kind of event."""


class Move:
    """Deliveries of one member that reached the same state at the same time, with the same evidence."""

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
        """Add ranges, joining neighbours."""
        extend_ranges(self.ranges, ranges)

    def event(self) -> Moved:
        """Build the event for the log."""
        step = self.step
        keys: Keys = tuple(self.ranges)
        name, number = self.account.member.name, self.account.number
        return self.kind(name, number, keys, step.at_ms, step.session, step.protocol, step.evidence, self.ackless)


class Ladder:
    """Moves since the last commit."""

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
        """Collect a move of an inbox. Without `kind`, the event is the default event of the state."""
        kind = kind or EVENTS[step.state]
        key = (account.number, step, kind, ackless)
        move = self._moves.get(key)
        if move is None:
            move = self._moves[key] = Move(account, step, kind, ackless=ackless)
        move.add(ranges)

    def take(self) -> Iterator[Move]:
        """Return all moves in the order in which they began, and empty the ladder."""
        moves, self._moves = self._moves, {}
        return iter(moves.values())

"""The ladder: moves of deliveries, collected so that one log row covers many of them."""

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
"""The event that says that deliveries reached a state, unless one session claimed them. Pending ones can be held."""

STATES: dict[type[Moved], State] = {
    **{kind: state for state, kind in EVENTS.items()},
    event.Claimed: State.ACKED,
    event.Released: State.PENDING,
}
"""The state that deliveries reached when such an event is in the log."""


class Move:
    """Deliveries of one member that reached the same rung at the same time by the same evidence."""

    __slots__ = ("account", "ackless", "kind", "ranges", "step")

    def __init__(self, account: Account, step: Step, kind: type[Moved], *, ackless: bool) -> None:
        self.account = account
        self.step = step
        # Whether they were offered on a wire that has no acknowledgement.
        self.ackless = ackless
        # The event that says so.
        self.kind = kind
        self.ranges: list[Range] = []

    def add(self, ranges: list[Range]) -> None:
        """Add ranges, joining neighbours."""
        extend_ranges(self.ranges, ranges)

    def event(self) -> Moved:
        """The fact for the log."""
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
        """Collect a move that the inbox has made; without a kind, the event is the usual one of the state."""
        kind = kind or EVENTS[step.state]
        key = (account.number, step, kind, ackless)
        move = self._moves.get(key)
        if move is None:
            move = self._moves[key] = Move(account, step, kind, ackless=ackless)
        move.add(ranges)

    def take(self) -> Iterator[Move]:
        """All moves, in the order in which they began; the ladder is empty afterwards."""
        moves, self._moves = self._moves, {}
        return iter(moves.values())

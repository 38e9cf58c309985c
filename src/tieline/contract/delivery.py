"""Deliveries: one message for one recipient, moving up a ladder with evidence.

The table below is the whole truth about which rung may follow which; documentation draws its diagram from it.
"""

from enum import IntEnum

from msgspec import Struct

from tieline.contract.internal import Internal
from tieline.contract.message import Message


class State(IntEnum):
    """The rungs. A higher number never turns into a lower one."""

    PENDING = 0
    """Durable, nobody was shown it yet."""
    OFFERED = 1
    """Written to a session of the recipient; nothing says it was read."""
    SEEN = 2
    """There is evidence that the recipient read it."""
    ACKED = 3
    """The recipient, or a claim, ended it."""
    EXPIRED = 4
    """Its time passed first: its time to live ran out, a message superseded it, or its recipient discarded it.

    Discarding is no acknowledgement, because nobody handled it, and it is not dead, because it could be delivered.
    """
    DEAD = 5
    """It can never be delivered: the member was removed or the message does not fit its wire."""

    @property
    def word(self) -> str:
        """The state as people read it."""
        return self.name.lower()


TRANSITIONS: dict[State, frozenset[State]] = {
    State.PENDING: frozenset({State.OFFERED, State.SEEN, State.ACKED, State.EXPIRED, State.DEAD}),
    State.OFFERED: frozenset({State.SEEN, State.ACKED, State.EXPIRED, State.DEAD}),
    State.SEEN: frozenset({State.ACKED, State.EXPIRED, State.DEAD}),
    State.ACKED: frozenset(),
    State.EXPIRED: frozenset(),
    State.DEAD: frozenset(),
}

SETTLED = frozenset(state for state, following in TRANSITIONS.items() if not following)
"""States that nothing follows."""


HELD = "held: "
"""The beginning of a reason: the delivery waits until its conversation is resumed, or the hold cools down…"""
SLOWED = "slowed: "
"""…and if it comes by itself, within `space_ms_max` or so."""
REMEDY = "; this "
"""In such a reason, what comes before the command that ends the hold."""


class Delivery(Struct, frozen=True):
    """One message for one recipient, as a reader of the recipient's inbox sees it."""

    key: int
    """Counts 1, 2, 3… per recipient; the hub's handle for this delivery."""
    stream_seq: int
    """Counts 1, 2, 3… per (topic, sender, recipient)."""
    state: State
    message: Message


class StreamCursor(Struct, frozen=True):
    """Position of the search for what a recipient misses: it goes back in one stream after the other."""

    stream: str
    before: int | None
    """Only messages before this log offset were not looked at in that stream."""
    left: int
    """Messages of that stream that are missing and not found yet."""


class Replayed(Struct, frozen=True):
    """A settled delivery that its recipient asks for again."""

    key: int
    offset: int
    stream_seq: int


class Step(Struct, frozen=True, omit_defaults=True):
    """One rung that a delivery reached, with its evidence."""

    state: State
    at_ms: int
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    way: str = ""
    """If it did not move but fell: the way that it is at since then."""


class Fall(Struct, frozen=True):
    """Deliveries of one member that fell to another way, because nothing showed that they were seen."""

    first: int
    last: int
    at_ms: int
    way: str
    after: str
    """The way that brought no evidence."""


class Receipt(Struct, frozen=True):
    """What became of a message for one recipient."""

    member: str
    key: Internal[int]
    state: State
    steps: tuple[Step, ...]
    """In time order, beginning with `pending`."""
    way: str = ""
    """The way by which it is to be seen now, where the member has any and nothing shows that it was."""
    held: str = ""
    """Why it is held, if it is; begins with `HELD` or `SLOWED`."""

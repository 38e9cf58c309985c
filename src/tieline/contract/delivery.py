"""Deliveries: one message for one recipient, moving up a ladder with evidence.

The table `TRANSITIONS` alone says which rung may follow which. The documentation draws its diagram from the table.
"""

from enum import IntEnum

from msgspec import Struct

from tieline.contract.internal import Internal
from tieline.contract.message import Message


class State(IntEnum):
    """The rungs. A higher number never turns into a lower one."""

    PENDING = 0
    """Durable, but not written to any session yet."""
    OFFERED = 1
    """Written to a session of the recipient, without evidence that it was read."""
    SEEN = 2
    """Evidence shows that the recipient read it."""
    ACKED = 3
    """The recipient acknowledged it, or a session claimed it."""
    EXPIRED = 4
    """Ended without acknowledgement: its time to live ran out, a message superseded it, or its recipient discarded it.

    A discarded delivery is not acknowledged, because nobody handled it. It is not dead, because it could be delivered.
    """
    DEAD = 5
    """Can never be delivered: the member was removed, or the message does not fit the member's wire."""

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
"""Final states: no other state follows them."""


HELD = "held: "
"""Prefix of a reason: the delivery waits until its conversation is resumed, or until the hold ends by itself."""
SLOWED = "slowed: "
"""Prefix of a reason: the delivery is delayed, and comes by itself within about `space_ms_max`."""
REMEDY = "; this "
"""Separator in such a reason; the command that ends the hold follows it."""


class Delivery(Struct, frozen=True):
    """One message for one recipient, as a reader of the recipient's inbox sees it."""

    key: int
    """Counts 1, 2, 3… per recipient; the hub's handle for this delivery."""
    stream_seq: int
    """Counts 1, 2, 3… per (topic, sender, recipient)."""
    state: State
    message: Message


class StreamCursor(Struct, frozen=True):
    """Cursor of the search for deliveries that a recipient misses. It goes backwards, one stream after the other."""

    stream: str
    before: int | None
    """In that stream, only messages before this log offset are still to be searched."""
    left: int
    """Number of missing messages of that stream that are not found yet."""


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
    """Set if the delivery was escalated and its state did not change: the new way of the delivery."""


class Fall(Struct, frozen=True):
    """Deliveries of one member that were escalated to another way, because nothing showed that they were seen."""

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
    """Current way of the delivery; empty if the member has no ways, or if evidence shows that it was seen."""
    held: str = ""
    """Reason why the delivery is held, beginning with `HELD` or `SLOWED`; empty if it is not held."""

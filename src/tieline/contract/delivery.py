"""Deliveries: one message for one recipient each, with its states (the ladder) and the evidence for each state.

The table `TRANSITIONS` alone says which state may follow which. The documentation draws its diagram from the table.
"""

from enum import IntEnum

from msgspec import Struct

from tieline.contract.internal import Internal
from tieline.contract.message import Message


class State(IntEnum):
    """State of a delivery. The number never gets lower. The last three states are final: the delivery is settled."""

    PENDING = 0
    """Stored durably, but not sent to any session yet."""
    OFFERED = 1
    """Sent to a session of the recipient, without evidence that the recipient read it."""
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
        """The state as a word for people: its name in lower case."""
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
"""Final states (acked, expired, dead): no other state follows them. A delivery in one of them is settled."""


HELD = "held: "
"""Beginning of the reason why a delivery is held: it waits until its conversation is resumed or the pause ends."""
SLOWED = "slowed: "
"""Beginning of the reason why a delivery is delayed: it is delivered by itself within about `space_ms_max`."""
REMEDY = "; this "
"""Separator in such a reason; the command that ends the hold follows it."""


class Delivery(Struct, frozen=True):
    """One message for one recipient, as a reader of the recipient's inbox sees it."""

    key: int
    """Number of the delivery among all deliveries of its recipient: 1, 2, 3… Commands name deliveries by it."""
    stream_seq: int
    """Number of the message in its stream: 1, 2, 3… for each topic, sender and recipient."""
    state: State
    message: Message


class Position(Struct, frozen=True):
    """The last sequence number that a recipient has received, in one stream or in all its streams of a topic."""

    topic: str
    last_seq: int
    peer: str | None = None
    """The sender of one stream. `None`: every stream of the topic that has no position of its own."""


class StreamCursor(Struct, frozen=True):
    """Position in the search for deliveries that a recipient missed. The search goes backwards, stream by stream."""

    stream: str
    before: int | None
    """The search of that stream continues with messages before this log offset; `None`: from its end."""
    left: int
    """Number of missing messages of that stream that are not found yet."""


class Replayed(Struct, frozen=True):
    """A delivery that is already settled (acked, expired or dead), and that its recipient asks for again."""

    key: int
    offset: int
    stream_seq: int


class Step(Struct, frozen=True, omit_defaults=True):
    """One change of a delivery: the state that it reached, the time and the evidence. Or an escalation; see `way`."""

    state: State
    at_ms: int
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    way: str = ""
    """If this is an escalation, and no change of state: the way (such as `hook`) that the hub uses now. Else empty."""


class Fall(Struct, frozen=True):
    """Deliveries of one member that were escalated to another way, because nothing showed that they were seen."""

    first: int
    last: int
    at_ms: int
    way: str
    after: str
    """The way that was used before, and after which no evidence came."""


class Receipt(Struct, frozen=True):
    """The state of a message for one recipient, and all changes that led to it."""

    member: str
    key: Internal[int]
    state: State
    steps: tuple[Step, ...]
    """The changes of the delivery, oldest first. The first one is `pending`."""
    way: str = ""
    """The way by which the hub reaches the member now; empty if the member has no ways, or has seen the message."""
    held: str = ""
    """Reason why the delivery is held, beginning with `HELD` or `SLOWED`; empty if it is not held."""

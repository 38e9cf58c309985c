"""Deliveries: each is one message for one recipient, with its states (the ladder) and the evidence for each state.

The table `TRANSITIONS` alone says which state may follow which. The diagram in the documentation is made from it.
"""

from enum import IntEnum

from msgspec import Struct

from tieline.contract.internal import Internal
from tieline.contract.message import Message


class State(IntEnum):
    """State of a delivery. A delivery moves only to a higher state. The last three states are final (settled)."""

    PENDING = 0
    """The delivery is stored durably, but was not sent to any session yet."""
    OFFERED = 1
    """The delivery was sent to a session of the recipient. Nothing shows yet that the recipient read it."""
    SEEN = 2
    """Evidence shows that the recipient read the message."""
    ACKED = 3
    """The recipient acknowledged the delivery, or a session claimed it."""
    EXPIRED = 4
    """The delivery ended unacknowledged: its time to live ran out, or it was superseded or discarded.

    A discarded delivery is not `acked`, because nobody handled it. It is not `dead`, because it could be delivered.
    """
    DEAD = 5
    """The message can never be delivered: the member was removed, or the message does not fit the member's wire."""

    @property
    def word(self) -> str:
        """Name of the state in lower case, as people see it."""
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
"""The final states: acked, expired and dead. A delivery in one of these states is settled and never changes again."""


HELD = "held: "
"""Beginning of the reason text of a held delivery. Such a delivery waits until the pause of its conversation ends."""
SLOWED = "slowed: "
"""Beginning of the reason text of a slowed delivery. The hub releases the delivery within about `space_ms_max`."""
REMEDY = "; this "
"""Separator in the reason text of a held delivery. The text after it is the command by which a person ends the hold."""


class Delivery(Struct, frozen=True):
    """One message for one recipient, as a reader of the recipient's inbox sees it."""

    key: int
    """Number of the delivery, counted per recipient: 1, 2, 3… Commands name a delivery by this number."""
    stream_seq: int
    """Number of the message in its stream: 1, 2, 3… for each topic, sender and recipient."""
    state: State
    message: Message


class Position(Struct, frozen=True):
    """The last sequence number that a recipient has received, in one stream or in all its streams of a topic."""

    topic: str
    last_seq: int
    peer: str | None = None
    """The sender of the stream. `None` means every stream of this topic for which no other position is given."""


class StreamCursor(Struct, frozen=True):
    """Place at which to continue a search for deliveries that a recipient missed.

    A stream has the messages of one sender on one topic. The hub searches one stream after the other. In each stream,
    the hub goes from the newest message to older messages.
    """

    stream: str
    before: int | None
    """Continue with the messages of the stream before this log offset. `None` means start with the newest message."""
    left: int
    """Number of missed messages of the stream that the search has not found yet."""


class Replayed(Struct, frozen=True):
    """Reference to a settled delivery (acked, expired or dead) that its recipient wants to get once more."""

    key: int
    offset: int
    stream_seq: int


class Step(Struct, frozen=True, omit_defaults=True):
    """One step in the history of a delivery: a change of its state, or (if `way` is set) an escalation."""

    state: State
    at_ms: int
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    way: str = ""
    """For an escalation: the way (such as `hook`) that the hub uses from now on. Empty for a change of state."""


class Fall(Struct, frozen=True):
    """Record of an escalation: the hub uses another way (such as `hook`) to show deliveries to one member.

    The reason is that nothing showed that the member saw the deliveries. Their keys are `first` to `last`.
    """

    first: int
    last: int
    at_ms: int
    way: str
    after: str
    """The way that the hub used before. It led to no evidence in time."""


class Receipt(Struct, frozen=True):
    """The state of a message for one recipient, with the steps (changes) that led to this state."""

    member: str
    key: Internal[int]
    state: State
    steps: tuple[Step, ...]
    """The steps of the delivery, oldest first. The state of the first step is `pending`."""
    way: str = ""
    """The way by which the hub reaches the member now; empty if the member has no ways, or has seen the message."""
    held: str = ""
    """Reason why the delivery is held, beginning with `HELD` or `SLOWED`; empty if it is not held."""

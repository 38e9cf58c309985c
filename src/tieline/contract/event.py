"""Events: the facts in the main log (the hub's event log), one per row. The audit chain links the rows by hashes.

Stored events are hashed, so the meaning of their fields never changes. A new field needs a default, and no field is
ever renamed. One event may cover many deliveries of a member (`keys` are inclusive ranges), so that the log needs fewer
rows.
"""

from msgspec import Struct, field

from tieline.contract.keys import Keys


class Event(Struct, frozen=True, omit_defaults=True, tag_field="event", gc=False):
    """Base class of all events. In JSON, the field `event` names the kind of event."""


class Sent(Event, frozen=True, omit_defaults=True, tag="send", gc=False):
    """Event: a message was accepted for its recipients."""

    id: str
    sender: str
    target: str
    recipients: int
    digest: str
    """Hash (hex blake3) of the message, which is stored in another table. The hash shows if the message was changed."""
    thread: str = ""
    """The thread of the message; empty if it has none. This field, `reply_to` and `hops` stay in the log when the hub
    deletes the old message. So statistics about threads, answers and hops do not change."""
    reply_to: str = ""
    """The id of the message that this one answers, empty if there is none."""
    hops: int = 0
    """Number of quick replies between agents, each caused by the one before, that led to this message."""


class Moved(Event, frozen=True, omit_defaults=True, gc=False):
    """Base class of events: deliveries of one member reached a new state (pending, offered, seen, acked…)."""

    member: str
    number: int
    """The member's number. Another member may get the name later, but no other member ever gets the number."""
    keys: Keys
    at_ms: int = 0
    """Time of the row. Only old rows have this field, because their hash does not cover the row's own time."""
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    ackless: bool = field(default=False, name="mute")
    """True if the deliveries were sent in a form that cannot be acknowledged. The field is stored as `mute`."""


class Delivered(Moved, frozen=True, omit_defaults=True, tag="deliver", gc=False):
    """Event: deliveries were sent to a session of their recipient. Their state is `offered` now."""


class Seen(Moved, frozen=True, omit_defaults=True, tag="see", gc=False):
    """Event: evidence shows that the recipient read deliveries. Their state is `seen` now."""


class Acknowledged(Moved, frozen=True, omit_defaults=True, tag="ack", gc=False):
    """Event: the recipient acknowledged deliveries. Their state is `acked` now."""


class Claimed(Moved, frozen=True, omit_defaults=True, tag="claim", gc=False):
    """Event: one session claimed deliveries, so that no other session handles them. Their state is `acked` now."""


class Expired(Moved, frozen=True, omit_defaults=True, tag="expire", gc=False):
    """Event: deliveries expired. Their state is `expired` now.

    The evidence says why: the time to live is over, another message superseded them, or the recipient discarded them.
    """


class Died(Moved, frozen=True, omit_defaults=True, tag="die", gc=False):
    """Event: deliveries can never be delivered; the evidence says why. Their state is `dead` now."""


class Held(Moved, frozen=True, omit_defaults=True, tag="hold", gc=False):
    """Event: deliveries are held: stored, but not delivered before they are released. The evidence says why."""


class Released(Moved, frozen=True, omit_defaults=True, tag="release", gc=False):
    """Event: deliveries were released. They were held (not to be delivered) before, and can be delivered now."""


class Fell(Event, frozen=True, omit_defaults=True, tag="fall", gc=False):
    """Event: deliveries of one member were escalated, because nothing showed in time that the member saw them.

    The hub now uses another way (push, hook, pty, pull, notify) to reach the member.
    """

    member: str
    number: int
    keys: Keys
    way: str
    after: str
    """The way that the hub used before. It led to no evidence in time."""


class Registered(Event, frozen=True, omit_defaults=True, tag="register", gc=False):
    """Event: a member was created or changed, or got or lost a token."""

    member: str
    by: str
    what: str


class Removed(Event, frozen=True, omit_defaults=True, tag="remove", gc=False):
    """Event: a member was removed."""

    member: str
    by: str


class InvitationChanged(Event, frozen=True, omit_defaults=True, tag="invite", gc=False):
    """Event: an invitation was made, used or revoked, or it ended."""

    id: str
    by: str
    what: str
    member: str = ""
    """Name of the member who joined with it, or the name that it is for; empty for any name."""


class TakenOver(Event, frozen=True, omit_defaults=True, tag="takeover", gc=False):
    """Event: a new session of a member ended an older session of the same member."""

    member: str
    session: str
    by: str


class Refused(Event, frozen=True, omit_defaults=True, tag="refuse", gc=False):
    """Event: the hub refused a command."""

    code: str
    speaker: str
    """Name of the member, or `operator`, whose command was refused; empty if the client has not proved who it is."""
    protocol: str
    what: str
    count: int = 1
    """Number of refusals that this row covers: all refusals of this kind since the previous row of the same kind."""
    claimed: tuple[str, ...] = ()
    """The first few names that clients gave without proof. Only used if `speaker` is empty."""


class Subscribed(Event, frozen=True, omit_defaults=True, tag="subscribe", gc=False):
    """Event: a member joined a channel."""

    member: str
    channel: str


class Unsubscribed(Event, frozen=True, omit_defaults=True, tag="unsubscribe", gc=False):
    """Event: a member left a channel."""

    member: str
    channel: str


class TeamChanged(Event, frozen=True, omit_defaults=True, tag="team", gc=False):
    """Event: the team's name, purpose (directive), background (context), permission sets or aliases changed."""

    by: str
    what: str


class ChannelChanged(Event, frozen=True, omit_defaults=True, tag="channel", gc=False):
    """Event: a channel was created, renamed or archived, or a member's role in the channel changed."""

    id: str
    name: str
    by: str
    what: str
    member: str = ""
    """Name of the member whose role changed; empty for other changes."""


class ObjectiveChanged(Event, frozen=True, omit_defaults=True, tag="objective", gc=False):
    """Event: an objective was created or changed.

    The objective's own event log has the details, at the same offset.
    """

    id: str
    kind: str
    by: str
    status: str
    assignee: str
    digest: str
    """Hex blake3 of the entry for this change in the objective's event log."""
    state: str
    """Hex blake3 of the objective after this change."""


class Paused(Event, frozen=True, omit_defaults=True, tag="pause", gc=False):
    """Event: a conversation was paused. Its agents answered each other too often, or somebody asked for a pause."""

    thread: str
    message: str
    by: str = ""
    """Name of the member or operator that asked for the pause; empty if the hub itself paused the conversation."""


class Resumed(Event, frozen=True, omit_defaults=True, tag="resume", gc=False):
    """Event: the pause of a conversation ended."""

    thread: str
    by: str
    """Name of the member or operator that ended the pause; empty if the time of the pause was over."""


class Allowed(Event, frozen=True, omit_defaults=True, tag="allow", gc=False):
    """Event: somebody lifted the limits of a conversation.

    Until `until_ms`, its agents may answer each other without limit.
    """

    thread: str
    by: str
    until_ms: int


class Redacted(Event, frozen=True, omit_defaults=True, tag="redact", gc=False):
    """Event: the content of a message was erased, and a note about it is stored in its place."""

    id: str
    offset: int
    """Offset of the row that says that the message was sent."""
    by: str
    reason: str
    digest: str
    """Hash (hex blake3) of the message as it is stored now, like `Sent.digest`."""
    attachments: tuple[str, ...] = ()
    """Paths of the files that were attached to the message. They are needed to delete the files once more."""


AnyEvent = (
    Sent
    | Delivered
    | Seen
    | Acknowledged
    | Claimed
    | Expired
    | Died
    | Held
    | Released
    | Fell
    | Registered
    | Removed
    | InvitationChanged
    | TakenOver
    | Refused
    | Subscribed
    | Unsubscribed
    | TeamChanged
    | ChannelChanged
    | ObjectiveChanged
    | Paused
    | Resumed
    | Allowed
    | Redacted
)


class LogRow(Struct, frozen=True, gc=False):
    """One row of a log: the main log (events) or the activity log."""

    offset: int
    """Position in the log: 0, 1, 2… without gaps, in the order of the commits."""
    at_ms: int
    event: bytes
    """The event as JSON, exactly the bytes that were hashed."""
    hash: str = ""
    """Hex blake3 of the previous row's hex hash, the time and this event; see `contract/chain.py`. Empty in the
    activity log, which has no hashes."""

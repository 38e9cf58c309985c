"""Events: the past facts that make up the main log and the audit chain.

Each event is one link of the chain, so the meaning of its fields is frozen: a field may be added with a default, never
renamed. One event may cover many deliveries (`keys` are inclusive ranges), so that a broadcast stays cheap.
"""

from msgspec import Struct, field

from tieline.contract.keys import Keys


class Event(Struct, frozen=True, omit_defaults=True, tag_field="event", gc=False):
    """The root of all events; the tag says which."""


class Sent(Event, frozen=True, omit_defaults=True, tag="send", gc=False):
    """A message was accepted for its recipients."""

    id: str
    sender: str
    target: str
    recipients: int
    digest: str
    """Hex blake3 of the stored message. It protects the message, which is stored beside the chain."""


class Moved(Event, frozen=True, omit_defaults=True, gc=False):
    """Deliveries of one member moved up the ladder."""

    member: str
    number: int
    """The member's number. A name may be reused; a number never is."""
    keys: Keys
    at_ms: int = 0
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    ackless: bool = field(default=False, name="mute")
    """The deliveries went out on a wire without acknowledgement. Stored under an older word."""


class Delivered(Moved, frozen=True, omit_defaults=True, tag="deliver", gc=False):
    """They were written to a session's wire."""


class Seen(Moved, frozen=True, omit_defaults=True, tag="see", gc=False):
    """There is evidence that they were read."""


class Acknowledged(Moved, frozen=True, omit_defaults=True, tag="ack", gc=False):
    """The recipient acknowledged them."""


class Claimed(Moved, frozen=True, omit_defaults=True, tag="claim", gc=False):
    """One session claimed them, which acknowledges them too."""


class Expired(Moved, frozen=True, omit_defaults=True, tag="expire", gc=False):
    """They expired; the evidence says how: their time ran out, a message superseded them, or they were discarded."""


class Died(Moved, frozen=True, omit_defaults=True, tag="die", gc=False):
    """They can never be delivered; the evidence says why."""


class Held(Moved, frozen=True, omit_defaults=True, tag="hold", gc=False):
    """They were accepted and are held; the evidence says why."""


class Released(Moved, frozen=True, omit_defaults=True, tag="release", gc=False):
    """They are held no more."""


class Fell(Event, frozen=True, omit_defaults=True, tag="fall", gc=False):
    """Deliveries of one member were escalated to another way, because nothing showed in time that they were seen."""

    member: str
    number: int
    keys: Keys
    way: str
    after: str
    """The way that brought no evidence."""


class Registered(Event, frozen=True, omit_defaults=True, tag="register", gc=False):
    """A member was made, changed, or got or lost a token."""

    member: str
    by: str
    what: str


class Removed(Event, frozen=True, omit_defaults=True, tag="remove", gc=False):
    """A member was removed."""

    member: str
    by: str


class TakenOver(Event, frozen=True, omit_defaults=True, tag="takeover", gc=False):
    """A newer session of a member replaced an older one."""

    member: str
    session: str
    by: str


class Refused(Event, frozen=True, omit_defaults=True, tag="refuse", gc=False):
    """A command was refused."""

    code: str
    speaker: str
    """The member or the operator; empty if the client has not proved to be one of them."""
    protocol: str
    what: str
    count: int = 1
    """Number of refusals that this row stands for: this one, and all like it since the last such row."""
    claimed: tuple[str, ...] = ()
    """If there is no speaker: the first few names that clients gave without proof."""


class Subscribed(Event, frozen=True, omit_defaults=True, tag="subscribe", gc=False):
    """A member joined a channel."""

    member: str
    channel: str


class Unsubscribed(Event, frozen=True, omit_defaults=True, tag="unsubscribe", gc=False):
    """A member left a channel."""

    member: str
    channel: str


class TeamChanged(Event, frozen=True, omit_defaults=True, tag="team", gc=False):
    """The name, directive, context, presets or aliases of the team changed."""

    by: str
    what: str


class ChannelChanged(Event, frozen=True, omit_defaults=True, tag="channel", gc=False):
    """A channel was made, renamed or archived, or a role in it changed."""

    id: str
    name: str
    by: str
    what: str
    member: str = ""
    """The member whose role changed."""


class ObjectiveChanged(Event, frozen=True, omit_defaults=True, tag="objective", gc=False):
    """An objective was made or changed. Its own event log has the details, at the same offset."""

    id: str
    kind: str
    by: str
    status: str
    assignee: str
    digest: str
    """Hex blake3 of the entry for this change in the objective's event log."""
    state: str
    """Hex blake3 of the objective as it stood afterwards."""


class Paused(Event, frozen=True, omit_defaults=True, tag="pause", gc=False):
    """A conversation was paused: its agents answered each other past a limit, or somebody asked for the pause."""

    thread: str
    message: str
    by: str = ""
    """Name of whoever asked for the pause; empty if the hub paused the conversation."""


class Resumed(Event, frozen=True, omit_defaults=True, tag="resume", gc=False):
    """A paused conversation may go on."""

    thread: str
    by: str
    """Name of whoever ended the pause; empty if the pause ended by itself."""


class Allowed(Event, frozen=True, omit_defaults=True, tag="allow", gc=False):
    """The limits of the loop rule were lifted for a conversation."""

    thread: str
    by: str
    until_ms: int


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
)


class LogRow(Struct, frozen=True, gc=False):
    """One row of a log."""

    offset: int
    """Dense: 0, 1, 2… in commit order."""
    at_ms: int
    event: bytes
    """The event as it was hashed."""
    hash: str = ""
    """Hex blake3 of the previous row's hex hash and this event; empty in the activity log, which is not chained."""

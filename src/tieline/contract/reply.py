"""Replies: the outcome of each command. A `Refusal` can answer any of them."""

from msgspec import Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.channel import ChannelId, ChannelMember
from tieline.contract.delivery import Delivery, Receipt, Replayed, State, StreamCursor
from tieline.contract.event import LogRow
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.internal import Internal
from tieline.contract.member import Member, Presence, TokenView
from tieline.contract.message import Message
from tieline.contract.objective import Objective, ObjectiveEvent
from tieline.contract.reach import Reach
from tieline.contract.refusal import Refusal
from tieline.contract.team import Team


class Done(Struct, frozen=True):
    """It is done."""


class Attached(Struct, frozen=True):
    """The session is open."""

    session: SessionId
    member: MemberName | None
    speaker: str
    """The sender name that the hub stamps on messages of this session."""
    next_key: int = 1
    """The key that the member's next delivery will get."""
    resume_id: str | None = None
    """Id of a resumable session, which stays the same from connection to connection."""
    resume_token: str | None = None
    """Token that resumes the session the next time."""
    resumed: bool = False
    """True if the session resumes an earlier one."""


class Accepted(Struct, frozen=True, gc=False):
    """The message is durable.

    So are its deliveries and its audit row.
    """

    message_id: MessageId
    offset: int
    recipients: int
    duplicate: bool = False
    """True if the same wire id with the same content was accepted before; nothing was sent again."""
    backlog: Internal[int] = 0
    """Backlog of the recipient that is furthest behind."""
    held: str = ""
    """Reason why the message is held for a recipient: it is kept and delivered later. Empty if it is not held."""


class Claimed(Struct, frozen=True):
    """The message is this session's alone, or nothing: another was first."""

    delivery: Delivery | None = None


class Fetched(Struct, frozen=True):
    """A page of the inbox.

    Unsettled deliveries in key order.
    """

    deliveries: tuple[Delivery, ...]
    through: int
    """Last key that this page covers."""
    complete: bool
    """True if `through` is the end of the inbox."""
    held: int = 0
    """Number of held deliveries in the inbox. They are in no page before they are released."""
    held_in: tuple[str, ...] = ()
    """Paused conversations that held deliveries wait for; only some if there are many. Slowed ones wait for none."""


class StreamView(Struct, frozen=True):
    """One stream of a member."""

    topic: str
    peer: str
    position: int | None
    """Position that the member gave for the stream, if it gave one."""
    last_seq: int
    """Last sequence number that the hub assigned in the stream."""


class Streams(Struct, frozen=True):
    """A member's streams, by topic and peer."""

    streams: tuple[StreamView, ...]
    replay: tuple[Replayed, ...]
    """Settled deliveries after the positions, in key order."""
    stale: bool
    """True if retention has deleted some of them."""
    following: StreamCursor | None = None
    """Cursor for the rest of `replay`; `None` if this is all."""


class Receipts(Struct, frozen=True):
    """What became of a message, by the names of its recipients."""

    message_id: MessageId
    receipts: tuple[Receipt, ...]
    """Sorted by the names of the recipients."""
    more: bool = False
    """True if there are more recipients, whose names sort after the last of these."""


class Issued(Struct, frozen=True):
    """A new token, shown this once.

    It is stored hashed.
    """

    member: MemberName
    token: str


class TokenIssued(Struct, frozen=True):
    """One more token, shown this once.

    It is stored hashed.
    """

    member: MemberName
    token: str
    view: TokenView


class Tokens(Struct, frozen=True):
    """Tokens of a member, oldest first."""

    tokens: tuple[TokenView, ...]


class MemberState(Struct, frozen=True):
    """A member as it is after what was asked."""

    member: Member


class ReachState(Struct, frozen=True):
    """In which ways a member is to be reached."""

    member: MemberName
    reach: Reach


class TeamState(Struct, frozen=True):
    """The team as it is after what was asked."""

    team: Team


class Roster(Struct, frozen=True):
    """All members.

    By name.
    """

    members: tuple[Presence, ...]


class ChannelView(Struct, frozen=True):
    """A channel and who subscribes to it; `#general` holds everybody implicitly."""

    name: ChannelName
    subscribers: tuple[MemberName, ...]
    id: ChannelId = ChannelId("")
    """The channel's name, if its members are implicit; empty if there is no such channel."""
    created_by: str = ""
    """Creator of the channel; empty if the hub itself made it."""
    created_at_ms: int = 0
    archived_at_ms: int | None = None
    members: tuple[ChannelMember, ...] = ()
    """Admins first, then by the time of joining; empty if the members are implicit."""


class ChannelState(Struct, frozen=True):
    """A channel as it stands after what was asked."""

    channel: ChannelView


class Channels(Struct, frozen=True):
    """All channels.

    By name.
    """

    channels: tuple[ChannelView, ...]


class History(Struct, frozen=True):
    """Messages, newest first."""

    messages: tuple[Message, ...]


class SeenObjective(Objective, frozen=True, kw_only=True, omit_defaults=True):
    """An objective as it stands, with what the session that asks may do to it."""

    may: tuple[str, ...] = ()
    """The changes that the session may make now, each by its `do` word."""


class ObjectiveState(Struct, frozen=True):
    """An objective as it stands after what was asked."""

    objective: SeenObjective


class ObjectiveList(Struct, frozen=True):
    """Objectives, newest first."""

    objectives: tuple[SeenObjective, ...]
    complete: bool
    """True if there are no older objectives."""


class ObjectiveView(Struct, frozen=True):
    """An objective, and what happened to it, oldest first."""

    objective: SeenObjective
    events: tuple[ObjectiveEvent, ...]
    complete: bool
    """True if no later events are left to read."""


class LogRows(Struct, frozen=True):
    """Consecutive rows of a log; go on reading at `next`."""

    rows: tuple[LogRow, ...]
    end: int
    """The offset that the next row of this log will have."""

    @property
    def next(self) -> int:
        """Offset to read on from: after the last of these rows, or the end of the log."""
        return self.rows[-1].offset + 1 if self.rows else self.end


class Recorded(Struct, frozen=True):
    """The activity is durable."""

    count: int


class Activity(Struct, frozen=True):
    """What a member did, newest first."""

    rows: tuple[ActivityRow, ...]


class Progress(Struct, frozen=True):
    """A step that a followed message took; told to the session that follows it."""

    message_id: MessageId
    member: MemberName
    state: State
    at_ms: int
    way: str = ""
    """Set if the delivery was escalated and its state did not change: the new way of the delivery."""


class Pause(Struct, frozen=True):
    """A conversation that is paused, or whose limits are lifted."""

    conversation: str
    until_ms: int
    """Time at which it ends. If the hub holds the conversation: time at which the next message may pass."""
    by: str = ""
    """Name of whoever asked for it; empty if the hub holds the conversation because of its hops."""
    held: int = 0
    """Number of deliveries that wait for the end of the pause."""
    reason: str = ""
    allowed: bool = False
    """True if the limits of the conversation are lifted and nothing is held."""


class Pauses(Struct, frozen=True):
    """Conversations that are paused, or whose limits are lifted.

    The soonest end comes first.
    """

    pauses: tuple[Pause, ...]


Reply = (
    Accepted
    | Claimed
    | Fetched
    | Receipts
    | Issued
    | Roster
    | History
    | LogRows
    | Done
    | Channels
    | ChannelState
    | ObjectiveState
    | ObjectiveList
    | ObjectiveView
    | MemberState
    | ReachState
    | TokenIssued
    | Tokens
    | TeamState
    | Pauses
    | Recorded
    | Activity
    | Attached
    | Streams
    | Refusal
)

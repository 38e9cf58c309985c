"""Replies of the hub to commands. A `Refusal` can answer any command."""

from msgspec import Struct

from tieline.contract.activity import ActivityRow
from tieline.contract.channel import ChannelId, ChannelMember
from tieline.contract.delivery import Delivery, Receipt, Replayed, State, StreamCursor
from tieline.contract.event import LogRow
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.internal import Internal
from tieline.contract.member import InvitationView, Member, Presence, TokenView
from tieline.contract.message import Message
from tieline.contract.objective import Objective, ObjectiveEvent
from tieline.contract.reach import Reach
from tieline.contract.reader import LogState, Reader
from tieline.contract.refusal import Refusal
from tieline.contract.team import Team


class Done(Struct, frozen=True):
    """Reply: the command was carried out."""


class Attached(Struct, frozen=True):
    """Reply to `Attach`: the session is open."""

    session: SessionId
    member: MemberName | None
    speaker: str
    """The sender name that the hub gives to messages of this session."""
    next_key: int = 1
    """The key that the member's next delivery will get."""
    resume_id: str | None = None
    """Id of the session, if it can be resumed. The resumed session keeps this id."""
    resume_token: str | None = None
    """Token with which the client can resume the session the next time."""
    resumed: bool = False
    """True if the session resumes an earlier one."""


class Accepted(Struct, frozen=True, gc=False):
    """Reply to `Send`: the message was accepted and is stored durably.

    The deliveries of the message and its row in the main log are stored too.
    """

    message_id: MessageId
    offset: int
    recipients: int
    duplicate: bool = False
    """True if the hub accepted the same wire id with the same content before. It did not send the message again."""
    backlog: Internal[int] = 0
    """The largest backlog (number of waiting deliveries) of any recipient."""
    held: str = ""
    """Reason why the message is held for a recipient, which gets it later. Empty if it is not held for anybody."""


class Claimed(Struct, frozen=True):
    """Reply to `Claim`: the claimed delivery, or `None` if another session claimed the message first."""

    delivery: Delivery | None = None


class Fetched(Struct, frozen=True):
    """Reply to `Fetch`: a page of the inbox.

    The page has deliveries that are not acknowledged, expired or dead, in key order.
    """

    deliveries: tuple[Delivery, ...]
    through: int
    """Last key that this page covers."""
    complete: bool
    """True if `through` is the end of the inbox."""
    held: int = 0
    """Number of held deliveries in the inbox. No page contains them before they are released."""
    held_in: tuple[str, ...] = ()
    """Names of paused conversations in which deliveries of this inbox are held. If there are many, only some of them
    are listed. A slowed delivery does not wait for a pause, so its conversation is not listed."""


class StreamView(Struct, frozen=True):
    """One stream of a member: its messages from one sender (`peer`) on one topic."""

    topic: str
    peer: str
    position: int | None
    """Position that the member gave for the stream; `None` if it gave none."""
    last_seq: int
    """Last sequence number that the hub assigned in the stream."""


class Streams(Struct, frozen=True):
    """Reply to `ReadStreams`: the streams of a member, sorted by topic and peer (sender)."""

    streams: tuple[StreamView, ...]
    replay: tuple[Replayed, ...]
    """Deliveries after the given positions that are already settled (acknowledged, expired or dead), in key order."""
    stale: bool
    """True if the hub has already deleted some deliveries after the given positions because of their age."""
    following: StreamCursor | None = None
    """Cursor for the next page of `replay`; `None` if there is no next page."""


class Receipts(Struct, frozen=True):
    """Reply with the receipts of a message (its state for each recipient), sorted by name."""

    message_id: MessageId
    receipts: tuple[Receipt, ...]
    """The receipts, sorted by the names of the recipients."""
    more: bool = False
    """True if there are more recipients. Their names sort after the last name in `receipts`."""


class Issued(Struct, frozen=True):
    """Reply with a new token of a member. The token is shown only once.

    The hub stores only the hash of the token.
    """

    member: MemberName
    token: str


class TokenIssued(Struct, frozen=True):
    """Reply to `IssueToken`: an additional token of a member. The token is shown only once.

    The hub stores only the hash of the token.
    """

    member: MemberName
    token: str
    view: TokenView


class Tokens(Struct, frozen=True):
    """Reply to `ListTokens`: details of a member's tokens, oldest first."""

    tokens: tuple[TokenView, ...]


class Invited(Struct, frozen=True):
    """Reply to `Invite`: a new invitation with its secret, which is shown only once.

    The hub stores only the hash of the secret.
    """

    secret: str
    view: InvitationView


class Invitations(Struct, frozen=True):
    """Reply to `ListInvitations`: the invitations with which somebody can still join, oldest first."""

    invitations: tuple[InvitationView, ...]


class MemberState(Struct, frozen=True):
    """Reply with a member, as it is after the command."""

    member: Member


class ReachState(Struct, frozen=True):
    """Reply to `SetReach`: the ways to reach a member, as they are after the command."""

    member: MemberName
    reach: Reach


class TeamState(Struct, frozen=True):
    """Reply with the team, as it is after the command."""

    team: Team


class Roster(Struct, frozen=True):
    """Reply to `ListMembers`: the members and their current state, sorted by name."""

    members: tuple[Presence, ...]


class ChannelView(Struct, frozen=True):
    """Description of a channel and its subscribers.

    Every member is in `#general` without joining.
    """

    name: ChannelName
    subscribers: tuple[MemberName, ...]
    id: ChannelId = ChannelId("")
    """Id of the channel. For a channel that nobody needs to join, it is the name. Empty if no such channel exists."""
    created_by: str = ""
    """Creator of the channel; empty if the hub itself made it."""
    created_at_ms: int = 0
    archived_at_ms: int | None = None
    members: tuple[ChannelMember, ...] = ()
    """The members: admins first, then by the time of joining. Empty for a channel that nobody needs to join."""


class ChannelState(Struct, frozen=True):
    """Reply with a channel, as it is after the command."""

    channel: ChannelView


class Channels(Struct, frozen=True):
    """Reply to `ListChannels`: the channels, sorted by name."""

    channels: tuple[ChannelView, ...]


class History(Struct, frozen=True):
    """Reply with messages, newest first. If the command has `forward` set, the oldest comes first."""

    messages: tuple[Message, ...]


class SeenObjective(Objective, frozen=True, kw_only=True, omit_defaults=True):
    """An objective, with the changes (`may`) that the session of the command may make to it."""

    may: tuple[str, ...] = ()
    """The changes that the session may make now, each by its `do` word."""


class ObjectiveState(Struct, frozen=True):
    """Reply with an objective, as it is after the command."""

    objective: SeenObjective


class ObjectiveList(Struct, frozen=True):
    """Reply to `ListObjectives`: objectives, newest first."""

    objectives: tuple[SeenObjective, ...]
    complete: bool
    """True if there are no older objectives."""


class ObjectiveView(Struct, frozen=True):
    """Reply to `ViewObjective`: an objective with its event log, oldest entry first."""

    objective: SeenObjective
    events: tuple[ObjectiveEvent, ...]
    complete: bool
    """True if no later events are left to read."""


class Redaction(Struct, frozen=True):
    """Reply to `Redact`: the message is redacted. `by` says who redacted it, and `at_ms` says when.

    If `again` is true, it was redacted before this command. The command has changed nothing in the log, and copies of
    the content are deleted again.
    """

    by: str
    at_ms: int
    again: bool = False


class LogRows(Struct, frozen=True):
    """Reply to `ReadLog`: consecutive rows of a log. The next read starts at `next`."""

    rows: tuple[LogRow, ...]
    end: int
    """The offset that the next row of this log will have."""
    epoch: str = ""
    """Random id of the log, made together with the log. If the reader knows another epoch, its offsets mean other
    rows."""
    kept_from: int = 0
    """The hub has deleted nothing at or after this offset. In the main log it deletes only messages, never rows."""

    @property
    def next(self) -> int:
        """Offset at which the next read starts: after the last of these rows. Without rows, the end of the log."""
        return self.rows[-1].offset + 1 if self.rows else self.end


class Readers(Struct, frozen=True):
    """Reply to `ListReaders`: the logs, and the readers (programs) for which the hub keeps unread rows."""

    logs: tuple[LogState, ...]
    readers: tuple[Reader, ...]
    """The readers, sorted by log and by name."""


class ReaderState(Struct, frozen=True):
    """Reply to `AdvanceReader`: the reader after the change, and the state of the log.

    If the reader's position is before the log's `kept_from`, the hub has deleted rows that the reader has not read.
    """

    reader: Reader
    log: LogState


class Recorded(Struct, frozen=True):
    """Reply to `RecordActivity`: the activity is stored durably; `count` is the number of its events."""

    count: int


class Activity(Struct, frozen=True):
    """Reply to `ReadActivity`: the activity of a member, newest first."""

    rows: tuple[ActivityRow, ...]


class Progress(Struct, frozen=True):
    """News for a session that follows a message (`Follow`): one delivery of the message changed.

    The delivery has a new state, or was escalated to another way of reaching the member.
    """

    message_id: MessageId
    member: MemberName
    state: State
    at_ms: int
    way: str = ""
    """For an escalation: the way (such as `hook`) that the hub uses from now on. Empty for a change of state."""


class Pause(Struct, frozen=True):
    """Description of a conversation that is paused, or in which agents may answer each other without limit."""

    conversation: str
    until_ms: int
    """Time at which the pause or the permission ends. If the hub itself holds the conversation, this is the time at
    which it delivers the next held message."""
    by: str = ""
    """Name of the member that asked for the pause or the permission. Empty if the hub itself holds the conversation,
    because agents answered each other too often."""
    held: int = 0
    """Number of deliveries that wait for the end of the pause."""
    reason: str = ""
    allowed: bool = False
    """True if agents may answer each other without limit. Then nothing is held."""


class Pauses(Struct, frozen=True):
    """Reply to `ListPauses`: conversations that are paused, or in which agents may answer without limit.

    They are sorted by the time at which the pause or the permission ends.
    """

    pauses: tuple[Pause, ...]


class StuckDelivery(Struct, frozen=True):
    """A delivery that nobody has seen for a while, or that is dead: it could not be delivered."""

    message_id: MessageId
    offset: int
    """Log offset of the message."""
    sender: str
    target: str
    text: str
    """Title of the message, or else the beginning of its body."""
    sent_at_ms: int
    member: MemberName
    """The recipient."""
    state: State
    evidence: str = ""
    """Reason of the death of a dead delivery."""
    at_ms: int = 0
    """Time of the death of a dead delivery."""


class Stuck(Struct, frozen=True):
    """Reply to `ReadStuck`: deliveries that nobody has seen for a while, and the newest dead deliveries.

    A dead delivery could not be made and never will be. Held deliveries are left out, because a person can list the
    pauses that hold them.
    """

    unseen: tuple[StuckDelivery, ...]
    dead: tuple[StuckDelivery, ...]
    """Dead deliveries, newest first."""


Reply = (
    Accepted
    | Claimed
    | Fetched
    | Receipts
    | Issued
    | Roster
    | History
    | Redaction
    | LogRows
    | Readers
    | ReaderState
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
    | Invited
    | Invitations
    | TeamState
    | Pauses
    | Stuck
    | Recorded
    | Activity
    | Attached
    | Streams
    | Refusal
)

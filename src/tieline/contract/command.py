"""Commands: everything a protocol can ask of the hub, as imperatives.

A command belongs to a session, named by its id; the broker takes the speaker from the session, so no command
carries a sender. Commands of one connection are handled in the order in which they were submitted.

A command names its reply as its base: `Claim(Request[Claimed])`. A command that a member may give over the hub's own
protocol is a `Request`. The frames of that protocol and the methods of the SDK are generated from the requests: run
`make derive` after a change. A frame repeats the first paragraph of a request's docstring, an SDK method all of it.
"""

from typing import Any, Generic, TypeVar

from msgspec import Struct

from tieline.contract import reply as r
from tieline.contract.channel import AnyChange as ChannelChange
from tieline.contract.delivery import Replayed, State, StreamCursor
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.internal import Internal
from tieline.contract.keys import Keys
from tieline.contract.member import Credential, MemberKind
from tieline.contract.message import Attachment, Content, Signature
from tieline.contract.objective import AnyChange as ObjectiveChange
from tieline.contract.objective import ObjectiveId, Status
from tieline.contract.reach import Reach
from tieline.contract.refusal import Code

_R_co = TypeVar("_R_co", covariant=True)


class AnsweredBy(Struct, Generic[_R_co], frozen=True):
    """A command, by its reply. A `Refusal` can answer any of them."""


class SessionCommand(AnsweredBy[_R_co], Generic[_R_co], frozen=True):
    """A command of a session."""

    session: SessionId


class Request(SessionCommand[_R_co], Generic[_R_co], frozen=True):
    """A command that a member may give over the hub's own protocol, too."""


class Attach(AnsweredBy[r.Attached], frozen=True, kw_only=True):
    """Open a session."""

    protocol: str
    credential: Credential
    member: MemberName | None = None
    """The member that the session wants to act as; a token alone is enough, because it names its member."""
    acknowledges: bool = True
    """True if the wire can acknowledge. If not, a delivery through this session never gets past `offered`."""
    kind: MemberKind = MemberKind.AGENT
    """Kind of the member, if this session creates one."""
    exclusive: bool = False
    """End the member's other sessions through this protocol: the newest connection wins."""
    resumable: bool = False
    """Issue a token that can resume the session later."""
    resume_token: str | None = None
    """Resume the session that this token was issued for."""
    resume_id: str | None = None
    """Resume the session with this id, which only the owner of the session knows."""


class Confirm(SessionCommand[r.Done], frozen=True, kw_only=True):
    """The client speaks under its new resume token, so the one before is void."""


class Detach(SessionCommand[r.Done], frozen=True, kw_only=True):
    """End a session, also one that has ended before."""


class Send(Request[r.Accepted], frozen=True, kw_only=True, gc=False):
    """Say something.

    It is accepted once it is durable.
    """

    content: Content
    wire_id: str | None = None
    allow_empty: bool = False
    """Accept a message to a channel without other subscribers; the message is kept in the log."""
    shared_id: Internal[bool] = False
    """The wire id is unique among all senders of the protocol, because recipients name deliveries by wire id."""
    signature: Internal[Signature] = Signature.NONE
    members_only: Internal[bool] = False
    """Refuse a message to a channel that the sender itself is not in."""
    only: Internal[tuple[MemberName, ...]] = ()
    """The recipients, already chosen by the sender, whatever the target says. Empty: the target names them."""
    unverified: Internal[bool] = False
    """Nothing proves the name of the sender; somebody only wrote it down."""
    attempt: Internal[int | None] = None
    """On a wire without refusals: the number of failed attempts. When a send fails, later sends with the same number
    fail too, so that no message is accepted before an earlier one."""


class Offered(SessionCommand[r.Done], frozen=True, kw_only=True, gc=False):
    """Note that deliveries `first` to `last` were written to the session's wire. Lazy: rides on the next commit."""

    first: int
    last: int
    ackless: bool = False
    """The deliveries went out in a form that cannot be acknowledged, though the wire also has forms that can."""


class Advance(SessionCommand[r.Done], frozen=True, kw_only=True, gc=False):
    """Move the session's own deliveries up the ladder by evidence. Settled ones stay; unknown keys are ignored.

    The hub's own protocol has two frames for it, `ack` and `see`.
    """

    ranges: Keys
    state: State = State.ACKED
    evidence: str = ""


class AcknowledgeIds(SessionCommand[r.Done], frozen=True, kw_only=True):
    """Acknowledge the session's own deliveries by the ids of their messages. Unknown ones are ignored."""

    wire_ids: tuple[str, ...] = ()
    """Shared wire ids (`Send.shared_id`) of the session's protocol."""
    message_ids: tuple[MessageId, ...] = ()
    evidence: str = ""


class Discard(Request[r.Done], frozen=True, kw_only=True):
    """Deliveries will not be handled, for this reason; then they are `expired`.

    They are the session's own.
    """

    ranges: Keys
    reason: str


class Claim(Request[r.Claimed], frozen=True, kw_only=True):
    """Take a message for this session alone.

    The claim is durable before it is answered; the loser gets no delivery.
    """

    message_id: MessageId


class Fetch(Request[r.Fetched], frozen=True, kw_only=True):
    """Look into the inbox.

    It holds the session's unsettled deliveries after `after`, oldest first.
    """

    after: int = 0
    limit: int = 100
    unoffered_until: Internal[int] = 0
    """Leave out deliveries with keys below this one that were offered before."""
    replay: Internal[tuple[Replayed, ...]] = ()
    """Settled deliveries to return again, in key order, among the unsettled ones."""
    unseen: bool = False
    """Leave out deliveries with evidence that they were read."""
    keys: Internal[tuple[int, ...]] = ()
    """Only these deliveries, in this order: released ones whose keys the reader has already passed."""


class Position(Struct, frozen=True):
    """How far a recipient got in its streams of a topic: with one peer, or with each that has none of its own."""

    topic: str
    last_seq: int
    peer: str | None = None


class ReadStreams(SessionCommand[r.Streams], frozen=True, kw_only=True):
    """Read where the member's streams stand, and what it must be given again to go on from these positions.

    A stream without a position continues after its last acknowledgement.
    """

    positions: tuple[Position, ...] = ()
    following: StreamCursor | None = None
    """Cursor of an earlier reply: continue there, with the same positions."""


class Follow(Request[r.Receipts], frozen=True, kw_only=True):
    """Hear of every step a message takes.

    The message is one of the session's own member.
    """

    message_id: MessageId
    until: State = State.ACKED
    """The command is refused if the message can never reach this state over a recipient's wires."""


class Subscribe(Request[r.Done], frozen=True, kw_only=True):
    """Join a channel.

    It comes to be with its first subscriber.
    """

    channel: ChannelName
    member: Internal[MemberName | None] = None
    """The member that joins, if not the session's own. Only those who manage members may set it."""


class Unsubscribe(Request[r.Done], frozen=True, kw_only=True):
    """Leave a channel.

    Not being in it is no error.
    """

    channel: ChannelName
    member: Internal[MemberName | None] = None
    """The member that leaves, if not the session's own. Only those who manage members may set it."""


class PauseThread(Request[r.Done], frozen=True, kw_only=True):
    """Hold messages of agents and scripts in a conversation for a while.

    A conversation is `thread:<id>`, a target, or `@one+@other`.
    """

    thread: str


class ResumeThread(Request[r.Done], frozen=True, kw_only=True):
    """End the pause of a conversation: what is held in it is delivered.

    Its chains start anew.
    """

    thread: str


class AddMember(Request[r.Issued], frozen=True, kw_only=True):
    """Make a member."""

    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    token: str | None = None
    """A token chosen by the operator. Without one, the hub creates a token."""
    self_named: Internal[bool] = False
    """The client chose the name and showed only a room's token, so the name of the hub's owner is refused."""
    title: Internal[str] = ""
    description: Internal[str] = ""
    instructions: Internal[str] = ""


class RemoveMember(Request[r.Done], frozen=True, kw_only=True):
    """Remove a member.

    Its sessions end, its tokens die, its unsettled deliveries become `dead`.
    """

    name: MemberName


class RotateToken(Request[r.Issued], frozen=True, kw_only=True):
    """Replace a member's tokens.

    The new one is its only one.
    """

    name: MemberName


class ListMembers(Request[r.Roster], frozen=True, kw_only=True):
    """List all members, by name."""

    name: Internal[MemberName | None] = None
    """Only the member with this name; case is ignored."""


class ReadReceipts(Request[r.Receipts], frozen=True, kw_only=True):
    """Read what became of a message. Only its sender and recipients may know."""

    message_id: MessageId
    after: str = ""
    """Only receipts of recipients whose names sort after this one."""
    members: Internal[tuple[str, ...]] = ()
    """Only receipts of these recipients; empty for all."""


class ReadHistory(Request[r.History], frozen=True, kw_only=True):
    """Read messages that the member may see, newest first."""

    peer: str | None = None
    """Only messages with a member (`name`, `@name`), in a channel (`#name`, `chan:<id>`) or a thread (`obj:<id>`)."""
    before: int | None = None
    """Only messages with a lower log offset."""
    limit: int = 50
    after: int = -1
    """Only messages with a higher log offset."""
    forward: Internal[bool] = False
    """Oldest first, of all messages that the member may see; a live view continues with this."""
    everything: bool = False
    """Include messages between other members; only for a member that may read the log."""


class Search(Request[r.History], frozen=True, kw_only=True):
    """Look for words in what the member may see.

    The newest message comes first.
    """

    query: str
    """Words, "phrases in quotes" and prefixes with a star. A message must contain all of them."""
    sender: str | None = None
    place: str | None = None
    """Only messages with this `@member` or in this `#channel`, `chan:<id>` or `obj:<id>`; other text is a thread."""
    from_ms: int | None = None
    to_ms: int | None = None
    """The interval includes both ends."""
    before: int | None = None
    """Only messages with a lower log offset."""
    limit: int = 50


class ReadLog(Request[r.LogRows], frozen=True, kw_only=True):
    """Read rows of a log from an offset on."""

    log: str = "main"
    start: int = 0
    limit: int = 1000


class ListChannels(Request[r.Channels], frozen=True, kw_only=True):
    """List all channels, by name."""

    channel: Internal[ChannelName | None] = None
    """Only this channel, even if it has no subscribers."""


class CreateChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Make a channel, and be its admin."""

    name: ChannelName


class ChangeChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Do something to a channel, by its name or id; `do` in `change` says what.

    There may be nothing to change.
    """

    channel: str
    """The name or id of the channel. An archived channel is found by its id."""
    change: ChannelChange


class ViewChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Show a channel with its members, by its name or id."""

    channel: str
    """The name or id of the channel. An archived channel is found by its id."""


class CreateObjective(Request[r.ObjectiveState], frozen=True, kw_only=True):
    """Give a member work with an outcome."""

    title: str
    outcome: str
    assignee: MemberName
    body: str = ""
    watchers: tuple[MemberName, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class ChangeObjective(Request[r.ObjectiveState], frozen=True, kw_only=True):
    """Do something to an objective; `do` in `change` says what.

    There may be nothing to change. What is said in its thread is a message to `obj:<id>`.
    """

    objective_id: ObjectiveId
    change: ObjectiveChange


class ListObjectives(Request[r.ObjectiveList], frozen=True, kw_only=True):
    """List objectives that the member may see, newest first."""

    statuses: tuple[Status, ...] = ()
    """Only objectives with one of these statuses; empty for all."""
    assignee: MemberName | None = None
    before: ObjectiveId | None = None
    """Only objectives older than this one."""
    limit: int = 1000


class ViewObjective(Request[r.ObjectiveView], frozen=True, kw_only=True):
    """Show an objective with its event log, oldest first."""

    objective_id: ObjectiveId
    after: int = -1
    """Only events with a higher log offset."""


class UpdateMember(Request[r.MemberState], frozen=True, kw_only=True):
    """Change what a member may do and what it is told; what is left out stays."""

    name: MemberName
    permissions: tuple[str, ...] | None = None
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    kind: MemberKind | None = None


class SetReach(Request[r.ReachState], frozen=True, kw_only=True):
    """Say in which ways a member is to be reached, or ask, by leaving `reach` out.

    For the member itself and whoever manages members.
    """

    name: MemberName
    reach: Reach | None = None
    """The new ways; `None` only reads the current ones."""


class SetBusy(Request[r.Done], frozen=True, kw_only=True):
    """Say that the member is at work, which counts for a while, or is not."""

    busy: bool = True


class IssueToken(Request[r.TokenIssued], frozen=True, kw_only=True):
    """Give a member one more token."""

    name: MemberName
    label: str = ""
    expires_at_ms: int | None = None
    token: str | None = None
    """A token chosen by the caller. Without one, the hub creates a token."""


class ListTokens(Request[r.Tokens], frozen=True, kw_only=True):
    """List a member's tokens that are still good, oldest first."""

    name: MemberName


class RevokeToken(Request[r.Done], frozen=True, kw_only=True):
    """Void one token.

    Sessions that it opened end.
    """

    name: MemberName
    token_id: str


class ReadTeam(Request[r.TeamState], frozen=True, kw_only=True):
    """Read what is said about the team."""


class UpdateTeam(Request[r.TeamState], frozen=True, kw_only=True):
    """Change what is said about the team; what is left out stays."""

    name: str | None = None
    directive: str | None = None
    context: str | None = None
    presets: dict[str, tuple[str, ...] | None] = {}
    """Sets of permissions to store by name; `None` deletes a set."""
    aliases: dict[str, str | None] = {}
    """Other names for members, by alias; `None` deletes an alias."""


class ListPauses(Request[r.Pauses], frozen=True, kw_only=True):
    """List conversations that are paused, or whose limits are lifted."""


class AllowThread(Request[r.Done], frozen=True, kw_only=True):
    """Lift the limits of the loop rule for a conversation for a while, and end its pause."""

    thread: str
    for_ms: int | None = None
    """Duration; without one, the limit `allow_ms` applies."""


class RecordActivity(Request[r.Recorded], frozen=True, kw_only=True):
    """Report what the member did.

    It is kept in the activity log.
    """

    events: tuple[dict[str, Any], ...]
    size: Internal[int] = 0
    """Size on the wire, in bytes. It counts towards the bound on activity that waits to be written."""


class ReadActivity(Request[r.Activity], frozen=True, kw_only=True):
    """Read what a member did, newest first. For itself and who has `activity.read`."""

    member: MemberName
    from_ms: int | None = None
    to_ms: int | None = None
    """The interval includes both ends."""
    kinds: tuple[str, ...] = ()
    """Only events of these kinds; empty for all."""
    limit: int = 200


class FollowActivity(Request[r.Done], frozen=True, kw_only=True):
    """Hear of what a member does.

    `Hub.tail` tells of it from now on.
    """

    member: MemberName


class RecordRefusal(AnsweredBy[r.Done], frozen=True, kw_only=True):
    """Keep in the log what a protocol refused by itself, as the hub keeps its own refusals."""

    protocol: str
    code: Code
    what: str
    """The attempted action. Use only a few fixed texts, because each text has its own rows in the log."""
    session: SessionId = SessionId("")
    """The session that made the attempt; empty if the client had not said who it is."""


class Tick(AnsweredBy[r.Done], frozen=True, kw_only=True):
    """Time passed: expire what is due. Sent by the hub itself."""


class Settle(AnsweredBy[r.Done], frozen=True, kw_only=True):
    """Settle a delivery, once the external inbox of its member has won it. Sent by the hub itself."""

    member: MemberName
    key: int
    state: State
    evidence: str


Command = (
    Attach
    | Confirm
    | Detach
    | Send
    | Offered
    | Advance
    | AcknowledgeIds
    | Discard
    | Claim
    | Fetch
    | ReadStreams
    | Follow
    | Subscribe
    | Unsubscribe
    | PauseThread
    | ResumeThread
    | AddMember
    | RemoveMember
    | RotateToken
    | ListMembers
    | ReadReceipts
    | ReadHistory
    | Search
    | ReadLog
    | ListChannels
    | CreateChannel
    | ChangeChannel
    | ViewChannel
    | CreateObjective
    | ChangeObjective
    | ListObjectives
    | ViewObjective
    | UpdateMember
    | SetReach
    | SetBusy
    | IssueToken
    | ListTokens
    | RevokeToken
    | ReadTeam
    | UpdateTeam
    | ListPauses
    | AllowThread
    | RecordActivity
    | ReadActivity
    | FollowActivity
    | RecordRefusal
    | Tick
    | Settle
)

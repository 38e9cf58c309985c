"""Commands: everything a protocol can ask of the hub, as imperatives.

A command belongs to a session, named by its id; the broker takes the speaker from the session, so no command
carries a sender. Commands of one connection are handled in the order in which they were submitted.

A command names its reply as its base: `Claim(Request[Claimed])`. What a member may ask over the hub's own protocol is a
`Request`, and the frames of that protocol and the methods of the SDK are made from those: `make derive` after a change.
The first paragraph of a docstring is shown to them too.
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
    """Whom the session wants to be; a token alone says it too."""
    acknowledges: bool = True
    """Whether the wire can acknowledge; if not, `offered` is as far as a delivery goes through it."""
    kind: MemberKind = MemberKind.AGENT
    """What a member is that comes to be with this session."""
    exclusive: bool = False
    """End the member's other sessions through this protocol: the newest connection wins."""
    resumable: bool = False
    """Give the session a token by which it can be taken up again."""
    resume_token: str | None = None
    """Take up the session that this token was given for."""
    resume_id: str | None = None
    """Take up the session that was given this id, which only its owner knows."""


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
    """Accept a message to a channel that nobody else subscribes to (it is kept in the log)."""
    shared_id: Internal[bool] = False
    """The wire id is one for all senders of the protocol, because its recipients name deliveries by it."""
    signature: Internal[Signature] = Signature.NONE
    members_only: Internal[bool] = False
    """Refuse a message to a channel that the sender itself is not in."""
    only: Internal[tuple[MemberName, ...]] = ()
    """Who receives it, whatever the target says: its sender has chosen them already. Else those whom that names."""
    unverified: Internal[bool] = False
    """The sender is a name that somebody wrote down, and nothing proves it."""
    attempt: Internal[int | None] = None
    """On a wire without refusals: the number of failed attempts. If one attempt fails, so do all later ones with its
    number, because nothing may be accepted before what was said earlier."""


class Offered(SessionCommand[r.Done], frozen=True, kw_only=True, gc=False):
    """Note that deliveries `first` to `last` were written to the session's wire. Lazy: rides on the next commit."""

    first: int
    last: int
    ackless: bool = False
    """They went out in a form that cannot be acknowledged, though the wire has others that can."""


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
    """Shared ones, of the session's protocol."""
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
    """Settled deliveries to be given again, in key order, among the unsettled ones."""
    unseen: bool = False
    """Leave out deliveries that something shows to have been read."""
    keys: Internal[tuple[int, ...]] = ()
    """Only these, in this order: what was released behind a reader's back."""


class Position(Struct, frozen=True):
    """How far a recipient got in its streams of a topic: with one peer, or with each that has none of its own."""

    topic: str
    last_seq: int
    peer: str | None = None


class ReadStreams(SessionCommand[r.Streams], frozen=True, kw_only=True):
    """Read where the member's streams stand, and what it must be given again to go on from these positions.

    A stream without a position is where its last acknowledgement left it.
    """

    positions: tuple[Position, ...] = ()
    following: StreamCursor | None = None
    """Go on from here, with the same positions."""


class Follow(Request[r.Receipts], frozen=True, kw_only=True):
    """Hear of every step a message takes.

    The message is one of the session's own member.
    """

    message_id: MessageId
    until: State = State.ACKED
    """Refused when a recipient's wires can never bring it that far."""


class Subscribe(Request[r.Done], frozen=True, kw_only=True):
    """Join a channel.

    It comes to be with its first subscriber.
    """

    channel: ChannelName
    member: Internal[MemberName | None] = None
    """Who joins, if not the session's own member: for those who manage members."""


class Unsubscribe(Request[r.Done], frozen=True, kw_only=True):
    """Leave a channel.

    Not being in it is no error.
    """

    channel: ChannelName
    member: Internal[MemberName | None] = None
    """Who leaves, if not the session's own member: for those who manage members."""


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
    """A token chosen by the operator; else the hub makes one."""
    self_named: Internal[bool] = False
    """The name was chosen by somebody who proved nothing but a room's token: it cannot be the hub's owner's."""
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
    """Only the member of this name, whatever its case."""


class ReadReceipts(Request[r.Receipts], frozen=True, kw_only=True):
    """Read what became of a message. Only its sender and recipients may know."""

    message_id: MessageId
    after: str = ""
    """Only for recipients whose names come after this one."""
    members: Internal[tuple[str, ...]] = ()
    """Only for these; for all, if there are none."""


class ReadHistory(Request[r.History], frozen=True, kw_only=True):
    """Read messages that the member may see, newest first."""

    peer: str | None = None
    """Only messages with this member, as `name` or `@name`, in `#name`, `chan:<id>` or in a thread, as `obj:<id>`."""
    before: int | None = None
    """Only messages whose log offset is lower."""
    limit: int = 50
    after: int = -1
    """Only what stands after this offset."""
    forward: Internal[bool] = False
    """Oldest first, of all that the member may see: what a live view goes on with."""
    everything: bool = False
    """What others say to each other, too; for who may read the log."""


class Search(Request[r.History], frozen=True, kw_only=True):
    """Look for words in what the member may see.

    The newest message comes first.
    """

    query: str
    """Words, "phrases in quotes", and beginnings of words with a star; all must be there."""
    sender: str | None = None
    place: str | None = None
    """Only with this `@member`, in this `#channel`, `chan:<id>` or `obj:<id>`; anything else is a thread."""
    from_ms: int | None = None
    to_ms: int | None = None
    """Both ends count."""
    before: int | None = None
    """Only messages whose log offset is lower."""
    limit: int = 50


class ReadLog(Request[r.LogRows], frozen=True, kw_only=True):
    """Read rows of a log from an offset on."""

    log: str = "main"
    start: int = 0
    limit: int = 1000


class ListChannels(Request[r.Channels], frozen=True, kw_only=True):
    """List all channels, by name."""

    channel: Internal[ChannelName | None] = None
    """Only this one, whether anybody is in it or not."""


class CreateChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Make a channel, and be its admin."""

    name: ChannelName


class ChangeChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Do something to a channel, by its name or id; `do` in `change` says what.

    There may be nothing to change.
    """

    channel: str
    """Its name, or its id, which an archived one is found by."""
    change: ChannelChange


class ViewChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Show a channel with its members, by its name or id."""

    channel: str
    """Its name, or its id, which an archived one is found by."""


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
    """Only those that stand so; empty for all."""
    assignee: MemberName | None = None
    before: ObjectiveId | None = None
    """Only those that are older than this one."""
    limit: int = 1000


class ViewObjective(Request[r.ObjectiveView], frozen=True, kw_only=True):
    """Show an objective with its event log, oldest first."""

    objective_id: ObjectiveId
    after: int = -1
    """Only events whose log offset is higher."""


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
    """`None` only asks."""


class SetBusy(Request[r.Done], frozen=True, kw_only=True):
    """Say that the member is at work, which counts for a while, or is not."""

    busy: bool = True


class IssueToken(Request[r.TokenIssued], frozen=True, kw_only=True):
    """Give a member one more token."""

    name: MemberName
    label: str = ""
    expires_at_ms: int | None = None
    token: str | None = None
    """A token chosen by who asks; else the hub makes one."""


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
    """Sets of permissions to keep by name, or, with `None`, to forget."""
    aliases: dict[str, str | None] = {}
    """Other names for members, by alias; `None` forgets one."""


class ListPauses(Request[r.Pauses], frozen=True, kw_only=True):
    """List conversations that are paused, or whose limits are lifted."""


class AllowThread(Request[r.Done], frozen=True, kw_only=True):
    """Lift the limits of the loop rule for a conversation for a while, and end its pause."""

    thread: str
    for_ms: int | None = None
    """The hub's own idea, if nobody says how long."""


class RecordActivity(Request[r.Recorded], frozen=True, kw_only=True):
    """Report what the member did.

    It is kept in the activity log.
    """

    events: tuple[dict[str, Any], ...]
    size: Internal[int] = 0
    """How many bytes it was on its wire: what waits to be written is bounded by that."""


class ReadActivity(Request[r.Activity], frozen=True, kw_only=True):
    """Read what a member did, newest first. For itself and who has `activity.read`."""

    member: MemberName
    from_ms: int | None = None
    to_ms: int | None = None
    """Both ends count."""
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
    """What was attempted: one of a few texts, because each has rows of its own."""
    session: SessionId = SessionId("")
    """Whose attempt it was, if it had said who it is."""


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

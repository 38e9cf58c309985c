"""Commands: everything a protocol can ask of the hub, as imperatives.

A command belongs to a session, named by its id; the broker takes the speaker from the session, so no command
carries a sender. Commands of one connection are handled in the order in which they were submitted.
"""

from typing import Any

from msgspec import Struct

from tieline.contract.channel import AnyChange as ChannelChange
from tieline.contract.delivery import Replayed, State, StreamCursor
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.member import Credential, MemberKind
from tieline.contract.message import Attachment, Content, Signature
from tieline.contract.objective import AnyChange as ObjectiveChange
from tieline.contract.objective import ObjectiveId, Status
from tieline.contract.reach import Reach
from tieline.contract.refusal import Code


class Attach(Struct, frozen=True, kw_only=True):
    """Open a session. Answered by `Attached`."""

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


class Confirm(Struct, frozen=True):
    """The client speaks under its new resume token, so the one before is void."""

    session: SessionId


class Detach(Struct, frozen=True):
    """End a session. Answered by `Done`, also when it has ended before."""

    session: SessionId


class Send(Struct, frozen=True, gc=False):
    """Say something. Answered by `Accepted` once it is durable."""

    session: SessionId
    content: Content
    wire_id: str | None = None
    allow_empty: bool = False
    """Accept a message to a channel that nobody else subscribes to (it is kept in the log)."""
    shared_id: bool = False
    """The wire id is one for all senders of the protocol, because its recipients name deliveries by it."""
    signature: Signature = Signature.NONE
    members_only: bool = False
    """Refuse a message to a channel that the sender itself is not in."""
    only: tuple[MemberName, ...] = ()
    """Who receives it, whatever the target says: its sender has chosen them already. Else those whom that names."""
    unverified: bool = False
    """The sender is a name that somebody wrote down, and nothing proves it."""
    attempt: int | None = None
    """On a wire without refusals: the number of failed attempts. If one attempt fails, so do all later ones with its
    number, because nothing may be accepted before what was said earlier."""


class Offered(Struct, frozen=True, gc=False):
    """Note that deliveries `first` to `last` were written to the session's wire. Lazy: rides on the next commit."""

    session: SessionId
    first: int
    last: int
    mute: bool = False
    """They went out in a form that cannot be acknowledged, though the wire has others that can."""


class Advance(Struct, frozen=True, gc=False):
    """Move the session's own deliveries up the ladder by evidence. Settled ones stay; unknown keys are ignored."""

    session: SessionId
    ranges: tuple[tuple[int, int], ...]
    state: State = State.ACKED
    evidence: str = ""


class AcknowledgeIds(Struct, frozen=True):
    """Acknowledge the session's own deliveries by the ids of their messages. Unknown ones are ignored."""

    session: SessionId
    wire_ids: tuple[str, ...] = ()
    """Shared ones, of the session's protocol."""
    message_ids: tuple[MessageId, ...] = ()
    evidence: str = ""


class Discard(Struct, frozen=True):
    """Say that the session's own deliveries will not be handled, and why. Answered by `Done`; then they are expired."""

    session: SessionId
    ranges: tuple[tuple[int, int], ...]
    reason: str


class Claim(Struct, frozen=True):
    """Take one delivery so that nobody else does. Answered, once durable, by `Claimed`, with `None` for the loser."""

    session: SessionId
    message_id: MessageId


class Fetch(Struct, frozen=True):
    """Read the session's unsettled deliveries after `after`, oldest first. Answered by `Fetched`."""

    session: SessionId
    after: int = 0
    limit: int = 100
    unoffered_until: int = 0
    """Leave out deliveries with keys below this one that were offered before."""
    replay: tuple[Replayed, ...] = ()
    """Settled deliveries to be given again, in key order, among the unsettled ones."""
    unseen: bool = False
    """Leave out deliveries that something shows to have been read."""
    keys: tuple[int, ...] = ()
    """Only these, in this order: what was released behind a reader's back."""


class Position(Struct, frozen=True):
    """How far a recipient got in its streams of a topic: with one peer, or with each that has none of its own."""

    topic: str
    last_seq: int
    peer: str | None = None


class ReadStreams(Struct, frozen=True):
    """Where the member's streams stand, and what it must be given again to go on from these positions.

    Answered by `Streams`. A stream without a position is where its last acknowledgement left it.
    """

    session: SessionId
    positions: tuple[Position, ...] = ()
    following: StreamCursor | None = None
    """Go on from here, with the same positions."""


class Follow(Struct, frozen=True):
    """Tell the session of each step that a message of its member takes from now on. Answered by `Receipts`."""

    session: SessionId
    message_id: MessageId
    until: State = State.ACKED
    """Refused when a recipient's wires can never bring it that far."""


class Subscribe(Struct, frozen=True):
    """Join a channel, which comes to be with its first subscriber."""

    session: SessionId
    channel: ChannelName
    member: MemberName | None = None
    """Who joins, if not the session's own member: for those who manage members."""


class Unsubscribe(Struct, frozen=True):
    """Leave a channel. Not being in it is no error."""

    session: SessionId
    channel: ChannelName
    member: MemberName | None = None
    """Who leaves, if not the session's own member: for those who manage members."""


class ResumeThread(Struct, frozen=True):
    """End the pause of a conversation: what is held in it is delivered, and its chains start anew."""

    session: SessionId
    thread: str


class PauseThread(Struct, frozen=True):
    """Hold messages of agents and scripts in a conversation (`thread:<id>`, a target, or `@one+@other`) for a while."""

    session: SessionId
    thread: str


class AllowThread(Struct, frozen=True):
    """Lift the limits of the loop rule for a conversation for a while, and end its pause."""

    session: SessionId
    thread: str
    for_ms: int | None = None
    """The hub's own idea, if nobody says how long."""


class ListPauses(Struct, frozen=True):
    """Conversations that are paused. Answered by `Pauses`."""

    session: SessionId


class AddMember(Struct, frozen=True):
    """Make a member. Answered by `Issued` with its token, which is shown this once."""

    session: SessionId
    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    token: str | None = None
    """A token chosen by the operator; else the hub makes one."""
    self_named: bool = False
    """The name was chosen by somebody who proved nothing but a room's token: it cannot be the hub's owner's."""
    title: str = ""
    description: str = ""
    instructions: str = ""


class UpdateMember(Struct, frozen=True):
    """Change what a member may do and what it is told. Answered by `MemberState`; `None` leaves a field as it is."""

    session: SessionId
    name: MemberName
    permissions: tuple[str, ...] | None = None
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    kind: MemberKind | None = None


class SetReach(Struct, frozen=True):
    """Say in which ways a member is to be reached. Answered by `ReachState`; for itself and who manages members."""

    session: SessionId
    name: MemberName
    reach: Reach | None = None
    """`None` only asks."""


class SetBusy(Struct, frozen=True):
    """Say that the session's member is at work, which counts for a while, or that it is not. Answered by `Done`."""

    session: SessionId
    busy: bool


class IssueToken(Struct, frozen=True):
    """Give a member one more token. Answered by `TokenIssued`; the token is shown this once."""

    session: SessionId
    name: MemberName
    label: str = ""
    expires_at_ms: int | None = None
    token: str | None = None
    """A token chosen by who asks; else the hub makes one."""


class ListTokens(Struct, frozen=True):
    """A member's tokens that are still good, oldest first. Answered by `Tokens`."""

    session: SessionId
    name: MemberName


class RevokeToken(Struct, frozen=True):
    """Void one token of a member; sessions that it opened end. Answered by `Done`."""

    session: SessionId
    name: MemberName
    id: str


class ReadTeam(Struct, frozen=True):
    """Answered by `TeamState`."""

    session: SessionId


class UpdateTeam(Struct, frozen=True):
    """Change what is said about the team. Answered by `TeamState`; `None` leaves a field as it is."""

    session: SessionId
    name: str | None = None
    directive: str | None = None
    context: str | None = None
    presets: dict[str, tuple[str, ...] | None] = {}
    """Sets of permissions to keep by name, or, with `None`, to forget."""
    aliases: dict[str, str | None] = {}
    """Other names for members, by alias; `None` forgets one."""


class RemoveMember(Struct, frozen=True):
    """Remove a member: its sessions end, its tokens die, its unsettled deliveries become `dead`."""

    session: SessionId
    name: MemberName


class RotateToken(Struct, frozen=True):
    """Replace all tokens of a member by a new one. Answered by `Issued`."""

    session: SessionId
    name: MemberName


class ListMembers(Struct, frozen=True):
    """Answered by `Roster`."""

    session: SessionId
    name: MemberName | None = None
    """Only the member of this name, whatever its case."""


class ListChannels(Struct, frozen=True):
    """Answered by `Channels`."""

    session: SessionId
    channel: ChannelName | None = None
    """Only this one, whether anybody is in it or not."""


class CreateChannel(Struct, frozen=True):
    """Make a channel, with the session's member as its admin. Answered by `ChannelState`."""

    session: SessionId
    name: ChannelName


class ChangeChannel(Struct, frozen=True):
    """Do something to a channel. Answered by `ChannelState`, also when there was nothing to change."""

    session: SessionId
    channel: str
    """Its name, or its id, which an archived one is found by."""
    change: ChannelChange


class ViewChannel(Struct, frozen=True):
    """A channel with its members. Answered by `ChannelState`."""

    session: SessionId
    channel: str
    """Its name, or its id, which an archived one is found by."""


class ReadReceipts(Struct, frozen=True):
    """What became of a message. Answered by `Receipts`; only its sender and recipients may know."""

    session: SessionId
    message_id: MessageId
    after: str = ""
    """Only for recipients whose names come after this one."""
    members: tuple[str, ...] = ()
    """Only for these; for all, if there are none."""


class ReadHistory(Struct, frozen=True):
    """Messages that the member may see, newest first. Answered by `History`."""

    session: SessionId
    peer: str | None = None
    """Only messages with this member; in a channel, as `#name` or `chan:<id>`; or in a thread, as `obj:<id>`."""
    before: int | None = None
    """Only messages whose log offset is lower."""
    limit: int = 50
    after: int = -1
    """Only what stands after this offset."""
    forward: bool = False
    """Oldest first, of all that the member may see: what a live view goes on with."""
    everything: bool = False
    """What others say to each other, too; for who may read the log."""


class Search(Struct, frozen=True):
    """Look for words in what the member may see, newest first. Answered by `History`."""

    session: SessionId
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


class CreateObjective(Struct, frozen=True, kw_only=True):
    """Give a member work with an outcome. Answered by `ObjectiveState`."""

    session: SessionId
    title: str
    outcome: str
    assignee: MemberName
    body: str = ""
    watchers: tuple[MemberName, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class ChangeObjective(Struct, frozen=True):
    """Do something to an objective. Answered by `ObjectiveState`, also when there was nothing to change."""

    session: SessionId
    id: ObjectiveId
    change: ObjectiveChange


class ListObjectives(Struct, frozen=True):
    """Objectives that the member may see, newest first. Answered by `ObjectiveList`."""

    session: SessionId
    statuses: tuple[Status, ...] = ()
    """Only those that stand so; empty for all."""
    assignee: MemberName | None = None
    before: ObjectiveId | None = None
    """Only those that are older than this one."""
    limit: int = 1000


class ViewObjective(Struct, frozen=True):
    """An objective with its event log, oldest first. Answered by `ObjectiveView`."""

    session: SessionId
    id: ObjectiveId
    after: int = -1
    """Only events whose log offset is higher."""


class ReadLog(Struct, frozen=True):
    """Rows of a log from an offset on. Answered by `LogRows`."""

    session: SessionId
    log: str
    start: int
    limit: int = 1000


class RecordActivity(Struct, frozen=True):
    """Keep what the session's member did, in the activity log. Answered by `Recorded` once durable."""

    session: SessionId
    events: tuple[dict[str, Any], ...]
    size: int = 0
    """How many bytes it was on its wire: what waits to be written is bounded by that."""


class ReadActivity(Struct, frozen=True):
    """What a member did, newest first. Answered by `Activity`; for itself and who has `activity.read`."""

    session: SessionId
    member: MemberName
    from_ms: int | None = None
    to_ms: int | None = None
    """Both ends count."""
    kinds: tuple[str, ...] = ()
    """Only events of these kinds; empty for all."""
    limit: int = 200


class FollowActivity(Struct, frozen=True):
    """Ask to hear of what a member does from now on. Answered by `Done`; then `Hub.tail` tells of it."""

    session: SessionId
    member: MemberName


class RecordRefusal(Struct, frozen=True):
    """Keep in the log what a protocol refused by itself, as the hub keeps its own refusals."""

    protocol: str
    code: Code
    what: str
    """What was attempted: one of a few texts, because each has rows of its own."""
    session: SessionId = SessionId("")
    """Whose attempt it was, if it had said who it is."""


class Tick(Struct, frozen=True):
    """Time passed: expire what is due. Sent by the hub itself."""


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
    | ResumeThread
    | PauseThread
    | AllowThread
    | ListPauses
    | AddMember
    | UpdateMember
    | SetReach
    | SetBusy
    | IssueToken
    | ListTokens
    | RevokeToken
    | ReadTeam
    | UpdateTeam
    | RemoveMember
    | RotateToken
    | ListMembers
    | ListChannels
    | CreateChannel
    | ChangeChannel
    | ViewChannel
    | ReadReceipts
    | ReadHistory
    | Search
    | CreateObjective
    | ChangeObjective
    | ListObjectives
    | ViewObjective
    | ReadLog
    | RecordActivity
    | ReadActivity
    | FollowActivity
    | RecordRefusal
    | Tick
)

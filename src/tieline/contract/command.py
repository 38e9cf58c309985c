"""Commands: everything a protocol can ask of the hub, as imperatives.

A command belongs to a session, named by its id; the broker takes the speaker from the session, so no command
carries a sender. Commands of one connection are handled in the order in which they were submitted.
"""

from typing import Any

from msgspec import Struct

from tieline.contract.delivery import Replayed, State
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.member import Credential, MemberKind
from tieline.contract.message import Content


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
    skip_muted: bool = False
    """Leave out what went out once in a form that cannot be acknowledged."""
    replay: tuple[Replayed, ...] = ()
    """Settled deliveries to be given again, in key order, among the unsettled ones."""


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


class Unsubscribe(Struct, frozen=True):
    """Leave a channel. Not being in it is no error."""

    session: SessionId
    channel: ChannelName


class ResumeThread(Struct, frozen=True):
    """Let a paused thread speak again."""

    session: SessionId
    thread: str


class AddMember(Struct, frozen=True):
    """Make a member. Answered by `Issued` with its token, which is shown this once."""

    session: SessionId
    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    token: str | None = None
    """A token chosen by the operator; else the hub makes one."""


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


class ListChannels(Struct, frozen=True):
    """Answered by `Channels`."""

    session: SessionId


class ReadReceipts(Struct, frozen=True):
    """What became of a message. Answered by `Receipts`; only its sender and recipients may know."""

    session: SessionId
    message_id: MessageId


class ReadHistory(Struct, frozen=True):
    """Messages that the member may see, newest first. Answered by `History`."""

    session: SessionId
    peer: str | None = None
    """Only messages with this member, or in this channel when it starts with `#`."""
    before: int | None = None
    """Only messages whose log offset is lower."""
    limit: int = 50


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


class Tick(Struct, frozen=True):
    """Time passed: expire what is due. Sent by the hub itself."""


Command = (
    Attach
    | Confirm
    | Detach
    | Send
    | Offered
    | Advance
    | Claim
    | Fetch
    | ReadStreams
    | Follow
    | Subscribe
    | Unsubscribe
    | ResumeThread
    | AddMember
    | RemoveMember
    | RotateToken
    | ListMembers
    | ListChannels
    | ReadReceipts
    | ReadHistory
    | ReadLog
    | RecordActivity
    | Tick
)

"""Commands: everything that a protocol can ask the hub to do.

A command contains the id of its session. The broker (the hub's decision logic) takes the sender from the session, so no
command has a sender. Commands of one connection are handled in the order in which they were submitted.

The base class of a command names the type of its reply: `Claim(Request[Claimed])`. A command that a member may give
over the hub's own protocol is a `Request`. The frames (JSON messages) of that protocol and the methods of the SDK are
generated from the requests, so run `make derive` after a change. The docstring of a frame is the first paragraph of the
request's docstring. The docstring of an SDK method is the whole docstring of the request.
"""

from typing import Any

from tieline.contract import reply as r
from tieline.contract.channel import AnyChange as ChannelChange
from tieline.contract.delivery import Position, Replayed, State, StreamCursor
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.internal import Internal
from tieline.contract.invitation import AcceptInvitation as AcceptInvitation
from tieline.contract.invitation import Invite as Invite
from tieline.contract.invitation import ListInvitations as ListInvitations
from tieline.contract.invitation import RevokeInvitation as RevokeInvitation
from tieline.contract.keys import Keys
from tieline.contract.member import Credential, MemberKind
from tieline.contract.message import Attachment, Content, Signature
from tieline.contract.objective import AnyChange as ObjectiveChange
from tieline.contract.objective import ObjectiveId, Status
from tieline.contract.reach import Reach
from tieline.contract.refusal import Code
from tieline.contract.request import AnsweredBy as AnsweredBy
from tieline.contract.request import Request as Request
from tieline.contract.request import SessionCommand as SessionCommand
from tieline.contract.stuck import ReadStuck as ReadStuck


class Attach(AnsweredBy[r.Attached], frozen=True, kw_only=True):
    """Open a session for a client that showed a credential."""

    protocol: str
    credential: Credential
    member: MemberName | None = None
    """The member that the session wants to act as. A client with its own token may leave this field empty."""
    acknowledges: bool = True
    """True if the client can acknowledge. If it cannot, deliveries through this session stay at the state `offered`."""
    kind: MemberKind = MemberKind.AGENT
    """Kind of the member, if this session creates one."""
    exclusive: bool = False
    """True to end the member's other sessions through this protocol, so that only the newest connection stays."""
    resumable: bool = False
    """True to issue a token that can resume the session later."""
    resume_token: str | None = None
    """The token of an earlier session. The new session resumes that earlier session."""
    resume_id: str | None = None
    """The id of an earlier session to resume. Only the client that owned that session knows the id."""


class Confirm(SessionCommand[r.Done], frozen=True, kw_only=True):
    """Make the old resume token of the session invalid. The client has shown that it received the new token."""


class Detach(SessionCommand[r.Done], frozen=True, kw_only=True):
    """End a session. It is not an error if the session has already ended."""


class Send(Request[r.Accepted], frozen=True, kw_only=True, gc=False):
    """Send a message.

    The hub answers `accepted` when the message is stored durably.
    """

    content: Content
    wire_id: str | None = None
    allow_empty: bool = False
    """True to accept a message to a channel that has no other subscribers. Then the message is stored, but not
    delivered."""
    shared_id: Internal[bool] = False
    """True if the wire id must be unique among all senders of the protocol, because recipients acknowledge by it."""
    signature: Internal[Signature] = Signature.NONE
    members_only: Internal[bool] = False
    """True to refuse a message to a channel that the sender itself is not in."""
    only: Internal[tuple[MemberName, ...]] = ()
    """Names of the recipients, if the sender has chosen them. Only they get the message, whatever its target is."""
    unverified: Internal[bool] = False
    """True if nothing proves the name of the sender, for example because it was only written in a file."""
    attempt: Internal[int | None] = None
    """Number of the sender's failed attempts so far, for a wire that cannot report refusals. When a send fails, the hub
    refuses later sends with the same number. So no later message overtakes a failed one."""


class Offered(SessionCommand[r.Done], frozen=True, kw_only=True, gc=False):
    """Report that the deliveries with keys `first` to `last` were sent to the client. The next commit stores it."""

    first: int
    last: int
    ackless: bool = False
    """True if the deliveries were sent in a form that cannot be acknowledged, though the wire has acknowledgements."""


class Advance(SessionCommand[r.Done], frozen=True, kw_only=True, gc=False):
    """Report, with evidence, that deliveries of the session's own member were seen or acknowledged (`state`).

    Deliveries in a final state do not change; unknown keys are ignored. The hub's own protocol has `ack` and `see`.
    """

    ranges: Keys
    state: State = State.ACKED
    evidence: str = ""


class AcknowledgeIds(SessionCommand[r.Done], frozen=True, kw_only=True):
    """Acknowledge deliveries of the session's own member by the ids of their messages. Unknown ids are ignored."""

    wire_ids: tuple[str, ...] = ()
    """Shared wire ids (`Send.shared_id`) of the session's protocol."""
    message_ids: tuple[MessageId, ...] = ()
    evidence: str = ""


class Discard(Request[r.Done], frozen=True, kw_only=True):
    """Discard deliveries, with a reason: nobody will handle them. They become `expired`.

    They must be deliveries to the session's own member.
    """

    ranges: Keys
    reason: str


class Claim(Request[r.Claimed], frozen=True, kw_only=True):
    """Claim a message, so that only this session handles it.

    The claim is stored durably before the answer. If another session was first, the answer has no delivery.
    """

    message_id: MessageId


class Fetch(Request[r.Fetched], frozen=True, kw_only=True):
    """Read the inbox: deliveries that are not acknowledged, expired or dead.

    Only deliveries with keys after `after` are returned, at most `limit`, oldest first.
    """

    after: int = 0
    limit: int = 100
    unoffered_until: Internal[int] = 0
    """Leave out deliveries that were offered before, if their key is below this number."""
    replay: Internal[tuple[Replayed, ...]] = ()
    """Settled deliveries (acknowledged, expired or dead) to return once more. All deliveries come in key order."""
    unseen: bool = False
    """True to leave out deliveries that the member has read, according to the evidence."""
    keys: Internal[tuple[int, ...]] = ()
    """Return only the deliveries with these keys, in this order. The reader skipped them while they were held."""
    bytes_max: Internal[int | None] = None
    """Largest total size of the stored messages in the page. `None` for the hub's limit `page_bytes_max`."""


class ReadStreams(SessionCommand[r.Streams], frozen=True, kw_only=True):
    """Read the state of the member's streams, and the settled deliveries that came after the given positions.

    A stream (sender and topic) for which no position is given continues after its last acknowledgement.
    """

    positions: tuple[Position, ...] = ()
    following: StreamCursor | None = None
    """The cursor from the previous reply, if that reply was incomplete. The command must repeat the same positions."""


class Follow(Request[r.Receipts], frozen=True, kw_only=True):
    """Follow a message: be told every change of its deliveries.

    The session's own member must have sent the message.
    """

    message_id: MessageId
    until: State = State.ACKED
    """The command is refused if the message can never reach this state over a recipient's wires."""


class Subscribe(Request[r.Done], frozen=True, kw_only=True):
    """Join a channel.

    The first subscriber creates the channel.
    """

    channel: ChannelName
    member: Internal[MemberName | None] = None
    """The member that joins; `None` for the session's own member. Only a member that manages members may set it."""


class Unsubscribe(Request[r.Done], frozen=True, kw_only=True):
    """Leave a channel.

    It is not an error if the member is not in the channel.
    """

    channel: ChannelName
    member: Internal[MemberName | None] = None
    """The member that leaves; `None` for the session's own member. Only a member that manages members may set it."""


class PauseThread(Request[r.Done], frozen=True, kw_only=True):
    """Pause a conversation: hold messages of agents and scripts in it for a while.

    A conversation is `thread:<id>`, a target, or `@one+@other`.
    """

    thread: str


class ResumeThread(Request[r.Done], frozen=True, kw_only=True):
    """End the pause of a conversation and deliver its held messages.

    The hub counts the answers of agents in the conversation from zero again.
    """

    thread: str


class AddMember(Request[r.Issued], frozen=True, kw_only=True):
    """Create a member, and return its first token."""

    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    token: str | None = None
    """A token chosen by the operator. Without one, the hub creates a token."""
    self_named: Internal[bool] = False
    """True if the client chose the name itself and has only a shared token. It may not choose the name of the owner."""
    title: Internal[str] = ""
    description: Internal[str] = ""
    instructions: Internal[str] = ""


class RemoveMember(Request[r.Done], frozen=True, kw_only=True):
    """Remove a member.

    Its sessions end, its tokens become invalid, and its waiting deliveries become `dead`.
    """

    name: MemberName


class RotateToken(Request[r.Issued], frozen=True, kw_only=True):
    """Replace a member's tokens.

    Afterwards the member has only the new token.
    """

    name: MemberName


class Retoken(Request[r.Done], frozen=True, kw_only=True):
    """Let another shared token (of several members) own a member; end the old token's sessions."""

    name: MemberName
    token: str


class ListMembers(Request[r.Roster], frozen=True, kw_only=True):
    """List all members, by name."""

    name: Internal[MemberName | None] = None
    """Only the member with this name; case is ignored."""


class ReadReceipts(Request[r.Receipts], frozen=True, kw_only=True):
    """Read the receipts of a message: its state for each recipient.

    Allowed for the sender, for the recipients, and with the permission `log.read`.
    """

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
    """True to read all messages that the member may see, oldest first. A live view uses this."""
    everything: bool = False
    """True to include messages between other members. Only a member that may read the log may set it."""
    member: str | None = None
    """Only messages that this member sent, or was sent alone, or in its objectives' threads. It needs `everything`."""
    after_id: Internal[MessageId | None] = None
    """Only messages after the message with this id. If it is set, `after` has no effect."""
    offers: Internal[bool] = False
    """True if the messages are sent to the session's client. Then the deliveries of these messages to the member count
    as offered, and messages whose delivery is held are left out."""


class Redact(Request[r.Redaction], frozen=True, kw_only=True):
    """Erase the content of a message for good, such as a secret. Only for the operator.

    If the message was redacted before, its copies are deleted again, because a crash may have interrupted that.
    """

    message_id: MessageId
    reason: str
    """Everybody who could see the message sees the reason in its place. It must not repeat the secret."""
    erased: Internal[bool] = False
    """True if stored activity does not quote the message any more."""


class Search(Request[r.History], frozen=True, kw_only=True):
    """Search the messages that the member may see.

    The newest message comes first.
    """

    query: str
    """Words, "phrases in quotes" and prefixes with a star. A message must contain all of them."""
    sender: str | None = None
    place: str | None = None
    """Only messages with this `@member` or in this `#channel`, `chan:<id>` or `obj:<id>`. Other text names a thread."""
    from_ms: int | None = None
    to_ms: int | None = None
    """Only messages sent from `from_ms` to `to_ms`, both included."""
    before: int | None = None
    """Only messages with a lower log offset."""
    limit: int = 50


class ReadLog(Request[r.LogRows], frozen=True, kw_only=True):
    """Read rows of a log (`main` or `activity`), from the offset `start` on."""

    log: str = "main"
    start: int = 0
    limit: int = 1000


class ListReaders(Request[r.Readers], frozen=True, kw_only=True):
    """List the logs and their readers: programs for which the hub keeps unread rows."""


class AdvanceReader(Request[r.ReaderState], frozen=True, kw_only=True):
    """Set the position of a reader (a program) in a log.

    A new name makes a new reader. The hub keeps the rows from the position on, until the reader has read them.
    """

    name: str
    position: int
    log: str = "main"
    epoch: str = ""
    """The epoch (random id) of the log, as the reader knows it. If the log has another epoch, the hub refuses the
    command. Empty if the reader knows none."""
    rewind: bool = False
    """True to allow a position before the current one, so that the reader can read rows again."""


class ForgetReader(Request[r.Done], frozen=True, kw_only=True):
    """Delete a reader from both logs. Then the hub keeps no unread rows for this reader."""

    name: str


class ListChannels(Request[r.Channels], frozen=True, kw_only=True):
    """List all channels, by name."""

    channel: Internal[ChannelName | None] = None
    """Only this channel, even if it has no subscribers."""


class CreateChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Create a channel. The session's member becomes its admin."""

    name: ChannelName


class ChangeChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Rename or archive a channel, or change its members; `do` in `change` says which.

    A change without effect is not an error.
    """

    channel: str
    """The name or id of the channel. An archived channel is found by its id."""
    change: ChannelChange


class ViewChannel(Request[r.ChannelState], frozen=True, kw_only=True):
    """Return a channel with its members. The channel is given by its name or id."""

    channel: str
    """The name or id of the channel. An archived channel is found by its id."""


class CreateObjective(Request[r.ObjectiveState], frozen=True, kw_only=True):
    """Create an objective: work for a member, with an outcome."""

    title: str
    outcome: str
    assignee: MemberName
    body: str = ""
    watchers: tuple[MemberName, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    objective_id: Internal[ObjectiveId | None] = None
    """Id of the new objective, if the caller has already stored its attachments under this id."""


class ChangeObjective(Request[r.ObjectiveState], frozen=True, kw_only=True):
    """Change an objective, for example complete it; `do` in `change` names the change.

    A change without effect is not an error. To write to the objective's thread, send to `obj:<id>`.
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
    """Return an objective with its event log, oldest entry first.

    Only entries with a log offset above `after` are returned; -1 returns all of them.
    """

    objective_id: ObjectiveId
    after: int = -1
    """Only events with a higher log offset."""


class UpdateMember(Request[r.MemberState], frozen=True, kw_only=True):
    """Change a member's permissions, role or instructions. Omitted fields stay unchanged."""

    name: MemberName
    permissions: tuple[str, ...] | None = None
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    kind: MemberKind | None = None


class SetReach(Request[r.ReachState], frozen=True, kw_only=True):
    """Set the ways to reach a member. Without `reach`, only read them.

    The ways are push, hook, pty, pull and notify. Allowed for the member itself and with `members.manage`.
    """

    name: MemberName
    reach: Reach | None = None
    """The new ways; `None` only reads the current ones."""


class SetBusy(Request[r.Done], frozen=True, kw_only=True):
    """Report that the member is busy, or not any more. A busy report expires after a while."""

    busy: bool = True


class IssueToken(Request[r.TokenIssued], frozen=True, kw_only=True):
    """Issue one more token for a member."""

    name: MemberName
    label: str = ""
    expires_at_ms: int | None = None
    token: str | None = None
    """A token chosen by the caller. Without one, the hub creates a token."""


class ListTokens(Request[r.Tokens], frozen=True, kw_only=True):
    """List a member's valid tokens, oldest first."""

    name: MemberName


class RevokeToken(Request[r.Done], frozen=True, kw_only=True):
    """Revoke one token.

    The sessions that were opened with this token are closed.
    """

    name: MemberName
    token_id: str


class ReadTeam(Request[r.TeamState], frozen=True, kw_only=True):
    """Read the team's name, purpose (directive), context, permission sets (presets) and aliases."""


class UpdateTeam(Request[r.TeamState], frozen=True, kw_only=True):
    """Change the team's name, purpose, presets and so on. Omitted fields stay unchanged."""

    name: str | None = None
    directive: str | None = None
    context: str | None = None
    presets: dict[str, tuple[str, ...] | None] = {}  # noqa: RUF012 - a struct copies its defaults
    """Sets of permissions to store by name; `None` deletes a set."""
    aliases: dict[str, str | None] = {}  # noqa: RUF012 - a struct copies its defaults
    """Other names for members, by alias; `None` deletes an alias."""


class ListPauses(Request[r.Pauses], frozen=True, kw_only=True):
    """List paused conversations, and those in which agents may answer without a limit."""


class AllowThread(Request[r.Done], frozen=True, kw_only=True):
    """Let agents in a conversation answer without a limit for a while, and end its pause."""

    thread: str
    for_ms: int | None = None
    """Duration in milliseconds; `None` for the hub's limit `allow_ms`."""


class RecordActivity(Request[r.Recorded], frozen=True, kw_only=True):
    """Report activity (actions) of the session's member.

    The hub stores the activity in the activity log.
    """

    events: tuple[dict[str, Any], ...]
    size: Internal[int] = 0
    """Size of the upload in bytes. There is a limit on the bytes of activity that wait to be stored."""


class ReadActivity(Request[r.Activity], frozen=True, kw_only=True):
    """Read a member's activity, newest first.

    Allowed for the member itself, and with the permission `activity.read`.
    """

    member: MemberName
    from_ms: int | None = None
    to_ms: int | None = None
    """Only events from `from_ms` to `to_ms`, both included."""
    kinds: tuple[str, ...] = ()
    """Only events of these kinds; empty for all."""
    limit: int = 200


class FollowActivity(Request[r.Done], frozen=True, kw_only=True):
    """Follow the activity of a member: get each new event of it.

    The hub passes each new event, once it is stored, to the receiver of `Hub.tail`.
    """

    member: MemberName


class RecordRefusal(AnsweredBy[r.Done], frozen=True, kw_only=True):
    """Write to the main log a refusal that a protocol made by itself. The hub logs its own refusals anyway."""

    protocol: str
    code: Code
    what: str
    """The refused action. Use only a few fixed texts, because refusals with different texts need separate log rows."""
    session: SessionId = SessionId("")
    """The session whose action was refused; empty if the client has not identified itself."""


class Tick(AnsweredBy[r.Done], frozen=True, kw_only=True):
    """Do the work that is due now, such as escalation. The hub gives this command to itself."""

    late: tuple[str, ...] = ()
    """Sentences about readers of the activity log that are late. The hub sends them to people as notices."""


class Settle(AnsweredBy[r.Done], frozen=True, kw_only=True):
    """Settle (acknowledge or end) deliveries that an external inbox reserved. The hub gives this command to itself."""

    member: MemberName
    ranges: Keys
    state: State
    evidence: str


Command = AnsweredBy[Any]
"""Any command."""

COMMANDS: tuple[type[Command], ...] = tuple(
    kind
    for kind in [*globals().values()]
    if isinstance(kind, type) and issubclass(kind, AnsweredBy) and kind not in (AnsweredBy, SessionCommand, Request)
)
"""All commands, in the order of this module."""

"""Requests and answers of the hub's own protocol, and a method of the SDK for each request."""

# Made from tieline.contract by `make derive` (scripts/derive.py). Do not edit.

from collections.abc import Callable, Iterator
from typing import Any, TypeVar, cast

import msgspec
from msgspec import Struct, field

from tieline.contract import command as c
from tieline.contract import delivery, event, member, message, objective, team
from tieline.contract import reply as r
from tieline.contract.channel import AnyChange as ChannelChange
from tieline.contract.channel import ChannelMember
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.member import InvitationView, MemberKind, TokenView
from tieline.contract.message import Attachment, Content, Kind, Level, Priority, Signature
from tieline.contract.objective import AnyChange as ObjectiveChange
from tieline.contract.objective import AnyHappening, ObjectiveId, Status
from tieline.contract.reach import Reach
from tieline.contract.reader import LogState, Reader
from tieline.contract.refusal import Refusal
from tieline.contract.target import Target
from tieline.wire.native.activity import ActivityRows, ActivityView
from tieline.wire.native.frame import Frame, Number, parse_state


class Invite(Frame, frozen=True, omit_defaults=True, tag="invite"):
    """Make an invitation: a secret with which somebody who is no member can become one. Answered by `invited`."""

    n: int
    member: str | None = None
    expires_at_ms: Number | None = None
    uses: Number = 1
    room: bool = False
    kind: MemberKind = MemberKind.AGENT

    def command(self, session: SessionId) -> c.Invite:
        return c.Invite(
            session,
            member=cast("MemberName | None", self.member),
            expires_at_ms=self.expires_at_ms,
            uses=self.uses,
            room=self.room,
            kind=self.kind,
        )


class ListInvitations(Frame, frozen=True, omit_defaults=True, tag="invitations"):
    """List the invitations with which somebody can still join, oldest first. Answered by `invitation_list`."""

    n: int

    def command(self, session: SessionId) -> c.ListInvitations:
        return c.ListInvitations(session)


class RevokeInvitation(Frame, frozen=True, omit_defaults=True, tag="revoke_invitation"):
    """Revoke an invitation: nobody can join with it any more. Members who have joined stay. Answered by `done`."""

    n: int
    id: str

    def command(self, session: SessionId) -> c.RevokeInvitation:
        return c.RevokeInvitation(session, invitation_id=self.id)


class ReadStuck(Frame, frozen=True, omit_defaults=True, tag="read_stuck"):
    """List deliveries that nobody saw for a while, and the newest that died. Answered by `stuck_list`."""

    n: int
    older_ms: Number = 300000
    limit: Number = 100

    def command(self, session: SessionId) -> c.ReadStuck:
        return c.ReadStuck(session, older_ms=self.older_ms, limit=self.limit)


class Send(Frame, frozen=True, omit_defaults=True, tag="send"):
    """Send a message. Answered by `accepted` once it is durable."""

    n: int
    target: str
    body: str
    data: dict[str, Any] | None = None
    title: str | None = None
    level: Level = Level.INFO
    priority: Priority = Priority.NORMAL
    kind: Kind = Kind.CHAT
    topic: str = ""
    scope: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    refs: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    ttl_ms: int | None = None
    wire_id: str | None = None
    allow_empty: bool = False
    supersedes: str | None = None

    def command(self, session: SessionId, content: Content) -> c.Send:
        return c.Send(session, content=content, wire_id=self.wire_id, allow_empty=self.allow_empty)

    def content(self, target: Target) -> Content:
        return Content(
            target,
            self.body,
            self.data,
            self.title,
            self.level,
            self.priority,
            self.kind,
            self.topic,
            self.scope,
            self.thread,
            cast("MessageId | None", self.reply_to),
            self.refs,
            self.attachments,
            self.ttl_ms,
            None,
            (),
            cast("MessageId | None", self.supersedes),
        )


class Discard(Frame, frozen=True, omit_defaults=True, tag="discard"):
    """Discard deliveries, with a reason: nobody will handle them. They become `expired`. Answered by `done`."""

    n: int
    keys: tuple[tuple[int, int], ...]
    reason: str

    def command(self, session: SessionId) -> c.Discard:
        return c.Discard(session, ranges=self.keys, reason=self.reason)


class Claim(Frame, frozen=True, omit_defaults=True, tag="claim"):
    """Claim a message, so that only this session handles it. Answered by `claimed`."""

    n: int
    id: str

    def command(self, session: SessionId) -> c.Claim:
        return c.Claim(session, message_id=MessageId(self.id))


class Fetch(Frame, frozen=True, omit_defaults=True, tag="fetch"):
    """Read the inbox: deliveries that are not acknowledged, expired or dead. Answered by `inbox`."""

    n: int
    after: Number = 0
    limit: Number = 100
    unseen: bool = False

    def command(self, session: SessionId) -> c.Fetch:
        return c.Fetch(session, after=self.after, limit=self.limit, unseen=self.unseen)


class Follow(Frame, frozen=True, omit_defaults=True, tag="follow"):
    """Follow a message: be told every change of its deliveries. Answered by `receipts`, then `progress` frames."""

    n: int
    id: str
    until: str = "acked"

    def command(self, session: SessionId) -> c.Follow | Refusal:
        until = parse_state(self.until)
        if isinstance(until, Refusal):
            return until
        return c.Follow(session, message_id=MessageId(self.id), until=until)


class Subscribe(Frame, frozen=True, omit_defaults=True, tag="sub"):
    """Join a channel. Answered by `done`."""

    n: int
    channel: str

    def command(self, session: SessionId) -> c.Subscribe:
        return c.Subscribe(session, channel=ChannelName(self.channel.removeprefix("#")))


class Unsubscribe(Frame, frozen=True, omit_defaults=True, tag="unsub"):
    """Leave a channel. Answered by `done`."""

    n: int
    channel: str

    def command(self, session: SessionId) -> c.Unsubscribe:
        return c.Unsubscribe(session, channel=ChannelName(self.channel.removeprefix("#")))


class PauseThread(Frame, frozen=True, omit_defaults=True, tag="pause_thread"):
    """Pause a conversation: hold messages of agents and scripts in it for a while. Answered by `done`."""

    n: int
    thread: str

    def command(self, session: SessionId) -> c.PauseThread:
        return c.PauseThread(session, thread=self.thread)


class ResumeThread(Frame, frozen=True, omit_defaults=True, tag="resume_thread"):
    """End the pause of a conversation and deliver its held messages. Answered by `done`."""

    n: int
    thread: str

    def command(self, session: SessionId) -> c.ResumeThread:
        return c.ResumeThread(session, thread=self.thread)


class AddMember(Frame, frozen=True, omit_defaults=True, tag="add_member"):
    """Create a member, and return its first token. Answered by `issued`."""

    n: int
    name: str
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    token: str | None = None

    def command(self, session: SessionId) -> c.AddMember:
        return c.AddMember(
            session, name=MemberName(self.name), kind=self.kind, permissions=self.permissions, token=self.token
        )


class RemoveMember(Frame, frozen=True, omit_defaults=True, tag="remove_member"):
    """Remove a member. Answered by `done`."""

    n: int
    name: str

    def command(self, session: SessionId) -> c.RemoveMember:
        return c.RemoveMember(session, name=MemberName(self.name))


class RotateToken(Frame, frozen=True, omit_defaults=True, tag="rotate_token"):
    """Replace a member's tokens. Answered by `issued`."""

    n: int
    name: str

    def command(self, session: SessionId) -> c.RotateToken:
        return c.RotateToken(session, name=MemberName(self.name))


class Retoken(Frame, frozen=True, omit_defaults=True, tag="retoken"):
    """Let another shared token (of several members) own a member; end the old token's sessions. Answered by `done`."""

    n: int
    name: str
    token: str

    def command(self, session: SessionId) -> c.Retoken:
        return c.Retoken(session, name=MemberName(self.name), token=self.token)


class ListMembers(Frame, frozen=True, omit_defaults=True, tag="members"):
    """List all members, by name. Answered by `roster`."""

    n: int

    def command(self, session: SessionId) -> c.ListMembers:
        return c.ListMembers(session)


class ReadReceipts(Frame, frozen=True, omit_defaults=True, tag="read_receipts"):
    """Read the receipts of a message: its state for each recipient. Answered by `receipts`."""

    n: int
    id: str
    after: str = ""

    def command(self, session: SessionId) -> c.ReadReceipts:
        return c.ReadReceipts(session, message_id=MessageId(self.id), after=self.after)


class ReadHistory(Frame, frozen=True, omit_defaults=True, tag="read_history"):
    """Read messages that the member may see, newest first. Answered by `history`."""

    n: int
    peer: str | None = None
    before: Number | None = None
    limit: Number = 50
    after: Number = -1
    everything: bool = False
    member: str | None = None

    def command(self, session: SessionId) -> c.ReadHistory:
        return c.ReadHistory(
            session,
            peer=self.peer,
            before=self.before,
            limit=self.limit,
            after=self.after,
            everything=self.everything,
            member=self.member,
        )


class Redact(Frame, frozen=True, omit_defaults=True, tag="redact"):
    """Erase the content of a message for good, such as a secret. Only for the operator. Answered by `redaction`."""

    n: int
    id: str
    reason: str

    def command(self, session: SessionId) -> c.Redact:
        return c.Redact(session, message_id=MessageId(self.id), reason=self.reason)


class Search(Frame, frozen=True, omit_defaults=True, tag="search", rename={"sender": "from"}):
    """Search the messages that the member may see. Answered by `history`."""

    n: int
    query: str
    sender: str | None = None
    place: str | None = None
    from_ms: Number | None = None
    to_ms: Number | None = None
    before: Number | None = None
    limit: Number = 50

    def command(self, session: SessionId) -> c.Search:
        return c.Search(
            session,
            query=self.query,
            sender=self.sender,
            place=self.place,
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            before=self.before,
            limit=self.limit,
        )


class ReadLog(Frame, frozen=True, omit_defaults=True, tag="read_log"):
    """Read rows of a log (`main` or `activity`), from the offset `start` on. Answered by `log`."""

    n: int
    log: str = "main"
    start: Number = 0
    limit: Number = 1000

    def command(self, session: SessionId) -> c.ReadLog:
        return c.ReadLog(session, log=self.log, start=self.start, limit=self.limit)


class ListReaders(Frame, frozen=True, omit_defaults=True, tag="readers"):
    """List the logs and their readers: programs for which the hub keeps unread rows. Answered by `readers`."""

    n: int

    def command(self, session: SessionId) -> c.ListReaders:
        return c.ListReaders(session)


class AdvanceReader(Frame, frozen=True, omit_defaults=True, tag="advance_reader"):
    """Set the position of a reader (a program) in a log. Answered by `reader_state`."""

    n: int
    name: str
    position: Number
    log: str = "main"
    epoch: str = ""
    rewind: bool = False

    def command(self, session: SessionId) -> c.AdvanceReader:
        return c.AdvanceReader(
            session, name=self.name, position=self.position, log=self.log, epoch=self.epoch, rewind=self.rewind
        )


class ForgetReader(Frame, frozen=True, omit_defaults=True, tag="forget_reader"):
    """Delete a reader from both logs. Then the hub keeps no unread rows for this reader. Answered by `done`."""

    n: int
    name: str

    def command(self, session: SessionId) -> c.ForgetReader:
        return c.ForgetReader(session, name=self.name)


class ListChannels(Frame, frozen=True, omit_defaults=True, tag="channels"):
    """List all channels, by name. Answered by `channel_list`."""

    n: int

    def command(self, session: SessionId) -> c.ListChannels:
        return c.ListChannels(session)


class CreateChannel(Frame, frozen=True, omit_defaults=True, tag="create_channel"):
    """Create a channel. The session's member becomes its admin. Answered by `channel`."""

    n: int
    name: str

    def command(self, session: SessionId) -> c.CreateChannel:
        return c.CreateChannel(session, name=ChannelName(self.name.removeprefix("#")))


class ChangeChannel(Frame, frozen=True, omit_defaults=True, tag="change_channel"):
    """Rename or archive a channel, or change its members; `do` in `change` says which. Answered by `channel`."""

    n: int
    channel: str
    change: ChannelChange

    def command(self, session: SessionId) -> c.ChangeChannel:
        return c.ChangeChannel(session, channel=self.channel.removeprefix("#"), change=self.change)


class ViewChannel(Frame, frozen=True, omit_defaults=True, tag="view_channel"):
    """Return a channel with its members. The channel is given by its name or id. Answered by `channel`."""

    n: int
    channel: str

    def command(self, session: SessionId) -> c.ViewChannel:
        return c.ViewChannel(session, channel=self.channel.removeprefix("#"))


class CreateObjective(Frame, frozen=True, omit_defaults=True, tag="create_objective"):
    """Create an objective: work for a member, with an outcome. Answered by `objective`."""

    n: int
    title: str
    outcome: str
    assignee: str
    body: str = ""
    watchers: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()

    def command(self, session: SessionId) -> c.CreateObjective:
        return c.CreateObjective(
            session,
            title=self.title,
            outcome=self.outcome,
            assignee=MemberName(self.assignee),
            body=self.body,
            watchers=cast("tuple[MemberName, ...]", self.watchers),
            attachments=self.attachments,
        )


class ChangeObjective(Frame, frozen=True, omit_defaults=True, tag="change_objective"):
    """Change an objective, for example complete it; `do` in `change` names the change. Answered by `objective`."""

    n: int
    id: str
    change: ObjectiveChange

    def command(self, session: SessionId) -> c.ChangeObjective:
        return c.ChangeObjective(session, objective_id=ObjectiveId(self.id), change=self.change)


class ListObjectives(Frame, frozen=True, omit_defaults=True, tag="objectives"):
    """List objectives that the member may see, newest first. Answered by `objective_list`."""

    n: int
    statuses: tuple[Status, ...] = ()
    assignee: str | None = None
    before: str | None = None
    limit: Number = 1000

    def command(self, session: SessionId) -> c.ListObjectives:
        return c.ListObjectives(
            session,
            statuses=self.statuses,
            assignee=cast("MemberName | None", self.assignee),
            before=cast("ObjectiveId | None", self.before),
            limit=self.limit,
        )


class ViewObjective(Frame, frozen=True, omit_defaults=True, tag="view_objective"):
    """Return an objective with its event log, oldest entry first. Answered by `objective_view`."""

    n: int
    id: str
    after: Number = -1

    def command(self, session: SessionId) -> c.ViewObjective:
        return c.ViewObjective(session, objective_id=ObjectiveId(self.id), after=self.after)


class UpdateMember(Frame, frozen=True, omit_defaults=True, tag="update_member"):
    """Change a member's permissions, role or instructions. Omitted fields stay unchanged. Answered by `member`."""

    n: int
    name: str
    permissions: tuple[str, ...] | None = None
    title: str | None = None
    description: str | None = None
    instructions: str | None = None
    kind: MemberKind | None = None

    def command(self, session: SessionId) -> c.UpdateMember:
        return c.UpdateMember(
            session,
            name=MemberName(self.name),
            permissions=self.permissions,
            title=self.title,
            description=self.description,
            instructions=self.instructions,
            kind=self.kind,
        )


class SetReach(Frame, frozen=True, omit_defaults=True, tag="reach"):
    """Set the ways to reach a member. Without `reach`, only read them. Answered by `reached_by`."""

    n: int
    name: str
    reach: Reach | None = None

    def command(self, session: SessionId) -> c.SetReach:
        return c.SetReach(session, name=MemberName(self.name), reach=self.reach)


class SetBusy(Frame, frozen=True, omit_defaults=True, tag="busy"):
    """Report that the member is busy, or not any more. A busy report expires after a while. Answered by `done`."""

    n: int
    busy: bool = True

    def command(self, session: SessionId) -> c.SetBusy:
        return c.SetBusy(session, busy=self.busy)


class IssueToken(Frame, frozen=True, omit_defaults=True, tag="issue_token"):
    """Issue one more token for a member. Answered by `token_issued`."""

    n: int
    name: str
    label: str = ""
    expires_at_ms: Number | None = None
    token: str | None = None

    def command(self, session: SessionId) -> c.IssueToken:
        return c.IssueToken(
            session, name=MemberName(self.name), label=self.label, expires_at_ms=self.expires_at_ms, token=self.token
        )


class ListTokens(Frame, frozen=True, omit_defaults=True, tag="tokens"):
    """List a member's valid tokens, oldest first. Answered by `token_list`."""

    n: int
    name: str

    def command(self, session: SessionId) -> c.ListTokens:
        return c.ListTokens(session, name=MemberName(self.name))


class RevokeToken(Frame, frozen=True, omit_defaults=True, tag="revoke_token"):
    """Revoke one token. Answered by `done`."""

    n: int
    name: str
    id: str

    def command(self, session: SessionId) -> c.RevokeToken:
        return c.RevokeToken(session, name=MemberName(self.name), token_id=self.id)


class ReadTeam(Frame, frozen=True, omit_defaults=True, tag="read_team"):
    """Read the team's name, purpose (directive), context, permission sets (presets) and aliases. Answered by `team`."""

    n: int

    def command(self, session: SessionId) -> c.ReadTeam:
        return c.ReadTeam(session)


class UpdateTeam(Frame, frozen=True, omit_defaults=True, tag="update_team"):
    """Change the team's name, purpose, presets and so on. Omitted fields stay unchanged. Answered by `team`."""

    n: int
    name: str | None = None
    directive: str | None = None
    context: str | None = None
    presets: dict[str, tuple[str, ...] | None] = field(default_factory=dict)
    aliases: dict[str, str | None] = field(default_factory=dict)

    def command(self, session: SessionId) -> c.UpdateTeam:
        return c.UpdateTeam(
            session,
            name=self.name,
            directive=self.directive,
            context=self.context,
            presets=self.presets,
            aliases=self.aliases,
        )


class ListPauses(Frame, frozen=True, omit_defaults=True, tag="pauses"):
    """List paused conversations, and those in which agents may answer without a limit. Answered by `pause_list`."""

    n: int

    def command(self, session: SessionId) -> c.ListPauses:
        return c.ListPauses(session)


class AllowThread(Frame, frozen=True, omit_defaults=True, tag="allow_thread"):
    """Let agents in a conversation answer without a limit for a while, and end its pause. Answered by `done`."""

    n: int
    thread: str
    for_ms: Number | None = None

    def command(self, session: SessionId) -> c.AllowThread:
        return c.AllowThread(session, thread=self.thread, for_ms=self.for_ms)


class RecordActivity(Frame, frozen=True, omit_defaults=True, tag="activity"):
    """Report activity (actions) of the session's member. Answered by `recorded`."""

    n: int
    events: tuple[dict[str, Any], ...]

    def command(self, session: SessionId) -> c.RecordActivity:
        return c.RecordActivity(session, events=self.events, size=len(msgspec.json.encode(self.events)))


class ReadActivity(Frame, frozen=True, omit_defaults=True, tag="read_activity"):
    """Read a member's activity, newest first. Answered by `activity_rows`."""

    n: int
    member: str
    from_ms: Number | None = None
    to_ms: Number | None = None
    kinds: tuple[str, ...] = ()
    limit: Number = 200

    def command(self, session: SessionId) -> c.ReadActivity:
        return c.ReadActivity(
            session,
            member=MemberName(self.member),
            from_ms=self.from_ms,
            to_ms=self.to_ms,
            kinds=self.kinds,
            limit=self.limit,
        )


class FollowActivity(Frame, frozen=True, omit_defaults=True, tag="follow_activity"):
    """Follow the activity of a member: get each new event of it. Answered by `done`, then `did` frames."""

    n: int
    member: str

    def command(self, session: SessionId) -> c.FollowActivity:
        return c.FollowActivity(session, member=MemberName(self.member))


AnyRequest = (
    Invite
    | ListInvitations
    | RevokeInvitation
    | ReadStuck
    | Send
    | Discard
    | Claim
    | Fetch
    | Follow
    | Subscribe
    | Unsubscribe
    | PauseThread
    | ResumeThread
    | AddMember
    | RemoveMember
    | RotateToken
    | Retoken
    | ListMembers
    | ReadReceipts
    | ReadHistory
    | Redact
    | Search
    | ReadLog
    | ListReaders
    | AdvanceReader
    | ForgetReader
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
)


class Message(Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """A message as clients see it."""

    id: str
    offset: int
    sender: str
    target: str
    body: str
    sent_at_ms: int
    protocol: str
    data: dict[str, Any] | None = None
    title: str | None = None
    level: Level = Level.INFO
    priority: Priority = Priority.NORMAL
    kind: Kind = Kind.CHAT
    topic: str = ""
    scope: str | None = None
    thread: str | None = None
    reply_to: str | None = None
    refs: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()
    ttl_ms: int | None = None
    wire_id: str | None = None
    notes: tuple[str, ...] = ()
    verified: bool = True
    hops: int = 0
    cause: str | None = None
    signature: Signature = Signature.NONE
    supersedes: str | None = None


def view_message(value: message.Message) -> Message:
    """A message as clients see it."""
    inner = value.content
    return Message(
        value.id,
        value.offset,
        value.sender,
        str(inner.target),
        inner.body,
        value.sent_at_ms,
        value.protocol,
        inner.data,
        inner.title,
        inner.level,
        inner.priority,
        inner.kind,
        inner.topic,
        inner.scope,
        inner.thread,
        inner.reply_to,
        inner.refs,
        inner.attachments,
        inner.ttl_ms,
        value.wire_id,
        inner.notes,
        value.verified,
        value.hops,
        value.cause,
        value.signature,
        inner.supersedes,
    )


class Item(Struct, frozen=True, omit_defaults=True):
    """One unsettled delivery of an inbox."""

    key: int
    seq: int
    state: str
    message: Message


def view_delivery(value: delivery.Delivery) -> Item:
    """One unsettled delivery of an inbox."""
    return Item(value.key, value.stream_seq, value.state.word, view_message(value.message))


class StepView(Struct, frozen=True, omit_defaults=True):
    """A state that a delivery reached, with its evidence."""

    state: str
    at_ms: int
    session: str = ""
    protocol: str = ""
    evidence: str = ""
    way: str = ""


def view_step(value: delivery.Step) -> StepView:
    """A state that a delivery reached, with its evidence."""
    return StepView(value.state.word, value.at_ms, value.session, value.protocol, value.evidence, value.way)


class ReceiptView(Struct, frozen=True, omit_defaults=True):
    """State and steps of a message for one recipient."""

    member: str
    state: str
    steps: tuple[StepView, ...]
    way: str = ""
    held: str = ""


def view_receipt(value: delivery.Receipt) -> ReceiptView:
    """State and steps of a message for one recipient."""
    return ReceiptView(value.member, value.state.word, tuple(map(view_step, value.steps)), value.way, value.held)


class MemberView(Struct, frozen=True, omit_defaults=True):
    """A member with its current state: sessions, backlog, busy or not."""

    name: str
    kind: str
    permissions: tuple[str, ...]
    sessions: tuple[str, ...]
    backlog: int
    created_at_ms: int
    last_seen_ms: int | None
    title: str = ""
    description: str = ""
    busy: bool = False
    held: int = 0
    busy_since_ms: int | None = None
    evidence: StepView | None = None


def view_presence(value: member.Presence) -> MemberView:
    """A member with its current state: sessions, backlog, busy or not."""
    inner = value.member
    return MemberView(
        inner.name,
        inner.kind.value,
        inner.permissions,
        value.sessions,
        value.backlog,
        inner.created_at_ms,
        value.last_seen_ms,
        inner.title,
        inner.description,
        value.busy,
        value.held,
        value.busy_since_ms,
        view_step(value.evidence) if value.evidence is not None else None,
    )


class LogRowView(Struct, frozen=True, omit_defaults=True):
    """One row of a log; `event` is the text that was hashed."""

    offset: int
    at_ms: int
    event: str
    hash: str = ""


def view_log_row(value: event.LogRow) -> LogRowView:
    """One row of a log; `event` is the text that was hashed."""
    return LogRowView(value.offset, value.at_ms, value.event.decode(), value.hash)


class ChannelView(Struct, frozen=True, omit_defaults=True):
    """A channel, its subscribers and their roles."""

    name: str
    subscribers: tuple[str, ...]
    id: str = ""
    created_by: str = ""
    created_at_ms: int = 0
    archived_at_ms: int | None = None
    members: tuple[ChannelMember, ...] = ()


def view_channel_view(value: r.ChannelView) -> ChannelView:
    """A channel, its subscribers and their roles."""
    return ChannelView(
        value.name,
        value.subscribers,
        value.id,
        value.created_by,
        value.created_at_ms,
        value.archived_at_ms,
        value.members,
    )


class ObjectiveView(Struct, frozen=True):
    """An objective in its current state."""

    id: str
    title: str
    outcome: str
    body: str
    status: str
    assignee: str
    originator: str
    watchers: tuple[str, ...]
    created_at_ms: int
    updated_at_ms: int
    completed_at_ms: int | None
    result: str | None
    block_reason: str | None
    attachments: tuple[Attachment, ...]
    may: tuple[str, ...] = ()


def view_seen_objective(value: r.SeenObjective) -> ObjectiveView:
    """An objective in its current state."""
    return ObjectiveView(
        value.id,
        value.title,
        value.outcome,
        value.body,
        value.status.value,
        value.assignee,
        value.originator,
        value.watchers,
        value.created_at_ms,
        value.updated_at_ms,
        value.completed_at_ms,
        value.result,
        value.block_reason,
        value.attachments,
        value.may,
    )


class ObjectiveEventView(Struct, frozen=True):
    """One entry of an objective's event log; `kind` in `what` says what happened."""

    offset: int
    at_ms: int
    actor: str
    what: AnyHappening


def view_objective_event(value: objective.ObjectiveEvent) -> ObjectiveEventView:
    """One entry of an objective's event log; `kind` in `what` says what happened."""
    return ObjectiveEventView(value.offset, value.at_ms, value.actor, value.what)


class MemberFile(Struct, frozen=True):
    """A member with its instructions, for those who manage members."""

    name: str
    kind: str
    permissions: tuple[str, ...]
    title: str
    description: str
    instructions: str
    created_at_ms: int


def view_member(value: member.Member) -> MemberFile:
    """A member with its instructions, for those who manage members."""
    return MemberFile(
        value.name,
        value.kind.value,
        value.permissions,
        value.title,
        value.description,
        value.instructions,
        value.created_at_ms,
    )


class TeamView(Struct, frozen=True):
    """The team: its name, directive, context, presets and aliases."""

    name: str
    directive: str
    context: str
    presets: dict[str, tuple[str, ...]]
    aliases: dict[str, str] = field(default_factory=dict)


def view_team(value: team.Team) -> TeamView:
    """The team: its name, directive, context, presets and aliases."""
    return TeamView(value.name, value.directive, value.context, value.presets, value.aliases)


class PauseView(Struct, frozen=True):
    """A conversation that is paused, or whose limits are lifted."""

    thread: str
    until_ms: int
    by: str = ""
    held: int = 0
    reason: str = ""
    allowed: bool = False


def view_pause(value: r.Pause) -> PauseView:
    """A conversation that is paused, or whose limits are lifted."""
    return PauseView(value.conversation, value.until_ms, value.by, value.held, value.reason, value.allowed)


class StuckView(Struct, frozen=True, omit_defaults=True, rename={"sender": "from"}):
    """A delivery that nobody saw for a while, or that died."""

    id: str
    offset: int
    sender: str
    target: str
    text: str
    sent_at_ms: int
    member: str
    state: str
    evidence: str = ""
    at_ms: int = 0


def view_stuck_delivery(value: r.StuckDelivery) -> StuckView:
    """A delivery that nobody saw for a while, or that died."""
    return StuckView(
        value.message_id,
        value.offset,
        value.sender,
        value.target,
        value.text,
        value.sent_at_ms,
        value.member,
        value.state.word,
        value.evidence,
        value.at_ms,
    )


class Accepted(Frame, frozen=True, omit_defaults=True, tag="accepted"):
    """Reply to `Send`: the message was accepted and is stored durably."""

    n: int
    id: str
    offset: int
    recipients: int
    duplicate: bool = False
    held: str = ""


def _accepted(n: int, reply: r.Accepted) -> Accepted:
    return Accepted(n, reply.message_id, reply.offset, reply.recipients, reply.duplicate, reply.held)


class Claimed(Frame, frozen=True, omit_defaults=True, tag="claimed"):
    """Reply to `Claim`: the claimed delivery, or `None` if another session claimed the message first."""

    n: int
    item: Item | None = None


def _claimed(n: int, reply: r.Claimed) -> Claimed:
    return Claimed(n, view_delivery(reply.delivery) if reply.delivery is not None else None)


class Inbox(Frame, frozen=True, omit_defaults=True, tag="inbox"):
    """Reply to `Fetch`: a page of the inbox."""

    n: int
    items: tuple[Item, ...]
    through: int
    complete: bool
    held: int = 0
    held_in: tuple[str, ...] = ()


def _inbox(n: int, reply: r.Fetched) -> Inbox:
    return Inbox(
        n, tuple(map(view_delivery, reply.deliveries)), reply.through, reply.complete, reply.held, reply.held_in
    )


class Receipts(Frame, frozen=True, omit_defaults=True, tag="receipts"):
    """Reply with the receipts of a message (its state for each recipient), sorted by name."""

    n: int
    id: str
    receipts: tuple[ReceiptView, ...]
    more: bool = False


def _receipts(n: int, reply: r.Receipts) -> Receipts:
    return Receipts(n, reply.message_id, tuple(map(view_receipt, reply.receipts)), reply.more)


class Issued(Frame, frozen=True, omit_defaults=True, tag="issued"):
    """Reply with a new token of a member. The token is shown only once."""

    n: int
    member: str
    token: str


def _issued(n: int, reply: r.Issued) -> Issued:
    return Issued(n, reply.member, reply.token)


class Roster(Frame, frozen=True, omit_defaults=True, tag="roster"):
    """Reply to `ListMembers`: the members and their current state, sorted by name."""

    n: int
    members: tuple[MemberView, ...]


def _roster(n: int, reply: r.Roster) -> Roster:
    return Roster(n, tuple(map(view_presence, reply.members)))


class History(Frame, frozen=True, omit_defaults=True, tag="history"):
    """Reply with messages, newest first. If the command has `forward` set, the oldest comes first."""

    n: int
    messages: tuple[Message, ...]


def _history(n: int, reply: r.History) -> History:
    return History(n, tuple(map(view_message, reply.messages)))


class Redaction(Frame, frozen=True, omit_defaults=True, tag="redaction"):
    """Reply to `Redact`: the message is redacted. `by` says who redacted it, and `at_ms` says when."""

    n: int
    by: str
    at_ms: int
    again: bool = False


def _redaction(n: int, reply: r.Redaction) -> Redaction:
    return Redaction(n, reply.by, reply.at_ms, reply.again)


class Log(Frame, frozen=True, omit_defaults=True, tag="log"):
    """Reply to `ReadLog`: consecutive rows of a log. The next read starts at `next`."""

    n: int
    rows: tuple[LogRowView, ...]
    next: int
    epoch: str = ""
    kept_from: int = 0


def _log(n: int, reply: r.LogRows) -> Log:
    return Log(n, tuple(map(view_log_row, reply.rows)), reply.next, reply.epoch, reply.kept_from)


class Readers(Frame, frozen=True, omit_defaults=True, tag="readers"):
    """Reply to `ListReaders`: the logs, and the readers (programs) for which the hub keeps unread rows."""

    n: int
    logs: tuple[LogState, ...]
    readers: tuple[Reader, ...]


def _readers(n: int, reply: r.Readers) -> Readers:
    return Readers(n, reply.logs, reply.readers)


class ReaderState(Frame, frozen=True, omit_defaults=True, tag="reader_state"):
    """Reply to `AdvanceReader`: the reader after the change, and the state of the log."""

    n: int
    reader: Reader
    log: LogState


def _reader_state(n: int, reply: r.ReaderState) -> ReaderState:
    return ReaderState(n, reply.reader, reply.log)


class Done(Frame, frozen=True, omit_defaults=True, tag="done"):
    """Reply: the command was carried out."""

    n: int


def _done(n: int, reply: r.Done) -> Done:
    return Done(n)


class ChannelList(Frame, frozen=True, omit_defaults=True, tag="channel_list"):
    """Reply to `ListChannels`: the channels, sorted by name."""

    n: int
    channels: tuple[ChannelView, ...]


def _channel_list(n: int, reply: r.Channels) -> ChannelList:
    return ChannelList(n, tuple(map(view_channel_view, reply.channels)))


class Channel(Frame, frozen=True, omit_defaults=True, tag="channel"):
    """Reply with a channel, as it is after the command."""

    n: int
    channel: ChannelView


def _channel(n: int, reply: r.ChannelState) -> Channel:
    return Channel(n, view_channel_view(reply.channel))


class Objective(Frame, frozen=True, omit_defaults=True, tag="objective"):
    """Reply with an objective, as it is after the command."""

    n: int
    objective: ObjectiveView


def _objective(n: int, reply: r.ObjectiveState) -> Objective:
    return Objective(n, view_seen_objective(reply.objective))


class ObjectiveList(Frame, frozen=True, omit_defaults=True, tag="objective_list"):
    """Reply to `ListObjectives`: objectives, newest first."""

    n: int
    objectives: tuple[ObjectiveView, ...]
    complete: bool


def _objective_list(n: int, reply: r.ObjectiveList) -> ObjectiveList:
    return ObjectiveList(n, tuple(map(view_seen_objective, reply.objectives)), reply.complete)


class ObjectiveStory(Frame, frozen=True, omit_defaults=True, tag="objective_view"):
    """Reply to `ViewObjective`: an objective with its event log, oldest entry first."""

    n: int
    objective: ObjectiveView
    events: tuple[ObjectiveEventView, ...]
    complete: bool


def _objective_story(n: int, reply: r.ObjectiveView) -> ObjectiveStory:
    return ObjectiveStory(
        n, view_seen_objective(reply.objective), tuple(map(view_objective_event, reply.events)), reply.complete
    )


class MemberState(Frame, frozen=True, omit_defaults=True, tag="member"):
    """Reply with a member, as it is after the command."""

    n: int
    member: MemberFile


def _member_state(n: int, reply: r.MemberState) -> MemberState:
    return MemberState(n, view_member(reply.member))


class ReachState(Frame, frozen=True, omit_defaults=True, tag="reached_by"):
    """Reply to `SetReach`: the ways to reach a member, as they are after the command."""

    n: int
    member: str
    reach: Reach


def _reach_state(n: int, reply: r.ReachState) -> ReachState:
    return ReachState(n, reply.member, reply.reach)


class TokenIssued(Frame, frozen=True, omit_defaults=True, tag="token_issued"):
    """Reply to `IssueToken`: an additional token of a member. The token is shown only once."""

    n: int
    member: str
    token: str
    view: TokenView


def _token_issued(n: int, reply: r.TokenIssued) -> TokenIssued:
    return TokenIssued(n, reply.member, reply.token, reply.view)


class TokenList(Frame, frozen=True, omit_defaults=True, tag="token_list"):
    """Reply to `ListTokens`: details of a member's tokens, oldest first."""

    n: int
    tokens: tuple[TokenView, ...]


def _token_list(n: int, reply: r.Tokens) -> TokenList:
    return TokenList(n, reply.tokens)


class Invited(Frame, frozen=True, omit_defaults=True, tag="invited"):
    """Reply to `Invite`: a new invitation with its secret, which is shown only once."""

    n: int
    secret: str
    view: InvitationView


def _invited(n: int, reply: r.Invited) -> Invited:
    return Invited(n, reply.secret, reply.view)


class InvitationList(Frame, frozen=True, omit_defaults=True, tag="invitation_list"):
    """Reply to `ListInvitations`: the invitations with which somebody can still join, oldest first."""

    n: int
    invitations: tuple[InvitationView, ...]


def _invitation_list(n: int, reply: r.Invitations) -> InvitationList:
    return InvitationList(n, reply.invitations)


class TeamState(Frame, frozen=True, omit_defaults=True, tag="team"):
    """Reply with the team, as it is after the command."""

    n: int
    team: TeamView


def _team_state(n: int, reply: r.TeamState) -> TeamState:
    return TeamState(n, view_team(reply.team))


class PauseList(Frame, frozen=True, omit_defaults=True, tag="pause_list"):
    """Reply to `ListPauses`: conversations that are paused, or in which agents may answer without limit."""

    n: int
    pauses: tuple[PauseView, ...]


def _pause_list(n: int, reply: r.Pauses) -> PauseList:
    return PauseList(n, tuple(map(view_pause, reply.pauses)))


class StuckList(Frame, frozen=True, omit_defaults=True, tag="stuck_list"):
    """Reply to `ReadStuck`: deliveries that nobody has seen for a while, and the newest dead deliveries."""

    n: int
    unseen: tuple[StuckView, ...]
    dead: tuple[StuckView, ...]


def _stuck_list(n: int, reply: r.Stuck) -> StuckList:
    return StuckList(n, tuple(map(view_stuck_delivery, reply.unseen)), tuple(map(view_stuck_delivery, reply.dead)))


class Recorded(Frame, frozen=True, omit_defaults=True, tag="recorded"):
    """Reply to `RecordActivity`: the activity is stored durably; `count` is the number of its events."""

    n: int
    count: int


def _recorded(n: int, reply: r.Recorded) -> Recorded:
    return Recorded(n, reply.count)


AnyAnswer = (
    Accepted
    | Claimed
    | Inbox
    | Receipts
    | Issued
    | Roster
    | History
    | Redaction
    | Log
    | Readers
    | ReaderState
    | Done
    | ChannelList
    | Channel
    | Objective
    | ObjectiveList
    | ObjectiveStory
    | MemberState
    | ReachState
    | TokenIssued
    | TokenList
    | Invited
    | InvitationList
    | TeamState
    | PauseList
    | StuckList
    | Recorded
)


ANSWERS: dict[type, Callable[[int, Any], AnyAnswer]] = {
    r.Accepted: _accepted,
    r.Claimed: _claimed,
    r.Fetched: _inbox,
    r.Receipts: _receipts,
    r.Issued: _issued,
    r.Roster: _roster,
    r.History: _history,
    r.Redaction: _redaction,
    r.LogRows: _log,
    r.Readers: _readers,
    r.ReaderState: _reader_state,
    r.Done: _done,
    r.Channels: _channel_list,
    r.ChannelState: _channel,
    r.ObjectiveState: _objective,
    r.ObjectiveList: _objective_list,
    r.ObjectiveView: _objective_story,
    r.MemberState: _member_state,
    r.ReachState: _reach_state,
    r.TokenIssued: _token_issued,
    r.Tokens: _token_list,
    r.Invited: _invited,
    r.Invitations: _invitation_list,
    r.TeamState: _team_state,
    r.Pauses: _pause_list,
    r.Stuck: _stuck_list,
    r.Recorded: _recorded,
}
"""Makes the answer with a number from a reply."""


_A = TypeVar("_A", bound=Frame)


class Requests:
    """Asks a hub. Each method returns when the answer came, and raises `HubRefused` if it is a refusal."""

    _numbers: Iterator[int]

    async def _ask(self, n: int, frame: Frame, expected: type[_A]) -> _A:
        raise NotImplementedError

    async def invite(
        self,
        *,
        member: str | None = None,
        expires_at_ms: int | None = None,
        uses: int = 1,
        room: bool = False,
        kind: MemberKind = MemberKind.AGENT,
    ) -> Invited:
        """Make an invitation: a secret with which somebody who is no member can become one."""
        n = next(self._numbers)
        return await self._ask(n, Invite(n, member, expires_at_ms, uses, room, kind), Invited)

    async def invitations(self) -> tuple[InvitationView, ...]:
        """List the invitations with which somebody can still join, oldest first."""
        n = next(self._numbers)
        return (await self._ask(n, ListInvitations(n), InvitationList)).invitations

    async def revoke_invitation(self, invitation_id: str) -> None:
        """Revoke an invitation: nobody can join with it any more. Members who have joined stay."""
        n = next(self._numbers)
        await self._ask(n, RevokeInvitation(n, invitation_id), Done)

    async def stuck(self, older_ms: int = 300000, limit: int = 100) -> StuckList:
        """List deliveries that nobody saw for a while, and the newest that died.

        The list has the messages of the session's member. With the permission `log.read` it has all messages.
        """
        n = next(self._numbers)
        return await self._ask(n, ReadStuck(n, older_ms, limit), StuckList)

    async def send(  # noqa: PLR0913 - a message has that many parts
        self,
        target: str,
        body: str,
        *,
        data: dict[str, Any] | None = None,
        title: str | None = None,
        level: Level = Level.INFO,
        priority: Priority = Priority.NORMAL,
        kind: Kind = Kind.CHAT,
        topic: str = "",
        scope: str | None = None,
        thread: str | None = None,
        reply_to: str | None = None,
        refs: tuple[str, ...] = (),
        attachments: tuple[Attachment, ...] = (),
        ttl_ms: int | None = None,
        wire_id: str | None = None,
        allow_empty: bool = False,
        supersedes: str | None = None,
    ) -> Accepted:
        """Send a message.

        The hub answers `accepted` when the message is stored durably.
        """
        n = next(self._numbers)
        return await self._ask(
            n,
            Send(
                n,
                target,
                body,
                data,
                title,
                level,
                priority,
                kind,
                topic,
                scope,
                thread,
                reply_to,
                refs,
                attachments,
                ttl_ms,
                wire_id,
                allow_empty,
                supersedes,
            ),
            Accepted,
        )

    async def claim(self, message_id: str) -> Item | None:
        """Claim a message, so that only this session handles it.

        The claim is stored durably before the answer. If another session was first, the answer has no delivery.
        """
        n = next(self._numbers)
        return (await self._ask(n, Claim(n, message_id), Claimed)).item

    async def inbox(self, after: int = 0, limit: int = 100, unseen: bool = False) -> Inbox:
        """Read the inbox: deliveries that are not acknowledged, expired or dead.

        Only deliveries with keys after `after` are returned, at most `limit`, oldest first.
        """
        n = next(self._numbers)
        return await self._ask(n, Fetch(n, after, limit, unseen), Inbox)

    async def subscribe(self, channel: str) -> None:
        """Join a channel.

        The first subscriber creates the channel.
        """
        n = next(self._numbers)
        await self._ask(n, Subscribe(n, channel), Done)

    async def unsubscribe(self, channel: str) -> None:
        """Leave a channel.

        It is not an error if the member is not in the channel.
        """
        n = next(self._numbers)
        await self._ask(n, Unsubscribe(n, channel), Done)

    async def pause_thread(self, thread: str) -> None:
        """Pause a conversation: hold messages of agents and scripts in it for a while.

        A conversation is `thread:<id>`, a target, or `@one+@other`.
        """
        n = next(self._numbers)
        await self._ask(n, PauseThread(n, thread), Done)

    async def resume_thread(self, thread: str) -> None:
        """End the pause of a conversation and deliver its held messages.

        The hub counts the answers of agents in the conversation from zero again.
        """
        n = next(self._numbers)
        await self._ask(n, ResumeThread(n, thread), Done)

    async def add_member(
        self,
        name: str,
        *,
        kind: MemberKind = MemberKind.AGENT,
        permissions: tuple[str, ...] = (),
        token: str | None = None,
    ) -> Issued:
        """Create a member, and return its first token."""
        n = next(self._numbers)
        return await self._ask(n, AddMember(n, name, kind, permissions, token), Issued)

    async def remove_member(self, name: str) -> None:
        """Remove a member.

        Its sessions end, its tokens become invalid, and its waiting deliveries become `dead`.
        """
        n = next(self._numbers)
        await self._ask(n, RemoveMember(n, name), Done)

    async def rotate_token(self, name: str) -> Issued:
        """Replace a member's tokens.

        Afterwards the member has only the new token.
        """
        n = next(self._numbers)
        return await self._ask(n, RotateToken(n, name), Issued)

    async def retoken(self, name: str, token: str) -> None:
        """Let another shared token (of several members) own a member; end the old token's sessions."""
        n = next(self._numbers)
        await self._ask(n, Retoken(n, name, token), Done)

    async def members(self) -> tuple[MemberView, ...]:
        """List all members, by name."""
        n = next(self._numbers)
        return (await self._ask(n, ListMembers(n), Roster)).members

    async def history(
        self,
        peer: str | None = None,
        *,
        before: int | None = None,
        limit: int = 50,
        after: int = -1,
        everything: bool = False,
        member: str | None = None,
    ) -> tuple[Message, ...]:
        """Read messages that the member may see, newest first."""
        n = next(self._numbers)
        return (await self._ask(n, ReadHistory(n, peer, before, limit, after, everything, member), History)).messages

    async def redact(self, message_id: str, reason: str) -> Redaction:
        """Erase the content of a message for good, such as a secret. Only for the operator.

        If the message was redacted before, its copies are deleted again, because a crash may have interrupted that.
        """
        n = next(self._numbers)
        return await self._ask(n, Redact(n, message_id, reason), Redaction)

    async def search(
        self,
        query: str,
        *,
        sender: str | None = None,
        place: str | None = None,
        from_ms: int | None = None,
        to_ms: int | None = None,
        before: int | None = None,
        limit: int = 50,
    ) -> tuple[Message, ...]:
        """Search the messages that the member may see.

        The newest message comes first.
        """
        n = next(self._numbers)
        return (await self._ask(n, Search(n, query, sender, place, from_ms, to_ms, before, limit), History)).messages

    async def read_log(self, log: str = "main", start: int = 0, limit: int = 1000) -> Log:
        """Read rows of a log (`main` or `activity`), from the offset `start` on."""
        n = next(self._numbers)
        return await self._ask(n, ReadLog(n, log, start, limit), Log)

    async def readers(self) -> Readers:
        """List the logs and their readers: programs for which the hub keeps unread rows."""
        n = next(self._numbers)
        return await self._ask(n, ListReaders(n), Readers)

    async def advance_reader(
        self, name: str, position: int, *, log: str = "main", epoch: str = "", rewind: bool = False
    ) -> ReaderState:
        """Set the position of a reader (a program) in a log.

        A new name makes a new reader. The hub keeps the rows from the position on, until the reader has read them.
        """
        n = next(self._numbers)
        return await self._ask(n, AdvanceReader(n, name, position, log, epoch, rewind), ReaderState)

    async def forget_reader(self, name: str) -> None:
        """Delete a reader from both logs. Then the hub keeps no unread rows for this reader."""
        n = next(self._numbers)
        await self._ask(n, ForgetReader(n, name), Done)

    async def channels(self) -> tuple[ChannelView, ...]:
        """List all channels, by name."""
        n = next(self._numbers)
        return (await self._ask(n, ListChannels(n), ChannelList)).channels

    async def create_channel(self, name: str) -> ChannelView:
        """Create a channel. The session's member becomes its admin."""
        n = next(self._numbers)
        return (await self._ask(n, CreateChannel(n, name), Channel)).channel

    async def change_channel(self, channel: str, change: ChannelChange) -> ChannelView:
        """Rename or archive a channel, or change its members; `do` in `change` says which.

        A change without effect is not an error.
        """
        n = next(self._numbers)
        return (await self._ask(n, ChangeChannel(n, channel, change), Channel)).channel

    async def channel(self, channel: str) -> ChannelView:
        """Return a channel with its members. The channel is given by its name or id."""
        n = next(self._numbers)
        return (await self._ask(n, ViewChannel(n, channel), Channel)).channel

    async def create_objective(
        self,
        title: str,
        outcome: str,
        assignee: str,
        *,
        body: str = "",
        watchers: tuple[str, ...] = (),
        attachments: tuple[Attachment, ...] = (),
    ) -> ObjectiveView:
        """Create an objective: work for a member, with an outcome."""
        n = next(self._numbers)
        return (
            await self._ask(n, CreateObjective(n, title, outcome, assignee, body, watchers, attachments), Objective)
        ).objective

    async def change_objective(self, objective_id: str, change: ObjectiveChange) -> ObjectiveView:
        """Change an objective, for example complete it; `do` in `change` names the change.

        A change without effect is not an error. To write to the objective's thread, send to `obj:<id>`.
        """
        n = next(self._numbers)
        return (await self._ask(n, ChangeObjective(n, objective_id, change), Objective)).objective

    async def objectives(
        self,
        *,
        statuses: tuple[Status, ...] = (),
        assignee: str | None = None,
        before: str | None = None,
        limit: int = 1000,
    ) -> ObjectiveList:
        """List objectives that the member may see, newest first."""
        n = next(self._numbers)
        return await self._ask(n, ListObjectives(n, statuses, assignee, before, limit), ObjectiveList)

    async def objective(self, objective_id: str, after: int = -1) -> ObjectiveStory:
        """Return an objective with its event log, oldest entry first.

        Only entries with a log offset above `after` are returned; -1 returns all of them.
        """
        n = next(self._numbers)
        return await self._ask(n, ViewObjective(n, objective_id, after), ObjectiveStory)

    async def update_member(
        self,
        name: str,
        *,
        permissions: tuple[str, ...] | None = None,
        title: str | None = None,
        description: str | None = None,
        instructions: str | None = None,
        kind: MemberKind | None = None,
    ) -> MemberFile:
        """Change a member's permissions, role or instructions. Omitted fields stay unchanged."""
        n = next(self._numbers)
        return (
            await self._ask(n, UpdateMember(n, name, permissions, title, description, instructions, kind), MemberState)
        ).member

    async def reach(self, name: str, reach: Reach | None = None) -> Reach:
        """Set the ways to reach a member. Without `reach`, only read them.

        The ways are push, hook, pty, pull and notify. Allowed for the member itself and with `members.manage`.
        """
        n = next(self._numbers)
        return (await self._ask(n, SetReach(n, name, reach), ReachState)).reach

    async def set_busy(self, busy: bool = True) -> None:
        """Report that the member is busy, or not any more. A busy report expires after a while."""
        n = next(self._numbers)
        await self._ask(n, SetBusy(n, busy), Done)

    async def issue_token(
        self, name: str, *, label: str = "", expires_at_ms: int | None = None, token: str | None = None
    ) -> TokenIssued:
        """Issue one more token for a member."""
        n = next(self._numbers)
        return await self._ask(n, IssueToken(n, name, label, expires_at_ms, token), TokenIssued)

    async def tokens(self, name: str) -> tuple[TokenView, ...]:
        """List a member's valid tokens, oldest first."""
        n = next(self._numbers)
        return (await self._ask(n, ListTokens(n, name), TokenList)).tokens

    async def revoke_token(self, name: str, token_id: str) -> None:
        """Revoke one token.

        The sessions that were opened with this token are closed.
        """
        n = next(self._numbers)
        await self._ask(n, RevokeToken(n, name, token_id), Done)

    async def team(self) -> TeamView:
        """Read the team's name, purpose (directive), context, permission sets (presets) and aliases."""
        n = next(self._numbers)
        return (await self._ask(n, ReadTeam(n), TeamState)).team

    async def update_team(
        self,
        *,
        name: str | None = None,
        directive: str | None = None,
        context: str | None = None,
        presets: dict[str, tuple[str, ...] | None] | None = None,
        aliases: dict[str, str | None] | None = None,
    ) -> TeamView:
        """Change the team's name, purpose, presets and so on. Omitted fields stay unchanged."""
        n = next(self._numbers)
        return (
            await self._ask(n, UpdateTeam(n, name, directive, context, presets or {}, aliases or {}), TeamState)
        ).team

    async def pauses(self) -> tuple[PauseView, ...]:
        """List paused conversations, and those in which agents may answer without a limit."""
        n = next(self._numbers)
        return (await self._ask(n, ListPauses(n), PauseList)).pauses

    async def allow_thread(self, thread: str, for_ms: int | None = None) -> None:
        """Let agents in a conversation answer without a limit for a while, and end its pause."""
        n = next(self._numbers)
        await self._ask(n, AllowThread(n, thread, for_ms), Done)

    async def activity(
        self,
        member: str,
        *,
        from_ms: int | None = None,
        to_ms: int | None = None,
        kinds: tuple[str, ...] = (),
        limit: int = 200,
    ) -> tuple[ActivityView, ...]:
        """Read a member's activity, newest first.

        Allowed for the member itself, and with the permission `activity.read`.
        """
        n = next(self._numbers)
        return (await self._ask(n, ReadActivity(n, member, from_ms, to_ms, kinds, limit), ActivityRows)).rows

    async def follow_activity(self, member: str) -> None:
        """Follow the activity of a member: get each new event of it.

        The hub passes each new event, once it is stored, to the receiver of `Hub.tail`.
        """
        n = next(self._numbers)
        await self._ask(n, FollowActivity(n, member), Done)

"""Requests of the hub's own protocol, and the commands that they mean."""

# Made from tieline.contract by `make derive` (scripts/derive.py). Do not edit.

from typing import Any, cast

import msgspec
from msgspec import field

from tieline.contract import command as c
from tieline.contract.channel import AnyChange as ChannelChange
from tieline.contract.identifiers import ChannelName, MemberName, MessageId, SessionId
from tieline.contract.member import MemberKind
from tieline.contract.message import Attachment, Content, Kind, Level, Priority
from tieline.contract.objective import AnyChange as ObjectiveChange
from tieline.contract.objective import ObjectiveId, Status
from tieline.contract.reach import Reach
from tieline.contract.refusal import Refusal
from tieline.contract.target import Target
from tieline.wire.native.frame import Frame, Number, parse_state


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
    """Let another shared token own a member, and close the sessions of the old token. Answered by `done`."""

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
    """Read the receipts of a message. Answered by `receipts`."""

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

    def command(self, session: SessionId) -> c.ReadHistory:
        return c.ReadHistory(
            session, peer=self.peer, before=self.before, limit=self.limit, after=self.after, everything=self.everything
        )


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
    """List the logs and the readers for which the hub keeps their rows. Answered by `readers`."""

    n: int

    def command(self, session: SessionId) -> c.ListReaders:
        return c.ListReaders(session)


class AdvanceReader(Frame, frozen=True, omit_defaults=True, tag="advance_reader"):
    """Set the position of a reader in a log. Answered by `reader_state`."""

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
    """Forget a reader in both logs; nothing is kept for it any more. Answered by `done`."""

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
    """Create a channel. The member becomes its admin. Answered by `channel`."""

    n: int
    name: str

    def command(self, session: SessionId) -> c.CreateChannel:
        return c.CreateChannel(session, name=ChannelName(self.name.removeprefix("#")))


class ChangeChannel(Frame, frozen=True, omit_defaults=True, tag="change_channel"):
    """Change a channel, given by its name or id; `do` in `change` names the change. Answered by `channel`."""

    n: int
    channel: str
    change: ChannelChange

    def command(self, session: SessionId) -> c.ChangeChannel:
        return c.ChangeChannel(session, channel=self.channel.removeprefix("#"), change=self.change)


class ViewChannel(Frame, frozen=True, omit_defaults=True, tag="view_channel"):
    """Show a channel with its members, by its name or id. Answered by `channel`."""

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
    """Change an objective; `do` in `change` names the change. Answered by `objective`."""

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
    """Show an objective with its event log, oldest first. Answered by `objective_view`."""

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
    """Read the team's name, directive, context, presets and aliases. Answered by `team`."""

    n: int

    def command(self, session: SessionId) -> c.ReadTeam:
        return c.ReadTeam(session)


class UpdateTeam(Frame, frozen=True, omit_defaults=True, tag="update_team"):
    """Change details of the team. Omitted fields stay unchanged. Answered by `team`."""

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
    """Report activity of the member. Answered by `recorded`."""

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
    """Follow the activity of a member. Answered by `done`, then `did` frames."""

    n: int
    member: str

    def command(self, session: SessionId) -> c.FollowActivity:
        return c.FollowActivity(session, member=MemberName(self.member))


AnyRequest = (
    Send
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

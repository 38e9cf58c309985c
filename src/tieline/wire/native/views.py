"""Parts of answers as clients see them, and how they are made from the hub's values."""

# Made from tieline.contract by `make derive` (scripts/derive.py). Do not edit.

from typing import Any

from msgspec import Struct, field

from tieline.contract import delivery, event, member, message, objective, team
from tieline.contract import reply as r
from tieline.contract.channel import ChannelMember
from tieline.contract.message import Attachment, Kind, Level, Priority, Signature
from tieline.contract.objective import AnyHappening


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

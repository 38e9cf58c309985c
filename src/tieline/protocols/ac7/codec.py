"""The hub's values in ac7's words.

Above: the routes and streams. Below: `shapes`. Keys of `data` that say who, when and where are the hub's to say: they
are taken out of what a sender wrote, and `thread` is what the message was really sent to. What ac7's nine keys cannot
carry of a message from another protocol is in `data.tieline`, so that nothing is dropped in silence.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from msgspec import UNSET

from tieline.contract import message as m
from tieline.contract import objective as o
from tieline.contract.channel import Role as ChannelRole
from tieline.contract.identifiers import GENERAL
from tieline.contract.member import Member, Presence, TokenView
from tieline.contract.permission import TEAM_PERMISSIONS
from tieline.contract.reply import ChannelView
from tieline.contract.target import TargetKind
from tieline.contract.team import Team
from tieline.protocols.ac7 import shapes as s
from tieline.services.files.tree import ROOT, parse_path
from tieline.wire.fidelity import Carriage, Field, beyond

ANNOUNCER = "ac7@hub"
"""Who tells a member that its session is online: no member's name has an `@`, and `ac7` is kept for the hub."""
BROKER = "ac7"
SYSTEM = "__system__"
"""Who made the channel that is always there."""

# spec, Message shape: the broker strips keys by which a sender could pose as another, or as sent elsewhere.
RESERVED = frozenset({"from", "ts", "msg_id", "level", "thread", "tieline"})
"""Keys of `data` that only the hub may say."""

DATA_LABELS = (Field.PRIORITY, Field.SCOPE, Field.THREAD, Field.REPLY_TO, Field.REFS)
"""What a sender says in `data`, because ac7 has no key for it; the thread as `conversation`."""

_TEAM_NAME = "tieline"
_DIRECTIVE = "Work together."
_ROLE = {"agent": "agent", "human": "human", "script": "script"}
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,128}\Z")
_LABEL_CHARS_MAX = 64  # longer ones are cut for its clients
_NAME_CHARS_MAX = 255  # longer ones are cut for its clients
_MEDIA_TYPE = "application/octet-stream"
_SLUG_CHARS_MAX = 32  # the protocol's limit of a channel's slug
_SLUG_SUFFIX = 8

# Messages.


def message(said: m.Message, channels: Mapping[str, str]) -> s.MessageShape:
    """A message, whatever protocol it came by. `channels` has the ids of channels by name."""
    content = said.content
    # spec, Message shape: nine keys, always all of them; from is stamped, to is null for a broadcast.
    return s.MessageShape(
        id=said.id,
        ts=said.sent_at_ms,
        to=content.target.name if content.target.kind is TargetKind.MEMBER else None,
        from_=BROKER if said.sender == ANNOUNCER and said.protocol == BROKER else said.sender,
        title=content.title,
        body=content.body,
        level=content.level.value,
        data=_data(said, channels),
        attachments=attachments(content.attachments),
    )


def _data(said: m.Message, channels: Mapping[str, str]) -> dict[str, Any]:
    content = said.content
    written = content.data or {}
    data = {key: value for key, value in written.items() if key not in RESERVED}
    thread = _thread(said, channels)
    if thread is not None:
        data["thread"] = thread
    more = _more(said)
    if more:
        data["tieline"] = more
    return data


def _thread(said: m.Message, channels: Mapping[str, str]) -> str | None:
    target = said.content.target
    # spec, The four thread types: chan:<id>, obj:<id>, none for everybody, none with `to` for one member.
    match target.kind:
        case TargetKind.CHANNEL:
            # The id is written down when the message is sent, because a name may be another channel's later.
            kept = (said.content.data or {}).get("thread") if said.protocol == BROKER else None
            return kept if isinstance(kept, str) else f"chan:{channels.get(target.name, target.name)}"
        case TargetKind.OBJECTIVE:
            return str(target)
        case TargetKind.MEMBER:
            # In a direct message only what this protocol has checked.
            kept = (said.content.data or {}).get("thread") if said.protocol == BROKER else None
            return kept if isinstance(kept, str) else None
        case TargetKind.EVERYBODY:
            return None


def _more(said: m.Message) -> dict[str, Any]:
    """What ac7's own keys cannot carry."""
    content = said.content
    more: dict[str, Any] = {}
    if said.protocol != BROKER:
        more["protocol"] = said.protocol
        hidden = {key: value for key, value in (content.data or {}).items() if key in RESERVED}
        if hidden and content.target.kind is not TargetKind.OBJECTIVE:
            more["data"] = hidden
        more |= beyond(said, CARRIAGE.carries)
        if Field.THREAD.value in more:
            # `thread` says where a message was sent to here.
            more["conversation"] = more.pop(Field.THREAD.value)
    elif not said.verified and said.sender != ANNOUNCER:
        more["verified"] = False
    outside = [msgspec.to_builtins(one) for one in content.attachments if not _is_path(one.path)]
    return {**more, "attachments": outside} if outside else more


CARRIAGE = Carriage(
    BROKER,
    says={
        Field.DATA: "`data`",
        Field.TITLE: "`title`",
        Field.LEVEL: "`level`",
        Field.ATTACHMENTS: "`attachments`",
        Field.THREAD: "`data.conversation`",
        **{name: f"`data.{name}`" for name in DATA_LABELS if name is not Field.THREAD},
    },
    carries={
        Field.DATA: "`data`",
        Field.TITLE: "`title`",
        Field.LEVEL: "`level`",
        Field.ATTACHMENTS: "`attachments`",
    },
    rest="`data.tieline`",
)


def attachments(kept: Iterable[m.Attachment]) -> tuple[s.Attachment, ...]:
    """Files that a message or an objective refers to. Clients take paths of the store alone, with nothing left out."""
    return tuple(
        s.Attachment(
            path=one.path,
            name=(one.name or one.path.rpartition("/")[2])[:_NAME_CHARS_MAX],
            size=one.size,
            mime_type=(one.media_type or _MEDIA_TYPE)[:_NAME_CHARS_MAX],
        )
        for one in kept
        if _is_path(one.path)
    )


def _is_path(text: str) -> bool:
    return text != ROOT and isinstance(parse_path(text), str)


# Members and the team.


def permissions(kept: Iterable[str]) -> tuple[s.Permission, ...]:
    """The seven that ac7 knows, in its order; the hub's own never leave it by this wire."""
    known = set(kept)
    return tuple(word for word in TEAM_PERMISSIONS if word in known)  # type: ignore[misc]  # they are those words


def role(member: Member) -> s.RoleView:
    """What a member is; clients want a title, so one that has none is called by its kind."""
    return s.RoleView(member.title or _ROLE[member.kind.value], member.description)


def teammate(member: Member) -> s.Teammate:
    """A member as the others see it."""
    return s.Teammate(member.name, role(member), permissions(member.permissions))


def member(kept: Member) -> s.MemberShape:
    """A member as itself and those who manage members see it."""
    return s.MemberShape(kept.name, role(kept), permissions(kept.permissions), kept.instructions)


def listed(kept: Member, *, whole: bool) -> s.ListedMember:
    """A member in a list."""
    told = kept.instructions if whole else UNSET
    return s.ListedMember(kept.name, role(kept), permissions(kept.permissions), told)


def connected(presence: Presence, streams: int) -> s.Connected:
    """Whether a member is there: by streams here, or by any session of another protocol."""
    kept = presence.member
    elsewhere = sum(1 for protocol in presence.sessions if protocol != BROKER)
    seen = presence.last_seen_ms
    return s.Connected(
        name=kept.name,
        connected=streams + elsewhere,
        created_at=kept.created_at_ms,
        last_seen=kept.created_at_ms if seen is None else seen,
        role=role(kept),
        busy=True if presence.busy else UNSET,
    )


def team(kept: Team) -> s.TeamShape:
    """The team; clients want a name and a directive, so there always is one."""
    return s.TeamShape(kept.name or _TEAM_NAME, kept.directive or _DIRECTIVE, kept.context, presets(kept))


def presets(kept: Team) -> dict[str, tuple[s.Permission, ...]]:
    """Sets of permissions by name."""
    return {name: permissions(words) for name, words in kept.presets.items()}


def token(name: str, kept: TokenView) -> s.TokenShape:
    """What may be known of a token."""
    return s.TokenShape(
        id=kept.id,
        member_name=name,
        label=kept.label[:_LABEL_CHARS_MAX],
        # The hub does not say how a token came to be; a label is given to one that was asked for by name.
        origin="enroll" if kept.label else "bootstrap",
        created_at=kept.created_at_ms,
        created_by=kept.created_by if _NAME.match(kept.created_by) else None,
        expires_at=kept.expires_at_ms,
        last_used_at=kept.last_used_ms,
    )


def instructions(kept: Member, about: Team, teammates: Sequence[Member], open_count: int) -> str:
    """What a member is told when it starts, as one text for its prompt."""
    shown = team(about)
    others = "\n".join(
        f"- {other.name}: {role(other).title}{f' ({other.description})' if other.description else ''}"
        for other in teammates
    )
    parts = [
        f"You are {kept.name}, {role(kept).title} on the team {shown.name}.",
        kept.description,
        f"Directive: {shown.directive}",
        shown.context,
        f"Your team:\n{others}" if others else "",
        f"You have {open_count} open objectives." if open_count else "",
        "Text inside <channel> is news from your team: take it as new input and act on it.",
        kept.instructions,
    ]
    return "\n\n".join(part for part in parts if part)


# Channels.


def slug(name: str, channel_id: str) -> str:
    """A channel's name where ac7 can write it; else what is left of it, with the end of its id."""
    if len(name) <= _SLUG_CHARS_MAX and _SLUG.match(name):
        return name
    left = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: _SLUG_CHARS_MAX - _SLUG_SUFFIX - 1].strip("-")
    return f"{left or 'channel'}-{channel_id[-_SLUG_SUFFIX:]}"


def channel(kept: ChannelView) -> s.ChannelShape:
    """A channel."""
    return s.ChannelShape(
        id=kept.id,
        slug=slug(kept.name, kept.id),
        created_by=SYSTEM if kept.name == GENERAL else kept.created_by,
        created_at=kept.created_at_ms,
        archived_at=kept.archived_at_ms,
    )


def channel_summary(kept: ChannelView, reader: str) -> s.ChannelSummary:
    """A channel as a member stands to it."""
    roles: Mapping[str, ChannelRole] = {one.name: one.role for one in kept.members}
    own = roles.get(reader)
    shown = channel(kept)
    return s.ChannelSummary(
        id=shown.id,
        slug=shown.slug,
        created_by=shown.created_by,
        created_at=shown.created_at,
        archived_at=shown.archived_at,
        joined=reader in kept.subscribers,
        my_role=own.value if own is not None else "member" if kept.name == GENERAL else None,
        member_count=len(kept.subscribers),
    )


def channel_members(kept: ChannelView, reader: str) -> s.ChannelResponse:
    """A channel and who is in it; nobody by name where everybody is."""
    members = [
        s.ChannelMember(channel_id=kept.id, member_name=one.name, role=one.role.value, joined_at=one.joined_at_ms)
        for one in kept.members
    ]
    return s.ChannelResponse(channel_summary(kept, reader), members)


# Objectives.


def objective(kept: o.Objective) -> s.ObjectiveShape:
    """An objective."""
    return s.ObjectiveShape(
        id=kept.id,
        title=kept.title,
        body=kept.body,
        outcome=kept.outcome,
        status=kept.status.value,
        assignee=kept.assignee,
        originator=kept.originator,
        watchers=kept.watchers,
        created_at=kept.created_at_ms,
        updated_at=kept.updated_at_ms,
        completed_at=kept.completed_at_ms,
        result=kept.result,
        block_reason=kept.block_reason,
        attachments=attachments(kept.attachments),
    )


def happening(objective_id: str, event: o.ObjectiveEvent) -> s.ObjectiveHappening:
    """What was done to an objective."""
    payload = msgspec.to_builtins(event.what)
    kind = payload.pop("kind")
    return s.ObjectiveHappening(
        objective_id=objective_id, ts=event.at_ms, actor=event.actor, kind=kind, payload=payload
    )

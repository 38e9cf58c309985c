"""Codec: converts the hub's values to ac7's shapes.

Used by: the routes and streams. Uses: `shapes`. Only the hub may set the keys of `data` that name the sender, the time
and the target. The codec removes these keys from the sender's `data`, and sets `thread` to the real target. A message
from another protocol may have fields that ac7's nine keys cannot carry. These fields go into `data.tieline`, so that
no field is lost silently.
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
"""Sender of the "session online" message. No member's name contains `@`, and the name `ac7` is reserved for the hub."""
BROKER = "ac7"
SYSTEM = "__system__"
"""Name that is shown as the creator of the general channel, which no member created."""

# spec, Message shape: the broker strips keys by which a sender could pose as another, or as sent elsewhere.
RESERVED = frozenset({"from", "ts", "msg_id", "level", "thread", "tieline"})
"""Keys of `data` that only the hub may set."""

DATA_LABELS = (Field.PRIORITY, Field.SCOPE, Field.THREAD, Field.REPLY_TO, Field.REFS)
"""Fields of a message that a sender writes into `data`, because ac7 has no key of its own for them. The field `thread`
is written as `data.conversation`."""

_TEAM_NAME = "tieline"
_DIRECTIVE = "Work together."
_ROLE = {"agent": "agent", "human": "human", "script": "script"}
_SLUG = re.compile(r"[a-z0-9]+(-[a-z0-9]+)*\Z")
_NAME = re.compile(r"[a-zA-Z0-9._-]{1,128}\Z")
_LABEL_CHARS_MAX = 64  # longer values are cut for ac7's clients
_NAME_CHARS_MAX = 255  # longer values are cut for ac7's clients
_MEDIA_TYPE = "application/octet-stream"
_SLUG_CHARS_MAX = 32  # the protocol's limit of a channel's slug
_SLUG_SUFFIX = 8

# Messages.


def message(said: m.Message, channels: Mapping[str, str]) -> s.MessageShape:
    """Return a message of the hub, from any protocol, as ac7's JSON shape.

    `said` is the message. `channels` maps channel names to channel ids.
    """
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
            # `data` keeps the channel id from the time of sending, because another channel may have the name later.
            kept = (said.content.data or {}).get("thread") if said.protocol == BROKER else None
            return kept if isinstance(kept, str) else f"chan:{channels.get(target.name, target.name)}"
        case TargetKind.OBJECTIVE:
            return str(target)
        case TargetKind.MEMBER:
            # In a direct message, show `thread` only if ac7 checked it when the message was sent.
            kept = (said.content.data or {}).get("thread") if said.protocol == BROKER else None
            return kept if isinstance(kept, str) else None
        case TargetKind.EVERYBODY:
            return None


def _more(said: m.Message) -> dict[str, Any]:
    """Return the fields of a message that ac7's own keys cannot carry. They are shown under `data.tieline`."""
    content = said.content
    more: dict[str, Any] = {}
    if said.protocol != BROKER:
        more["protocol"] = said.protocol
        hidden = {key: value for key, value in (content.data or {}).items() if key in RESERVED}
        if hidden and content.target.kind is not TargetKind.OBJECTIVE:
            more["data"] = hidden
        more |= beyond(said, CARRIAGE.carries)
        if Field.THREAD.value in more:
            # In ac7, `thread` is the target of the message, so the thread label gets another key.
            more["conversation"] = more.pop(Field.THREAD.value)
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
    """Return the attachments in `kept` as ac7's JSON shapes.

    Attachments that are not in the file store are left out, because clients do not accept their paths. Every key has a
    value, because clients require all keys.
    """
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
    """Return those of ac7's seven permissions that are in `kept`, in ac7's order.

    `kept` may also have permissions that only the hub knows. ac7 never shows them.
    """
    known = set(kept)
    return tuple(word for word in TEAM_PERMISSIONS if word in known)  # type: ignore[misc]  # the same seven words


def role(member: Member) -> s.RoleView:
    """Return a member's role as ac7's JSON shape.

    Clients require a title, so a member without a title gets its kind, such as `agent`, as the title.
    """
    return s.RoleView(member.title or _ROLE[member.kind.value], member.description)


def teammate(member: Member) -> s.Teammate:
    """Return a member as the JSON shape that other members see."""
    return s.Teammate(member.name, role(member), permissions(member.permissions))


def member(kept: Member) -> s.MemberShape:
    """Return a member as the JSON shape for the member itself and for managers of members."""
    return s.MemberShape(kept.name, role(kept), permissions(kept.permissions), kept.instructions)


def listed(kept: Member, *, whole: bool) -> s.ListedMember:
    """Return a member as an entry in the list of members. With `whole`, the entry has the member's instructions."""
    told = kept.instructions if whole else UNSET
    return s.ListedMember(kept.name, role(kept), permissions(kept.permissions), told)


def connected(presence: Presence, streams: int) -> s.Connected:
    """Return a member's presence as ac7's JSON shape.

    `streams` is the number of the member's open ac7 streams. The number of connections in the result is the sum of
    these streams and the member's sessions on other protocols.
    """
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
    """Return the team as ac7's JSON shape. Clients require a name and a directive, so both have a default."""
    return s.TeamShape(kept.name or _TEAM_NAME, kept.directive or _DIRECTIVE, kept.context, presets(kept))


def presets(kept: Team) -> dict[str, tuple[s.Permission, ...]]:
    """Return the team's presets (named sets of permissions) by name, each with its ac7 permissions."""
    return {name: permissions(words) for name, words in kept.presets.items()}


def tokens(member: Member, kept: Sequence[TokenView]) -> list[s.TokenShape]:
    """Return the details of a member's tokens as ac7's JSON shapes. `kept` has all tokens, oldest first."""
    return [token(member, one, is_oldest=place == 0) for place, one in enumerate(kept)]


def token(member: Member, kept: TokenView, *, is_oldest: bool = False) -> s.TokenShape:
    """Return the public details of a token as ac7's JSON shape, without the token itself.

    `member` is the member of the token. `is_oldest` is true for the oldest token that the member has.
    """
    # The hub does not store the origin, so derive it. A rotation removes all older tokens and makes a token without a
    # label. A token with a label was issued as one more token.
    origin: s.TokenOrigin = "rotate" if is_oldest and not kept.label else "enroll"
    return s.TokenShape(
        id=kept.id,
        member_name=member.name,
        label=kept.label[:_LABEL_CHARS_MAX],
        origin="bootstrap" if kept.created_at_ms == member.created_at_ms else origin,
        created_at=kept.created_at_ms,
        created_by=kept.created_by if _NAME.match(kept.created_by) else None,
        expires_at=kept.expires_at_ms,
        last_used_at=kept.last_used_ms,
    )


# Channels.


def slug(name: str, channel_id: str) -> str:
    """Return a channel's slug (its name in ac7's form).

    The slug is the channel's name if ac7 allows that name. Otherwise the slug is made from the name and the end of the
    id.
    """
    if len(name) <= _SLUG_CHARS_MAX and _SLUG.match(name):
        return name
    left = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")[: _SLUG_CHARS_MAX - _SLUG_SUFFIX - 1].strip("-")
    return f"{left or 'channel'}-{channel_id[-_SLUG_SUFFIX:]}"


def channel(kept: ChannelView) -> s.ChannelShape:
    """Return a channel as ac7's JSON shape."""
    return s.ChannelShape(
        id=kept.id,
        slug=slug(kept.name, kept.id),
        created_by=SYSTEM if kept.name == GENERAL else kept.created_by,
        created_at=kept.created_at_ms,
        archived_at=kept.archived_at_ms,
    )


def channel_summary(kept: ChannelView, reader: str) -> s.ChannelSummary:
    """Return a channel as ac7's JSON shape, with the membership and role of `reader`, the calling member."""
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
    """Return a channel and its members as ac7's JSON shape, for the calling member `reader`.

    The list of members is empty for the general channel, because every member is in that channel.
    """
    members = [
        s.ChannelMember(channel_id=kept.id, member_name=one.name, role=one.role.value, joined_at=one.joined_at_ms)
        for one in kept.members
    ]
    return s.ChannelResponse(channel_summary(kept, reader), members)


# Objectives.


def objective(kept: o.Objective) -> s.ObjectiveShape:
    """Return an objective as ac7's JSON shape."""
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
    """Return an entry of an objective's event log as ac7's JSON shape."""
    payload = msgspec.to_builtins(event.what)
    kind = payload.pop("kind")
    return s.ObjectiveHappening(
        objective_id=objective_id, ts=event.at_ms, actor=event.actor, kind=kind, payload=payload
    )

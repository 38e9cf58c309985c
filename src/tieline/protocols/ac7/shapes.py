"""Shapes: the types of ac7's requests and answers. Requests are checked against them, answers are built from them, and
the OpenAPI document is derived from them. Existing clients check answers strictly, so an answer always has every key.
"""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, Struct, UnsetType

from tieline.wire.http import Answer, answer
from tieline.wire.route import wait

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]+$", min_length=1, max_length=128)]
Slug = Annotated[str, Meta(pattern=r"^[a-z0-9]+(-[a-z0-9]+)*$", min_length=1, max_length=32)]
Permission = Literal[
    "team.manage",
    "members.manage",
    "objectives.create",
    "objectives.cancel",
    "objectives.reassign",
    "objectives.watch",
    "activity.read",
]
Level = Literal["debug", "info", "notice", "warning", "error", "critical"]
ChannelRole = Literal["admin", "member"]
ObjectiveStatus = Literal["active", "blocked", "done", "cancelled"]
HappeningKind = Literal[
    "assigned",
    "blocked",
    "unblocked",
    "completed",
    "cancelled",
    "reassigned",
    "watcher_added",
    "watcher_removed",
]
Title = Annotated[str, Meta(max_length=200)]
RoleTitle = Annotated[str, Meta(min_length=1, max_length=64)]
RoleDescription = Annotated[str, Meta(max_length=512)]
Instructions = Annotated[str, Meta(max_length=8192)]
Reason = Annotated[str, Meta(max_length=2048)]
Names = Annotated[tuple[Name, ...], Meta(max_length=64)]
Permissions = Annotated[tuple[Permission, ...], Meta(max_length=64)]
PermissionWords = Annotated[tuple[Annotated[str, Meta(min_length=1, max_length=64)], ...], Meta(max_length=64)]
"""Permissions and names of presets. A preset's name stands for the permissions of the preset."""
TokenLabel = Annotated[str, Meta(max_length=64)]


class Shape(Struct, frozen=True, rename="camel"):
    """The root of all shapes: keys are written as ac7 writes them."""


class Failure(Shape, frozen=True, omit_defaults=True):
    """A "no": what is wrong, in prose, and where there is one, a word for programs."""

    error: str
    code: str | UnsetType = UNSET
    details: list[dict[str, Any]] | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET
    """Seconds to wait, with status 429."""
    error_description: str | UnsetType = UNSET
    """Details of the error, for a device that polls."""


def later(text: str, seconds: int | None) -> Answer:
    """Return a 429 answer that asks the client to retry later."""
    return wait(answer(Failure(text, retry_after=UNSET if seconds is None else seconds), 429), seconds)


# Messages.


FilePath = Annotated[str, Meta(min_length=1, max_length=1024)]
"""A path in the file store. The file store checks which paths are valid."""


class Attachment(Shape, frozen=True, kw_only=True):
    """A file in the store, as a message or an objective refers to it."""

    path: FilePath
    name: Annotated[str, Meta(max_length=1024)] = ""
    size: Annotated[int, Meta(ge=0)] = 0
    mime_type: Annotated[str, Meta(max_length=255)] = ""


Attachments = Annotated[tuple[Attachment, ...], Meta(max_length=64)]


class PushPayload(Shape, frozen=True, kw_only=True):
    """What a member asks to say. Whatever else it holds, a sender for one, counts for nothing."""

    body: Annotated[str, Meta(min_length=1, max_length=65536)]
    to: Name | None = None
    title: Title | None = None
    level: Level = "info"
    data: dict[str, Any] | None = None
    attachments: Attachments | None = None


class MessageShape(Shape, frozen=True, kw_only=True):
    """A message: nine keys, always all of them."""

    id: str
    ts: int
    to: str | None
    from_: str | None
    title: str | None
    body: str
    level: Level
    data: dict[str, Any]
    attachments: tuple[Attachment, ...]


class DeliveryReport(Shape, frozen=True):
    """How many streams a message was written to, and for how many members it was."""

    live: Annotated[int, Meta(ge=0)]
    targets: Annotated[int, Meta(ge=0)]


class PushResult(Shape, frozen=True):
    """A message as it was accepted."""

    delivery: DeliveryReport
    message: MessageShape


class HistoryResponse(Shape, frozen=True):
    """Messages, newest first."""

    messages: list[MessageShape]


# Members and the team.


class Role(Shape, frozen=True):
    """What a member is on the team."""

    title: RoleTitle
    description: RoleDescription = ""


class RoleView(Shape, frozen=True):
    """A role as it is shown."""

    title: str
    description: str


class Teammate(Shape, frozen=True):
    """A member as the others see it."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]


class MemberShape(Shape, frozen=True):
    """A member as it is seen by itself and those who manage members."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]
    instructions: str


class TeamShape(Shape, frozen=True):
    """What is said about the team."""

    name: str
    directive: str
    context: str
    permission_presets: dict[str, tuple[Permission, ...]]


class Connected(Shape, frozen=True, kw_only=True):
    """Whether a member is there."""

    name: str
    connected: Annotated[int, Meta(ge=0)]
    created_at: int
    last_seen: int
    role: RoleView
    busy: Literal[True] | UnsetType = UNSET


class RosterResponse(Shape, frozen=True):
    """Who is on the team, and who is there."""

    teammates: list[Teammate]
    connected: list[Connected]


class BusyRequest(Shape, frozen=True):
    """Whether the member is at work."""

    busy: bool


class CreateMember(Shape, frozen=True, kw_only=True):
    """A new member."""

    name: Name
    role: Role
    instructions: Instructions = ""
    permissions: PermissionWords | str = ()
    """The permissions, or the name of a preset."""


class UpdateMember(Shape, frozen=True, kw_only=True):
    """What shall be another about a member."""

    role: Role | None = None
    instructions: Instructions | None = None
    permissions: PermissionWords | str | None = None


class ListedMember(Shape, frozen=True):
    """A member in a list."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]
    instructions: str | UnsetType = UNSET
    """Shown only to the member itself and to managers of members."""


class MemberList(Shape, frozen=True):
    """All members."""

    members: list[ListedMember]


class CreatedMember(Shape, frozen=True):
    """A new member, with its token, which is shown this once."""

    member: MemberShape
    token: str


class RotatedToken(Shape, frozen=True):
    """A member's only token, which is shown this once."""

    token: str


class CreateToken(Shape, frozen=True, kw_only=True):
    """One more token."""

    label: TokenLabel = ""
    expires_at: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None


class TokenShape(Shape, frozen=True, kw_only=True):
    """What may be known of a token."""

    id: str
    member_name: str
    label: str
    origin: Literal["bootstrap", "rotate", "enroll"]
    created_at: int
    created_by: str | None
    expires_at: int | None
    last_used_at: int | None


class CreatedToken(Shape, frozen=True):
    """A new token, shown this once."""

    token: str
    info: TokenShape


class TokenList(Shape, frozen=True):
    """A member's tokens."""

    tokens: list[TokenShape]


class UpdateTeam(Shape, frozen=True, kw_only=True):
    """What shall be said about the team."""

    name: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    directive: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    context: Annotated[str, Meta(max_length=4096)] | None = None


class TeamResponse(Shape, frozen=True):
    """The team."""

    team: TeamShape


class PresetList(Shape, frozen=True):
    """Sets of permissions by name."""

    presets: dict[str, tuple[Permission, ...]]


class PutPreset(Shape, frozen=True):
    """The permissions of a preset."""

    permissions: Permissions


class Preset(Shape, frozen=True):
    """A named set of permissions."""

    name: str
    permissions: tuple[Permission, ...]


class PresetResponse(Shape, frozen=True):
    """One preset."""

    preset: Preset


class DeletedPreset(Shape, frozen=True):
    """A preset that is gone. Members keep permissions and no presets, so nobody refers to it."""

    deleted: str
    referenced_by: list[str]


# Channels.


class ChannelShape(Shape, frozen=True, kw_only=True):
    """A channel."""

    id: str
    slug: Slug
    created_by: str
    created_at: int
    archived_at: int | None


class ChannelSummary(Shape, frozen=True, kw_only=True):
    """A channel as the one who asks stands to it."""

    id: str
    slug: Slug
    created_by: str
    created_at: int
    archived_at: int | None
    joined: bool
    my_role: ChannelRole | None
    member_count: Annotated[int, Meta(ge=0)]


class ChannelList(Shape, frozen=True):
    """All channels."""

    channels: list[ChannelSummary]


class ChannelMember(Shape, frozen=True, kw_only=True):
    """Somebody in a channel."""

    channel_id: str
    member_name: str
    role: ChannelRole
    joined_at: int


class ChannelResponse(Shape, frozen=True):
    """A channel as the one who asks stands to it, and who is in it."""

    channel: ChannelSummary
    members: list[ChannelMember]


class SlugRequest(Shape, frozen=True):
    """What a channel shall be called."""

    slug: Slug


class AddChannelMember(Shape, frozen=True):
    """Who shall be in a channel, and as what; nobody named is whoever asks."""

    member: Name | None = None
    role: ChannelRole = "member"


# Objectives.


class ObjectiveShape(Shape, frozen=True, kw_only=True):
    """An objective as it stands."""

    id: str
    title: str
    body: str
    outcome: str
    status: ObjectiveStatus
    assignee: str
    originator: str
    watchers: tuple[str, ...]
    created_at: int
    updated_at: int
    completed_at: int | None
    result: str | None
    block_reason: str | None
    attachments: tuple[Attachment, ...]


class ObjectiveHappening(Shape, frozen=True, kw_only=True):
    """What was done to an objective."""

    objective_id: str
    ts: int
    actor: str
    kind: HappeningKind
    payload: dict[str, Any]


class ObjectiveListing(Shape, frozen=True):
    """Objectives, newest first."""

    objectives: list[ObjectiveShape]


class ObjectiveWithEvents(Shape, frozen=True):
    """An objective and all that was done to it."""

    objective: ObjectiveShape
    events: list[ObjectiveHappening]


class CreateObjective(Shape, frozen=True, kw_only=True):
    """Work for somebody."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]
    outcome: Annotated[str, Meta(min_length=1, max_length=2048)]
    body: Annotated[str, Meta(max_length=4096)] = ""
    assignee: Name
    watchers: Names = ()
    attachments: Attachments | None = None


class UpdateObjective(Shape, frozen=True, kw_only=True):
    """Whether it can go on."""

    status: Literal["active", "blocked"] | None = None
    block_reason: Reason | None = None


class CompleteObjective(Shape, frozen=True):
    """What came of it."""

    result: Annotated[str, Meta(min_length=1, max_length=4096)]


class CancelObjective(Shape, frozen=True):
    """Why it is not wanted any more."""

    reason: Reason | None = None


class ReassignObjective(Shape, frozen=True):
    """Who shall do it instead."""

    to: Name
    note: Reason | None = None


class DiscussObjective(Shape, frozen=True, kw_only=True):
    """What is said in its thread."""

    body: Annotated[str, Meta(min_length=1, max_length=16384)]
    title: Title | None = None
    attachments: Attachments | None = None


class UpdateWatchers(Shape, frozen=True):
    """Who shall follow it, and who no more."""

    add: Names = ()
    remove: Names = ()


class Briefing(Shape, frozen=True, kw_only=True):
    """What a member is told when it starts."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]
    instructions: str
    team: TeamShape
    teammates: list[Teammate]
    open_objectives: list[ObjectiveShape]

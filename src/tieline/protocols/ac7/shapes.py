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
"""Permissions and names of presets. When a preset changes, the permissions of its members change, too."""
TokenLabel = Annotated[str, Meta(max_length=64)]


class Shape(Struct, frozen=True, rename="camel"):
    """Base class of ac7's shapes (the types of JSON requests and answers). Keys are in camel case."""


class Failure(Shape, frozen=True, omit_defaults=True):
    """An error: a text for people and, for some errors, a code for programs."""

    error: str
    code: str | UnsetType = UNSET
    details: list[dict[str, Any]] | UnsetType = UNSET
    retry_after: int | UnsetType = UNSET
    """Seconds to wait before the next try. Only with status 429."""
    error_description: str | UnsetType = UNSET
    """Details of the error, for a device that polls."""


def later(text: str, seconds: int | None) -> Answer:
    """Return an HTTP answer with status 429 and this text.

    The answer asks the client to try again later. `seconds` is the time to wait, if it is known.
    """
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
    """A message to send. Other keys, such as a sender, are ignored."""

    body: Annotated[str, Meta(min_length=1, max_length=65536)]
    to: Name | None = None
    title: Title | None = None
    level: Level = "info"
    data: dict[str, Any] | None = None
    attachments: Attachments | None = None


class MessageShape(Shape, frozen=True, kw_only=True):
    """A message. It always has all nine keys."""

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
    """Number of streams that a message was written to, and number of its recipients."""

    live: Annotated[int, Meta(ge=0)]
    targets: Annotated[int, Meta(ge=0)]


class PushResult(Shape, frozen=True):
    """An accepted message."""

    delivery: DeliveryReport
    message: MessageShape


class HistoryResponse(Shape, frozen=True):
    """Messages, newest first."""

    messages: list[MessageShape]


# Members and the team.


class Role(Shape, frozen=True):
    """Role of a member on the team."""

    title: RoleTitle
    description: RoleDescription = ""


class RoleView(Shape, frozen=True):
    """A role, as answers show it."""

    title: str
    description: str


class Teammate(Shape, frozen=True):
    """A member, as other members see it."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]


class MemberShape(Shape, frozen=True):
    """A member with its instructions, for itself and for those who manage members."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]
    instructions: str


class TeamShape(Shape, frozen=True):
    """Details of the team."""

    name: str
    directive: str
    context: str
    permission_presets: dict[str, tuple[Permission, ...]]


class Connected(Shape, frozen=True, kw_only=True):
    """Presence of a member."""

    name: str
    connected: Annotated[int, Meta(ge=0)]
    created_at: int
    last_seen: int
    role: RoleView
    busy: Literal[True] | UnsetType = UNSET


class RosterResponse(Shape, frozen=True):
    """Members of the team, and their presence."""

    teammates: list[Teammate]
    connected: list[Connected]


class BusyRequest(Shape, frozen=True):
    """Report of a member that it is busy, or not any more."""

    busy: bool


class CreateMember(Shape, frozen=True, kw_only=True):
    """A new member."""

    name: Name
    role: Role
    instructions: Instructions = ""
    permissions: PermissionWords | str = ()
    """The permissions, or the name of a preset."""


class UpdateMember(Shape, frozen=True, kw_only=True):
    """Changes to a member."""

    role: Role | None = None
    instructions: Instructions | None = None
    permissions: PermissionWords | str | None = None


class ListedMember(Shape, frozen=True):
    """An entry in the list of members."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]
    instructions: str | UnsetType = UNSET
    """Shown only to the member itself and to managers of members."""


class MemberList(Shape, frozen=True):
    """All members."""

    members: list[ListedMember]


class CreatedMember(Shape, frozen=True):
    """A new member, with its token, which is shown only once."""

    member: MemberShape
    token: str


class CreateToken(Shape, frozen=True, kw_only=True):
    """Request for one more token."""

    label: TokenLabel = ""
    expires_at: Annotated[int, Meta(ge=0, le=2**53 - 1)] | None = None


TokenOrigin = Literal["bootstrap", "rotate", "enroll"]
"""The way a token was made. `bootstrap`: together with its member. `rotate`: it replaced all tokens of the member.
`enroll`: as one more token."""


class TokenShape(Shape, frozen=True, kw_only=True):
    """Details of a token, without the token itself."""

    id: str
    member_name: str
    label: str
    origin: TokenOrigin
    created_at: int
    created_by: str | None
    expires_at: int | None
    last_used_at: int | None


class RotatedToken(Shape, frozen=True):
    """A member's only token, which is shown only once, and its details."""

    token: str
    token_info: TokenShape


class CreatedToken(Shape, frozen=True):
    """A new token, shown only once."""

    token: str
    info: TokenShape


class TokenList(Shape, frozen=True):
    """A member's tokens."""

    tokens: list[TokenShape]


class UpdateTeam(Shape, frozen=True, kw_only=True):
    """Changes to the team."""

    name: Annotated[str, Meta(min_length=1, max_length=128)] | None = None
    directive: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    context: Annotated[str, Meta(max_length=4096)] | None = None


class TeamResponse(Shape, frozen=True):
    """The team."""

    team: TeamShape


class PresetList(Shape, frozen=True):
    """Presets by name. A preset is a named set of permissions."""

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
    """A deleted preset, and the members that referred to it: they have lost its permissions."""

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
    """A channel, with the caller's own membership and role."""

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
    """A member in a channel."""

    channel_id: str
    member_name: str
    role: ChannelRole
    joined_at: int


class ChannelResponse(Shape, frozen=True):
    """A channel, with the caller's own membership and role, and all its members."""

    channel: ChannelSummary
    members: list[ChannelMember]


class SlugRequest(Shape, frozen=True):
    """New name of a channel."""

    slug: Slug


class AddChannelMember(Shape, frozen=True):
    """Member to add to a channel, and its role. Without a name: the caller."""

    member: Name | None = None
    role: ChannelRole = "member"


# Objectives.


class ObjectiveShape(Shape, frozen=True, kw_only=True):
    """An objective in its current state."""

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
    """One entry of an objective's event log."""

    objective_id: str
    ts: int
    actor: str
    kind: HappeningKind
    payload: dict[str, Any]


class ObjectiveListing(Shape, frozen=True):
    """Objectives, newest first."""

    objectives: list[ObjectiveShape]


class ObjectiveWithEvents(Shape, frozen=True):
    """An objective with its event log."""

    objective: ObjectiveShape
    events: list[ObjectiveHappening]


class CreateObjective(Shape, frozen=True, kw_only=True):
    """A new objective: work for a member."""

    title: Annotated[str, Meta(min_length=1, max_length=200)]
    outcome: Annotated[str, Meta(min_length=1, max_length=2048)]
    body: Annotated[str, Meta(max_length=4096)] = ""
    assignee: Name
    watchers: Names = ()
    attachments: Attachments | None = None


class UpdateObjective(Shape, frozen=True, kw_only=True):
    """New status of an objective: blocked, or active again."""

    status: Literal["active", "blocked"] | None = None
    block_reason: Reason | None = None


class CompleteObjective(Shape, frozen=True):
    """Result of a completed objective."""

    result: Annotated[str, Meta(min_length=1, max_length=4096)]


class CancelObjective(Shape, frozen=True):
    """Reason to cancel an objective."""

    reason: Reason | None = None


class ReassignObjective(Shape, frozen=True):
    """New assignee of an objective."""

    to: Name
    note: Reason | None = None


class DiscussObjective(Shape, frozen=True, kw_only=True):
    """A message to an objective's thread."""

    body: Annotated[str, Meta(min_length=1, max_length=16384)]
    title: Title | None = None
    attachments: Attachments | None = None


class UpdateWatchers(Shape, frozen=True):
    """Watchers to add to an objective, and watchers to remove."""

    add: Names = ()
    remove: Names = ()


class Briefing(Shape, frozen=True, kw_only=True):
    """Everything that a member needs to know when it starts."""

    name: str
    role: RoleView
    permissions: tuple[Permission, ...]
    instructions: str
    team: TeamShape
    teammates: list[Teammate]
    open_objectives: list[ObjectiveShape]

"""Answers read as the protocol's existing clients read them: each shape a closed set of keys, none missing, no other.

It knows nothing of the hub's own shapes: what is written here is what clients expect, so that a key that is renamed or
left out over there fails here. `read` is asked about every answer that a test gets.
"""

import re
from typing import Annotated, Any, Literal
from uuid import UUID

import msgspec
from msgspec import UNSET, Meta, Struct, UnsetType

from tests.protocols.ac7.conformance.events import Count, Event, Milliseconds

Name = Annotated[str, Meta(pattern=r"^[a-zA-Z0-9._-]{1,128}$")]
Slug = Annotated[str, Meta(pattern=r"^(?:[a-z0-9](?:[a-z0-9]|-(?!-))*[a-z0-9]|[a-z0-9])$", max_length=32)]
Path = Annotated[str, Meta(pattern=r"^/(?:[a-zA-Z0-9._ -]+(?:/[a-zA-Z0-9._ -]+)*)?$", max_length=1024)]
Level = Literal["debug", "info", "notice", "warning", "error", "critical"]
Permission = Literal[
    "team.manage",
    "members.manage",
    "objectives.create",
    "objectives.cancel",
    "objectives.reassign",
    "objectives.watch",
    "activity.read",
]


class Closed(Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A shape with these keys and no others; what is not `UNSET` is always there."""


class Failure(Closed, frozen=True):
    """A "no"."""

    error: Annotated[str, Meta(min_length=1)]
    code: str | UnsetType = UNSET
    details: list[dict[str, Any]] | UnsetType = UNSET
    retry_after: Count | UnsetType = UNSET
    error_description: str | UnsetType = UNSET
    got: int | str | UnsetType = UNSET
    expected: int | UnsetType = UNSET


# Messages.


class Attachment(Closed, frozen=True):
    """A file that a message or an objective refers to."""

    path: Path
    name: Annotated[str, Meta(min_length=1, max_length=255)]
    size: Count
    mime_type: Annotated[str, Meta(min_length=1, max_length=255)]


class Message(Closed, frozen=True):
    """The nine keys."""

    id: UUID
    ts: Milliseconds
    to: Name | None
    from_: str | None
    title: Annotated[str, Meta(max_length=200)] | None
    body: str
    level: Level
    data: dict[str, Any]
    attachments: list[Attachment]


class Delivery(Closed, frozen=True):
    """Whom a push reached."""

    live: Count
    targets: Count


class Pushed(Closed, frozen=True):
    """A push that was accepted."""

    delivery: Delivery
    message: Message


class History(Closed, frozen=True):
    """What was said."""

    messages: list[Message]


# Members and the team.


class Role(Closed, frozen=True):
    """What a member is."""

    title: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str


class Teammate(Closed, frozen=True):
    """A member as others see it."""

    name: Name
    role: Role
    permissions: list[Permission]


class Member(Teammate, frozen=True):
    """A member as managers see it."""

    instructions: str


class ListedMember(Teammate, frozen=True):
    """A member in a list; its instructions are not for everybody."""

    instructions: str | UnsetType = UNSET


class Team(Closed, frozen=True):
    """What is said about the team."""

    name: Annotated[str, Meta(min_length=1)]
    directive: Annotated[str, Meta(min_length=1)]
    context: str
    permission_presets: dict[str, list[Permission]]


class Presence(Closed, frozen=True):
    """Whether a member is there."""

    name: Name
    connected: Count
    created_at: Milliseconds
    last_seen: Milliseconds
    role: Role
    busy: Literal[True] | UnsetType = UNSET


class Roster(Closed, frozen=True):
    """Who is on the team, and who is there."""

    teammates: list[Teammate]
    connected: list[Presence]


class MemberList(Closed, frozen=True):
    """All members."""

    members: list[ListedMember]


class CreatedMember(Closed, frozen=True):
    """A new member and its token."""

    member: Member
    token: Annotated[str, Meta(min_length=1)]


class NewToken(Closed, frozen=True):
    """The only token of a member."""

    token: Annotated[str, Meta(min_length=1)]


class Token(Closed, frozen=True):
    """What may be known of a token."""

    id: str
    member_name: Name
    label: Annotated[str, Meta(max_length=64)]
    origin: Literal["bootstrap", "rotate", "enroll"]
    created_at: Milliseconds
    created_by: Name | None
    expires_at: Milliseconds | None
    last_used_at: Milliseconds | None


class TokenList(Closed, frozen=True):
    """A member's tokens."""

    tokens: list[Token]


class CreatedToken(Closed, frozen=True):
    """One more token."""

    token: Annotated[str, Meta(min_length=1)]
    info: Token


class TeamAnswer(Closed, frozen=True):
    """The team."""

    team: Team


class Presets(Closed, frozen=True):
    """Sets of permissions by name."""

    presets: dict[str, list[Permission]]


class Preset(Closed, frozen=True):
    """One of them."""

    name: str
    permissions: list[Permission]


class PresetAnswer(Closed, frozen=True):
    """One of them, alone."""

    preset: Preset


class DeletedPreset(Closed, frozen=True):
    """One that is gone."""

    deleted: str
    referenced_by: list[Name]


# Channels.


class Channel(Closed, frozen=True):
    """A channel."""

    id: str
    slug: Slug
    created_by: str
    created_at: Milliseconds
    archived_at: Milliseconds | None


class ChannelSummary(Channel, frozen=True):
    """A channel as the one who asks stands to it."""

    joined: bool
    my_role: Literal["admin", "member"] | None
    member_count: Count


class ChannelList(Closed, frozen=True):
    """All channels."""

    channels: list[ChannelSummary]


class ChannelMember(Closed, frozen=True):
    """Somebody in a channel."""

    channel_id: str
    member_name: Name
    role: Literal["admin", "member"]
    joined_at: Milliseconds


class ChannelAnswer(Closed, frozen=True):
    """A channel and who is in it."""

    channel: ChannelSummary
    members: list[ChannelMember]


# Objectives.


class Objective(Closed, frozen=True):
    """The fourteen keys."""

    id: Annotated[str, Meta(pattern=r"^obj-[0-9a-z]+-[0-9a-z]+$")]
    title: str
    body: str
    outcome: str
    status: Literal["active", "blocked", "done", "cancelled"]
    assignee: Name
    originator: Name
    watchers: list[Name]
    created_at: Milliseconds
    updated_at: Milliseconds
    completed_at: Milliseconds | None
    result: str | None
    block_reason: str | None
    attachments: list[Attachment]


class ObjectiveList(Closed, frozen=True):
    """Objectives."""

    objectives: list[Objective]


class Assigned(Closed, frozen=True):
    """Payload in the event log."""

    title: str
    outcome: str
    assignee: Name
    watchers: list[Name] | UnsetType = UNSET


class Blocked(Closed, frozen=True):
    """Payload in the event log."""

    reason: str


class Unblocked(Closed, frozen=True):
    """Payload in the event log."""


class Completed(Closed, frozen=True):
    """Payload in the event log."""

    result: str


class Cancelled(Closed, frozen=True):
    """Payload in the event log."""

    reason: str | UnsetType = UNSET


class Reassigned(Closed, frozen=True):
    """Payload in the event log."""

    from_: Name
    to: Name
    note: str | UnsetType = UNSET


class Watcher(Closed, frozen=True):
    """Payload in the event log."""

    name: Name


_PAYLOADS: dict[str, type[Closed]] = {
    "assigned": Assigned,
    "blocked": Blocked,
    "unblocked": Unblocked,
    "completed": Completed,
    "cancelled": Cancelled,
    "reassigned": Reassigned,
    "watcher_added": Watcher,
    "watcher_removed": Watcher,
}


class ObjectiveEvent(Closed, frozen=True):
    """An entry of the event log."""

    objective_id: str
    ts: Milliseconds
    actor: Name
    kind: str
    payload: dict[str, Any]

    def __post_init__(self) -> None:
        msgspec.convert(self.payload, _PAYLOADS[self.kind])


class ObjectiveAnswer(Closed, frozen=True):
    """An objective and its event log."""

    objective: Objective
    events: list[ObjectiveEvent]


class Briefing(Member, frozen=True):
    """What a member is told when it starts."""

    team: Team
    teammates: list[Teammate]
    open_objectives: list[Objective]


# Activity.


class ActivityRow(Closed, frozen=True):
    """One thing that a member did."""

    id: Count
    member_name: Name
    event: Event
    created_at: Milliseconds


class ActivityList(Closed, frozen=True):
    """What a member did."""

    activity: list[ActivityRow]


class Uploaded(Closed, frozen=True):
    """An upload that is kept."""

    accepted: Annotated[int, Meta(ge=1, le=500)]


# Files.


class Entry(Closed, frozen=True):
    """A file or folder."""

    path: Path
    name: str
    kind: Literal["file", "directory"]
    owner: str
    size: Count | None
    mime_type: str | None
    hash: str | None
    created_at: Milliseconds
    created_by: str
    updated_at: Milliseconds


class Entries(Closed, frozen=True):
    """Some of them."""

    entries: list[Entry]


class EntryAnswer(Closed, frozen=True):
    """One of them."""

    entry: Entry


class Written(Closed, frozen=True):
    """One that was written."""

    entry: Entry
    renamed: bool


# Logins and enrolment.


class Login(Closed, frozen=True):
    """Who is logged in, and until when."""

    member: Name
    role: Role
    permissions: list[Permission]
    expires_at: Milliseconds


class Secret(Closed, frozen=True):
    """What an authenticator app needs."""

    totp_secret: Annotated[str, Meta(pattern=r"^[A-Z2-7]{16,}$")]
    totp_uri: Annotated[str, Meta(pattern=r"^otpauth://totp/")]


class Started(Closed, frozen=True):
    """The codes of a device."""

    device_code: Annotated[str, Meta(pattern=r"^ac7-dc_")]
    user_code: Annotated[str, Meta(pattern=r"^[0-9A-HJKMNP-TV-Z]{4}-[0-9A-HJKMNP-TV-Z]{4}$")]
    verification_uri: str
    verification_uri_complete: str
    expires_in: Count
    interval: Count


class Waiting(Closed, frozen=True):
    """A device that waits for a person."""

    user_code: str
    label_hint: str
    source_ip: str | None
    source_ua: str | None
    created_at: Milliseconds
    expires_at: Milliseconds


class Pending(Closed, frozen=True):
    """All of them."""

    enrollments: list[Waiting]


class Polled(Closed, frozen=True):
    """The token of a device."""

    token: Annotated[str, Meta(min_length=1)]
    token_id: str
    member: Teammate


class Approved(Closed, frozen=True):
    """For whom a device is."""

    member: Teammate
    token_info: Token


class Health(Closed, frozen=True):
    """The server is there."""

    status: Literal["ok"]
    version: str


class _Anything:
    """An answer whose form another document fixes."""


ANYTHING = _Anything
NOTHING = None

SHAPES: dict[tuple[str, str], Any] = {
    ("POST", "/push"): Pushed,
    ("GET", "/history"): History,
    ("GET", "/roster"): Roster,
    ("GET", "/briefing"): Briefing,
    ("POST", "/presence/busy"): NOTHING,
    ("GET", "/members"): MemberList,
    ("POST", "/members"): CreatedMember,
    ("PATCH", "/members/{name}"): Member,
    ("DELETE", "/members/{name}"): NOTHING,
    ("POST", "/members/{name}/rotate-token"): NewToken,
    ("GET", "/members/{name}/tokens"): TokenList,
    ("POST", "/members/{name}/tokens"): CreatedToken,
    ("DELETE", "/members/{name}/tokens/{id}"): NOTHING,
    ("POST", "/members/{name}/activity"): Uploaded,
    ("GET", "/members/{name}/activity"): ActivityList,
    ("POST", "/members/{name}/enroll-totp"): Secret,
    ("GET", "/fs/ls"): Entries,
    ("GET", "/fs/stat"): EntryAnswer,
    ("GET", "/fs/read/{path}"): ANYTHING,
    ("POST", "/fs/write"): Written,
    ("POST", "/fs/mkdir"): EntryAnswer,
    ("DELETE", "/fs/rm"): NOTHING,
    ("POST", "/fs/mv"): EntryAnswer,
    ("GET", "/fs/shared"): Entries,
    ("GET", "/fs/all"): Entries,
    ("POST", "/enroll"): Started,
    ("POST", "/enroll/poll"): Polled,
    ("GET", "/enroll/pending"): Pending,
    ("POST", "/enroll/approve"): Approved,
    ("POST", "/enroll/reject"): NOTHING,
    ("POST", "/session/totp"): Login,
    ("GET", "/session"): Login,
    ("POST", "/session/logout"): NOTHING,
    ("GET", "/team"): TeamAnswer,
    ("PATCH", "/team"): TeamAnswer,
    ("GET", "/team/presets"): Presets,
    ("PUT", "/team/presets/{name}"): PresetAnswer,
    ("DELETE", "/team/presets/{name}"): DeletedPreset,
    ("GET", "/channels"): ChannelList,
    ("POST", "/channels"): Channel,
    ("GET", "/channels/{slug}"): ChannelAnswer,
    ("PATCH", "/channels/{slug}"): Channel,
    ("DELETE", "/channels/{slug}"): Channel,
    ("POST", "/channels/{slug}/members"): ChannelAnswer,
    ("DELETE", "/channels/{slug}/members/{name}"): ChannelAnswer,
    ("GET", "/objectives"): ObjectiveList,
    ("POST", "/objectives"): Objective,
    ("GET", "/objectives/{id}"): ObjectiveAnswer,
    ("PATCH", "/objectives/{id}"): Objective,
    ("POST", "/objectives/{id}/complete"): Objective,
    ("POST", "/objectives/{id}/cancel"): Objective,
    ("POST", "/objectives/{id}/reassign"): Objective,
    ("POST", "/objectives/{id}/watchers"): Objective,
    ("POST", "/objectives/{id}/discuss"): Message,
    ("POST", "/otlp/v1/logs"): ANYTHING,
    ("POST", "/otlp/v1/traces"): ANYTHING,
    ("GET", "/healthz"): Health,
}
"""What each route answers with."""

_OPEN = [
    (method, re.compile(re.sub(r"\{\w+\}", "[^/]+", path) + r"\Z"), shape) for (method, path), shape in SHAPES.items()
]
_REFUSAL = 400
_NOT_FOUND = "404 Not Found"
_TELEMETRY = "/otlp/"
"""OpenTelemetry says what is answered there, not this protocol."""


def read(method: str, target: str, status: int, text: str) -> None:
    """See that an answer is one that clients can read."""
    path = target.partition("?")[0]
    if path.startswith(_TELEMETRY):
        return
    if status >= _REFUSAL:
        if text != _NOT_FOUND:
            msgspec.json.decode(text, type=Failure)
        return
    for known, pattern, shape in _OPEN:
        if known == method and pattern.match(path):
            if shape is NOTHING:
                assert not text, (method, path, text)
            elif shape is not ANYTHING:
                msgspec.json.decode(text, type=shape)
            return


def read_message(text: str | bytes) -> None:
    """See that what a stream carries is a message."""
    msgspec.json.decode(text, type=Message)


def read_activity(text: str | bytes) -> None:
    """See that what a stream of activity carries is a row of it."""
    msgspec.json.decode(text, type=ActivityRow)

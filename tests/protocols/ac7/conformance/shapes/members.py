"""Answer shapes of ac7's members, tokens and team, as the protocol's existing clients read them."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name, Permission


class Role(Closed, frozen=True):
    """Part of an answer: the role of a member."""

    title: Annotated[str, Meta(min_length=1, max_length=64)]
    description: str


class Teammate(Closed, frozen=True):
    """Part of an answer: a member as other members see it."""

    name: Name
    role: Role
    permissions: list[Permission]


class Member(Teammate, frozen=True):
    """Answer, or part of it: a member as managers see it."""

    instructions: str


class ListedMember(Teammate, frozen=True):
    """Part of an answer: a member in a list. Only some requests show its instructions."""

    instructions: str | UnsetType = UNSET


class Team(Closed, frozen=True):
    """Part of an answer: the description of the team."""

    name: Annotated[str, Meta(min_length=1)]
    directive: Annotated[str, Meta(min_length=1)]
    context: str
    permission_presets: dict[str, list[Permission]]


class Presence(Closed, frozen=True):
    """Part of an answer: the presence of a member."""

    name: Name
    connected: Count
    created_at: Milliseconds
    last_seen: Milliseconds
    role: Role
    busy: Literal[True] | UnsetType = UNSET


class Roster(Closed, frozen=True):
    """Answer with the members of the team, and the presence of each."""

    teammates: list[Teammate]
    connected: list[Presence]


class MemberList(Closed, frozen=True):
    """Answer with all members."""

    members: list[ListedMember]


class CreatedMember(Closed, frozen=True):
    """Answer to the creation of a member: the member and its token."""

    member: Member
    token: Annotated[str, Meta(min_length=1)]


class Token(Closed, frozen=True):
    """Part of an answer: the public data of a token, without its secret."""

    id: str
    member_name: Name
    label: Annotated[str, Meta(max_length=64)]
    origin: Literal["bootstrap", "rotate", "enroll"]
    created_at: Milliseconds
    created_by: Name | None
    expires_at: Milliseconds | None
    last_used_at: Milliseconds | None


class NewToken(Closed, frozen=True):
    """Answer to the rotation of tokens: the new token, which is now the member's only one."""

    token: Annotated[str, Meta(min_length=1)]
    token_info: Token


class TokenList(Closed, frozen=True):
    """Answer with a member's tokens."""

    tokens: list[Token]


class CreatedToken(Closed, frozen=True):
    """Answer to the creation of one more token."""

    token: Annotated[str, Meta(min_length=1)]
    info: Token


class TeamAnswer(Closed, frozen=True):
    """Answer with the description of the team."""

    team: Team


class Presets(Closed, frozen=True):
    """Answer with all presets (named sets of permissions)."""

    presets: dict[str, list[Permission]]


class Preset(Closed, frozen=True):
    """Part of an answer: one preset (named set of permissions)."""

    name: str
    permissions: list[Permission]


class PresetAnswer(Closed, frozen=True):
    """Answer with one preset (named set of permissions)."""

    preset: Preset


class DeletedPreset(Closed, frozen=True):
    """Answer to the deletion of a preset: its name, and the members that refer to it."""

    deleted: str
    referenced_by: list[Name]

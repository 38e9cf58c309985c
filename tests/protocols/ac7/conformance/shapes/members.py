"""Members, their tokens and their team as the protocol's existing clients read them."""

from typing import Annotated, Literal

from msgspec import UNSET, Meta, UnsetType

from tests.protocols.ac7.conformance.events import Count, Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name, Permission


class Role(Closed, frozen=True):
    """Role of a member."""

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
    """Description of the team."""

    name: Annotated[str, Meta(min_length=1)]
    directive: Annotated[str, Meta(min_length=1)]
    context: str
    permission_presets: dict[str, list[Permission]]


class Presence(Closed, frozen=True):
    """Presence of a member."""

    name: Name
    connected: Count
    created_at: Milliseconds
    last_seen: Milliseconds
    role: Role
    busy: Literal[True] | UnsetType = UNSET


class Roster(Closed, frozen=True):
    """The members of the team, and their presence."""

    teammates: list[Teammate]
    connected: list[Presence]


class MemberList(Closed, frozen=True):
    """All members."""

    members: list[ListedMember]


class CreatedMember(Closed, frozen=True):
    """A new member and its token."""

    member: Member
    token: Annotated[str, Meta(min_length=1)]


class Token(Closed, frozen=True):
    """Public data of a token."""

    id: str
    member_name: Name
    label: Annotated[str, Meta(max_length=64)]
    origin: Literal["bootstrap", "rotate", "enroll"]
    created_at: Milliseconds
    created_by: Name | None
    expires_at: Milliseconds | None
    last_used_at: Milliseconds | None


class NewToken(Closed, frozen=True):
    """The only token of a member."""

    token: Annotated[str, Meta(min_length=1)]
    token_info: Token


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
    """One set of permissions, with its name."""

    name: str
    permissions: list[Permission]


class PresetAnswer(Closed, frozen=True):
    """The answer with one preset."""

    preset: Preset


class DeletedPreset(Closed, frozen=True):
    """The answer to the deletion of a preset."""

    deleted: str
    referenced_by: list[Name]

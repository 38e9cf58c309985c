"""Members, and the credentials by which a session proves to be one."""

from enum import StrEnum

from msgspec import Struct

from tieline.contract.identifiers import MemberName
from tieline.contract.internal import Internal


class MemberKind(StrEnum):
    """Who is behind the name. Only agents answer each other without end, so the loop rule counts theirs alone."""

    AGENT = "agent"
    HUMAN = "human"
    SCRIPT = "script"
    """A program without a model behind it. Its messages are never slowed, and never held for their hops."""


class Origin(StrEnum):
    """Which kind of credential made the name; another kind may not take it."""

    TOKEN = "token"
    LOCAL = "local"
    SHARED = "shared"
    """A token that several names share; the hub knows which token made the name."""


class Member(Struct, frozen=True):
    """A named participant: one name in the whole hub, many sessions."""

    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    origin: Internal[Origin] = Origin.TOKEN
    created_at_ms: int = 0
    title: str = ""
    """Its role on the team, in a word or two."""
    description: str = ""
    """Description of that role."""
    instructions: str = ""
    """Instructions to the member; for itself and for those who manage members."""


class Presence(Struct, frozen=True):
    """A member with what is known of it now."""

    member: Member
    sessions: tuple[str, ...]
    """Protocols of its live sessions, one entry per session."""
    backlog: int
    """Number of deliveries that wait for the member and that a session could still acknowledge."""
    last_seen_ms: int | None
    busy: bool = False
    """True if the member said lately that it is at work."""
    held: int = 0
    """Number of deliveries in the backlog that are held."""


class TokenView(Struct, frozen=True):
    """What may be known of a member's token."""

    id: str
    label: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_ms: int | None
    """Time at which this token last opened a session, since the hub started."""


class ByToken(Struct, frozen=True, tag=True):
    """A member token, as every protocol's bearer token."""

    token: str


class ByShared(Struct, frozen=True, tag=True):
    """A token that several names may share, which the protocol has found among those it was configured with.

    It owns the names that were first made under it, whether they are connected or not.
    """

    token: str


class ByHomeKey(Struct, frozen=True, tag=True):
    """The key in the hub's home: whoever can read it may act as any member."""

    key: str


class ByUser(Struct, frozen=True, tag=True):
    """A local socket that only the hub's own user can open: enough for names that such sessions made, and new ones."""


class ByPlace(Struct, frozen=True, tag=True):
    """A local socket that stands for a member and that only the hub's own user can open."""


class Unnamed(Struct, frozen=True, tag=True):
    """No identity at all: speaks as `<label>@<place>`, never as a member."""

    label: str
    place: str


Credential = ByToken | ByShared | ByHomeKey | ByUser | ByPlace | Unnamed

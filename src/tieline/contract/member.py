"""Members, and the credentials by which a session proves to be one."""

from enum import StrEnum

from msgspec import Struct

from tieline.contract.identifiers import MemberName


class MemberKind(StrEnum):
    """Who is behind the name. A human's message starts a new causal chain."""

    AGENT = "agent"
    HUMAN = "human"
    SCRIPT = "script"


class Origin(StrEnum):
    """Which kind of credential made the name; another kind may not take it."""

    TOKEN = "token"
    LOCAL = "local"


class Member(Struct, frozen=True):
    """A named participant: one name in the whole hub, many sessions."""

    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    origin: Origin = Origin.TOKEN
    created_at_ms: int = 0


class Presence(Struct, frozen=True):
    """A member with what is known of it now."""

    member: Member
    sessions: tuple[str, ...]
    """Protocols of its live sessions, one entry a session."""
    backlog: int
    """Deliveries that wait for it and that a session could still acknowledge."""
    last_seen_ms: int | None


class ByToken(Struct, frozen=True):
    """A member token, as every protocol's bearer token."""

    token: str


class ByHomeKey(Struct, frozen=True):
    """The key in the hub's home: whoever can read it may act as any member."""

    key: str


class ByUser(Struct, frozen=True):
    """A local socket that only the hub's own user can open: enough for names that such sessions made, and new ones."""


class ByPlace(Struct, frozen=True):
    """A local socket that stands for a member and that only the hub's own user can open."""


class Unnamed(Struct, frozen=True):
    """No identity at all: speaks as `<label>@<place>`, never as a member."""

    label: str
    place: str


Credential = ByToken | ByHomeKey | ByUser | ByPlace | Unnamed

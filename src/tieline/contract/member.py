"""Members, and the credentials by which a session proves to be one."""

from enum import StrEnum

from msgspec import Struct

from tieline.contract.identifiers import MemberName
from tieline.contract.internal import Internal


class MemberKind(StrEnum):
    """Kind of a member. Only agents answer each other without end, so the loop rule counts only replies of agents."""

    AGENT = "agent"
    HUMAN = "human"
    SCRIPT = "script"
    """A program without a model behind it. Its messages are never slowed, and never held for their hops."""


class Origin(StrEnum):
    """Kind of credential with which a member was created. A client with another kind cannot take over its name."""

    TOKEN = "token"
    LOCAL = "local"
    SHARED = "shared"
    """A token that several members share; the hub knows which token created the member."""


class Member(Struct, frozen=True):
    """A named participant: one name in the whole hub, many sessions."""

    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    """The member's own permissions, and those of its presets."""
    origin: Internal[Origin] = Origin.TOKEN
    created_at_ms: int = 0
    title: str = ""
    """The member's role on the team, in a word or two."""
    description: str = ""
    """Description of the member's role on the team."""
    instructions: str = ""
    """Instructions to the member. Only the member itself and members who manage members can read them."""
    presets: Internal[tuple[str, ...]] = ()
    """Names of the presets (named sets of permissions) from which the member has permissions."""


class Presence(Struct, frozen=True):
    """A member with its current state: sessions, backlog, busy or not."""

    member: Member
    sessions: tuple[str, ...]
    """The protocol of each of the member's open sessions, one entry per session."""
    backlog: int
    """Number of deliveries that wait for the member: no session has offered them, or one that can acknowledge has, and
    nobody acknowledged them. A delivery that went out on a wire without acknowledgement does not wait."""
    last_seen_ms: int | None
    busy: bool = False
    """True if the member reported lately that it is busy."""
    held: int = 0
    """Number of deliveries in the backlog that are held: the hub does not deliver them yet."""
    unoffered: Internal[int] = 0
    """Number of deliveries in the backlog that were sent to no session yet and are not held."""


class TokenView(Struct, frozen=True):
    """Details of a member's token, without the token itself."""

    id: str
    label: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_ms: int | None
    """Time at which this token last opened a session; `None` if it opened none since the hub started."""


class ByToken(Struct, frozen=True, tag=True):
    """Credential of one member: its token, which is valid on every protocol."""

    token: str


class ByShared(Struct, frozen=True, tag=True):
    """Credential of several members: a token of the protocol's configuration, which the protocol has checked.

    A session with it may act as the members that were created with the same token, and create new ones; see
    `core.shared_tokens`.
    """

    token: str


class ByHomeKey(Struct, frozen=True, tag=True):
    """Credential of the user who runs the hub: the key in the hub's folder. Its holder may act as any member."""

    key: str


class ByUser(Struct, frozen=True, tag=True):
    """Credential of a client on a local socket that only the hub's own user can open.

    A session with it may act as the members that such sessions created, and create new ones.
    """


class ByPlace(Struct, frozen=True, tag=True):
    """Credential of a client on a local socket that stands for one member. Only the hub's own user can open it."""


class Unnamed(Struct, frozen=True, tag=True):
    """Credential of a client without any identity: it sends as `<label>@<place>`, never as a member."""

    label: str
    place: str


Credential = ByToken | ByShared | ByHomeKey | ByUser | ByPlace | Unnamed

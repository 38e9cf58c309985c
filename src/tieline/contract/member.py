"""Members, and the credentials by which a client proves which member it is."""

from enum import StrEnum

from msgspec import Struct

from tieline.contract.delivery import Step
from tieline.contract.identifiers import MemberName
from tieline.contract.internal import Internal


class MemberKind(StrEnum):
    """Kind of a member. The loop rule, which slows endless answers between agents, counts only replies of agents."""

    AGENT = "agent"
    HUMAN = "human"
    SCRIPT = "script"
    """A program without a model behind it. The loop rule (see `MemberKind`) never slows or holds its messages."""


class Origin(StrEnum):
    """Kind of credential with which a member was created. A client with another kind cannot act as this member."""

    TOKEN = "token"
    LOCAL = "local"
    SHARED = "shared"
    """A token that several members share. The hub remembers with which shared token the member was created."""


class Member(Struct, frozen=True):
    """A named participant (agent, human or script). It has one name in the whole hub, and any number of sessions."""

    name: MemberName
    kind: MemberKind = MemberKind.AGENT
    permissions: tuple[str, ...] = ()
    """The member's own permissions, and the permissions from its presets."""
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
    """A member with its current state: open sessions, waiting deliveries (backlog), and if it is busy."""

    member: Member
    sessions: tuple[str, ...]
    """The protocol of each of the member's open sessions, one entry per session."""
    backlog: int
    """Number of deliveries that the member must still acknowledge. A delivery that was sent on a wire without
    acknowledgement does not count."""
    last_seen_ms: int | None
    busy: bool = False
    """True if the member reported lately that it is busy."""
    held: int = 0
    """Number of deliveries in the backlog that are held: the hub does not deliver them yet."""
    busy_since_ms: int | None = None
    """Time since which the member has reported without a gap that it is busy; `None` if it is not busy."""
    evidence: Step | None = None
    """The last step of any delivery to the member for which one of its sessions gave evidence, since the hub
    started."""
    unoffered: Internal[int] = 0
    """Number of deliveries in the backlog that are not held and were not sent to any session yet."""


class TokenView(Struct, frozen=True):
    """Details of a member's token, without the token itself."""

    id: str
    label: str
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    last_used_ms: int | None
    """Time at which a session was last opened with this token; `None` if none was since the hub started."""


ROOM_INVITATION = "room"
"""Id of the room token among the invitations. It has no end, and any number of members can join with it."""


class InvitationView(Struct, frozen=True):
    """Details of an invitation, without its secret. With the secret, somebody who is no member can become one."""

    id: str
    member: str
    """The name that the new member must take; empty for any name that is free."""
    created_by: str
    created_at_ms: int
    expires_at_ms: int | None
    """Time from which on the invitation is refused; `None` for an invitation without an end."""
    uses: int | None
    """Number of members that can still join with it; `None` for any number."""
    joined: tuple[str, ...] = ()
    """Names of the members who joined with it."""


class ByToken(Struct, frozen=True, tag=True):
    """Credential of one member: its token, which is valid on every protocol."""

    token: str


class ByShared(Struct, frozen=True, tag=True):
    """Credential that several members share: a token from the configuration of a protocol. The protocol has checked it.

    A session with this token may act as any member that was created with it. It may also create new members.
    """

    token: str


class ByHomeKey(Struct, frozen=True, tag=True):
    """Credential of the user who runs the hub: the key in the hub's folder. A client with it may act as any member."""

    key: str


class ByUser(Struct, frozen=True, tag=True):
    """Credential of a client on a local socket that only the hub's own user can open.

    The session of the client may act as any member that was created through such a socket. It may also create new
    members.
    """


class ByPlace(Struct, frozen=True, tag=True):
    """Credential of a client on a local socket that belongs to one member. Only the hub's user can open the socket."""


class Unnamed(Struct, frozen=True, tag=True):
    """Credential of a client without an identity. Its messages have the sender `<label>@<place>`, never a member."""

    label: str
    place: str


Credential = ByToken | ByShared | ByHomeKey | ByUser | ByPlace | Unnamed

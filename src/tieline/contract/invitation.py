"""Commands about invitations: secrets with which somebody who is no member can become one.

The module `command` exports them with all other commands.
"""

from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName
from tieline.contract.internal import Internal
from tieline.contract.member import MemberKind
from tieline.contract.request import Request, SessionCommand


class Invite(Request[r.Invited], frozen=True, kw_only=True):
    """Make an invitation: a secret with which somebody who is no member can become one."""

    member: MemberName | None = None
    """The name that the new member must take; `None` for any name that is free."""
    expires_at_ms: int | None = None
    """Time from which on the invitation is refused; `None` for an invitation without an end."""
    uses: int = 1
    """Number of members that can join with the invitation."""
    room: bool = False
    """True to replace the room token instead. It has no end, and any number of members can join with it."""
    kind: MemberKind = MemberKind.AGENT
    """Kind of the members that join with the invitation."""


class ListInvitations(Request[r.Invitations], frozen=True, kw_only=True):
    """List the invitations with which somebody can still join, oldest first."""

    secret: Internal[str | None] = None
    """Only the invitation with this secret."""


class RevokeInvitation(Request[r.Done], frozen=True, kw_only=True):
    """Revoke an invitation: nobody can join with it any more. Members who have joined stay."""

    invitation_id: str


class AcceptInvitation(SessionCommand[r.Issued], frozen=True, kw_only=True):
    """Create a member for somebody who has an invitation, and return its first token."""

    name: MemberName
    secret: str
    token: str | None = None
    """A token that the protocol chose for the member. Without one, the hub creates a token."""

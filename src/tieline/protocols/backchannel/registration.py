"""Registration: a client that has an invitation registers a name, and the hub gives the name a token.

Used by: the relay. Uses: the interface `contract.hub`, in an operator's session, because only operators make members.
The room token is one of the invitations. An invitation allows registration and nothing else. A client cannot register a
name that a member already has. This is also true if that member is a local agent without a token. Messages may wait for
this member, and a client that has an invitation need not be the person at the hub's machine.
"""

import secrets

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Credential, InvitationView, Member, Presence
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Channels, Issued, Roster
from tieline.wire.rate_limit import RateLimit
from tieline.wire.sessions import ask_all

_TOKEN_BYTES = 32
_OPEN_NAMES_MAX = 100
_OPEN_WINDOW_MS = 3600 * 1000
"""Time window, in milliseconds, of the rate limit for registration without a room token.

The limit is needed because then any stranger can register, and the hub never removes members by itself.
"""
_WRONG_MAX = 100
_WRONG_WINDOW_MS = 3600 * 1000
"""Time window, in milliseconds, of the rate limit for wrong invitations. Each client address has its own limit.

Nobody can guess an invitation. The limit is needed because each attempt costs the hub some work.
"""


class Registered(Struct, frozen=True):
    """Result of a registration: the new member, its token, and the hub's channels.

    The hub never shows the token again.
    """

    token: str
    presence: Presence
    channels: Channels


class Registrar:
    """Makes a member for each client that registers a name, if the client has an invitation.

    The room token is one of the invitations. If `is_open` is true, everybody may register without one. If
    `hub_makes_tokens` is true, the hub makes the tokens of members. This is needed in every room but the common room,
    because the hub finds the room of a request by the token.
    """

    def __init__(
        self, hub: Hub, protocol: str, operator: Credential, *, is_open: bool, hub_makes_tokens: bool = False
    ) -> None:
        self._hub = hub
        self._protocol = protocol
        self._operator = operator
        self.is_open = is_open
        self._hub_makes_tokens = hub_makes_tokens
        # Rate limit for names that are registered without an invitation.
        self._open = RateLimit(_OPEN_NAMES_MAX, _OPEN_WINDOW_MS)
        # Rate limit for wrong invitations, by address.
        self._wrong = RateLimit(_WRONG_MAX, _WRONG_WINDOW_MS)

    def wait_ms(self, address: str, now_ms: int) -> int:
        """Return the milliseconds for which a client at this address must wait, because it sent wrong invitations."""
        return self._wrong.wait_ms(address, now_ms)

    def count_wrong(self, address: str, now_ms: int) -> None:
        """Count an attempt to register from this address without a valid invitation."""
        self._wrong.count(address, now_ms)

    async def find(self, secret: str) -> InvitationView | Refusal | None:
        """Return the invitation with this secret. Return `None` if nobody can join with it.

        Return a refusal if the hub refuses the request.
        """
        session = await self._attach()
        if isinstance(session, Refusal):
            return session
        found = await self._hub.ask(c.ListInvitations(session, secret=secret))
        self._hub.submit((c.Detach(session),))
        if isinstance(found, Refusal):
            return found
        return found.invitations[0] if found.invitations else None

    def is_full(self, now_ms: int) -> bool:
        """True if everybody may register, and the rate limit for registration is reached."""
        return self.is_open and self._open.wait_ms(None, now_ms) > 0

    async def holder(self, name: MemberName) -> Member | Refusal | None:
        """Return the member with this name, ignoring upper and lower case. Return `None` if there is no such member.

        Return a refusal if the hub refuses the request.
        """
        session = await self._attach()
        if isinstance(session, Refusal):
            return session
        roster = await self._hub.ask(c.ListMembers(session, name=name))
        self._hub.submit((c.Detach(session),))
        if isinstance(roster, Refusal):
            return roster
        assert isinstance(roster, Roster), "members are asked for"
        return roster.members[0].member if roster.members else None

    async def register(self, name: MemberName, secret: str | None, now_ms: int) -> Registered | Member | Refusal:
        """Make a member with this name, and return the member with its token.

        `secret` is the secret of an invitation; `None` if everybody may register. If the name is in use, return the
        member that has the name. If the hub refuses, return the refusal.
        """
        session = await self._attach()
        if isinstance(session, Refusal):
            return session
        if secret is None:
            # Count before the hub answers, so that many requests at once cannot pass the limit.
            self._open.count(None, now_ms)
        token = None if self._hub_makes_tokens else secrets.token_hex(_TOKEN_BYTES)
        issued, roster, channels = await ask_all(
            self._hub,
            (
                c.AddMember(session, name=name, token=token, self_named=True)
                if secret is None
                else c.AcceptInvitation(session, name=name, secret=secret, token=token),
                c.ListMembers(session, name=name),
                c.ListChannels(session),
            ),
        )
        self._hub.submit((c.Detach(session),))
        match issued, roster, channels:
            case Issued(), Roster(), Channels():
                return Registered(issued.token, roster.members[0], channels)
            case Refusal(Code.NAME_TAKEN), Roster(members=(holder, *_)), _:
                return holder.member
            case _:
                assert isinstance(issued, Refusal), "they are decided together, so all are answered or none"
                return issued

    async def _attach(self) -> SessionId | Refusal:
        # A new session each time: registration is rare, and a kept session would end at the first store failure.
        attached = await self._hub.ask(c.Attach(protocol=self._protocol, credential=self._operator))
        if isinstance(attached, Refusal):
            return attached
        assert isinstance(attached, Attached), "an attach is answered by these"
        return attached.session

"""Registration: a client that knows the room's token registers a name, and the hub gives the name a token.

Used by: the relay. Uses: the Hub port, in an operator's session, because only operators make members. The room's token
allows registration and nothing else. A client cannot register a name that a member already has. This is also true if
that member is a local agent without a token. Messages may wait for this member, and a client that knows the room's
token need not be the person at the hub's machine.
"""

import hmac
import secrets
from hashlib import sha256

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Credential, Member, Presence
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


class Registered(Struct, frozen=True):
    """Result of a registration: the new member, its token, and the hub's channels.

    The hub never shows the token again.
    """

    token: str
    presence: Presence
    channels: Channels


def _digest(room_token: str) -> bytes | None:
    return sha256(room_token.encode()).digest() if room_token else None


class Registrar:
    """Makes a member for each client that registers a name, if the client knows the room token.

    `room_token` is the token itself. In a room that is not the common room, it is the hash of the token. If it is an
    empty text, everybody may register.
    """

    def __init__(self, hub: Hub, protocol: str, operator: Credential, room_token: str | bytes) -> None:
        self._hub = hub
        self._protocol = protocol
        self._operator = operator
        # True in any room but the common room. The hub makes the tokens there, because a token must lead to its room.
        self._hub_makes_tokens = isinstance(room_token, bytes)
        # A digest, so that the duration of a comparison reveals nothing.
        self._room = room_token if isinstance(room_token, bytes) else _digest(room_token)
        # Rate limit for names that are registered without a room token.
        self._open = RateLimit(_OPEN_NAMES_MAX, _OPEN_WINDOW_MS)

    def is_room(self, token: str) -> bool:
        """True if `token` is the room token. The room token allows registration and nothing else."""
        return self._room is not None and hmac.compare_digest(sha256(token.encode()).digest(), self._room)

    def admits(self, token: str | None) -> bool:
        """True if a client with this token may register a new name. Without a room token, every client may."""
        return self._room is None or (token is not None and self.is_room(token))

    def is_full(self, now_ms: int) -> bool:
        """True if no room token is set and the rate limit for registration is reached."""
        return self._room is None and self._open.wait_ms(None, now_ms) > 0

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

    async def register(self, name: MemberName, now_ms: int) -> Registered | Member | Refusal:
        """Make a member with this name, and return the member with its token.

        If the name is in use, return the member that has the name. If the hub refuses, return the refusal.
        """
        session = await self._attach()
        if isinstance(session, Refusal):
            return session
        # Count before the hub answers, so that many requests at once cannot pass the limit.
        self._open.count(None, now_ms)
        token = None if self._hub_makes_tokens else secrets.token_hex(_TOKEN_BYTES)
        issued, roster, channels = await ask_all(
            self._hub,
            (
                c.AddMember(session, name=name, token=token, self_named=True),
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

"""Registration: how a name comes to belong to a token, for whoever knows the room's token.

Above: the relay. Below: the Hub port, as an operator, because making members is for those alone. The room's token opens
this and nothing else.
"""

import hmac
import secrets
from hashlib import sha256

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.member import Credential, Origin, Presence
from tieline.contract.refusal import Refusal
from tieline.contract.reply import Attached, Channels, Issued, Roster
from tieline.wire.sessions import ask_all

_TOKEN_BYTES = 32


class Registered(Struct, frozen=True):
    """A name that has its token now, which is shown this once."""

    token: str
    presence: Presence
    channels: Channels


class Registrar:
    """Makes members. An empty room token admits everybody."""

    def __init__(self, hub: Hub, protocol: str, operator: Credential, room_token: str) -> None:
        self._hub = hub
        self._protocol = protocol
        self._operator = operator
        # Digests, so that how long a comparison takes says nothing.
        self._room = sha256(room_token.encode()).digest() if room_token else None

    def is_room(self, token: str) -> bool:
        """Whether this is the room's token."""
        return self._room is not None and hmac.compare_digest(sha256(token.encode()).digest(), self._room)

    def admits(self, token: str | None) -> bool:
        """Whether whoever shows this may register a new name."""
        return self._room is None or (token is not None and self.is_room(token))

    async def owner(self, name: MemberName) -> Presence | Refusal | None:
        """The member that holds a name, perhaps in another spelling; none where a local name has no owner."""
        session = await self._attach()
        if isinstance(session, Refusal):
            return session
        roster = await self._hub.ask(c.ListMembers(session, name))
        self._hub.submit((c.Detach(session),))
        if isinstance(roster, Refusal):
            return roster
        assert isinstance(roster, Roster), "members are asked for"
        found = roster.members[0] if roster.members else None
        return None if found is None or self._free(found, name) else found

    async def register(self, name: MemberName) -> Registered | Refusal:
        """Make the member, or let a local name belong to a token from now on."""
        session = await self._attach()
        if isinstance(session, Refusal):
            return session
        token = secrets.token_hex(_TOKEN_BYTES)
        issued, roster, channels = await ask_all(
            self._hub,
            (
                c.AddMember(session, name, token=token, adopt=True),
                c.ListMembers(session, name),
                c.ListChannels(session),
            ),
        )
        self._hub.submit((c.Detach(session),))
        match issued, roster, channels:
            case Issued(), Roster(), Channels():
                return Registered(issued.token, roster.members[0], channels)
            case _:
                assert isinstance(issued, Refusal), "they are decided together, so all are answered or none"
                return issued

    @staticmethod
    def _free(presence: Presence, name: MemberName) -> bool:
        return presence.member.name == name and presence.member.origin is Origin.LOCAL

    async def _attach(self) -> SessionId | Refusal:
        # A session for each time: it is rare, and one that is kept would end when the store fails once.
        attached = await self._hub.ask(c.Attach(protocol=self._protocol, credential=self._operator))
        if isinstance(attached, Refusal):
            return attached
        assert isinstance(attached, Attached), "an attach is answered by these"
        return attached.session

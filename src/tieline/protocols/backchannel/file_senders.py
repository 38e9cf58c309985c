"""File senders: opens sessions with the hub for the senders of messages that are files in a spool.

Used by: `intake`, which sends files to the hub. Uses: the interface `contract.hub`. A file does not prove who wrote
it, so its message is always unverified. The sender (`from`) in a file may be a local agent, another member that has no
token, or a name that no member has. A file is refused if its sender is a member with a token, or if the sender's name
differs from a member's name only in upper and lower case.
"""

from collections.abc import Callable

from tieline.contract import command as c
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName, SessionId, parse_member_name
from tieline.contract.member import ByUser, Origin, Unnamed
from tieline.contract.refusal import Code, Refusal
from tieline.contract.reply import Attached, Roster

PLACE = "spool"
"""Suffix for the name of a sender that is not a member. The sender's messages come from `<from>@spool`."""


class FileSenders:
    """Sessions with the hub for the senders of one batch of spool files. Each sender has one session.

    Call `close` after the batch.
    """

    def __init__(
        self, hub: Hub, protocol: str, operator: SessionId, local_session: Callable[[str], SessionId | None]
    ) -> None:
        self._hub = hub
        self._protocol = protocol
        self._operator = operator
        # Returns the session of a local agent, which always has one.
        self._local_session = local_session
        self._opened: dict[str, SessionId | Refusal] = {}

    async def session_of(self, sender: str) -> SessionId | Refusal:
        """Return the session of the sender with this name, and open the session if needed.

        Return a refusal if the sender may not send.
        """
        own = self._local_session(sender)
        if own is not None:
            return own
        known = self._opened.get(sender)
        if known is None:
            known = self._opened[sender] = await self._open(sender)
        return known

    async def _open(self, sender: str) -> SessionId | Refusal:
        name = parse_member_name(sender)
        if isinstance(name, Refusal):
            return name
        roster = await self._hub.ask(c.ListMembers(self._operator, name=name))
        if isinstance(roster, Refusal):
            return roster
        assert isinstance(roster, Roster), "members are asked for"
        if not roster.members:
            attach = c.Attach(protocol=self._protocol, credential=Unnamed(name, PLACE))
        else:
            member = roster.members[0].member
            if member.name != name or member.origin is not Origin.LOCAL:
                return _not_proven(name)
            attach = c.Attach(protocol=self._protocol, credential=ByUser(), member=name)
        reply = await self._hub.ask(attach)
        if isinstance(reply, Refusal):
            return reply
        assert isinstance(reply, Attached), "an attach is answered by these"
        return reply.session

    def close(self) -> None:
        """End the sessions that were opened for the batch."""
        opened = [session for session in self._opened.values() if isinstance(session, str)]
        if opened:
            self._hub.submit([c.Detach(session) for session in opened])
        self._opened.clear()


def _not_proven(name: MemberName) -> Refusal:
    return Refusal(Code.NAME_TAKEN, f"the name {name!r} belongs to a member, and a file proves nothing")

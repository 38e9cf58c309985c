"""The operator: submits commands to the hub on behalf of a member that has no session yet.

Used by: logins and devices, which give out tokens, and the clean-up after removed members. Uses: the interface
`contract.hub`. The operator uses the key in the hub's home folder; whoever has this key may act as any member. Each
request opens a session and ends it, so that no session with these rights stays open.
"""

from collections.abc import Sequence

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.hub import Hub
from tieline.contract.identifiers import MemberName
from tieline.contract.member import Credential, Member
from tieline.contract.objective import ObjectiveId
from tieline.wire.sessions import Make, ask_all

_PROTOCOL = "tieline"


class Operator:
    """Client of the hub that submits commands with the key in the hub's home folder, and so may act as any member."""

    def __init__(self, hub: Hub, key: Credential) -> None:
        self._hub = hub
        self._key = key

    async def ask(self, make: Make) -> Sequence[r.Reply]:
        """Submit the commands that `make` returns as one batch, in a new hub session. Return the hub's replies."""
        attached = await self._hub.ask(c.Attach(protocol=_PROTOCOL, credential=self._key))
        if not isinstance(attached, r.Attached):
            return (attached,)
        try:
            return await ask_all(self._hub, make(attached.session))
        finally:
            self._hub.submit((c.Detach(attached.session),))

    async def members(self, name: MemberName | None = None) -> list[Member] | None:
        """Return all members, or only the member with the given name. Return `None` if the hub refuses."""
        replies = await self.ask(lambda session: (c.ListMembers(session, name=name),))
        match replies:
            case (r.Roster(members),):
                return [one.member for one in members if name is None or one.member.name == name]
            case _:
                return None

    async def attached(self) -> dict[str, ObjectiveId] | None:
        """Return the files that are attached to objectives: a dictionary from the file's path to the objective's id.

        Return `None` if the hub refuses.
        """
        found: dict[str, ObjectiveId] = {}
        before: ObjectiveId | None = None
        while True:
            replies = await self.ask(_older_than(before))
            match replies:
                case (r.ObjectiveList(objectives, complete),):
                    found.update((one.path, each.id) for each in objectives for one in each.attachments)
                    if complete or not objectives:
                        return found
                    before = objectives[-1].id
                case _:
                    return None


def _older_than(before: ObjectiveId | None) -> Make:
    return lambda session: (c.ListObjectives(session, before=before),)

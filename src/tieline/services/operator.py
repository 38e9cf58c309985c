"""The operator: does for a member what the member cannot ask for itself, because it is not in yet.

Above: logins and devices, which give out tokens, and the upkeep. Below: the Hub port, by the key of its home. Each
request has a session of its own, so that nothing is left open for others to use.
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
    """Acts with the key of the hub's home."""

    def __init__(self, hub: Hub, key: Credential) -> None:
        self._hub = hub
        self._key = key

    async def ask(self, make: Make) -> Sequence[r.Reply]:
        """Hand over commands that are decided together, in a session of their own."""
        attached = await self._hub.ask(c.Attach(protocol=_PROTOCOL, credential=self._key))
        if not isinstance(attached, r.Attached):
            return (attached,)
        try:
            return await ask_all(self._hub, make(attached.session))
        finally:
            self._hub.submit((c.Detach(attached.session),))

    async def members(self, name: MemberName | None = None) -> list[Member] | None:
        """All members, or the one of this name; `None` if the hub cannot say."""
        replies = await self.ask(lambda session: (c.ListMembers(session, name=name),))
        match replies:
            case (r.Roster(members),):
                return [one.member for one in members if name is None or one.member.name == name]
            case _:
                return None

    async def attached(self) -> dict[str, ObjectiveId] | None:
        """The objectives that files are attached to, by the paths of those; `None` if the hub cannot say."""
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

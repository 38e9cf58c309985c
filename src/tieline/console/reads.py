"""Routes of the console that read what the member may see: past messages, members, objectives.

Used by: `app`, which serves them beside its own routes. Uses: the views of the hub's own protocol, so an answer has the
same values as a frame there. The page itself reads by its stream; these routes are for scripts and for curl.
"""

from typing import Literal

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.objective import ObjectiveId, Status
from tieline.wire.native import derived
from tieline.wire.native import frames as f
from tieline.wire.native.frame import Number
from tieline.wire.route import Call, Route


class Past(Struct, frozen=True, forbid_unknown_fields=True, rename={"peer": "with"}):
    """Query parameters of `GET /api/messages`.

    `with` is a `@member`, a `#channel` or an objective (`obj:<id>`). `everything` includes messages between other
    members, and needs log.read. `before` is the log offset of the last message of the page before.
    """

    peer: str | None = None
    before: Number | None = None
    limit: Number = 50
    everything: bool = False

    def command(self, session: SessionId) -> c.ReadHistory:
        """Return this question as a command to the hub."""
        limit, everything = self.limit, self.everything
        return c.ReadHistory(session, peer=self.peer, before=self.before, limit=limit, everything=everything)


class PastView(Struct, frozen=True):
    """Answer to `GET /api/messages`: the messages, newest first."""

    messages: tuple[f.Message, ...]


class Who(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of `GET /api/members`: only the member with this name, in any case."""

    name: str | None = None

    def command(self, session: SessionId) -> c.ListMembers:
        """Return this question as a command to the hub."""
        return c.ListMembers(session, name=None if self.name is None else MemberName(self.name))


class MembersView(Struct, frozen=True):
    """Answer to `GET /api/members`: the members and their state, by name."""

    members: tuple[f.MemberView, ...]


class Work(Struct, frozen=True, forbid_unknown_fields=True):
    """Query parameters of `GET /api/objectives`.

    `before` is the id of the last objective of the page before.
    """

    status: Literal["active", "blocked", "done", "cancelled"] | None = None
    assignee: str | None = None
    before: str | None = None

    def command(self, session: SessionId) -> c.ListObjectives:
        """Return this question as a command to the hub."""
        return c.ListObjectives(
            session,
            statuses=() if self.status is None else (Status(self.status),),
            assignee=None if self.assignee is None else MemberName(self.assignee),
            before=None if self.before is None else ObjectiveId(self.before),
        )


class WorkListView(Struct, frozen=True):
    """Answer to `GET /api/objectives`: objectives, newest first. `complete` is true if there are no older ones."""

    objectives: tuple[f.ObjectiveView, ...]
    complete: bool


class StoryView(Struct, frozen=True):
    """Answer to `GET /api/objectives/{id}`: the objective and its events, oldest first.

    `complete` is true if there are no later events.
    """

    objective: f.ObjectiveView
    events: tuple[f.ObjectiveEventView, ...]
    complete: bool


async def past(call: Call, question: Past) -> PastView:
    """Read past messages that the member may see."""
    found = await call.get(question.command, r.History)
    return PastView(tuple(map(derived.view_message, found.messages)))


async def members(call: Call, question: Who) -> MembersView:
    """List members, their sessions, and the number of messages that wait for each."""
    found = await call.get(question.command, r.Roster)
    return MembersView(tuple(map(derived.view_presence, found.members)))


async def work(call: Call, question: Work) -> WorkListView:
    """List objectives that the member may see, newest first."""
    found = await call.get(question.command, r.ObjectiveList)
    return WorkListView(tuple(map(derived.view_seen_objective, found.objectives)), found.complete)


async def story(call: Call, _: None) -> StoryView:
    """Read an objective with its events."""
    wanted = ObjectiveId(call.params["id"])
    found = await call.get(lambda session: c.ViewObjective(session, objective_id=wanted), r.ObjectiveView)
    events = tuple(map(derived.view_objective_event, found.events))
    return StoryView(derived.view_seen_objective(found.objective), events, found.complete)


ROUTES = (
    Route("GET", "/api/messages", past),
    Route("GET", "/api/members", members),
    Route("GET", "/api/objectives", work),
    Route("GET", "/api/objectives/{id}", story, errors=(404,)),
)

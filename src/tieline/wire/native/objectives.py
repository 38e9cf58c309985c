"""Objectives in the hub's own protocol: frames, and what they mean in the contract."""

from typing import assert_never

from msgspec import Struct

from tieline.contract import command as c
from tieline.contract import objective as o
from tieline.contract import reply as r
from tieline.contract.identifiers import MemberName, SessionId
from tieline.contract.message import Attachment
from tieline.wire.native.frame import Frame, Number

# What a client says.


class CreateObjective(Frame, frozen=True, omit_defaults=True, tag="create_objective"):
    """Give a member work with an outcome. Answered by `objective`."""

    n: int
    title: str
    outcome: str
    assignee: str
    body: str = ""
    watchers: tuple[str, ...] = ()
    attachments: tuple[Attachment, ...] = ()


class ChangeObjective(Frame, frozen=True, omit_defaults=True, tag="change_objective"):
    """Do something to an objective; `do` in `change` says what. Answered by `objective`."""

    n: int
    id: str
    change: o.AnyChange


class ListObjectives(Frame, frozen=True, omit_defaults=True, tag="objectives"):
    """Answered by `objective_list`."""

    n: int
    statuses: tuple[o.Status, ...] = ()
    assignee: str | None = None
    before: str | None = None
    limit: Number = 1000


class ViewObjective(Frame, frozen=True, omit_defaults=True, tag="view_objective"):
    """Answered by `objective_view`."""

    n: int
    id: str
    after: Number = -1


Request = CreateObjective | ChangeObjective | ListObjectives | ViewObjective


# What the hub says.


class ObjectiveView(Struct, frozen=True):
    """An objective as it stands."""

    id: str
    title: str
    outcome: str
    body: str
    status: str
    assignee: str
    originator: str
    watchers: tuple[str, ...]
    created_at_ms: int
    updated_at_ms: int
    completed_at_ms: int | None
    result: str | None
    block_reason: str | None
    attachments: tuple[Attachment, ...]


class ObjectiveEventView(Struct, frozen=True):
    """One entry of an objective's event log; `kind` in `what` says what happened."""

    offset: int
    at_ms: int
    actor: str
    what: o.AnyHappening


class Objective(Frame, frozen=True, omit_defaults=True, tag="objective"):
    """An objective as it stands after what was asked."""

    n: int
    objective: ObjectiveView


class ObjectiveList(Frame, frozen=True, omit_defaults=True, tag="objective_list"):
    """Objectives, newest first."""

    n: int
    objectives: tuple[ObjectiveView, ...]
    complete: bool


class ObjectiveStory(Frame, frozen=True, omit_defaults=True, tag="objective_view"):
    """An objective, and what happened to it, oldest first."""

    n: int
    objective: ObjectiveView
    events: tuple[ObjectiveEventView, ...]
    complete: bool


Answer = Objective | ObjectiveList | ObjectiveStory


# Between both and the contract.


def command_of(frame: Request, session: SessionId) -> c.Command:
    """What a frame asks of the hub."""
    match frame:
        case CreateObjective():
            return c.CreateObjective(
                session=session,
                title=frame.title,
                outcome=frame.outcome,
                assignee=MemberName(frame.assignee),
                body=frame.body,
                watchers=tuple(map(MemberName, frame.watchers)),
                attachments=frame.attachments,
            )
        case ChangeObjective():
            return c.ChangeObjective(session, o.ObjectiveId(frame.id), frame.change)
        case ListObjectives():
            assignee = MemberName(frame.assignee) if frame.assignee is not None else None
            before = o.ObjectiveId(frame.before) if frame.before is not None else None
            return c.ListObjectives(session, frame.statuses, assignee, before, frame.limit)
        case ViewObjective():
            return c.ViewObjective(session, o.ObjectiveId(frame.id), frame.after)
        case _:
            assert_never(frame)


def answer_of(n: int, reply: r.ObjectiveState | r.ObjectiveList | r.ObjectiveView) -> Answer:
    """What the hub answers."""
    match reply:
        case r.ObjectiveState():
            return Objective(n, view_objective(reply.objective))
        case r.ObjectiveList():
            return ObjectiveList(n, tuple(map(view_objective, reply.objectives)), reply.complete)
        case r.ObjectiveView():
            events = tuple(ObjectiveEventView(one.offset, one.at_ms, one.actor, one.what) for one in reply.events)
            return ObjectiveStory(n, view_objective(reply.objective), events, reply.complete)
        case _:
            assert_never(reply)


def view_objective(objective: o.Objective) -> ObjectiveView:
    """An objective as clients see it."""
    return ObjectiveView(
        objective.id,
        objective.title,
        objective.outcome,
        objective.body,
        objective.status.value,
        objective.assignee,
        objective.originator,
        objective.watchers,
        objective.created_at_ms,
        objective.updated_at_ms,
        objective.completed_at_ms,
        objective.result,
        objective.block_reason,
        objective.attachments,
    )

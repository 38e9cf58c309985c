"""Answer shapes of ac7's objectives and their event logs, as the protocol's existing clients read them."""

from typing import Annotated, Any, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from tests.protocols.ac7.conformance.events import Milliseconds
from tests.protocols.ac7.conformance.shapes.closed import Closed, Name
from tests.protocols.ac7.conformance.shapes.members import Member, Team, Teammate
from tests.protocols.ac7.conformance.shapes.messages import Attachment


class Objective(Closed, frozen=True):
    """Part of an answer: an objective, with its fourteen keys."""

    id: Annotated[str, Meta(pattern=r"^obj-[0-9a-z]+-[0-9a-z]+$")]
    title: str
    body: str
    outcome: str
    status: Literal["active", "blocked", "done", "cancelled"]
    assignee: Name
    originator: Name
    watchers: list[Name]
    created_at: Milliseconds
    updated_at: Milliseconds
    completed_at: Milliseconds | None
    result: str | None
    block_reason: str | None
    attachments: list[Attachment]


class ObjectiveList(Closed, frozen=True):
    """Answer with a list of objectives."""

    objectives: list[Objective]


class Assigned(Closed, frozen=True):
    """Payload of the event `assigned` in an objective's event log."""

    title: str
    outcome: str
    assignee: Name
    watchers: list[Name] | UnsetType = UNSET


class Blocked(Closed, frozen=True):
    """Payload of the event `blocked` in an objective's event log."""

    reason: str


class Unblocked(Closed, frozen=True):
    """Payload of the event `unblocked` in an objective's event log. It has no keys."""


class Completed(Closed, frozen=True):
    """Payload of the event `completed` in an objective's event log."""

    result: str


class Cancelled(Closed, frozen=True):
    """Payload of the event `cancelled` in an objective's event log."""

    reason: str | UnsetType = UNSET


class Reassigned(Closed, frozen=True):
    """Payload of the event `reassigned` in an objective's event log."""

    from_: Name
    to: Name
    note: str | UnsetType = UNSET


class Watcher(Closed, frozen=True):
    """Payload of the events in an objective's event log about an added or removed watcher."""

    name: Name


_PAYLOADS: dict[str, type[Closed]] = {
    "assigned": Assigned,
    "blocked": Blocked,
    "unblocked": Unblocked,
    "completed": Completed,
    "cancelled": Cancelled,
    "reassigned": Reassigned,
    "watcher_added": Watcher,
    "watcher_removed": Watcher,
}


class ObjectiveEvent(Closed, frozen=True):
    """Part of an answer: an entry of an objective's event log."""

    objective_id: str
    ts: Milliseconds
    actor: Name
    kind: str
    payload: dict[str, Any]

    def __post_init__(self) -> None:
        msgspec.convert(self.payload, _PAYLOADS[self.kind])


class ObjectiveAnswer(Closed, frozen=True):
    """Answer with an objective and its event log."""

    objective: Objective
    events: list[ObjectiveEvent]


class Briefing(Member, frozen=True):
    """Answer with the briefing of a member when it starts."""

    team: Team
    teammates: list[Teammate]
    open_objectives: list[Objective]

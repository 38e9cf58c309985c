"""Objectives: work with an outcome, an assignee, watchers and a lifecycle.

`TRANSITIONS` alone says which changes an objective allows in which status. The documentation draws its diagram from
that table. Each change is kept as a happening in the objective's own event log, which only grows.
"""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from tieline.contract.identifiers import MemberName
from tieline.contract.message import Attachment

ObjectiveId = NewType("ObjectiveId", str)


class Status(StrEnum):
    """Where an objective stands."""

    ACTIVE = "active"
    """Its assignee works on it."""
    BLOCKED = "blocked"
    """Its assignee cannot go on; the reason says why."""
    DONE = "done"
    """Its outcome was reached; the result says how."""
    CANCELLED = "cancelled"
    """It is not wanted any more."""


class Objective(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An objective as it stands now."""

    id: ObjectiveId
    title: str
    outcome: str
    """The condition that must be true for the objective to be done."""
    assignee: MemberName
    originator: MemberName
    created_at_ms: int
    updated_at_ms: int
    status: Status = Status.ACTIVE
    body: str = ""
    watchers: tuple[MemberName, ...] = ()
    """In the order in which they were added; never the assignee or the originator at that time."""
    completed_at_ms: int | None = None
    result: str | None = None
    block_reason: str | None = None
    attachments: tuple[Attachment, ...] = ()


# Changes that a command asks for.


class Change(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    """The root of all changes."""


class Block(Change, frozen=True, omit_defaults=True, tag="block"):
    """It cannot go on."""

    reason: str


class Unblock(Change, frozen=True, omit_defaults=True, tag="unblock"):
    """It can go on."""


class Complete(Change, frozen=True, omit_defaults=True, tag="complete"):
    """Its outcome is reached."""

    result: str


class Cancel(Change, frozen=True, omit_defaults=True, tag="cancel"):
    """It is not wanted any more."""

    reason: str | None = None


class Reassign(Change, frozen=True, omit_defaults=True, tag="reassign"):
    """Somebody else shall do it."""

    to: str
    note: str | None = None


class Watch(Change, frozen=True, omit_defaults=True, tag="watch"):
    """Others shall follow it, or follow it no more."""

    add: tuple[str, ...] = ()
    remove: tuple[str, ...] = ()


AnyChange = Block | Unblock | Complete | Cancel | Reassign | Watch

TRANSITIONS: dict[type[Change], dict[Status, Status]] = {
    Block: {Status.ACTIVE: Status.BLOCKED, Status.BLOCKED: Status.BLOCKED},
    Unblock: {Status.ACTIVE: Status.ACTIVE, Status.BLOCKED: Status.ACTIVE},
    Complete: {Status.ACTIVE: Status.DONE, Status.BLOCKED: Status.DONE},
    Cancel: {Status.ACTIVE: Status.CANCELLED, Status.BLOCKED: Status.CANCELLED},
    Reassign: {Status.ACTIVE: Status.ACTIVE, Status.BLOCKED: Status.BLOCKED},
    Watch: {Status.ACTIVE: Status.ACTIVE, Status.BLOCKED: Status.BLOCKED},
}
"""The status after each change, by the status before it. A change that is not listed here is not allowed."""

TERMINAL = frozenset(Status) - {status for before in TRANSITIONS.values() for status in before}
"""Final statuses: no other status follows them."""


# Happenings: records of changes.


class Happening(Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """The root of all happenings; the tag says which."""


class Assigned(Happening, frozen=True, omit_defaults=True, tag="assigned"):
    """It was made and given to its assignee."""

    title: str
    outcome: str
    assignee: str
    watchers: tuple[str, ...] = ()


class Blocked(Happening, frozen=True, omit_defaults=True, tag="blocked"):
    """It cannot go on."""

    reason: str


class Unblocked(Happening, frozen=True, omit_defaults=True, tag="unblocked"):
    """It can go on."""


class Completed(Happening, frozen=True, omit_defaults=True, tag="completed"):
    """Its outcome was reached."""

    result: str


class Cancelled(Happening, frozen=True, omit_defaults=True, tag="cancelled"):
    """It is not wanted any more."""

    reason: str | None = None


class Reassigned(
    Happening, frozen=True, omit_defaults=True, tag="reassigned", rename={"before": "from", "after": "to"}
):
    """It went from one assignee to another."""

    before: str
    after: str
    note: str | None = None


class WatcherAdded(Happening, frozen=True, omit_defaults=True, tag="watcher_added"):
    """A member follows it from now on."""

    name: str


class WatcherRemoved(Happening, frozen=True, omit_defaults=True, tag="watcher_removed"):
    """A member follows it no more."""

    name: str


AnyHappening = Assigned | Blocked | Unblocked | Completed | Cancelled | Reassigned | WatcherAdded | WatcherRemoved


def kind_of(happening: Happening) -> str:
    """The word for what happened."""
    return str(happening.__struct_config__.tag)


class ObjectiveEvent(Struct, frozen=True):
    """One entry of an objective's event log."""

    offset: int
    """The row of the main log for this entry."""
    at_ms: int
    actor: MemberName
    what: AnyHappening

"""Objectives: work with an outcome, an assignee, watchers and a lifecycle.

The table `TRANSITIONS` alone says which changes are allowed in which status. The diagram in the documentation is made
from it. Each change is kept as a happening in the objective's own event log. Entries of this log are never deleted.
"""

from enum import StrEnum
from typing import NewType

from msgspec import Struct

from tieline.contract.identifiers import MemberName
from tieline.contract.message import Attachment

ObjectiveId = NewType("ObjectiveId", str)

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"


def base36(number: int) -> str:
    """Return a number as text in base 36. Ids of objectives use this form."""
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits or "0"


class Status(StrEnum):
    """Status of an objective."""

    ACTIVE = "active"
    """The assignee works on the objective."""
    BLOCKED = "blocked"
    """The assignee cannot continue; `block_reason` says why."""
    DONE = "done"
    """The outcome was reached; `result` says how."""
    CANCELLED = "cancelled"
    """Nobody needs the objective any more."""


class Objective(Struct, frozen=True, kw_only=True, omit_defaults=True):
    """An objective in its current state: work for a member (the assignee), with an outcome to reach."""

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
    """Members that also get the messages of the thread, in the order in which they were added. A member is not added
    while it is the assignee or the originator, because it gets the messages anyway."""
    completed_at_ms: int | None = None
    result: str | None = None
    block_reason: str | None = None
    attachments: tuple[Attachment, ...] = ()


# Changes that a command asks for.


class Change(Struct, frozen=True, omit_defaults=True, tag_field="do"):
    """Base class of all changes of an objective. In JSON, the field `do` names the kind of change."""


class Block(Change, frozen=True, omit_defaults=True, tag="block"):
    """Change of an objective: block it, because its assignee cannot continue."""

    reason: str


class Unblock(Change, frozen=True, omit_defaults=True, tag="unblock"):
    """Change of an objective: unblock it, because its assignee can continue."""


class Complete(Change, frozen=True, omit_defaults=True, tag="complete"):
    """Change of an objective: complete it, because its outcome is reached."""

    result: str


class Cancel(Change, frozen=True, omit_defaults=True, tag="cancel"):
    """Change of an objective: cancel it, because nobody needs it any more."""

    reason: str | None = None


class Reassign(Change, frozen=True, omit_defaults=True, tag="reassign"):
    """Change of an objective: assign it to another member."""

    to: str
    note: str | None = None


class Watch(Change, frozen=True, omit_defaults=True, tag="watch"):
    """Change of an objective: add or remove watchers (members that also get the messages of its thread)."""

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
"""The status after each change, by the status before the change. A change that is not listed is not allowed."""

TERMINAL = frozenset(Status) - {status for before in TRANSITIONS.values() for status in before}
"""Final statuses: done and cancelled. An objective with a final status cannot change any more."""


# Happenings: records of changes.


class Happening(Struct, frozen=True, omit_defaults=True, tag_field="kind"):
    """Base class of entries in an objective's event log. In JSON, the field `kind` names the kind of entry."""


class Assigned(Happening, frozen=True, omit_defaults=True, tag="assigned"):
    """Log entry: the objective was created and assigned."""

    title: str
    outcome: str
    assignee: str
    watchers: tuple[str, ...] = ()


class Blocked(Happening, frozen=True, omit_defaults=True, tag="blocked"):
    """Log entry: the objective was blocked, because its assignee cannot continue."""

    reason: str


class Unblocked(Happening, frozen=True, omit_defaults=True, tag="unblocked"):
    """Log entry: the objective was unblocked, because its assignee can continue."""


class Completed(Happening, frozen=True, omit_defaults=True, tag="completed"):
    """Log entry: the objective was completed, because its outcome was reached."""

    result: str


class Cancelled(Happening, frozen=True, omit_defaults=True, tag="cancelled"):
    """Log entry: the objective was cancelled, because nobody needs it any more."""

    reason: str | None = None


class Reassigned(
    Happening, frozen=True, omit_defaults=True, tag="reassigned", rename={"before": "from", "after": "to"}
):
    """Log entry: the objective was assigned to another member."""

    before: str
    after: str
    note: str | None = None


class WatcherAdded(Happening, frozen=True, omit_defaults=True, tag="watcher_added"):
    """Log entry: a watcher was added to the objective."""

    name: str


class WatcherRemoved(Happening, frozen=True, omit_defaults=True, tag="watcher_removed"):
    """Log entry: a watcher was removed from the objective."""

    name: str


AnyHappening = Assigned | Blocked | Unblocked | Completed | Cancelled | Reassigned | WatcherAdded | WatcherRemoved


def kind_of(happening: Happening) -> str:
    """Return the name of the kind of a log entry of an objective, such as `blocked`."""
    return str(happening.__struct_config__.tag)


class ObjectiveEvent(Struct, frozen=True):
    """One entry of an objective's event log, with its time and the member (`actor`) that made the change."""

    offset: int
    """Offset of the row about this change in the main log, the hub's event log."""
    at_ms: int
    actor: MemberName
    what: AnyHappening

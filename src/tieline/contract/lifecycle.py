"""Lifecycle messages: the hub sends them to the members of an objective's thread when the objective changes.

The structured data of such a message has the change as an object, `event`. Clients that cannot read objects find the
same facts in plain keys beside `event`. The body describes the change for a person or a model, with one line for each
field. If a field has several lines of text, the later lines are indented, so that none of them looks like a field.
"""

from collections.abc import Mapping
from typing import Any, assert_never

from tieline.contract import objective as o
from tieline.contract.message import Content, Kind
from tieline.contract.target import Target, TargetKind

KIND = "objective"
"""The `kind` in the data of every lifecycle message."""


def thread_of(objective_id: str) -> Target:
    """Return the target for messages to an objective's thread."""
    return Target(TargetKind.OBJECTIVE, objective_id)


def is_lifecycle(kind: Kind, target: str, data: Mapping[str, Any] | None) -> bool:
    """True if a message reports a change of an objective (a lifecycle message). Only the hub sends such messages."""
    return kind is Kind.EVENT and target.startswith("obj:") and (data or {}).get("kind") == KIND


def content_of(objective: o.Objective, happening: o.AnyHappening, actor: str) -> Content:
    """Return the content of the message about one change of an objective.

    `objective` is the objective after the change. `actor` is the member that made the change.
    """
    target = thread_of(objective.id)
    data = {
        "kind": KIND,
        "event": {"kind": o.kind_of(happening), "objectiveId": objective.id, **_payload(objective, happening)},
        "objective_id": objective.id,
        "objective_event": o.kind_of(happening),
        "objective_status": objective.status.value,
        "thread": str(target),
        "actor": actor,
    }
    return Content(target=target, body=_body(objective, happening), data=data, kind=Kind.EVENT)


def _payload(objective: o.Objective, happening: o.AnyHappening) -> dict[str, Any]:
    match happening:
        case o.Assigned(title, outcome, _, watchers):
            parties = {"originator": objective.originator, "watchers": list(watchers)}
            return {"title": title, "outcome": outcome, **parties}
        case o.Blocked(reason):
            return {"blockReason": reason}
        case o.Unblocked():
            return {}
        case o.Completed(result):
            return {"result": result}
        case o.Cancelled(reason):
            return {"reason": reason}
        case o.Reassigned(before, after, note):
            return {"fromAssignee": before, "toAssignee": after, "note": note}
        case o.WatcherAdded(name) | o.WatcherRemoved(name):
            return {"name": name}
        case _:
            assert_never(happening)


def _body(objective: o.Objective, happening: o.AnyHappening) -> str:
    fields = {"title": objective.title, **_fields(objective, happening)}
    width = max(map(len, fields)) + 2
    # The later lines of a value are indented under its first line, so that no line looks like a field.
    lines = (f"{f'{name}:':<{width}}{text}".replace("\n", "\n" + " " * width) for name, text in fields.items())
    return "\n".join((f"[objective {o.kind_of(happening)}] {objective.id}", *lines))


def _fields(objective: o.Objective, happening: o.AnyHappening) -> dict[str, str]:
    """Return the fields that the message's body shows after the title, by name. They depend on the kind of change."""
    match happening:
        case o.Assigned():
            who = {"assignee": objective.assignee, "originator": objective.originator}
            body = {"body": objective.body} if objective.body else {}
            return {"outcome": objective.outcome, **who, "status": objective.status.value, **body}
        case o.Blocked(reason):
            return {"assignee": objective.assignee, "reason": reason}
        case o.Unblocked():
            return {"assignee": objective.assignee, "status": objective.status.value}
        case o.Completed(result):
            return {"outcome": objective.outcome, "assignee": objective.assignee, "result": result}
        case o.Cancelled(reason):
            return {"assignee": objective.assignee, "reason": reason or "none given"}
        case o.Reassigned(before, after, note):
            noted = {"note": note} if note else {}
            return {"outcome": objective.outcome, "from": before, "to": after, **noted}
        case o.WatcherAdded(name):
            return {"outcome": objective.outcome, "watcher": name, "status": objective.status.value}
        case o.WatcherRemoved(name):
            return {"watcher": name}
        case _:
            assert_never(happening)

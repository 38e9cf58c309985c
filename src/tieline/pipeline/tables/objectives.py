"""Objectives: one row for each objective: its status, cycle time, blocked time and cost.

`cycle_ms` is the time from creation to the end. `blocked_ms` is the total length of the blocked times that have ended.
While the objective is blocked, `blocked_since_ms` is the start of the current blocked time. Tokens and cost are those
of the model calls that members made while their marker events said that they worked on the objective.
"""

from tieline.pipeline.statements import rows_of
from tieline.pipeline.table import VERSION, Facts, Gold, columns

_LIFE = ("title", "assignee", "status", "created_ms", "finished_ms", "blocked_ms", "blocked_since_ms", "changes")
_COSTS = ("exchanges", "input_tokens", "output_tokens", "cost_nano_usd")


_EVENTS = rows_of("objective_steps")
"""The events of objectives, with the time of the next event of the same objective."""

TABLE = Gold(
    name="objectives",
    schema=columns(
        "objective string, title string, assignee string, status string, created_ms bigint, finished_ms bigint, "
        "cycle_ms bigint, blocked_ms bigint, blocked_since_ms bigint, changes bigint, exchanges bigint, "
        "input_tokens bigint, output_tokens bigint, cost_nano_usd bigint, version bigint"
    ),
    keys=("objective",),
    measures={**dict.fromkeys(_LIFE, "newest"), **dict.fromkeys(_COSTS, "sum"), "version": "max"},
    reads=("objective_events", "exchanges"),
    facts=(
        Facts(
            _EVENTS,
            {
                "objective": "objective",
                "title": "max_by(title, CASE WHEN title IS NOT NULL THEN `offset` END)",
                "assignee": "max_by(assignee, `offset`)",
                "status": "max_by(status, `offset`)",
                "created_ms": "min(at_ms)",
                "finished_ms": "min(CASE WHEN status IN ('done', 'cancelled') THEN at_ms END)",
                "blocked_ms": "sum(CASE WHEN status = 'blocked' THEN coalesce(next_ms - at_ms, 0) ELSE 0 END)",
                # Zero means “not blocked”: the merge keeps the newest value that is not null.
                "blocked_since_ms": "coalesce(max(CASE WHEN status = 'blocked' AND next_ms IS NULL THEN at_ms END), 0)",
                "changes": "count(*)",
                VERSION: "max(`offset`)",
            },
            by=("objective",),
        ),
        Facts(
            "{exchanges}",
            {"objective": "objective", **{name: name for name in _COSTS}, "exchanges": "1"},
            where="objective IS NOT NULL",
        ),
    ),
    finish={
        "cycle_ms": "finished_ms - created_ms",
        "blocked_since_ms": "CASE WHEN blocked_since_ms > 0 THEN blocked_since_ms END",
        **{name: f"coalesce({name}, 0)" for name in _COSTS},
    },
)

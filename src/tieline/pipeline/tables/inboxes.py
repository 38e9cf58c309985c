"""Inboxes: one row for each member number and day, with the first and the last key of the deliveries that began.

A member's keys grow with time. So this table finds the day of a delivery from its member number and its key. If a
delivery reaches a state late, the pipeline looks it up only in the files of that day.
"""

from tieline.pipeline.statements import statement
from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, start_of

_DAY = start_of("sent_ms", DAY_MS)


def days(inboxes: str, steps: str) -> str:
    """Return a query (SQL text) for the days (`day_ms`) of the deliveries that have a state in `steps`."""
    return statement("days", inboxes=inboxes, steps=steps)


TABLE = Gold(
    name="inboxes",
    schema=columns("day_ms bigint, number bigint, first_key bigint, last_key bigint"),
    keys=("day_ms", "number"),
    measures={"first_key": "min", "last_key": "max"},
    reads=("sendings",),
    facts=(
        Facts(
            "{sendings}",
            {"day_ms": _DAY, "number": "number", "first_key": "min(key)", "last_key": "max(key)"},
            by=(_DAY, "number"),
        ),
    ),
    part="day_ms",
)

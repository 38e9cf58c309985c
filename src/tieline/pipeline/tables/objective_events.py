"""Objective events: one row for each event of an objective, with the status of the objective afterwards."""

from tieline.pipeline.statements import rows_of
from tieline.pipeline.table import Silver, columns

TABLE = Silver(
    name="objective_events",
    schema=columns(
        "offset bigint, at_ms bigint, objective string, kind string, actor string, status string, assignee string, "
        "title string, happening string"
    ),
    time="at_ms",
)


def objective_events(bronze: str) -> str:
    """Return a query (SQL text) for the events of objectives in a batch of log rows."""
    return rows_of("objective_events", bronze=bronze)

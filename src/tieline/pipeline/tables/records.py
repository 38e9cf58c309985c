"""Records: one row for every event of the main log without a table of its own: joins, refusals, pauses, settings."""

from tieline.pipeline.row import MOVES
from tieline.pipeline.statements import rows_of
from tieline.pipeline.table import Silver, columns, listed

TABLE = Silver(
    name="records",
    schema=columns(
        "offset bigint, at_ms bigint, kind string, member string, by string, what string, code string, "
        "protocol string, channel string, thread string, count bigint"
    ),
    time="at_ms",
)

ELSEWHERE = ("send", *MOVES, "objective")
"""Kinds of events that are in other tables."""


def records(bronze: str) -> str:
    """Return a query (SQL text) for the events of the main log without a table of their own, such as joins.

    `bronze` stands for a batch of log rows.
    """
    return rows_of("records", bronze=bronze, elsewhere=listed(ELSEWHERE))

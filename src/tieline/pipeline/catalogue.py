"""The catalogue: every table of the lake by name.

Bronze has the rows of the logs as they were read. Silver tables have typed facts. Gold tables have sums of facts.
"""

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tieline.pipeline.row import SCHEMA
from tieline.pipeline.table import Gold
from tieline.pipeline.tables import (
    activity,
    backlog,
    deliveries,
    edges,
    findings,
    inboxes,
    latency,
    llm,
    loops,
    members,
    messages,
    objective_events,
    objectives,
    records,
    storms,
    threads,
)

BRONZE = "bronze"
SILVER = {module.TABLE.name: module.TABLE for module in (messages, deliveries, objective_events, activity, records)}
GOLD: dict[str, Gold] = {
    module.TABLE.name: module.TABLE
    for module in (latency, backlog, edges, threads, objectives, llm, loops, storms, findings, members, inboxes)
}

SCHEMAS: dict[str, StructType] = {
    BRONZE: from_arrow_schema(SCHEMA),
    activity.FOCUS.name: activity.FOCUS.schema,
    **{name: table.schema for name, table in SILVER.items()},
    **{name: table.schema for name, table in GOLD.items()},
}
STORED = {**SCHEMAS, deliveries.TABLE.name: deliveries.STORED}
"""For each table, the columns of its files. These are the columns of the table. For `deliveries`, the files have one
more column, which only the pipeline uses.
"""
TIMES: dict[str, str | None] = {
    BRONZE: "at_ms",
    activity.FOCUS.name: None,
    **{name: table.time for name, table in SILVER.items()},
    **{name: table.part for name, table in GOLD.items()},
}
"""For each table, the column with the time of a row. The table has one partition for each day of this time. `None` if
the table has no partitions.
"""
REBUILDABLE = tuple(name for name in SCHEMAS if name != BRONZE)

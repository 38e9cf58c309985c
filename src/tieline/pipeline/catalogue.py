"""The catalogue: every table of the lake by name.

Bronze has the rows of the logs as they were read, silver tables have typed facts, gold tables have sums of facts.
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
    for module in (latency, backlog, edges, threads, objectives, llm, loops, storms, findings, members)
}

SCHEMAS: dict[str, StructType] = {
    BRONZE: from_arrow_schema(SCHEMA),
    activity.FOCUS.name: activity.FOCUS.schema,
    **{name: table.schema for name, table in SILVER.items()},
    **{name: table.schema for name, table in GOLD.items()},
}
REBUILDABLE = tuple(name for name in SCHEMAS if name != BRONZE)

"""The catalogue: every table of the lake by name, what its rows are, from which tables it comes, and its tests.

Bronze has the rows of the logs as they were read. Silver tables have typed facts. Gold tables have sums of facts.
"""

from types import ModuleType

from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.types import StructType

from tieline.pipeline.meanings import meaning
from tieline.pipeline.row import SCHEMA
from tieline.pipeline.table import Gold, Silver
from tieline.pipeline.tables import (
    activity,
    backlog,
    deliveries,
    edges,
    failures,
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
    responses,
    service,
    storms,
    threads,
)

BRONZE = "bronze"
_SILVER: tuple[ModuleType, ...] = (messages, deliveries, objective_events, activity, records)
_GOLD: tuple[ModuleType, ...] = (
    latency, service, backlog, edges, responses, threads, objectives, llm, loops, storms, failures, findings, members,
    inboxes,
)  # fmt: skip
SILVER: dict[str, Silver] = {module.TABLE.name: module.TABLE for module in _SILVER}
GOLD: dict[str, Gold] = {module.TABLE.name: module.TABLE for module in _GOLD}

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

_FRAMES = {
    "messages": ("messages",), "sendings": ("deliveries",), "steps": ("deliveries",), "answers": ("messages",),
    "exchanges": ("activity",), "objective_events": ("objective_events",), "records": ("records",),
    "findings": (BRONZE,), "focus": (BRONZE,), "loops": ("messages", "records"),
}  # fmt: skip
"""For each kind of facts that a gold table counts, the tables in which they are."""
ACTIVITY_TABLES = [
    activity.TABLE.name,
    activity.FOCUS.name,
    *(name for name, table in GOLD.items() if "exchanges" in table.reads),
]
"""The tables that are computed from the activity log, completely or in part."""
KEYS: dict[str, tuple[str, ...]] = {
    BRONZE: ("log", "offset"),
    activity.FOCUS.name: activity.FOCUS.keys,
    **{name: ("number", "key") if name == deliveries.TABLE.name else ("offset",) for name in SILVER},
    **{name: table.keys for name, table in GOLD.items()},
}
"""For each table, the columns that together differ in every row."""
BALANCES = (
    ("backlog", "arrived", "members", "received"),
    ("backlog", "departed", "members", "departed"),
    ("edges", "messages", "members", "received"),
    ("storms", "messages", "members", "sent"),
    ("threads", "messages", "members", "sent"),
    ("service", "acked", "latency", "acked"),
    ("llm", "exchanges", "members", "exchanges"),
)
"""Tests of sums: for each day, the sums of a column of one table and of a column of another table are the same."""


def about(name: str) -> str:
    """Return a sentence about the rows of a table: the beginning of the docstring of the table's module."""
    if name == BRONZE:
        return "One row for each row of a log: its event as it was written, and the data beside it, without bodies."
    if name == activity.FOCUS.name:
        return "One row for each member that reported an objective: the one that it works on now."
    (module,) = (one for one in (*_SILVER, *_GOLD) if one.TABLE.name == name)
    text = " ".join(str(module.__doc__).split("\n\n")[0].split()).partition(": ")[2]
    return text[0].upper() + text[1:]


def sources(name: str) -> list[str]:
    """Return what a table is computed from: other tables, or the logs."""
    if name == BRONZE:
        return ["log main", "log activity"]
    if name in SILVER:
        return [BRONZE, activity.FOCUS.name] if name == activity.TABLE.name else [BRONZE]
    reads = GOLD[name].reads if name in GOLD else activity.FOCUS.reads
    return sorted({table for frame in reads for table in _FRAMES[frame]})


def tests(name: str) -> list[str]:
    """Return the tests of a table, in words."""
    found = [f"unique: {', '.join(KEYS[name])}"]
    for table, column, other, counted in BALANCES:
        if name in (table, other):
            found.append(f"by day: sum of {table}.{column} = sum of {other}.{counted}")
    if name == "members":
        found.append("received - departed = deliveries that wait, for each member at least 0")
    return found


def described(name: str) -> list[dict[str, str]]:
    """Return the name, type and meaning of each column of a table."""
    return [
        {"column": one.name, "type": one.dataType.simpleString(), "meaning": meaning(name, one.name)}
        for one in SCHEMAS[name]
    ]

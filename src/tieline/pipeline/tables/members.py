"""Members: one row for each member and day: what it sent, was offered and acknowledged, was refused, and used.

Times of messages and steps are the hub's; exchanges count on the day when they happened.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, Gold, columns, start_of

_SUMS = (
    "sent", "received", "offered", "acked", "refused", "exchanges", "input_tokens", "output_tokens", "cost_nano_usd",
)  # fmt: skip


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Each kind of fact by member and day, counted before it meets the others."""
    sent = _counted(frames.messages, f.col("sender"), "sent_ms", sent=f.count(f.lit(1)))
    received = _counted(frames.sendings, f.col("recipient"), "sent_ms", received=f.count(f.lit(1)))
    climbed = _counted(
        frames.steps.where(f.col("rung").isin("offered", "acked")),
        f.col("recipient"),
        "at_ms",
        offered=f.sum((f.col("rung") == "offered").cast("bigint")),
        acked=f.sum((f.col("rung") == "acked").cast("bigint")),
    )
    refused = _counted(
        frames.records.where((f.col("kind") == "refuse") & f.col("member").isNotNull()),
        f.col("member"),
        "at_ms",
        refused=f.sum("count"),
    )
    used = _counted(
        frames.exchanges,
        f.coalesce("member", f.concat(f.lit("member-"), f.col("number"))),
        "ts_ms",
        exchanges=f.count(f.lit(1)),
        input_tokens=f.sum("input_tokens"),
        output_tokens=f.sum("output_tokens"),
        cost_nano_usd=f.sum("cost_nano_usd"),
    )
    return [sent, received, climbed, refused, used]


def _counted(facts: DataFrame, member: Column, time: str, **measures: Column) -> DataFrame:
    return facts.groupBy(start_of(f.col(time), DAY_MS).alias("day_ms"), member.alias("member")).agg(
        *(measure.alias(name) for name, measure in measures.items()),
        f.min(time).alias("first_ms"),
        f.max(time).alias("last_ms"),
    )


def finish(rows: DataFrame) -> DataFrame:
    """What did not happen happened no times."""
    return rows.fillna(0, list(_SUMS))


TABLE = Gold(
    name="members",
    schema=columns(
        "day_ms bigint, member string, "
        + ", ".join(f"{name} bigint" for name in _SUMS)
        + ", first_ms bigint, last_ms bigint"
    ),
    keys=("day_ms", "member"),
    measures={**dict.fromkeys(_SUMS, "sum"), "first_ms": "min", "last_ms": "max"},
    reads=("messages", "sendings", "steps", "records", "exchanges"),
    contribute=contribute,
    part="day_ms",
    finish=finish,
)

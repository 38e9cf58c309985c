"""Objectives: one row for each objective: its status, cycle time, blocked time and cost.

`cycle_ms` is the time from creation to the end. `blocked_ms` is the total length of the blocked times that have ended.
While the objective is blocked, `blocked_since_ms` is the start of the current blocked time. Tokens and cost are those
of the model calls that members made while their marker events said that they worked on the objective.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import VERSION, Gold, columns

_ENDS = ("done", "cancelled")
_LIFE = ("title", "assignee", "status", "created_ms", "finished_ms", "blocked_ms", "blocked_since_ms", "changes")
_COSTS = ("exchanges", "input_tokens", "output_tokens", "cost_nano_usd")


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return the state of every objective with new events, and the cost of model calls for objectives."""
    by_offset = Window.partitionBy("objective").orderBy("offset")
    events = frames.objective_history.withColumn("next_ms", f.lead("at_ms").over(by_offset))
    blocked = f.col("status") == "blocked"
    lives = events.groupBy("objective").agg(
        f.max_by("title", f.when(f.col("title").isNotNull(), f.col("offset"))).alias("title"),
        f.max_by("assignee", "offset").alias("assignee"),
        f.max_by("status", "offset").alias("status"),
        f.min("at_ms").alias("created_ms"),
        f.min(f.when(f.col("status").isin(*_ENDS), f.col("at_ms"))).alias("finished_ms"),
        f.sum(f.when(blocked, f.coalesce(f.col("next_ms") - f.col("at_ms"), f.lit(0))).otherwise(0)).alias(
            "blocked_ms"
        ),
        f.max(f.when(blocked & f.col("next_ms").isNull(), f.col("at_ms"))).alias("blocked_since_ms"),
        f.count(f.lit(1)).alias("changes"),
        f.max("offset").alias(VERSION),
    )
    # Zero means “not blocked”: the merge keeps the newest value that is not null.
    lives = lives.withColumn("blocked_since_ms", f.coalesce("blocked_since_ms", f.lit(0)))
    costs = frames.exchanges.where(f.col("objective").isNotNull()).select(
        "objective", f.lit(1).alias("exchanges"), "input_tokens", "output_tokens", "cost_nano_usd"
    )
    return [lives, costs]


def finish(rows: DataFrame) -> DataFrame:
    """Add the column `cycle_ms`.

    Replace missing costs by zero. Replace 0 in `blocked_since_ms` (not blocked) by null.
    """
    return (
        rows.withColumn("cycle_ms", f.col("finished_ms") - f.col("created_ms"))
        .withColumn("blocked_since_ms", f.when(f.col("blocked_since_ms") > 0, f.col("blocked_since_ms")))
        .fillna(0, list(_COSTS))
    )


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
    contribute=contribute,
    finish=finish,
)

"""Inboxes: one row for each member number and day, with the first and the last key of the deliveries that began.

A member's keys grow with time. So this table finds the day of a delivery from its member number and its key. A late
rung (state) of a delivery is then looked up only in the files of that day.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, Gold, columns, start_of


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return the first and the last key of the new deliveries, by member and day."""
    day = start_of(f.col("sent_ms"), DAY_MS).alias("day_ms")
    return [frames.sendings.groupBy(day, "number").agg(f.min("key").alias("first_key"), f.max("key").alias("last_key"))]


def days(inboxes: DataFrame, steps: DataFrame) -> DataFrame:
    """Return the days (`day_ms`) of the deliveries that have a rung (state) in `steps`."""
    wanted = f.broadcast(steps.select(f.col("number").alias("of"), "key"))
    mine = (f.col("number") == f.col("of")) & f.col("key").between(f.col("first_key"), f.col("last_key"))
    return inboxes.join(wanted, mine, "left_semi").select("day_ms").distinct()


TABLE = Gold(
    name="inboxes",
    schema=columns("day_ms bigint, number bigint, first_key bigint, last_key bigint"),
    keys=("day_ms", "number"),
    measures={"first_key": "min", "last_key": "max"},
    reads=("sendings",),
    contribute=contribute,
    part="day_ms",
)

"""Backlog: one row for each member and minute in which its inbox changed: how many deliveries arrived, how many left.

A delivery leaves when it is acknowledged, expires, dies, or goes out on a wire that has no acknowledgement. The number
of deliveries that wait at the end of a minute is the sum of `arrived - departed` up to this minute. The function
`waiting` computes this sum.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import HOUR_MS, MINUTE_MS, Gold, columns, start_of


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return one row for each delivery that began, and one row for each delivery that left the backlog."""
    arrived = frames.sendings.select(
        f.col("recipient").alias("member"),
        start_of(f.col("sent_ms"), MINUTE_MS).alias("minute_ms"),
        f.lit(1).alias("arrived"),
        f.lit(0).alias("departed"),
    )
    departed = frames.steps.where(f.col("rung") == "left").select(
        f.col("recipient").alias("member"),
        start_of(f.col("at_ms"), MINUTE_MS).alias("minute_ms"),
        f.lit(0).alias("arrived"),
        f.lit(1).alias("departed"),
    )
    return [arrived, departed]


def waiting(backlog: DataFrame) -> DataFrame:
    """Add the column `waiting`: the number of deliveries that wait for the member at the end of each minute."""
    so_far = Window.partitionBy("member").orderBy("minute_ms").rowsBetween(Window.unboundedPreceding, 0)
    return backlog.withColumn("waiting", f.sum(f.col("arrived") - f.col("departed")).over(so_far))


TABLE = Gold(
    name="backlog",
    schema=columns("member string, minute_ms bigint, arrived bigint, departed bigint"),
    keys=("member", "minute_ms"),
    measures={"arrived": "sum", "departed": "sum"},
    reads=("sendings", "steps"),
    contribute=contribute,
    part="minute_ms",
    part_ms=HOUR_MS,
)

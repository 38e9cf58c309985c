"""Storms: one row for each sender and minute: the number of messages, and a mark if there were too many (a storm)."""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import HOUR_MS, MINUTE_MS, Gold, columns, start_of

MESSAGES = 60
"""Smallest number of messages of one sender in one minute that is a storm: one per second, which nobody can read."""


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return one row for each message, with its sender and minute and the number of its deliveries."""
    return [
        frames.messages.select(
            start_of(f.col("sent_ms"), MINUTE_MS).alias("minute_ms"),
            "sender",
            f.lit(1).alias("messages"),
            f.coalesce("recipients", f.lit(0)).alias("deliveries"),
        )
    ]


def finish(rows: DataFrame) -> DataFrame:
    """Add the column `storm`: true if the sender sent at least `MESSAGES` messages in the minute."""
    return rows.withColumn("storm", f.col("messages") >= MESSAGES)


TABLE = Gold(
    name="storms",
    schema=columns("minute_ms bigint, sender string, messages bigint, deliveries bigint, storm boolean"),
    keys=("minute_ms", "sender"),
    measures={"messages": "sum", "deliveries": "sum"},
    reads=("messages",),
    contribute=contribute,
    part="minute_ms",
    part_ms=HOUR_MS,
    finish=finish,
)

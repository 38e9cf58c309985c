"""Threads: one row for each conversation and day: its length, the members that spoke, and a mark if nobody answered.

The messages with the same thread name are a conversation. Messages without a thread name belong to the conversation of
their channel, objective or pair of members. A conversation has the same name as in the hub's loop rule. `unanswered` is
true if only one member spoke.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, VERSION, Gold, columns, start_of


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return the number and times of each member's messages in each conversation and day."""
    day = start_of(f.col("sent_ms"), DAY_MS).alias("day_ms")
    said = frames.messages.groupBy(day, "conversation", "sender").agg(
        f.count(f.lit(1)).alias("messages"),
        f.min("sent_ms").alias("first_ms"),
        f.max("sent_ms").alias("last_ms"),
        f.max("offset").alias(VERSION),
    )
    return [said.withColumn("participants", f.array("sender")).withColumn("last_sender", f.col("sender"))]


def finish(rows: DataFrame) -> DataFrame:
    """Add the column `unanswered`, true if only one member spoke."""
    return rows.withColumn("unanswered", f.size("participants") == 1)


TABLE = Gold(
    name="threads",
    schema=columns(
        "day_ms bigint, conversation string, messages bigint, first_ms bigint, last_ms bigint, "
        "participants array<string>, last_sender string, version bigint, unanswered boolean"
    ),
    keys=("day_ms", "conversation"),
    measures={
        "messages": "sum",
        "first_ms": "min",
        "last_ms": "max",
        "participants": "union",
        "last_sender": "newest",
        "version": "max",
    },
    reads=("messages",),
    contribute=contribute,
    part="day_ms",
    finish=finish,
)

"""Loops: one row for each conversation and day in which agents answered each other automatically, again and again.

A message's hops are the quick automatic replies that led to it. This table counts messages with at least `HOPS` hops,
and the pauses that the hub ordered because of loops.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, Gold, columns, start_of

HOPS = 16
"""Smallest number of hops of a message that counts here: a quarter of the hub's own limit. Real work rarely has so
many.
"""


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return the messages with at least `HOPS` hops, and the pauses that the hub ordered by itself."""
    looped = frames.messages.where(f.col("hops") >= HOPS).select(
        start_of(f.col("sent_ms"), DAY_MS).alias("day_ms"),
        "conversation",
        f.lit(1).alias("messages"),
        "hops",
        f.array("sender").alias("members"),
        f.lit(0).alias("pauses"),
        f.col("sent_ms").alias("first_ms"),
        f.col("sent_ms").alias("last_ms"),
    )
    # A pause that a member ordered is no loop.
    paused = frames.records.where((f.col("kind") == "pause") & f.col("by").isNull()).select(
        start_of(f.col("at_ms"), DAY_MS).alias("day_ms"),
        f.col("thread").alias("conversation"),
        f.lit(0).alias("messages"),
        f.lit(0).alias("hops"),
        f.array().cast("array<string>").alias("members"),
        f.lit(1).alias("pauses"),
        f.col("at_ms").alias("first_ms"),
        f.col("at_ms").alias("last_ms"),
    )
    return [looped, paused]


TABLE = Gold(
    name="loops",
    schema=columns(
        "day_ms bigint, conversation string, messages bigint, hops int, members array<string>, pauses bigint, "
        "first_ms bigint, last_ms bigint"
    ),
    keys=("day_ms", "conversation"),
    measures={
        "messages": "sum",
        "hops": "max",
        "members": "union",
        "pauses": "sum",
        "first_ms": "min",
        "last_ms": "max",
    },
    reads=("loops",),
    contribute=contribute,
    part="day_ms",
)

"""Edges: one row for each day, sender and recipient: the conversation graph.

`messages` counts the messages from the sender to the recipient, through channels too. `answers` counts the sender's
replies to the recipient's messages, and `response_ms` has the time that each reply took, sorted.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, Gold, columns, each, percentile, start_of


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return the count of messages for each sender and recipient, and one row for each reply with its delay."""
    # Count before merging with the old rows: there are few edges and many messages.
    day = start_of(f.col("sent_ms"), DAY_MS).alias("day_ms")
    counted = frames.sendings.groupBy(day, "sender", "recipient").agg(
        f.count(f.lit(1)).alias("messages"), f.lit(0).alias("answers")
    )
    answered = frames.answers.select(
        "day_ms",
        "sender",
        "recipient",
        f.lit(0).alias("messages"),
        f.lit(1).alias("answers"),
        f.col("response_ms").alias(each("response_ms")),
    )
    return [counted, answered]


def finish(rows: DataFrame) -> DataFrame:
    """Add the column `response_p50_ms`, the median of the response times."""
    return rows.withColumn("response_p50_ms", percentile(f.col("response_ms"), 0.5))


TABLE = Gold(
    name="edges",
    schema=columns(
        "day_ms bigint, sender string, recipient string, messages bigint, answers bigint, "
        "response_ms array<bigint>, response_p50_ms bigint"
    ),
    keys=("day_ms", "sender", "recipient"),
    measures={"messages": "sum", "answers": "sum", "response_ms": "sorted"},
    reads=("sendings", "answers"),
    contribute=contribute,
    part="day_ms",
    finish=finish,
)

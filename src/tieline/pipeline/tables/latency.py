"""Latency: one row for each member, protocol and minute, with the times that deliveries took to reach a rung (state).

The minute is when the rung was reached. The protocol is the recipient's wire, or empty if no wire was involved. The
columns with the name of a rung count the deliveries that reached it. `acked_ms` and `offered_ms` are sorted lists of
the times from sending to the rung, so that percentiles over any period are exact. `p50_ms` and `p99_ms` are percentiles
of `acked_ms`. `late` counts rungs that were reached later than the watermark.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import HOUR_MS, MINUTE_MS, Gold, columns, each, percentile, start_of
from tieline.pipeline.tables.deliveries import WATERMARK_MS

_RUNGS = ("offered", "seen", "acked", "expired", "dead")


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return one row for each rung (state) that a delivery reached.

    Leave out the rung `left`, which means that the delivery left the backlog.
    """
    rungs = frames.steps.where(f.col("rung") != "left")
    rung, after = f.col("rung"), f.col("after_ms")
    return [
        rungs.select(
            f.col("recipient").alias("member"),
            "protocol",
            start_of(f.col("at_ms"), MINUTE_MS).alias("minute_ms"),
            *((rung == name).cast("bigint").alias(name) for name in _RUNGS),
            (after > WATERMARK_MS).cast("bigint").alias("late"),
            f.when(rung == "offered", after).alias(each("offered_ms")),
            f.when(rung == "acked", after).alias(each("acked_ms")),
        )
    ]


def finish(rows: DataFrame) -> DataFrame:
    """Add the columns `p50_ms` and `p99_ms`: percentiles of the times from sending to acknowledgement."""
    acked = f.col("acked_ms")
    return rows.withColumn("p50_ms", percentile(acked, 0.5)).withColumn("p99_ms", percentile(acked, 0.99))


TABLE = Gold(
    name="latency",
    schema=columns(
        "member string, protocol string, minute_ms bigint, offered bigint, seen bigint, acked bigint, expired bigint, "
        "dead bigint, late bigint, offered_ms array<bigint>, acked_ms array<bigint>, p50_ms bigint, p99_ms bigint"
    ),
    keys=("member", "protocol", "minute_ms"),
    measures={**dict.fromkeys((*_RUNGS, "late"), "sum"), "offered_ms": "sorted", "acked_ms": "sorted"},
    reads=("steps",),
    contribute=contribute,
    part="minute_ms",
    part_ms=HOUR_MS,
    finish=finish,
)

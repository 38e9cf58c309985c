"""LLM usage: one row for each model, member and hour: the number of model calls (exchanges), their tokens and cost.

The hour is when the exchange happened, however late it was reported. Costs are in billionths of a dollar, so that sums
are exact; `unpriced` counts exchanges with models that have no price.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import HOUR_MS, Gold, columns, start_of

_SUMS = (
    "exchanges", "failed", "late", "unpriced", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens", "lasted_ms", "cost_nano_usd",
)  # fmt: skip


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return one row for each model call, with its tokens and cost, by member, model and hour."""
    return [
        frames.exchanges.select(
            start_of(f.col("ts_ms"), HOUR_MS).alias("hour_ms"),
            f.coalesce("member", f.concat(f.lit("member-"), f.col("number"))).alias("member"),
            "model",
            f.lit(1).alias("exchanges"),
            f.col("failed").cast("bigint").alias("failed"),
            f.col("late").cast("bigint").alias("late"),
            f.col("cost_nano_usd").isNull().cast("bigint").alias("unpriced"),
            "input_tokens", "output_tokens", "cache_read_tokens", "cache_write_tokens",
            f.coalesce("lasted_ms", f.lit(0)).alias("lasted_ms"),
            f.coalesce("cost_nano_usd", f.lit(0)).alias("cost_nano_usd"),
        )
    ]  # fmt: skip


TABLE = Gold(
    name="llm",
    schema=columns("hour_ms bigint, member string, model string, " + ", ".join(f"{name} bigint" for name in _SUMS)),
    keys=("hour_ms", "member", "model"),
    measures=dict.fromkeys(_SUMS, "sum"),
    reads=("exchanges",),
    contribute=contribute,
    part="hour_ms",
)

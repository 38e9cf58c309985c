"""Members: one row for each member and day: its messages, deliveries, acknowledgements, refusals and model usage.

Messages and deliveries count by the hub's time; model calls count on the day when they happened.
"""

from collections.abc import Sequence

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, Gold, columns, start_of

_USED = ("input_tokens", "output_tokens", "cost_nano_usd")
_SUMS = ("sent", "received", "offered", "acked", "refused", "exchanges", *_USED)


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return the facts of each kind (sent, received, acked, refused, used) by member and day."""
    one, rung = f.lit(1), f.col("rung")
    advanced = frames.steps.where(rung.isin("offered", "acked"))
    refused = frames.records.where((f.col("kind") == "refuse") & (f.col("member") != ""))
    user = f.coalesce("member", f.concat(f.lit("member-"), f.col("number")))
    return [
        _facts(frames.messages, f.col("sender"), "sent_ms", sent=one),
        _facts(frames.sendings, f.col("recipient"), "sent_ms", received=one),
        _facts(advanced, f.col("recipient"), "at_ms", offered=rung == "offered", acked=rung == "acked"),
        _facts(refused, f.col("member"), "at_ms", refused=f.col("count")),
        _facts(frames.exchanges, user, "ts_ms", exchanges=one, **{name: f.col(name) for name in _USED}),
    ]


def _facts(facts: DataFrame, member: Column, time: str, **measures: Column) -> DataFrame:
    return facts.select(
        start_of(f.col(time), DAY_MS).alias("day_ms"),
        member.alias("member"),
        *(measure.cast("bigint").alias(name) for name, measure in measures.items()),
        f.col(time).alias("first_ms"),
        f.col(time).alias("last_ms"),
    )


def finish(rows: DataFrame) -> DataFrame:
    """Replace null by zero in the sums. A sum is null if the member has no facts of this kind, such as model calls."""
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

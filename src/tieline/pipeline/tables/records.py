"""Records: one row for every event of the main log without a table of its own: joins, refusals, pauses, settings."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.table import Silver, columns

TABLE = Silver(
    name="records",
    schema=columns(
        "offset bigint, at_ms bigint, kind string, member string, by string, what string, code string, "
        "protocol string, channel string, thread string, count bigint"
    ),
    time="at_ms",
)

ELSEWHERE = ("send", "deliver", "see", "ack", "claim", "expire", "die", "objective")
"""Kinds of events that are in other tables."""

_SAID = (
    "member string, speaker string, by string, what string, code string, protocol string, channel string, "
    "name string, thread string, count bigint"
)


def records(bronze: DataFrame) -> DataFrame:
    """Return the events of the main log that have no table of their own, such as joins, in a batch of log rows."""
    others = bronze.where((f.col("log") == "main") & ~f.col("kind").isin(*ELSEWHERE))
    told = others.select("offset", "at_ms", "kind", f.from_json("event", _SAID).alias("said"))
    return told.select(
        "offset",
        "at_ms",
        "kind",
        f.coalesce("said.member", "said.speaker").alias("member"),
        "said.by",
        "said.what",
        "said.code",
        "said.protocol",
        f.coalesce("said.channel", "said.name").alias("channel"),
        "said.thread",
        f.coalesce("said.count", f.lit(1)).alias("count"),
    )

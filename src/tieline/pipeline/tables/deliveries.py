"""Deliveries: one row for each message and recipient, with the time of every rung (state) that the delivery reached.

A delivery is identified by its recipient's number and its key. A delivery is *open* until it is acknowledged, expired
or dead, or `WATERMARK_MS` old. Open rows are processed with every batch. A closed row is looked up only when its
delivery reaches a rung late. The table `inboxes` then has the day of the delivery. `fresh` has a bit for each rung that
the last commit of the row added, and one bit for a new delivery.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StructField, StructType

from tieline.pipeline.table import DAY_MS, Silver, columns

WATERMARK_MS = DAY_MS
"""A rung (state) counts as late if the delivery reaches it more than this time after its message. A late rung is still
stored.
"""

TABLE = Silver(
    name="deliveries",
    schema=columns(
        "number bigint, key bigint, recipient string, offset bigint, sender string, sent_ms bigint, "
        "offered_ms bigint, offered_by string, muted_ms bigint, seen_ms bigint, acked_ms bigint, acked_by string, "
        "claimed boolean, expired_ms bigint, dead_ms bigint"
    ),
    time="sent_ms",
)
STORED = StructType([*TABLE.schema.fields, StructField("fresh", IntegerType())])
"""The columns of the files: the columns of the table, and `fresh`. `fresh` has a bit for each rung (state) that was
added by the batch that wrote the row.
"""
OPEN, CLOSED, ORPHAN = 0, 1, 2
"""Kinds of rows in the column `part`. An `OPEN` delivery may still change. A `CLOSED` delivery changes only if it
reaches a rung (state) late. An `ORPHAN` is a rung whose delivery is not open.
"""
STATES = {OPEN: True, CLOSED: False, ORPHAN: None}
"""For each kind of row, the value of the partition `open`. Orphans have no value, because they are not stored."""

_RANGE_MAX = 10_000_000
"""Maximum number of deliveries in one event. A hub never has so many. So a damaged row with a higher number cannot fill
the disk.
"""
_KEY_MAX = 2**60  # no inbox gets there; a key beyond it was written by somebody else
_MOVED = "number bigint, keys array<array<bigint>>, protocol string, mute boolean"
_KINDS = ("deliver", "see", "ack", "claim", "expire", "die")
_TIMES = ("offered_ms", "muted_ms", "seen_ms", "acked_ms", "expired_ms", "dead_ms")
_WORDS = ("offered_by", "acked_by")
_BITS = {name: 1 << index for index, name in enumerate((*_TIMES, "left_ms"))}
_SENT = 1 << len(_BITS)
_RUNGS = ("offered_ms", "seen_ms", "acked_ms", "expired_ms", "dead_ms", "left_ms")


def begun(bronze: DataFrame) -> DataFrame:
    """Return the new deliveries in a batch, without any rung (state) yet: one row for each message and recipient.

    A message has no rows here if retention deleted its list of recipients.
    """
    sent = bronze.where((f.col("log") == "main") & (f.col("kind") == "send") & f.col("keys").isNotNull())
    each = sent.select("offset", "sender", f.col("at_ms").alias("sent_ms"), _each())
    rows = each.select(
        f.col("one.numbers").alias("number"),
        f.col("one.keys").alias("key"),
        f.coalesce("one.recipients", f.concat(f.lit("member-"), f.col("one.numbers"))).alias("recipient"),
        "offset",
        "sender",
        "sent_ms",
    )
    given = set(rows.columns)
    empty = {field.name: f.lit(None).cast(field.dataType) for field in TABLE.schema if field.name not in given}
    return rows.withColumns(empty).select(*TABLE.schema.fieldNames(), f.lit(_SENT).alias("fresh"))


def known(rows: DataFrame) -> DataFrame:
    """Add the column `fresh`, with no bit set, to the rows of deliveries that began before this batch."""
    return rows.select(*TABLE.schema.fieldNames(), f.lit(0).alias("fresh"))


def _each() -> Column:
    return f.explode(f.arrays_zip("numbers", "keys", "recipients")).alias("one")


def reached(bronze: DataFrame) -> DataFrame:
    """Return the rungs (states) that deliveries reached in a batch, one row for each delivery.

    If a delivery reached a rung more than once, the first time counts.
    """
    moved = bronze.where((f.col("log") == "main") & f.col("kind").isin(*_KINDS))
    told = moved.select("offset", "kind", "at_ms", f.from_json("event", _MOVED).alias("said"))
    ranges = told.select("offset", "kind", "at_ms", "said.*").withColumn("range", f.explode("keys"))
    first, last = f.get("range", f.lit(0)), f.get("range", f.lit(1))
    ranges = ranges.where(last.between(first, first + _RANGE_MAX) & first.between(0, _KEY_MAX))
    each = ranges.withColumn("key", f.explode(f.sequence(first, last)))
    at, kind, wire = f.col("at_ms"), f.col("kind"), f.coalesce("protocol", f.lit(""))
    acked = kind.isin("ack", "claim")
    return each.groupBy("number", "key").agg(
        f.min(f.when(kind == "deliver", at)).alias("offered_ms"),
        f.min(f.when((kind == "deliver") & f.col("mute"), at)).alias("muted_ms"),
        f.min(f.when(kind == "see", at)).alias("seen_ms"),
        f.min(f.when(acked, at)).alias("acked_ms"),
        f.min(f.when(kind == "expire", at)).alias("expired_ms"),
        f.min(f.when(kind == "die", at)).alias("dead_ms"),
        f.min_by(wire, f.when(kind == "deliver", f.col("offset"))).alias("offered_by"),
        f.min_by(wire, f.when(acked, f.col("offset"))).alias("acked_by"),
        f.coalesce(f.max(kind == "claim"), f.lit(False)).alias("claimed"),
    )


def fold(before: DataFrame, steps: DataFrame, now_ms: int) -> DataFrame:
    """Add the rungs (states) in `steps` to the deliveries in `before`, and compute the column `part` of each row.

    `part` is `OPEN`, `CLOSED` or `ORPHAN`. A delivery that is older than `WATERMARK_MS` at the time `now_ms` is closed.
    """
    renamed = steps.select(
        "number", "key", *(f.col(name).alias(f"new_{name}") for name in (*_TIMES, *_WORDS, "claimed"))
    )
    both = before.join(renamed, ["number", "key"], "full_outer")
    old_left, new_left = _left(""), _left("new_")
    fresh = f.coalesce("fresh", f.lit(0))
    for name in _TIMES:
        fresh = fresh + f.when(f.col(name).isNull() & f.col(f"new_{name}").isNotNull(), _BITS[name]).otherwise(0)
    fresh = fresh + f.when(old_left.isNull() & new_left.isNotNull(), _BITS["left_ms"]).otherwise(0)
    settled = f.coalesce(*(f.coalesce(f.col(name), f.col(f"new_{name}")) for name in _TIMES[3:])).isNotNull()
    part = (
        f.when(f.col("offset").isNull(), ORPHAN)
        .when(settled | (f.col("sent_ms") < now_ms - WATERMARK_MS), CLOSED)
        .otherwise(OPEN)
    )
    merged = {name: f.coalesce(f.col(name), f.col(f"new_{name}")) for name in (*_TIMES, *_WORDS)}
    merged["claimed"] = f.coalesce("claimed", f.lit(False)) | f.coalesce("new_claimed", f.lit(False))
    columns = [merged.get(name, f.col(name)).alias(name) for name in TABLE.schema.fieldNames()]
    return both.select(*columns, fresh.cast("int").alias("fresh"), part.alias("part"))


def lateness(known: DataFrame, steps: DataFrame) -> DataFrame:
    """Count the deliveries in `known` that have a rung (state) in `steps`. The column `rows` has this number.

    The column `late` has the number of deliveries that reached the rung after the watermark.
    """
    reached_ms = f.greatest(*_TIMES)
    late = steps.select("number", "key", reached_ms.alias("at_ms"))
    after_ms = f.col("at_ms") - f.col("sent_ms")
    return (
        known.select("number", "key", "sent_ms")
        .join(f.broadcast(late), ["number", "key"])
        .agg(f.count(f.lit(1)).alias("rows"), f.count_if(after_ms > WATERMARK_MS).alias("late"))
    )


def _left(prefix: str) -> Column:
    """Return the time when a delivery left the backlog: acknowledged, expired, dead, or sent on a wire without acks.

    `prefix` is the prefix of the column names. It is empty, or `new_` for the columns of this batch.
    """
    return f.least(*(f.col(f"{prefix}{name}") for name in ("acked_ms", "expired_ms", "dead_ms", "muted_ms")))


def sendings(touched: DataFrame) -> DataFrame:
    """Return the deliveries that began with a commit. `touched` are the rows that the commit wrote."""
    return touched.where(f.col("fresh").bitwiseAND(_SENT) != 0)


def steps(touched: DataFrame) -> DataFrame:
    """Return the rungs (states) that a commit added, one row for each rung, with the columns of its delivery.

    `touched` are the rows that the commit wrote.
    """
    by = {"offered_ms": f.col("offered_by"), "acked_ms": f.col("acked_by")}
    rungs = [
        f.struct(
            f.lit(name.removesuffix("_ms")).alias("rung"),
            (_left("") if name == "left_ms" else f.col(name)).alias("at_ms"),
            by.get(name, f.lit("")).alias("protocol"),
            f.lit(_BITS[name]).alias("bit"),
        )
        for name in _RUNGS
    ]
    added = f.filter(f.array(*rungs), lambda rung: f.col("fresh").bitwiseAND(rung["bit"]) != 0)
    each = touched.where(f.col("fresh").bitwiseAND(_SENT - 1) != 0).select(
        "number", "key", "recipient", "offset", "sender", "sent_ms", f.explode(added).alias("step")
    )
    return each.select(
        "number",
        "key",
        "recipient",
        "offset",
        "sender",
        "sent_ms",
        "step.rung",
        "step.at_ms",
        "step.protocol",
        (f.col("step.at_ms") - f.col("sent_ms")).alias("after_ms"),
    )

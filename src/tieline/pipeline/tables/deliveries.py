"""Deliveries: one row for each message and recipient, with the time of every rung (state) that the delivery reached.

A delivery is identified by its recipient's number and its key. A delivery is *open* until it is acknowledged, expired
or dead, or `WATERMARK_MS` old. Open rows are processed with every batch; closed rows are looked up only when one of
them reaches a rung late. `fresh` has a bit for each rung that the writing commit added, and one bit for a new delivery.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.table import DAY_MS, Silver, columns

WATERMARK_MS = DAY_MS
"""A rung that a delivery reaches later than this after its message counts as late; it is still stored."""

TABLE = Silver(
    name="deliveries",
    schema=columns(
        "number bigint, key bigint, recipient string, offset bigint, sender string, sent_ms bigint, "
        "offered_ms bigint, offered_by string, muted_ms bigint, seen_ms bigint, acked_ms bigint, acked_by string, "
        "claimed boolean, expired_ms bigint, dead_ms bigint"
    ),
    time="sent_ms",
)
OPEN, CLOSED, ORPHAN, RESTING = 0, 1, 2, 3
"""Parts of the table. `OPEN` rows changed in the commit that wrote them. `RESTING` rows are open but did not change, so
a search for new facts can skip them. An `ORPHAN` is a rung whose delivery is not open.
"""
OPEN_PARTS = frozenset({OPEN, RESTING})

_RANGE_MAX = 10_000_000
"""Limit of deliveries in one event: a hub never has so many, and a damaged row must not fill the disk."""
_KEY_MAX = 2**60  # no inbox gets there; a key beyond it was written by somebody else
_MOVED = "number bigint, keys array<array<bigint>>, protocol string, mute boolean"
_KINDS = ("deliver", "see", "ack", "claim", "expire", "die")
_TIMES = ("offered_ms", "muted_ms", "seen_ms", "acked_ms", "expired_ms", "dead_ms")
_WORDS = ("offered_by", "acked_by")
_BITS = {name: 1 << index for index, name in enumerate((*_TIMES, "left_ms"))}
_SENT = 1 << len(_BITS)
_RUNGS = ("offered_ms", "seen_ms", "acked_ms", "expired_ms", "dead_ms", "left_ms")


def begun(bronze: DataFrame) -> DataFrame:
    """Return the new deliveries in a batch, without any rung yet: one row for each message and recipient.

    A message whose list of recipients was deleted by retention has no rows.
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
    """Return the rungs that deliveries reached in a batch, one row for each delivery.

    The first time of a rung counts.
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
    """Add the reached rungs (`steps`) to the deliveries (`before`), and compute the part that each row now belongs to.

    The part says if a delivery is open, and if it changed. `now_ms` is the time by which it is too old to stay open.
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
        .when(fresh == 0, RESTING)
        .otherwise(OPEN)
    )
    merged = {name: f.coalesce(f.col(name), f.col(f"new_{name}")) for name in (*_TIMES, *_WORDS)}
    merged["claimed"] = f.coalesce("claimed", f.lit(False)) | f.coalesce("new_claimed", f.lit(False))
    columns = [merged.get(name, f.col(name)).alias(name) for name in TABLE.schema.fieldNames()]
    return both.select(*columns, fresh.cast("int").alias("fresh"), part.alias("part"))


def parted(rows: pa.Table, moved: pa.Table, now_ms: int) -> tuple[pa.Table, pa.Table]:
    """Split stored deliveries into those that reached a rung in this batch, which `fold` needs, and all others.

    `moved` has the member number and key of the former. The latter are complete, as `fold` would return them.
    """
    rows = rows.append_column("fresh", pa.array(np.zeros(len(rows), np.int32)))
    both, order = ["number", "key"], rows.column_names
    rest = rows.join(moved, both, join_type="left anti").select(order)
    old = pc.less(rest["sent_ms"], now_ms - WATERMARK_MS)
    part = pc.if_else(old, CLOSED, RESTING).cast(pa.int32())
    return rows.join(moved, both, join_type="left semi").select(order), rest.append_column("part", part)


def last_reached_ms() -> Column:
    """Return the time of the last rung that a delivery reached."""
    return f.greatest(*_TIMES)


def _left(prefix: str) -> Column:
    """Return the time when a delivery left the backlog: acknowledged, expired, dead, or sent on a wire without acks.

    `prefix` is the prefix of the columns: empty, or `new_` for the columns of this batch.
    """
    return f.least(*(f.col(f"{prefix}{name}") for name in ("acked_ms", "expired_ms", "dead_ms", "muted_ms")))


def sendings(touched: DataFrame) -> DataFrame:
    """Return the deliveries that began with this commit. `touched` are the rows that the commit wrote."""
    return touched.where(f.col("fresh").bitwiseAND(_SENT) != 0)


def steps(touched: DataFrame) -> DataFrame:
    """Return the rungs that this commit added, one row for each, with the columns of its delivery."""
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

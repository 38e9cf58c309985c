"""The shape of a batch: what kinds of rows it has and which times they touch.

It is known before any table is written, so that parts which nothing touches are not read, and tables that nothing
concerns are not written.
"""

from dataclasses import dataclass

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.row import ACTIVITY, MAIN
from tieline.pipeline.table import HOUR_MS, start_of
from tieline.pipeline.tables.activity import EXCHANGE, happened_ms
from tieline.pipeline.tables.findings import BAD_SIGNATURES
from tieline.pipeline.tables.loops import HOPS
from tieline.pipeline.tables.messages import id_time_ms
from tieline.pipeline.tables.records import ELSEWHERE

_MOVES = frozenset(ELSEWHERE) - {"send", "objective"}


@dataclass(frozen=True)
class Shape:
    """What a batch is made of."""

    rows: dict[tuple[str, str], int]
    """How many, by log and kind."""
    begins: dict[str, int]
    """The offset of the first row, by log."""
    ends: dict[str, int]
    """The offset after the last row, by log."""
    span_ms: tuple[int, int] | None
    """First and last time in the main log."""
    activity_hours: frozenset[int]
    """Hours in which activity happened."""
    asked_hours: frozenset[int]
    """Hours in which messages were sent that the batch's messages answer."""
    begun: int
    """Deliveries that began."""
    looped: int
    """Messages and pauses that `loops` counts."""
    findings: int
    last_hash: str
    """Of the last row of the main log; empty if there is none."""

    def parts(self, frames: tuple[str, ...], width_ms: int, known: frozenset[int]) -> frozenset[int]:
        """Those of the known parts of a table that facts of these frames can fall into."""
        touched: set[int] = set()
        if self.span_ms is not None and frames != ("exchanges",):
            first, last = self.span_ms
            touched |= {part for part in known if first // width_ms * width_ms <= part <= last}
        if "exchanges" in frames:
            touched |= {hour // width_ms * width_ms for hour in self.activity_hours} & known
        return frozenset(touched)

    def empty(self) -> frozenset[str]:
        """Names of frames that have no rows in this batch; `loops` when it has none of what that table counts."""
        kinds = {kind for log, kind in self.rows if log == MAIN}
        there = {
            "messages": "send" in kinds,
            "sendings": "send" in kinds,
            "answers": bool(self.asked_hours),
            "steps": bool(kinds & _MOVES),
            "objective_events": "objective" in kinds,
            "records": bool(kinds - set(ELSEWHERE)),
            "activity": any(log == ACTIVITY for log, _ in self.rows),
            "exchanges": (ACTIVITY, EXCHANGE) in self.rows,
            "focus": any(log == ACTIVITY and kind.startswith("objective_") for log, kind in self.rows),
            "loops": self.looped > 0,
            "findings": self.findings > 0,
        }
        return frozenset(name for name, has in there.items() if not has)


def shape_of(bronze: DataFrame) -> Shape:
    """Look at a batch once."""
    bad = ~f.coalesce("chained", f.lit(True)) | f.coalesce(f.col("signature").isin(*BAD_SIGNATURES), f.lit(False))
    looped = (f.col("kind") == "pause") | (f.coalesce("hops", f.lit(0)) >= HOPS)
    found = (
        bronze.groupBy("log", "kind")
        .agg(
            f.count(f.lit(1)).alias("rows"),
            f.min("offset").alias("begin"),
            (f.max("offset") + 1).alias("end"),
            f.min("at_ms").alias("first"),
            f.max("at_ms").alias("last"),
            f.collect_set(f.when(f.col("log") == ACTIVITY, start_of(happened_ms(), HOUR_MS))).alias("happened"),
            f.collect_set(start_of(id_time_ms(f.col("reply_to")), HOUR_MS)).alias("asked"),
            f.sum(f.size("keys")).alias("begun"),
            f.sum(looped.cast("bigint")).alias("looped"),
            f.sum(bad.cast("bigint")).alias("findings"),
            f.hex(f.max_by("hash", "offset")).alias("hash"),
        )
        .collect()
    )
    main = [row for row in found if row["log"] == MAIN]
    logs = {row["log"] for row in found}
    return Shape(
        rows={(row["log"], row["kind"]): row["rows"] for row in found},
        begins={log: min(row["begin"] for row in found if row["log"] == log) for log in logs},
        ends={log: max(row["end"] for row in found if row["log"] == log) for log in logs},
        span_ms=(min(row["first"] for row in main), max(row["last"] for row in main)) if main else None,
        activity_hours=frozenset(hour for row in found for hour in row["happened"]),
        asked_hours=frozenset(hour for row in found for hour in row["asked"]),
        begun=sum(row["begun"] or 0 for row in main),
        looped=sum(row["looped"] for row in main),
        findings=sum(row["findings"] for row in main),
        last_hash=max(main, key=lambda row: row["end"])["hash"].lower() if main else "",
    )

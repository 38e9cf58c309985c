"""Findings: one row for each error that the audit found while rows were read.

The kind `chain` means that the hash of a row of the main log does not match the row before it, because one of the two
rows was changed, removed or moved. The kind `signature` means that the signature of a message is wrong, or was made
under another name.
"""

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from tieline.pipeline.frames import Frames
from tieline.pipeline.table import DAY_MS, Gold, columns, start_of

BAD_SIGNATURES = ("failed", "misnamed")


def findings(bronze: DataFrame) -> DataFrame:
    """Return the broken links of the chain and the bad signatures in a batch of log rows."""
    main = bronze.where(f.col("log") == "main")
    day = start_of(f.col("at_ms"), DAY_MS).alias("day_ms")
    broken = main.where(~f.col("chained")).select(
        day, "offset", f.lit("chain").alias("kind"), f.lit("").alias("member"), "at_ms",
        f.concat(f.lit("row "), f.col("offset"), f.lit(" does not follow from the row before it")).alias("what"),
    )  # fmt: skip
    signed = main.where(f.col("signature").isin(*BAD_SIGNATURES)).select(
        day, "offset", f.lit("signature").alias("kind"), f.col("sender").alias("member"), "at_ms",
        f.concat(f.lit("the signature of "), f.col("id"), f.lit(" is "), f.col("signature")).alias("what"),
    )  # fmt: skip
    return broken.unionByName(signed)


def contribute(frames: Frames) -> Sequence[DataFrame]:
    """Return all findings of the batch."""
    return [frames.findings]


TABLE = Gold(
    name="findings",
    schema=columns("day_ms bigint, offset bigint, kind string, member string, at_ms bigint, what string"),
    keys=("day_ms", "offset", "kind"),
    measures={"member": "max", "at_ms": "max", "what": "max"},
    reads=("findings",),
    contribute=contribute,
    part="day_ms",
)

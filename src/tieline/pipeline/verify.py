"""The audit at scale: the main log checked in parallel, against itself, what is stored beside it, and checkpoints.

Above: `tieline pipeline verify`. Below: the source, which cuts the log into ranges; each worker checks the links inside
its range and the one to the row before it, so that the ranges join. It trusts nothing that an earlier run computed.
"""

from collections.abc import Mapping, Sequence

from msgspec import Struct
from pyspark.sql import Row, SparkSession
from pyspark.sql import functions as f

from tieline.core.checkpoints import Checkpoint
from tieline.pipeline.row import MAIN
from tieline.pipeline.tables.findings import BAD_SIGNATURES

FINDINGS_MAX = 100
"""One broken row breaks what follows from it; more findings than these help nobody."""


class Finding(Struct, frozen=True):
    """Something that is not as it must be."""

    offset: int
    kind: str
    """`chain`, `missing`, `seal`, `signature` or `checkpoint`."""
    what: str


class Report(Struct, frozen=True):
    """What was found."""

    verified_rows: int
    messages: int
    findings: tuple[Finding, ...]

    @property
    def intact(self) -> bool:
        """Whether nothing was found."""
        return not self.findings


def verify(spark: SparkSession, where: Mapping[str, str], checkpoints: Sequence[Checkpoint] = ()) -> Report:
    """Check the main log. Over a home also what is stored beside it, and HMACs where the environment has the secret."""
    audit = {"audit": "true"} if "home" in where else {}
    rows = spark.read.format("tieline").options(**where, **audit, logs=MAIN).load()
    broken = ~f.col("chained")
    spoilt = f.col("sealed") == f.lit(False)
    forged = f.col("signature").isin(*BAD_SIGNATURES)
    # One pass: the few rows with something wrong, and the sums, come from the same read.
    counted = rows.groupBy().agg(
        f.count(f.lit(1)).alias("rows"),
        f.max("offset").alias("last"),
        f.count(f.when(f.col("kind") == "send", 1)).alias("messages"),
        f.array_sort(
            f.collect_list(
                f.when(
                    broken | spoilt | forged,
                    f.struct("offset", broken.alias("broken"), spoilt.alias("spoilt"), forged.alias("forged")),
                )
            )
        ).alias("wrong"),
        f.collect_list(
            f.when((f.col("offset") + 1).isin([one.rows for one in checkpoints]), f.struct("offset", "hash"))
        ).alias("heads"),
    )
    (found,) = counted.collect()
    end = 0 if found["last"] is None else found["last"] + 1
    findings = [finding for row in found["wrong"] for finding in _told(row)]
    if found["rows"] < end:
        findings.append(Finding(end, "missing", f"{end - found['rows']} rows are missing before row {end}"))
    findings += _compared(checkpoints, {row["offset"] + 1: row["hash"].hex() for row in found["heads"]}, end)
    return Report(found["rows"], found["messages"], tuple(findings[:FINDINGS_MAX]))


def _told(row: Row) -> list[Finding]:
    offset = row["offset"]
    told = {
        "broken": Finding(offset, "chain", f"row {offset} does not follow from the row before it"),
        "spoilt": Finding(offset, "seal", f"what is stored beside row {offset} is not what it says"),
        "forged": Finding(offset, "signature", f"the signature of the message at row {offset} is wrong"),
    }
    return [finding for name, finding in told.items() if row[name]]


def _compared(checkpoints: Sequence[Checkpoint], heads: Mapping[int, str], end: int) -> list[Finding]:
    findings = []
    for one in checkpoints:
        if one.rows > end:
            what = f"the log is cut off: it ends at row {end}, and had {one.rows} rows at a checkpoint"
            findings.append(Finding(end, "checkpoint", what))
        elif one.rows and heads.get(one.rows) != one.head:
            what = f"row {one.rows - 1} is not the one that was there when a checkpoint was made of it"
            findings.append(Finding(one.rows - 1, "checkpoint", what))
    return findings

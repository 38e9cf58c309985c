"""Findings: one row for each error that the audit found while rows were read.

The kind `chain` means that the hash of a row of the main log does not match the row before it, because one of the two
rows was changed, removed or moved. The kind `signature` means that the signature of a message is wrong, or was made
under another name.
"""

from tieline.pipeline.statements import rows_of
from tieline.pipeline.table import DAY_MS, Facts, Gold, columns, listed, start_of

BAD_SIGNATURES = ("failed", "misnamed")


_DAY = start_of("at_ms", DAY_MS)


def findings(bronze: str) -> str:
    """Return a query (SQL text) for the broken links of the audit chain and the bad signatures in log rows."""
    return rows_of("findings", bronze=bronze, day=_DAY, bad=listed(BAD_SIGNATURES))


TABLE = Gold(
    name="findings",
    schema=columns("day_ms bigint, offset bigint, kind string, member string, at_ms bigint, what string"),
    keys=("day_ms", "offset", "kind"),
    measures={"member": "max", "at_ms": "max", "what": "max"},
    reads=("findings",),
    facts=(
        Facts("{findings}", {name: f"`{name}`" for name in ("day_ms", "offset", "kind", "member", "at_ms", "what")}),
    ),
    part="day_ms",
)

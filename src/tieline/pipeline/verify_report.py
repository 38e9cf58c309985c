"""The result of the audit on Spark: what was checked, and the errors that were found.

Used by: `verify`, which makes it, and the command line, which prints it. Uses: nothing, so that its type is known
without Spark.
"""

from msgspec import Struct


class VerifyFinding(Struct, frozen=True):
    """One error that the audit found: the offset of its row, its kind, and a sentence."""

    offset: int
    kind: str
    """Kind of error: `chain`, `missing`, `seal`, `signature` or `checkpoint`."""
    what: str


class VerifyReport(Struct, frozen=True):
    """Result of the audit: the number of rows that were checked, and the findings."""

    verified_rows: int
    messages: int
    findings: tuple[VerifyFinding, ...]
    """The first findings in the order of the log, then the findings about checkpoints."""
    more: bool = False
    """True if there are more findings than `findings` holds."""
    signatures_checked: int = 0
    """Number of signed messages whose signature was checked again."""
    signatures_unchecked: int = 0
    """Number of signed messages whose signature was not checked, because the secret is not given, or because the log
    was read from a hub's URL.
    """
    times_from: int = 0
    """From this offset on, the hashes also cover the times of the rows. Older versions left the times out."""

    @property
    def intact(self) -> bool:
        """True if there are no findings."""
        return not self.findings

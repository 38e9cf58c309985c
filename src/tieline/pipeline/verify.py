"""The audit of a large log: checks in parallel the main log, the data stored with it, and the checkpoints.

Used by: `tieline pipeline verify`. Uses: the source, which splits the log into ranges. Each worker checks the hashes
inside its range, and that the first row matches the last row of the range before. Workers only count errors, page by
page. The few pages with errors are then read again here, to describe the errors. The audit uses no result of an earlier
run.
"""

import bisect
import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from msgspec import Struct
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from tieline.contract.chain import GENESIS_DIGEST, Link, check_link
from tieline.core.checkpoints import Checkpoint
from tieline.pipeline.flow import read_log
from tieline.pipeline.row import MAIN
from tieline.pipeline.signatures import given_secrets, signing
from tieline.pipeline.source import Options
from tieline.pipeline.tables.findings import BAD_SIGNATURES
from tieline.pipeline.verify_report import VerifyFinding, VerifyReport
from tieline.stores.sqlite.pages import LogPages

FINDINGS_MAX = 100
"""Maximum number of findings in a report. One broken row also breaks the rows after it, so more findings would not
help.
"""
PAGE_ROWS = 8192
"""Number of rows of one page. The workers count the errors of each page."""
_SIGNATURES = {
    "failed": "the signature of the message at row {} is wrong",
    "misnamed": "the message at row {} is signed under another name than its sender's",
}


class Page(Struct, frozen=True):
    """Counts of one page (`PAGE_ROWS` rows of the main log): its rows, errors, messages and signatures."""

    number: int
    rows: int
    last: int
    wrong: int
    messages: int
    signed: int
    checked: int = 0
    """Number of signed messages whose signature was checked, because the protocol's secret is given."""

    def suspicious(self, end: int) -> bool:
        """True if the page has errors or missing rows, and must be read again.

        `end` is the number of rows in the log.
        """
        return self.wrong > 0 or self.rows != min(PAGE_ROWS, end - self.number * PAGE_ROWS)


def verify(spark: SparkSession, where: Mapping[str, str], checkpoints: Sequence[Checkpoint] = ()) -> VerifyReport:
    """Check the main log and return a report. `where` has the options of the data source: a home or a hub's URL.

    For a home, also check the messages and changes that are stored with the log, and the signatures of protocols whose
    secret is among the options. `checkpoints` are signed lengths and hashes that the log must contain.
    """
    options = {**where, "logs": MAIN, **({"audit": "true"} if "home" in where else {})}
    pages, heads = _counted(spark, options, checkpoints)
    end = _end(pages)
    told = tell(options, pages)
    findings = list(itertools.islice(told, FINDINGS_MAX))
    more = next(told, None) is not None
    findings += _compared(checkpoints, heads, end)
    signed = sum(page.signed for page in pages)
    checked = sum(page.checked for page in pages) if "home" in where else 0
    return VerifyReport(
        verified_rows=sum(page.rows for page in pages),
        messages=sum(page.messages for page in pages),
        findings=tuple(findings),
        more=more,
        signatures_checked=checked,
        signatures_unchecked=signed - checked,
        times_from=times_from(options, end),
    )


def times_from(options: Mapping[str, str], end: int) -> int:
    """Return the first offset of the main log from which on the hashes cover the times; `end` if there is none.

    `end` is the length of the log. Rows whose hashes do not cover the times are only at the beginning of a log, so a
    binary search reads only a few rows.
    """
    log = Options(options).log()

    def is_covered(offset: int) -> bool:
        names = ("offset", "at_ms", "event", "hash")
        found: list[tuple[int, int, str, bytes]] = []
        for batch in log.read(MAIN, max(0, offset - 1), offset + 1):
            found += zip(*(batch.column(name).to_pylist() for name in names), strict=True)
        previous = GENESIS_DIGEST if offset == 0 else found[0][3] if found else b""
        return any(
            check_link(previous, at_ms, event.encode(), own) is not Link.UNTIMED
            for place, at_ms, event, own in found
            if place == offset
        )

    return bisect.bisect_left(range(end), True, key=is_covered)


def _counted(
    spark: SparkSession, options: Mapping[str, str], checkpoints: Sequence[Checkpoint]
) -> tuple[list[Page], dict[int, str]]:
    """Read the log once. Return the counts of every page that has rows, and the row hashes at the checkpoints.

    The key of a hash is the number of rows up to its row, as in `Checkpoint.rows`.
    """
    rows = read_log(spark, options)
    wrong = ~f.col("chained") | (f.col("sealed") == f.lit(False)) | f.col("signature").isin(*BAD_SIGNATURES)
    signed = f.col("protocol").isin(*signing()) & (f.col("signature") != "")
    checked = signed & f.col("protocol").isin(*given_secrets())
    heads = (f.col("offset") + 1).isin(sorted({one.rows for one in checkpoints}))
    counted = rows.groupBy(f.floor(f.col("offset") / PAGE_ROWS).alias("number")).agg(
        f.count(f.lit(1)).alias("rows"),
        f.max("offset").alias("last"),
        f.count(f.when(wrong, 1)).alias("wrong"),
        f.count(f.when(f.col("kind") == "send", 1)).alias("messages"),
        f.count(f.when(signed, 1)).alias("signed"),
        f.count(f.when(checked, 1)).alias("checked"),
        f.collect_list(f.when(heads, f.struct("offset", "hash"))).alias("heads"),
    )
    found = sorted(counted.collect(), key=lambda row: int(row["number"]))
    pages = [Page(*(int(row[name]) for name in Page.__struct_fields__)) for row in found]
    return pages, {head["offset"] + 1: head["hash"].hex() for row in found for head in row["heads"]}


def tell(options: Mapping[str, str], pages: Sequence[Page]) -> Iterator[VerifyFinding]:
    """Yield the errors of a log in the order of its rows. Read pages with errors again, to describe the errors.

    `pages` are the counts of the pages.
    """
    end = _end(pages)
    expected = 0
    for page in pages:
        first = page.number * PAGE_ROWS
        if expected < first:
            # There are pages without any rows.
            yield _missing(expected, first - 1)
        if page.suspicious(end):
            yield from _page_told(options, first, min(first + PAGE_ROWS, end))
        expected = first + PAGE_ROWS
    if "home" in options:
        yield from _left_over(Path(options["home"]), end)


def _page_told(options: Mapping[str, str], first: int, end: int) -> Iterator[VerifyFinding]:
    expected = first
    for batch in Options(options).log().read(MAIN, first, end):
        columns = (batch.column(name).to_pylist() for name in ("offset", "chained", "sealed", "signature"))
        for offset, chained, sealed, signature in zip(*columns, strict=True):
            if offset > expected:
                yield _missing(expected, offset - 1)
            if not chained:
                yield VerifyFinding(offset, "chain", f"row {offset} does not follow from the row before it")
            if sealed is False:
                yield VerifyFinding(offset, "seal", f"what is stored beside row {offset} is not what it says")
            if signature in BAD_SIGNATURES:
                yield VerifyFinding(offset, "signature", _SIGNATURES[signature].format(offset))
            expected = offset + 1
    if expected < end:
        yield _missing(expected, end - 1)


def _end(pages: Sequence[Page]) -> int:
    return max((page.last + 1 for page in pages), default=0)


def _missing(first: int, last: int) -> VerifyFinding:
    rows = f"row {first} is" if first == last else f"rows {first} to {last} are"
    return VerifyFinding(first, "missing", f"{rows} missing")


def _left_over(home: Path, end: int) -> Iterator[VerifyFinding]:
    """Yield an error for each message or change of an objective that is stored after the last row of the log.

    Such data show that somebody removed rows from the end of the log.
    """
    with closing(LogPages(home)) as pages:
        page = pages.main(end, end + PAGE_ROWS)
    told = {row[0] for row in page.rows}
    for offset in sorted({row[0] for row in (*page.messages, *page.happenings)} - told):
        what = f"something is stored that row {offset} should tell of, and there is no such row"
        yield VerifyFinding(offset, "missing", what)


def _compared(checkpoints: Sequence[Checkpoint], heads: Mapping[int, str], end: int) -> list[VerifyFinding]:
    findings = set()
    for one in checkpoints:
        if one.rows > end:
            what = f"the log is cut off: it ends at row {end}, and had {one.rows} rows at a checkpoint"
            findings.add((end, what))
        elif one.rows and heads.get(one.rows) != one.head:
            what = f"row {one.rows - 1} is not the one that was there when a checkpoint was made of it"
            findings.add((one.rows - 1, what))
    return [VerifyFinding(offset, "checkpoint", what) for offset, what in sorted(findings)[:FINDINGS_MAX]]

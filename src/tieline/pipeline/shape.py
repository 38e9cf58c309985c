"""The shape of a batch: how many rows of which kind it has, and the hours and days that they touch.

The shape is computed before any table is written, so that untouched parts are not read and unaffected tables are not
written.
"""

from array import array
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import parquet

from tieline.pipeline.row import ACTIVITY, MAIN
from tieline.pipeline.table import HOUR_MS
from tieline.pipeline.tables.activity import AHEAD_MS, BEHIND_MS, EXCHANGE
from tieline.pipeline.tables.findings import BAD_SIGNATURES
from tieline.pipeline.tables.loops import HOPS
from tieline.pipeline.tables.records import ELSEWHERE

_MOVES = frozenset(ELSEWHERE) - {"send", "objective"}
_LOOKED_AT = ("log", "kind", "offset", "at_ms", "hash", "ts_ms", "reply_to", "keys", "hops", "chained", "signature")
_PAGE_ROWS = 1 << 17
_EVENTS_HELD = 1 << 10
"""Number of events in memory at a time, because one event may have megabytes."""
_NEVER = -(2**63)
_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**62)]


@dataclass(frozen=True)
class Shape:
    """Counts, offsets and times of a batch's rows. They tell which parts of which tables the batch can change."""

    rows: dict[tuple[str, str], int]
    """Number of rows, by log and kind."""
    begins: dict[str, int]
    """The offset of the first row, by log."""
    ends: dict[str, int]
    """The offset after the last row, by log."""
    span_ms: tuple[int, int] | None
    """First and last time of the batch's rows of the main log; `None` if it has no such row."""
    activity_hours: frozenset[int]
    """Starts of the hours in which the activity happened."""
    asked_hours: frozenset[int]
    """Starts of the hours of the messages to which this batch's messages reply, and perhaps a neighbouring hour."""
    begun: int
    """Number of deliveries that began."""
    looped: int
    """Number of messages and pauses that the table `loops` counts."""
    findings: int
    last_hash: str
    """Hash of the last row of the main log; empty if the batch has no such row."""

    def parts(self, frames: tuple[str, ...], width_ms: int, known: frozenset[int]) -> frozenset[int]:
        """Return the parts of a table, among the `known` ones, into which facts of this batch can fall.

        `frames` are the kinds of facts that the table counts (fields of `Frames`). A part is the start of a span of
        `width_ms`.
        """
        touched: set[int] = set()
        if self.span_ms is not None and frames != ("exchanges",):
            first, last = self.span_ms
            touched |= {part for part in known if first // width_ms * width_ms <= part <= last}
        if "exchanges" in frames:
            touched |= {hour // width_ms * width_ms for hour in self.activity_hours} & known
        return frozenset(touched)

    def empty(self) -> frozenset[str]:
        """Return the names of the frames (kinds of facts) that have no rows in this batch.

        The result has `loops` if the batch has nothing that the table `loops` counts.
        """
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


def shape_of(bronze: Iterable[Path]) -> Shape:
    """Compute the shape of a batch in one pass over `bronze`, the files of its log rows.

    Without Spark, because a Spark job takes longer to start.
    """
    rows: Counter[tuple[str, str]] = Counter()
    counts: Counter[str] = Counter()
    begins: dict[str, int] = {}
    ends: dict[str, int] = {}
    times: list[int] = []
    happened: set[int] = set()
    asked: set[int] = set()
    last_hash = b""
    for page in _pages(bronze, _LOOKED_AT, _PAGE_ROWS):
        for row in page.group_by(["log", "kind"]).aggregate([([], "count_all")]).to_pylist():
            rows[row["log"], row["kind"]] += row["count_all"]
        main, told = (page.filter(pc.equal(page["log"], log)) for log in (MAIN, ACTIVITY))
        for log, some in ((MAIN, main), (ACTIVITY, told)):
            if some.num_rows:
                first, last = pc.min_max(some["offset"]).as_py().values()
                if log == MAIN and last >= ends.get(log, 0):
                    last_hash = some["hash"][pc.index(some["offset"], last).as_py()].as_py()
                begins[log], ends[log] = min(first, begins.get(log, first)), max(last + 1, ends.get(log, 0))
        if main.num_rows:
            times += pc.min_max(main["at_ms"]).as_py().values()
            counts.update(_counted(main))
            asked |= _asked_hours(main["reply_to"])
        happened |= _happened_hours(told)
    return Shape(
        rows=dict(rows),
        begins=begins,
        ends=ends,
        span_ms=(min(times), max(times)) if times else None,
        activity_hours=frozenset(happened),
        asked_hours=frozenset(asked),
        begun=counts["begun"],
        looped=counts["looped"],
        findings=counts["findings"],
        last_hash=last_hash.hex(),
    )


def moved_by(bronze: Iterable[Path], most: int) -> pa.Table | None:
    """Return the member number and key of every delivery whose state changes in a batch.

    `bronze` are the files of the batch's log rows. Return `None` if there are `most` or more: one row may change
    millions. Also `None` if a row cannot be read, because somebody changed the database; Spark then reads what it can
    of such a row.
    """
    decode = msgspec.json.Decoder(_Moved).decode
    numbers, firsts, counts = array("q"), array("q"), array("q")
    for page in _pages(bronze, ("log", "kind", "event"), _EVENTS_HELD):
        moves = pc.and_(pc.equal(page["log"], MAIN), pc.is_in(page["kind"], pa.array(sorted(_MOVES))))
        for event in page.filter(moves)["event"]:
            try:
                said = decode(event.as_buffer())
            except msgspec.MsgspecError:
                return None
            for first, last in said.keys:
                most -= max(0, last - first + 1)
                if most <= 0:
                    return None
                if first <= last:
                    numbers.append(said.number)
                    firsts.append(first)
                    counts.append(last - first + 1)
    ends = np.cumsum(counts)
    steps = np.arange(ends[-1] if counts else 0) - np.repeat(ends - counts, counts)
    return pa.table({"number": np.repeat(numbers, counts), "key": np.repeat(firsts, counts) + steps})


class _Moved(msgspec.Struct):
    number: _Number
    keys: list[tuple[_Number, _Number]]


def _pages(bronze: Iterable[Path], columns: Iterable[str], rows: int) -> Iterator[pa.Table]:
    for path in bronze:
        for batch in parquet.ParquetFile(path).iter_batches(rows, columns=list(columns)):
            yield pa.Table.from_batches([batch])


def _counted(main: pa.Table) -> dict[str, int]:
    looped = pc.or_(pc.equal(main["kind"], "pause"), pc.fill_null(pc.greater_equal(main["hops"], HOPS), False))
    unchained = pc.invert(pc.fill_null(main["chained"], True))
    bad = pc.or_(unchained, pc.is_in(main["signature"], pa.array(BAD_SIGNATURES)))
    begun = pc.sum(pc.list_value_length(main["keys"])).as_py() or 0
    return {"begun": begun, "looped": pc.sum(looped).as_py(), "findings": pc.sum(bad).as_py()}


def _happened_hours(activity: pa.Table) -> set[int]:
    """Return the starts of the hours in which activity happened.

    As in `tables.activity.happened_ms`, an impossible time is replaced by the time of the report.
    """
    at, told = activity["at_ms"].to_numpy(), pc.fill_null(activity["ts_ms"], _NEVER).to_numpy()
    likely = (told >= at - BEHIND_MS) & (told <= at + AHEAD_MS)
    return set(np.unique(np.where(likely, told, at) // HOUR_MS * HOUR_MS).tolist())


def _asked_hours(replied: pa.ChunkedArray) -> set[int]:
    """Return the starts of the hours of the messages with these ids, to which others replied.

    Only files of these hours are searched for the messages. An id begins with its time; the first digits give the
    minute.
    """
    ids = replied.filter(pc.match_substring_regex(replied, "^[0-9a-f]{8}-[0-9a-f]{4}-7"))
    begins = [int(digits, 16) << 16 for digits in pc.unique(pc.utf8_slice_codeunits(ids, 0, 8)).to_pylist()]
    return {time_ms // HOUR_MS * HOUR_MS for begin in begins for time_ms in (begin, begin + 0xFFFF)}

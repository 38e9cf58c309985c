"""The shape of a batch: how many rows of each kind it has, and the hours and days of these rows.

The tasks that write bronze (the log rows) compute the shape of their rows. The driver adds these shapes up before any
table is written. So the pipeline reads only the files, and writes only the tables, that the batch can change.
"""

from collections.abc import Iterable

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tieline.pipeline.row import ACTIVITY, MAIN, MOVES
from tieline.pipeline.table import HOUR_MS
from tieline.pipeline.tables.activity import AHEAD_MS, BEHIND_MS, EXCHANGE
from tieline.pipeline.tables.findings import BAD_SIGNATURES
from tieline.pipeline.tables.loops import HOPS
from tieline.pipeline.tables.records import ELSEWHERE

_MOVES = frozenset(MOVES)
_NEVER = -(2**63)


class Shape(msgspec.Struct, frozen=True):
    """Summary of a batch: counts, offsets and times of its rows.

    It determines which parts of which tables the batch can change.
    """

    rows: dict[str, dict[str, int]] = {}
    """Number of rows, by log and kind."""
    ends: dict[str, int] = {}
    """The offset after the last row, by log."""
    span_ms: tuple[int, int] | None = None
    """First and last time of the batch's rows of the main log. `None` if the batch has no rows of the main log."""
    activity_hours: frozenset[int] = frozenset()
    """Starts of the hours in which the activity happened."""
    asked_hours: frozenset[int] = frozenset()
    """Starts of the hours of the messages to which this batch's messages reply. An hour before or after may be
    included.
    """
    begun: int = 0
    """Number of deliveries that began in the batch."""
    looped: int = 0
    """Number of messages and pauses that the table `loops` counts."""
    findings: int = 0
    unrouted: int = 0
    """Number of messages in the batch that retention deleted, together with their lists of recipients, before they were
    read.
    """
    typed: int = 0
    """Number of events that move deliveries, and that have their deliveries in columns."""
    last_hash: str = ""
    """Hash of the batch's last row of the main log. It is empty if the batch has no rows of the main log."""

    def count(self, log: str | None = None) -> int:
        """Return the number of rows of one log, or without `log` of all logs."""
        return sum(sum(kinds.values()) for name, kinds in self.rows.items() if log in (None, name))

    @property
    def is_typed(self) -> bool:
        """True if all events that move deliveries have their deliveries in columns, not only in JSON."""
        return self.typed == sum(count for kind, count in self.rows.get(MAIN, {}).items() if kind in _MOVES)

    def touches(self, frames: tuple[str, ...], span: tuple[int, int], width_ms: int) -> bool:
        """True if facts of this batch can change a file of a table. `span` has the first and last time in the file.

        `frames` are the kinds of facts that the table counts (fields of `Frames`). Each file has the rows of whole
        intervals of `width_ms`.
        """
        first, last = span[0] // width_ms * width_ms, span[1] // width_ms * width_ms + width_ms - 1
        if (
            self.span_ms is not None
            and frames != ("exchanges",)
            and first <= self.span_ms[1]
            and last >= self.span_ms[0]
        ):
            return True
        hours = self.activity_hours if "exchanges" in frames else frozenset[int]()
        # The table `responses` counts an answer on the day of the answered message.
        hours |= self.asked_hours if frames == ("answers",) else frozenset()
        return any(hour <= last and hour + HOUR_MS > first for hour in hours)

    def empty(self) -> frozenset[str]:
        """Return the names of the frames (kinds of facts) that have no rows in this batch.

        The result contains `loops` if the batch has no messages or pauses that the table `loops` counts.
        """
        kinds, told = set(self.rows.get(MAIN, ())), set(self.rows.get(ACTIVITY, ()))
        there = {
            "messages": "send" in kinds,
            "sendings": "send" in kinds,
            "answers": bool(self.asked_hours),
            "steps": bool(kinds & _MOVES),
            "objective_events": "objective" in kinds,
            "records": bool(kinds - set(ELSEWHERE)),
            "activity": bool(told),
            "exchanges": EXCHANGE in told,
            "focus": any(kind.startswith("objective_") for kind in told),
            "loops": self.looped > 0,
            "findings": self.findings > 0,
        }
        return frozenset(name for name, has in there.items() if not has)


def page_shape(page: pa.Table) -> Shape:
    """Return the shape (summary) of a page of log rows.

    The task that writes the rows calls this function, because it has the rows in memory.
    """
    rows: dict[str, dict[str, int]] = {}
    for row in page.group_by(["log", "kind"]).aggregate([([], "count_all")]).to_pylist():
        rows.setdefault(row["log"], {})[row["kind"]] = row["count_all"]
    main, told = (page.filter(pc.equal(page["log"], log)) for log in (MAIN, ACTIVITY))
    ends = {log: pc.max(some["offset"]).as_py() + 1 for log, some in ((MAIN, main), (ACTIVITY, told)) if some.num_rows}
    counts = _counted(main) if main.num_rows else {}
    last_hash = main["hash"][pc.index(main["offset"], ends[MAIN] - 1).as_py()].as_py() if main.num_rows else b""
    return Shape(
        rows=rows,
        ends=ends,
        span_ms=tuple(pc.min_max(main["at_ms"]).as_py().values()) if main.num_rows else None,
        activity_hours=frozenset(_happened_hours(told)),
        asked_hours=frozenset(_asked_hours(main["reply_to"])) if main.num_rows else frozenset(),
        last_hash=last_hash.hex(),
        **counts,
    )


def whole_shape(shapes: Iterable[Shape]) -> Shape:
    """Return one shape (summary) for all rows together, computed from the shapes of parts."""
    whole = Shape()
    for one in shapes:
        spans = [span for span in (whole.span_ms, one.span_ms) if span is not None]
        logs = {*whole.rows, *one.rows}
        later = one.ends.get(MAIN, 0) > whole.ends.get(MAIN, 0)
        whole = Shape(
            rows={log: _added(whole.rows.get(log, {}), one.rows.get(log, {})) for log in logs},
            ends={log: max(whole.ends.get(log, 0), one.ends.get(log, 0)) for log in logs},
            span_ms=(min(span[0] for span in spans), max(span[1] for span in spans)) if spans else None,
            activity_hours=whole.activity_hours | one.activity_hours,
            asked_hours=whole.asked_hours | one.asked_hours,
            begun=whole.begun + one.begun,
            looped=whole.looped + one.looped,
            findings=whole.findings + one.findings,
            unrouted=whole.unrouted + one.unrouted,
            typed=whole.typed + one.typed,
            last_hash=one.last_hash if later else whole.last_hash,
        )
    return whole


def _added(some: dict[str, int], more: dict[str, int]) -> dict[str, int]:
    return {kind: some.get(kind, 0) + more.get(kind, 0) for kind in (*some, *more)}


def _counted(main: pa.Table) -> dict[str, int]:
    looped = pc.or_(pc.equal(main["kind"], "pause"), pc.fill_null(pc.greater_equal(main["hops"], HOPS), False))
    unchained = pc.invert(pc.fill_null(main["chained"], True))
    bad = pc.or_(unchained, pc.is_in(main["signature"], pa.array(BAD_SIGNATURES)))
    sent, listed = pc.equal(main["kind"], "send"), pc.is_valid(main["keys"])
    begun = pc.sum(pc.list_value_length(main["keys"].filter(sent))).as_py() or 0
    gone, typed = pc.and_not(sent, listed), pc.and_not(listed, sent)
    sums = {"looped": looped, "findings": bad, "unrouted": gone, "typed": typed}
    return {"begun": begun, **{name: pc.sum(column).as_py() for name, column in sums.items()}}


def _happened_hours(activity: pa.Table) -> set[int]:
    """Return the starts of the hours in which activity happened.

    If a reported time is impossible, the time of the report is used, as in `tables.activity.happened_ms`.
    """
    at, told = activity["at_ms"].to_numpy(), pc.fill_null(activity["ts_ms"], _NEVER).to_numpy()
    likely = (told >= at - BEHIND_MS) & (told <= at + AHEAD_MS)
    return set(np.unique(np.where(likely, told, at) // HOUR_MS * HOUR_MS).tolist())


def _asked_hours(replied: pa.ChunkedArray) -> set[int]:
    """Return the starts of the hours in which the messages with the ids `replied` were sent.

    Other messages reply to these messages. Only files of these hours are searched for them. An id begins with its time,
    and its first digits are enough to know the minute.
    """
    ids = replied.filter(pc.match_substring_regex(replied, "^[0-9a-f]{8}-[0-9a-f]{4}-7"))
    begins = [int(digits, 16) << 16 for digits in pc.unique(pc.utf8_slice_codeunits(ids, 0, 8)).to_pylist()]
    return {time_ms // HOUR_MS * HOUR_MS for begin in begins for time_ms in (begin, begin + 0xFFFF)}

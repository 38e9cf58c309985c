"""The report: the contents of the tables in one document, for a terminal, an HTML page, the console or other programs.

Used by: `tieline pipeline report`, alerts, and every run, which stores it in the hub for the
console. Uses: gold tables (sums of facts), read with Arrow. Each list has a maximum length, and begins with the
most important rows. `left_out` has the number of omitted rows of each list. A report over a time span also has the
totals of the time span before, and the largest differences.
"""

import math
from collections.abc import Iterator
from typing import Any

import msgspec

from tieline.pipeline.arrow_tables import DAY_MS, ArrowTables, Window
from tieline.pipeline.lake import Lake
from tieline.pipeline.report_traffic import HOUR_MS, MINUTE_MS, Traffic, last_minute_end
from tieline.pipeline.report_work import Work
from tieline.wire.report_parts import (
    CHECKS_FILE,
    Audit,
    Change,
    Checked,
    Edge,
    Failure,
    Finding,
    Latency,
    Report,
    Response,
    Spend,
    Totals,
)

ROWS_MAX = 2000
"""Maximum number of rows of each list in a report: as many as a person or an HTML page can handle."""
RANGES = {"1d": DAY_MS, "7d": 7 * DAY_MS}
"""The time spans that the console offers, beside thirty days. The cost of a longer one would grow with the history."""
_LONGEST_MS = 30 * DAY_MS
_RANGE_ROWS = 200
_CHANGES = 30
_HOURS_MIN = 10
"""Length in hours of a time span from which numbers by hour are compared. The time span before may have one hour less.
"""
_BY_HOUR = {"cost_usd", "exchanges", "failed_calls", "retried_calls", "cache_hit"}
"""The totals of model calls, which are counted by hour."""
_CHANGE_MIN = 0.1
"""Smallest share by which a number must differ from the time span before to be told."""


def make_report(lake: Lake, since_ms: int | None = None, window_ms: int | None = None) -> Report:
    """Return the report of a lake: over all time, from a time on, or over the last time span of a length.

    With `since_ms`, leave out each minute, hour or day that ended before this time. With `window_ms`, the time span
    ends with the log; if it is a number of whole days, it begins at midnight (UTC), and the last day counts as a whole
    day. In both cases, the report is compared with the time span of the same length before. If the last day is not
    over, this earlier time span ends at the same time of day.
    """
    return _report(ArrowTables(lake), lake, since_ms, window_ms, ROWS_MAX)


def report_with_ranges(lake: Lake) -> Report:
    """Return the report over the last thirty days, which also contains a report over each time span in `RANGES`."""
    tables = ArrowTables(lake)
    report = _report(tables, lake, None, _LONGEST_MS, ROWS_MAX)
    report.ranges = {name: _report(tables, lake, None, long, _RANGE_ROWS) for name, long in RANGES.items()}
    return report


def _report(tables: ArrowTables, lake: Lake, since_ms: int | None, window_ms: int | None, most: int) -> Report:
    end_ms = last_minute_end(tables)
    if window_ms is not None and end_ms is not None:
        since_ms = _start(end_ms, window_ms)
    report = _Maker(tables, Window(since_ms), most).make()
    told = lake.storage.read(CHECKS_FILE)
    report.failed_checks = msgspec.json.decode(told, type=Checked).failed if told else []
    if since_ms is not None and end_ms is not None:
        so_far = max(MINUTE_MS, end_ms - since_ms)
        before_ms = since_ms - (window_ms or so_far)
        by_hour = so_far >= _HOURS_MIN * HOUR_MS and since_ms % HOUR_MS == 0
        before = _Maker(tables, Window(before_ms, before_ms + so_far), most).compared()
        _compare(report, before, before_ms, by_hour=by_hour)
    return report


def _start(end_ms: int, window_ms: int) -> int:
    """Return the start of the last time span of this length, which ends at `end_ms`."""
    if window_ms % DAY_MS:
        return max(0, (end_ms - window_ms) // MINUTE_MS * MINUTE_MS)
    return max(0, (end_ms - 1) // DAY_MS * DAY_MS + DAY_MS - window_ms)


class _Maker:
    """Makes the report of one time span. Each list has at most `most` rows."""

    def __init__(self, tables: ArrowTables, within: Window, most: int) -> None:
        self._tables = tables
        self._within = within
        self._max = most
        self._traffic = Traffic(tables, within)
        # An hour that the next time span has begun counts there.
        until_ms = None if within.until_ms is None else within.until_ms // HOUR_MS * HOUR_MS
        self._work = Work(tables, Window(within.since_ms, until_ms), self._traffic.to_ms)
        self._left_out: dict[str, int] = {}

    def make(self) -> Report:
        traffic, work, commit = self._traffic, self._work, self._tables.commit
        loops = self._most("loops", work.loops())
        objectives, omitted = work.objectives(self._max)
        if omitted:
            self._left_out["objectives"] = omitted
        return Report(
            totals=work.add_to(traffic.totals(), loops),
            edges=self._most("edges", traffic.edges()),
            latency=self._most("latency", traffic.latency()),
            objectives=objectives,
            llm=self._most("llm", work.llm()),
            loops=loops,
            audit=self._audit(),
            latency_series=traffic.latency_series(),
            backlog=self._most("backlog", traffic.backlog()),
            backlog_series=traffic.backlog_series(),
            llm_by_hour=work.llm_by_hour(),
            storms=self._most("storms", traffic.storms()),
            threads=traffic.threads(),
            members=self._most("members", traffic.members()),
            service=self._most("service", traffic.service()),
            responses=self._most("responses", traffic.responses()),
            failures=self._most("failures", traffic.failures()),
            waits=self._most("waits", work.waits()),
            spend=self._most("spend", work.spend()),
            unpriced=self._most("unpriced", work.unpriced()),
            from_ms=traffic.from_ms,
            to_ms=traffic.to_ms,
            series_ms=traffic.width_ms,
            since_ms=self._within.since_ms,
            commit=commit.number,
            engine=commit.engine,
            position=commit.position,
            refreshed_at_ms=commit.at_ms,
            left_out=self._left_out,
            missed=commit.missed(),
            missed_ms=commit.counts.get("missed_ms"),
        )

    def compared(self) -> "_Compared":
        """Return the parts of this report that are compared with the report of another time span."""
        traffic, work = self._traffic, self._work
        return _Compared(
            totals=work.add_to(traffic.totals(), work.loops()),
            edges=traffic.edges(),
            latency=traffic.latency(),
            failures=traffic.failures(),
            spend=work.spend(),
            responses=traffic.responses(),
        )

    def _most(self, name: str, rows: list[Any]) -> list[Any]:
        if len(rows) > self._max:
            self._left_out[name] = len(rows) - self._max
        return rows[: self._max]

    def _audit(self) -> Audit:
        columns = ("offset", "kind", "member", "at_ms", "what")
        # Of all time: a broken chain stays broken.
        table = self._tables.read("findings", columns)
        found = sorted((Finding(**row) for row in table.to_pylist()), key=lambda row: (row.kind, -row.offset))
        broken = sum(row.kind == "chain" for row in found)
        return Audit(
            verified_rows=self._tables.commit.position.get("main", 0),
            intact=broken == 0,
            chain_breaks=broken,
            bad_signatures=len(found) - broken,
            findings=self._most("findings", found),
        )


class _Compared(msgspec.Struct, kw_only=True):
    """Parts of a report that are compared with the report of another time span."""

    totals: Totals
    edges: list[Edge]
    latency: list[Latency]
    failures: list[Failure]
    spend: list[Spend]
    responses: list[Response]


def _compare(report: Report, before: _Compared, before_ms: int, *, by_hour: bool) -> None:
    """Add the numbers of the time span before (`before`) to a report, and the largest differences.

    With `by_hour`, model calls are compared too.
    """
    report.before, report.before_ms = before.totals, before_ms
    spent = {(one.by, one.name): one.cost_usd for one in before.spend}
    for one in report.spend if by_hour else ():
        one.before_usd = spent.get((one.by, one.name), 0.0)
    failed = {(one.kind, one.cause, one.member): one.count for one in before.failures}
    for row in report.failures:
        row.before = failed.get((row.kind, row.cause, row.member), 0)
    if not before.totals.messages and not before.totals.exchanges:
        return  # everything is new, which tells nobody anything
    then, now = dict(_figures(before, by_hour=by_hour)), dict(_figures(report, by_hour=by_hour))
    found = [Change(*key, then.get(key, 0), now.get(key, 0)) for key in {**then, **now}]
    # A latency that is missing on one side is no change: there was nothing to measure.
    found = [one for one in found if "_ms" not in one.what or (one.before and one.now)]
    found = [one for one in found if abs(one.now - one.before) >= _CHANGE_MIN * max(one.now, one.before)]
    found = [one for one in found if one.now != one.before]
    report.changes = sorted(found, key=lambda one: (-_weight(one), one.what, one.name))[:_CHANGES]


def _figures(report: Report | _Compared, *, by_hour: bool) -> Iterator[tuple[tuple[str, str], float]]:
    """Yield the numbers of a report that are compared, each with two texts: its kind, and its member or other subject.

    With `by_hour`, the numbers of tables by hour are among them.
    """
    left_out = {"waiting", "late", "activity", "loop_cost_usd"} | (set() if by_hour else _BY_HOUR)
    for name in Totals.__struct_fields__:
        value = getattr(report.totals, name)
        if value is not None and name not in left_out:
            yield (name, ""), value
    for spend in report.spend if by_hour else ():
        yield (f"cost_usd of the {spend.by}", spend.title or spend.name or "(none)"), spend.cost_usd
    for latency in report.latency:
        yield ("p50_ms until " + latency.measured, f"{latency.member} ({latency.protocol})"), latency.p50_ms
    for response in report.responses:
        yield ("p50_ms of first answers", response.member), response.p50_ms
    for edge in report.edges:
        yield ("messages", f"{edge.sender} → {edge.recipient}"), edge.messages
    causes: dict[tuple[str, str], float] = {}
    for failure in report.failures:
        key = (f"failures: {failure.kind}", failure.cause)
        causes[key] = causes.get(key, 0) + failure.count
    yield from causes.items()


def _weight(change: Change) -> float:
    """Return the weight of a change: it is high if a large number has changed by a large share."""
    most = max(change.now, change.before)
    scale = most * 1000 if "usd" in change.what else most
    return abs(change.now - change.before) / most * math.log1p(scale)

"""The report: the contents of the tables in one document, for a terminal, an HTML page, the console or other programs.

Used by: `tieline pipeline report`, its HTML page, alerts, and `report.json` in the lake, which every run writes for
readers without Spark and Arrow. Uses: gold tables (sums of facts), read with Arrow. Each list has a maximum length, and
begins with the most important rows. `left_out` has the number of omitted rows of each list.
"""

from typing import Any

import msgspec
import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tieline.pipeline.arrow_tables import ArrowTables, Numbers, flattened, grouped, numbers, percentiles, summed, total
from tieline.pipeline.lake import Lake
from tieline.pipeline.report_parts import (
    Audit,
    Backlog,
    BacklogPoint,
    Edge,
    Finding,
    Latency,
    LatencyPoint,
    Loop,
    Member,
    Objective,
    Report,
    Storm,
    Threads,
    Totals,
    Usage,
    UsageHour,
)

MINUTE_MS, HOUR_MS, DAY_MS = 60_000, 3_600_000, 86_400_000
REPORT_FILE = "report.json"
ROWS_MAX = 2000
"""Maximum number of rows of each list in a report: as many as a person or an HTML page can handle."""
POINTS_MAX = 120
"""Maximum number of points of a time series in a report: about as many as a chart can show."""
HOURS_MAX = 14 * 24  # two weeks by the hour are all that a chart can show
_WIDTHS_MS = (
    MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS, 28 * DAY_MS,
)  # fmt: skip
_NANO = 1e9
_LONGEST = 50


def make_report(lake: Lake, since_ms: int | None = None) -> Report:
    """Return the report of a lake. With `since_ms`, leave out each minute, hour or day that ended before this time."""
    return _Maker(ArrowTables(lake, since_ms or 0), since_ms).make()


def write_report(lake: Lake) -> Report:
    """Make the report over all stored data, write it into the lake, and return it.

    Readers never see an incomplete file.
    """
    report = make_report(lake)
    lake.storage.write(REPORT_FILE, msgspec.json.encode(report))
    return report


class _Maker:
    def __init__(self, tables: ArrowTables, since_ms: int | None) -> None:
        self._tables = tables
        self._since_ms = since_ms
        self._left_out: dict[str, int] = {}
        self._steps = tables.read(
            "latency",
            ("member", "protocol", "minute_ms", "offered", "seen", "acked", "expired", "dead", "late", "acked_ms",
             "offered_ms"),
            time="minute_ms", width_ms=MINUTE_MS,
        )  # fmt: skip
        # The backlog is the sum over all time, whatever span the report covers.
        self._moves = tables.read("backlog", ("member", "minute_ms", "arrived", "departed"))
        self._pace = tables.read(
            "storms", ("minute_ms", "sender", "messages", "deliveries", "storm"), time="minute_ms", width_ms=MINUTE_MS
        )
        self._hours = tables.read(
            "llm",
            ("hour_ms", "member", "model", "exchanges", "failed", "unpriced", "input_tokens", "output_tokens",
             "cache_read_tokens", "cache_write_tokens", "cost_nano_usd"),
            time="hour_ms", width_ms=HOUR_MS,
        )  # fmt: skip
        self._from_ms, self._to_ms = self._span()
        long = (self._to_ms or 0) - (self._from_ms or 0)
        self._width_ms = next((width for width in _WIDTHS_MS if long / width <= POINTS_MAX), _WIDTHS_MS[-1])

    def make(self) -> Report:
        return Report(
            totals=self._totals(),
            edges=self._edges(),
            latency=self._latency(),
            objectives=self._objectives(),
            llm=self._llm(),
            loops=self._loops(),
            audit=self._audit(),
            latency_series=self._latency_series(),
            backlog=self._backlog(),
            backlog_series=self._backlog_series(),
            llm_by_hour=self._llm_by_hour(),
            storms=self._storms(),
            threads=self._threads(),
            members=self._members(),
            from_ms=self._from_ms,
            to_ms=self._to_ms,
            series_ms=self._width_ms,
            since_ms=self._since_ms,
            commit=self._tables.commit.number,
            position=self._tables.commit.position,
            refreshed_at_ms=self._tables.commit.at_ms,
            left_out=self._left_out,
            missed=self._tables.commit.missed(),
            missed_ms=self._tables.commit.counts.get("missed_ms"),
        )

    def _span(self) -> tuple[int | None, int | None]:
        since = self._since_ms or 0
        minutes = np.concatenate([numbers(table, "minute_ms") for table in (self._steps, self._moves, self._pace)])
        within = minutes[minutes > since - MINUTE_MS]
        return (int(within.min()), int(within.max()) + MINUTE_MS) if len(within) else (None, None)

    def _most(self, name: str, rows: list[Any]) -> list[Any]:
        if len(rows) > ROWS_MAX:
            self._left_out[name] = len(rows) - ROWS_MAX
        return rows[:ROWS_MAX]

    def _first(self, name: str, table: pa.Table) -> list[dict[str, Any]]:
        """Return the first `ROWS_MAX` rows of a table. Store the number of omitted rows under `name`."""
        if table.num_rows > ROWS_MAX:
            self._left_out[name] = table.num_rows - ROWS_MAX
        rows: list[dict[str, Any]] = table.slice(0, ROWS_MAX).to_pylist()
        return rows

    # Sums.

    def _totals(self) -> Totals:
        arrived = numbers(self._moves, "arrived")
        within = numbers(self._moves, "minute_ms") > (self._since_ms or 0) - MINUTE_MS
        activity = self._tables.rows("activity")
        if self._since_ms is not None:
            activity = self._tables.read("activity", ("ts_ms",), time="ts_ms").num_rows
        return Totals(
            messages=total(self._pace, "messages"),
            deliveries=int(arrived[within].sum()),
            acked=total(self._steps, "acked"),
            expired=total(self._steps, "expired"),
            activity=activity,
            dead=total(self._steps, "dead"),
            late=total(self._steps, "late"),
            waiting=int(arrived.sum() - numbers(self._moves, "departed").sum()),
            cost_usd=_dollars(total(self._hours, "cost_nano_usd")),
        )

    def _edges(self) -> list[Edge]:
        keys = ("sender", "recipient")
        table = self._tables.read(
            "edges", (*keys, "messages", "answers", "response_ms"), time="day_ms", width_ms=DAY_MS
        )
        found = self._first("edges", summed(table, keys, ("messages", "answers")))
        middles: dict[tuple[str, ...], int] = {}
        if table.num_rows:
            of_row, pairs = grouped(table, keys)
            rows, values = flattened(table, "response_ms")
            middles = {pairs[index]: counted[1] for index, counted in percentiles(of_row[rows], values).items()}
        return [Edge(**row, response_p50_ms=middles.get((row["sender"], row["recipient"]))) for row in found]

    def _latency(self) -> list[Latency]:
        if not self._steps.num_rows:
            return []
        of_row, pairs = grouped(self._steps, ("member", "protocol"))
        rows, values = flattened(self._steps, "acked_ms")
        acked = percentiles(of_row[rows], values)
        rows, values = flattened(self._steps, "offered_ms")
        offered = percentiles(of_row[rows], values)
        found = []
        for index, (member, protocol) in enumerate(pairs):
            measured = "acked" if index in acked else "offered"
            counted = acked.get(index) or offered.get(index)
            if counted is not None:
                deliveries = max(counted[0], offered[index][0] if index in offered else 0)
                found.append(Latency(member, protocol, counted[1], counted[2], deliveries, measured))
        found.sort(key=lambda row: (-row.deliveries, row.member, row.protocol))
        return self._most("latency", found)

    def _latency_series(self) -> list[LatencyPoint]:
        if not self._steps.num_rows:
            return []
        rows, values = flattened(self._steps, "acked_ms")
        starts = numbers(self._steps, "minute_ms")[rows] // self._width_ms * self._width_ms
        return [LatencyPoint(at_ms, *counted) for at_ms, counted in percentiles(starts, values).items()]

    def _backlog(self) -> list[Backlog]:
        rows = summed(self._moves, ("member",), ("arrived", "departed")).to_pylist()
        found = [
            Backlog(row["member"], row["arrived"] - row["departed"], row["arrived"], row["departed"]) for row in rows
        ]
        return self._most("backlog", sorted(found, key=lambda row: (-row.waiting, row.member)))

    def _backlog_series(self) -> list[BacklogPoint]:
        minutes = numbers(self._moves, "minute_ms")
        if self._from_ms is None or not len(minutes):
            return []
        starts, places = np.unique(minutes // self._width_ms * self._width_ms, return_inverse=True)
        arrived = _sums(places, numbers(self._moves, "arrived"), len(starts))
        departed = _sums(places, numbers(self._moves, "departed"), len(starts))
        waiting = np.cumsum(arrived - departed)
        return [
            BacklogPoint(int(at_ms), int(waits), int(came), int(went))
            for at_ms, waits, came, went in zip(starts, waiting, arrived, departed, strict=True)
            if at_ms > self._from_ms - self._width_ms
        ]

    # Work and money.

    def _objectives(self) -> list[Objective]:
        columns = (
            "objective", "title", "assignee", "status", "created_ms", "finished_ms", "cycle_ms", "blocked_ms",
            "blocked_since_ms", "exchanges", "input_tokens", "output_tokens", "cost_nano_usd",
        )  # fmt: skip
        rows = self._tables.read("objectives", columns).to_pylist()
        since = self._since_ms or 0
        open_or_new = [row for row in rows if row["finished_ms"] is None or row["finished_ms"] >= since]
        open_or_new.sort(key=lambda row: (-(row["created_ms"] or 0), row["objective"]))
        kept = self._most("objectives", open_or_new)
        blocked = self._blocked({row["objective"] for row in kept if row["blocked_ms"] or row["blocked_since_ms"]})
        return [
            Objective(
                blocked=blocked.get(row["objective"], []),
                blocked_ms=self._blocked_ms(row.pop("blocked_ms"), row["blocked_since_ms"]),
                id=row.pop("objective"),
                cost_usd=_dollars(row.pop("cost_nano_usd")),
                **row,
            )
            for row in kept
        ]

    def _blocked_ms(self, over_ms: int | None, since_ms: int | None) -> int | None:
        """Return the time in milliseconds for which an objective was blocked.

        `over_ms` is the sum of the blocks that have ended. `since_ms` is the start of a block that has not ended; it
        counts until the end of the log.
        """
        return over_ms if since_ms is None else (over_ms or 0) + max(0, (self._to_ms or 0) - since_ms)

    def _blocked(self, wanted: set[str]) -> dict[str, list[tuple[int, int | None]]]:
        if not wanted:
            return {}
        events = self._tables.read("objective_events", ("offset", "at_ms", "objective", "status"))
        events = events.filter(pc.is_in(events["objective"], pa.array(sorted(wanted)))).sort_by("offset")
        found: dict[str, list[tuple[int, int | None]]] = {}
        for row in events.to_pylist():
            spans = found.setdefault(row["objective"], [])
            if spans and spans[-1][1] is None:
                spans[-1] = (spans[-1][0], row["at_ms"])
            if row["status"] == "blocked":
                spans.append((row["at_ms"], None))
        return found

    def _llm(self) -> list[Usage]:
        sums = (
            "cost_nano_usd", "exchanges", "failed", "unpriced", "input_tokens", "output_tokens", "cache_read_tokens",
            "cache_write_tokens",
        )  # fmt: skip
        rows = self._first("llm", summed(self._hours, ("model", "member"), sums))
        return [Usage(cost_usd=_dollars(row.pop("cost_nano_usd")), **row) for row in rows]

    def _llm_by_hour(self) -> list[UsageHour]:
        if not self._hours.num_rows:
            return []
        first = int(pc.max(self._hours["hour_ms"]).as_py()) - HOURS_MAX * HOUR_MS
        late = self._hours.filter(pc.greater(self._hours["hour_ms"], first))
        if late.num_rows < self._hours.num_rows:
            self._left_out["llm_by_hour"] = self._hours.num_rows - late.num_rows
        rows = summed(late, ("hour_ms", "model"), ("exchanges", "input_tokens", "output_tokens", "cost_nano_usd"))
        rows = rows.sort_by([("hour_ms", "ascending"), ("model", "ascending")]).to_pylist()
        return [UsageHour(cost_usd=_dollars(row.pop("cost_nano_usd")), **row) for row in rows]

    # Problems that need attention.

    def _loops(self) -> list[Loop]:
        columns = ("day_ms", "conversation", "messages", "hops", "members", "pauses", "first_ms", "last_ms")
        rows = self._tables.read("loops", columns, time="day_ms", width_ms=DAY_MS).to_pylist()
        found = [Loop(**row) for row in rows]
        return self._most("loops", sorted(found, key=lambda row: (-row.last_ms, row.conversation)))

    def _storms(self) -> list[Storm]:
        if not self._pace.num_rows:
            return []
        found = self._pace.filter(self._pace["storm"]).select(["minute_ms", "sender", "messages", "deliveries"])
        rows = [Storm(**row) for row in found.to_pylist()]
        return self._most("storms", sorted(rows, key=lambda row: (-row.minute_ms, row.sender)))

    def _threads(self) -> Threads:
        columns = ("conversation", "messages", "first_ms", "last_ms", "participants")
        table = self._tables.read("threads", columns, time="day_ms", width_ms=DAY_MS)
        if not table.num_rows:
            return Threads()
        # A conversation has a row for each day.
        of_row, names = grouped(table, ("conversation",))
        parents, senders = flattened(table, "participants")
        pairs = np.unique(np.array([of_row[parents], np.unique(senders, return_inverse=True)[1]]), axis=1)
        spoke = np.bincount(pairs[0], minlength=len(names))
        whole = table.append_column("group", pa.array(of_row)).group_by("group")
        sums = whole.aggregate([("messages", "sum"), ("first_ms", "min"), ("last_ms", "max")])
        sums = sums.append_column("name", pa.array([names[group][0] for group in sums["group"].to_pylist()]))
        longest = sums.sort_by([("messages_sum", "descending"), ("name", "ascending")]).slice(0, _LONGEST).to_pylist()
        found = [
            {
                "conversation": row["name"],
                "messages": row["messages_sum"],
                "first_ms": row["first_ms_min"],
                "last_ms": row["last_ms_max"],
                "participants": sorted(set(senders[of_row[parents] == row["group"]])),
            }
            for row in longest
        ]
        return Threads(len(names), int((spoke == 1).sum()), found)

    def _members(self) -> list[Member]:
        sums = ("sent", "received", "acked", "refused", "exchanges", "cost_nano_usd")
        table = self._tables.read("members", ("member", *sums), time="day_ms", width_ms=DAY_MS)
        heard = self._heard()
        waits = self._first_after(heard)
        return [
            Member(
                cost_usd=_dollars(row.pop("cost_nano_usd")),
                heard_ms=heard.get(row["member"]),
                waits_since_ms=waits.get(row["member"]),
                **row,
            )
            for row in self._first("members", summed(table, ("member",), sums))
        ]

    def _heard(self) -> dict[str, int]:
        """Return the time of each member's last own action.

        The time is the minute in which the member last sent or read a message, or the hour of its last model call.
        """
        read = self._steps
        if read.num_rows:
            read = read.filter(pc.greater(pc.add(read["acked"], read["seen"]), 0))
        heard: dict[str, int] = {}
        for table, name, time in (
            (self._pace, "sender", "minute_ms"), (read, "member", "minute_ms"), (self._hours, "member", "hour_ms"),
        ):  # fmt: skip
            if table.num_rows:
                for row in table.group_by(name).aggregate([(time, "max")]).to_pylist():
                    heard[row[name]] = max(heard.get(row[name], 0), row[f"{time}_max"])
        return heard

    def _first_after(self, heard: dict[str, int]) -> dict[str, int]:
        """Return for each member the first minute in which a delivery arrived after the time in `heard`.

        `heard` has the time of each member's last own action.
        """
        if not self._moves.num_rows:
            return {}
        came = self._moves.filter(pc.greater(self._moves["arrived"], 0)).select(["member", "minute_ms"])
        last = pc.fill_null(pc.index_in(came["member"], pa.array(list(heard), pa.string())), -1).to_numpy()
        moments = np.array([*heard.values(), -1])
        later = came.filter(pa.array(numbers(came, "minute_ms") > moments[last]))
        if not later.num_rows:
            return {}
        found = later.group_by("member").aggregate([("minute_ms", "min")]).to_pylist()
        return {row["member"]: row["minute_ms_min"] for row in found}

    def _audit(self) -> Audit:
        columns = ("offset", "kind", "member", "at_ms", "what")
        table = self._tables.read("findings", columns, time="at_ms")
        found = sorted((Finding(**row) for row in table.to_pylist()), key=lambda row: (row.kind, -row.offset))
        broken = sum(row.kind == "chain" for row in found)
        return Audit(
            verified_rows=self._tables.commit.position.get("main", 0),
            intact=broken == 0,
            chain_breaks=broken,
            bad_signatures=len(found) - broken,
            findings=self._most("findings", found),
        )


def _sums(places: Numbers, values: Numbers, count: int) -> Numbers:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, places, values)
    return sums


def _dollars(nano: int | None) -> float:
    return round((nano or 0) / _NANO, 6)

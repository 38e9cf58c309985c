"""The part of the report about messages and deliveries: totals, latency, backlog, answers, failures, members.

Used by: `report`. Uses: gold tables (sums of facts), read with Arrow. Whole days are read from tables by day, and the
rest of a time span from tables by minute. So a report over a year does not read the minutes of the year.
"""

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tieline.pipeline.arrow_tables import (
    DAY_MS,
    ArrowTables,
    Numbers,
    Window,
    flattened,
    grouped,
    joined,
    numbers,
    percentiles,
    summed,
    total,
)
from tieline.pipeline.report_cuts import day_rows, split
from tieline.wire.report_parts import (
    Backlog,
    BacklogPoint,
    Edge,
    Failure,
    Latency,
    LatencyPoint,
    Member,
    Response,
    ServiceLevel,
    Storm,
    Threads,
    Totals,
)

MINUTE_MS, HOUR_MS = 60_000, 3_600_000
POINTS_MAX = 120
"""Maximum number of points of a time series in a report: about as many as a chart can show."""
_WIDTHS_MS = (
    MINUTE_MS, 5 * MINUTE_MS, 15 * MINUTE_MS, HOUR_MS, 3 * HOUR_MS, 6 * HOUR_MS, DAY_MS, 7 * DAY_MS, 28 * DAY_MS,
)  # fmt: skip
_MINUTES = ("latency", "backlog", "storms")
"""The tables by minute. Together they have every minute in which anything happened."""
_STEPS = ("offered", "seen", "acked", "expired", "dead", "late", "offered_ms", "acked_ms")
_LONGEST = 50


def last_minute_end(tables: ArrowTables) -> int | None:
    """Return the end of the last minute in which anything happened, or `None` if nothing did."""
    return _minutes(tables, Window())[1]


def _minutes(tables: ArrowTables, within: Window) -> tuple[int | None, int | None]:
    """Return the start of the first minute, and the end of the last one, in which anything happened."""
    spans = [span for name in _MINUTES if (span := tables.span(name, "minute_ms", within)) is not None]
    return (min(span[0] for span in spans), max(span[1] for span in spans) + MINUTE_MS) if spans else (None, None)


def day_start(day: str) -> int:
    """Return the start (UTC) of a day such as `2026-01-31`, in milliseconds."""
    return int(np.datetime64(day, "ms").astype(np.int64))


class Traffic:
    """Computes the report's parts about messages and deliveries of one time span."""

    def __init__(self, tables: ArrowTables, within: Window) -> None:
        self._tables = tables
        self._within = within
        self.from_ms, self.to_ms = _minutes(tables, within)
        length = (self.to_ms or 0) - (self.from_ms or 0)
        self.width_ms = next((width for width in _WIDTHS_MS if length / width <= POINTS_MAX), _WIDTHS_MS[-1])
        self._steps = self._mixed("latency", ("member", "protocol", *_STEPS), "service", {})
        self._first_answers = self._day_rows("responses", ("responder", "response_ms"))
        # The backlog is the sum over all time, whatever time the report covers.
        self._ever = tables.read("members", ("day_ms", "member", "received", "departed", "heard_ms"))

    # Sums.

    def totals(self) -> Totals:
        """Return the totals of the time span. Waiting deliveries and model calls are not counted here."""
        pace = self._mixed("storms", ("messages",), "members", {"messages": "sent"})
        moves = self._mixed("backlog", ("arrived",), "members", {"arrived": "received"})
        refused = self._day_rows("failures", ("kind", "count"))
        refused = refused.filter(pc.equal(refused["kind"], "refused")) if refused.num_rows else refused
        answered = numbers(self._first_answers, "response_ms")
        first = percentiles(np.zeros_like(answered), answered).get(0)
        activity = self._tables.rows("activity")
        if self._within != Window():
            activity = self._tables.read("activity", ("ts_ms",), self._within, time="ts_ms").num_rows
        return Totals(
            messages=total(pace, "messages"),
            deliveries=total(moves, "arrived"),
            acked=total(self._steps, "acked"),
            expired=total(self._steps, "expired"),
            activity=activity,
            dead=total(self._steps, "dead"),
            late=total(self._steps, "late"),
            waiting=total(self._ever, "received") - total(self._ever, "departed"),
            refused=total(refused, "count"),
            first_response_p50_ms=first[1] if first else None,
        )

    def edges(self) -> list[Edge]:
        """Return who wrote to whom, most messages first."""
        keys = ("sender", "recipient")
        table = self._day_rows("edges", (*keys, "messages", "answers", "response_ms"))
        middles: dict[tuple[str, ...], int] = {}
        if table.num_rows:
            of_row, pairs = grouped(table, keys)
            rows, values = flattened(table, "response_ms")
            middles = {pairs[index]: counted[1] for index, counted in percentiles(of_row[rows], values).items()}
        found = summed(table, keys, ("messages", "answers")).to_pylist()
        return [Edge(**row, response_p50_ms=middles.get((row["sender"], row["recipient"]))) for row in found]

    def latency(self) -> list[Latency]:
        """Return the latency of each member and protocol, most deliveries first."""
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
        return sorted(found, key=lambda row: (-row.deliveries, row.member, row.protocol))

    def latency_series(self) -> list[LatencyPoint]:
        """Return the latency of all members over time."""
        table, time = self._steps, "minute_ms"
        if self.width_ms < DAY_MS:
            table = self._tables.read(
                "latency", ("minute_ms", "acked_ms"), self._within, time="minute_ms", width_ms=MINUTE_MS
            )
        else:
            table, time = self._day_rows("service", ("day_ms", "acked_ms")), "day_ms"
        if not table.num_rows:
            return []
        rows, values = flattened(table, "acked_ms")
        starts = numbers(table, time)[rows] // self.width_ms * self.width_ms
        return [LatencyPoint(at_ms, *counted) for at_ms, counted in percentiles(starts, values).items()]

    def service(self) -> list[ServiceLevel]:
        """Return the service levels of each member and priority, most acknowledged deliveries first."""
        table = self._day_rows("service", ("member", "priority", "expired", "dead", "acked_ms"))
        if not table.num_rows:
            return []
        of_row, pairs = grouped(table, ("member", "priority"))
        rows, values = flattened(table, "acked_ms")
        times = percentiles(of_row[rows], values)
        quick = _sums(of_row[rows], values <= MINUTE_MS, len(pairs))
        lost = {name: _sums(of_row, numbers(table, name), len(pairs)) for name in ("expired", "dead")}
        found = []
        for index, (member, priority) in enumerate(pairs):
            count, p50, p99 = times.get(index, (0, None, None))
            share = round(int(quick[index]) / count, 4) if count else None
            ends = (int(lost["expired"][index]), int(lost["dead"][index]))
            if count or any(ends):
                found.append(ServiceLevel(member, priority, count, p50, p99, share, *ends))
        return sorted(found, key=lambda row: (-row.acked, row.member, row.priority))

    def responses(self) -> list[Response]:
        """Return the first answers of each member to messages of others, most answers first."""
        table = self._first_answers
        if not table.num_rows:
            return []
        of_row, names = grouped(table, ("responder",))
        times = percentiles(of_row, numbers(table, "response_ms"))
        found = [Response(names[index][0], *counted) for index, counted in times.items()]
        return sorted(found, key=lambda row: (-row.answers, row.member))

    def failures(self) -> list[Failure]:
        """Return the failures by kind, cause and member, most first."""
        keys = ("kind", "cause", "member")
        rows = summed(self._day_rows("failures", (*keys, "count")), keys, ("count",)).to_pylist()
        return [Failure(**row) for row in rows]

    # The backlog.

    def backlog(self) -> list[Backlog]:
        """Return the deliveries that wait for each member, as numbers; the member with most of them comes first."""
        rows = summed(self._ever, ("member",), ("received", "departed")).to_pylist()
        found = [
            Backlog(row["member"], row["received"] - row["departed"], row["received"], row["departed"]) for row in rows
            if row["received"] or row["departed"]
        ]  # fmt: skip
        return sorted(found, key=lambda row: (-row.waiting, row.member))

    def backlog_series(self) -> list[BacklogPoint]:
        """Return the number of deliveries that waited for all members, over time."""
        if self.from_ms is None or not self._ever.num_rows:
            return []
        first = self.from_ms // self.width_ms * self.width_ms // DAY_MS * DAY_MS
        days, came, went = (numbers(self._ever, name) for name in ("day_ms", "received", "departed"))
        times, level = days[days >= first], 0
        if self.width_ms < DAY_MS:
            level = int((came - went)[days < first].sum())
            moves = self._tables.read(
                "backlog", ("minute_ms", "arrived", "departed"), Window(first, self._within.until_ms),
                time="minute_ms", width_ms=MINUTE_MS,
            )  # fmt: skip
            times, came, went = (numbers(moves, name) for name in ("minute_ms", "arrived", "departed"))
        else:
            level = int((came - went)[days < first].sum())
            came, went = came[days >= first], went[days >= first]
        if not len(times):
            return []
        starts, places = np.unique(times // self.width_ms * self.width_ms, return_inverse=True)
        arrived, departed = _sums(places, came, len(starts)), _sums(places, went, len(starts))
        waiting = level + np.cumsum(arrived - departed)
        return [
            BacklogPoint(int(at_ms), int(waits), int(came), int(went))
            for at_ms, waits, came, went in zip(starts, waiting, arrived, departed, strict=True)
            if at_ms > self.from_ms - self.width_ms
        ]

    # The members.

    def members(self) -> list[Member]:
        """Return what each member did, most messages first."""
        sums = ("sent", "received", "acked", "refused", "exchanges", "cost_nano_usd")
        table = self._day_rows("members", ("member", *sums))
        heard = self._heard()
        waits = self._first_after(heard, {one.member for one in self.backlog() if one.waiting > 0})
        return [
            Member(
                cost_usd=dollars(row.pop("cost_nano_usd")),
                heard_ms=heard.get(row["member"]),
                waits_since_ms=waits.get(row["member"]),
                **row,
            )
            for row in summed(table, ("member",), sums).to_pylist()
        ]

    def _heard(self) -> dict[str, int]:
        """Return the minute of each member's last own action: it sent or read a message, or used a model."""
        if not self._ever.num_rows:
            return {}
        found = self._ever.group_by("member").aggregate([("heard_ms", "max")])
        pairs = zip(found["member"].to_pylist(), found["heard_ms_max"].to_pylist(), strict=True)
        return {member: heard // MINUTE_MS * MINUTE_MS for member, heard in pairs if heard is not None}

    def _first_after(self, heard: dict[str, int], waiting: set[str]) -> dict[str, int]:
        """Return for each member in `waiting` the minute of the first delivery that arrived since the time in `heard`.

        `heard` has the minute of each member's last own action. A delivery of the same minute counts: it may be the
        last thing that happens for days.
        """
        ever = self._ever
        if not ever.num_rows:
            return {}
        came = ever.filter(pc.greater(ever["received"], 0)).sort_by("day_ms")
        days: dict[str, list[int]] = {}
        for member, day in zip(came["member"].to_pylist(), came["day_ms"].to_pylist(), strict=True):
            if member in waiting and day + DAY_MS > heard.get(member, -1):
                days.setdefault(member, []).append(day)
        # The first arrival after the last action is on its day, or on the next day with an arrival.
        wanted = sorted({day for some in days.values() for day in some[:2]})
        found: dict[str, int] = {}
        for day in wanted:
            moves = self._tables.read(
                "backlog", ("member", "minute_ms", "arrived"), Window(day, day + DAY_MS), time="minute_ms",
                width_ms=MINUTE_MS,
            )  # fmt: skip
            for row in moves.filter(pc.greater(moves["arrived"], 0)).to_pylist() if moves.num_rows else ():
                member, minute = row["member"], row["minute_ms"]
                if member in waiting and minute >= heard.get(member, -1):
                    found[member] = min(found.get(member, minute), minute)
        return found

    def storms(self) -> list[Storm]:
        """Return the minutes in which one member sent very many messages, newest first."""
        columns = ("minute_ms", "sender", "messages", "deliveries")
        table = self._tables.read(
            "storms", columns, self._within, time="minute_ms", width_ms=MINUTE_MS, where=pc.field("storm")
        )
        return sorted((Storm(**row) for row in table.to_pylist()), key=lambda row: (-row.minute_ms, row.sender))

    def threads(self) -> Threads:
        """Return the number of conversations, and the longest ones."""
        table = self._day_rows("threads", ("conversation", "messages", "first_ms", "last_ms", "participants"))
        if not table.num_rows:
            return Threads()
        # A conversation has a row for each day.
        of_row, names = grouped(table, ("conversation",))
        parents, senders = flattened(table, "participants")
        known, codes = np.unique(senders, return_inverse=True)
        pairs = np.unique(of_row[parents] * max(1, len(known)) + codes)
        spoke = np.bincount(pairs // max(1, len(known)), minlength=len(names))
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

    # Reading.

    def _day_rows(self, name: str, columns: tuple[str, ...]) -> pa.Table:
        """Return the rows of the table `name`, which has rows by day, for the time span.

        If only a part of a day is in the time span, tables in `report_cuts.EXACT` give only this part, others the day.
        """
        return day_rows(self._tables, name, columns, self._within)

    def _mixed(self, minutes: str, columns: tuple[str, ...], days: str, renamed: dict[str, str]) -> pa.Table:
        """Return the columns `columns`: of the table `minutes` for parts of days, of the table `days` for whole days.

        `renamed` has the names of columns in the table by day, if they differ.
        """
        whole, parts = split(self._within)
        found = [self._tables.read(minutes, columns, part, time="minute_ms", width_ms=MINUTE_MS) for part in parts]
        if whole is not None:
            names = [renamed.get(name, name) for name in columns]
            found.append(self._tables.read(days, names, whole, time="day_ms").rename_columns(list(columns)))
        return joined(found)


def _sums(places: Numbers, values: Numbers, count: int) -> Numbers:
    sums = np.zeros(count, np.int64)
    np.add.at(sums, places, values.astype(np.int64))
    return sums


def dollars(nano: int | None) -> float:
    """Return an amount in dollars. `nano` is in billionths of a dollar."""
    return round((nano or 0) / 1e9, 6)

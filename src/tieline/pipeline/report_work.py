"""The part of the report about work: objectives, what they wait for, model calls, their cost, loops.

Used by: `report`. Uses: gold tables (sums of facts) and the table `activity`, read with Arrow.
"""

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tieline.pipeline.arrow_tables import DAY_MS, ArrowTables, Window, grouped, numbers, summed, total
from tieline.pipeline.report_spend import spent
from tieline.pipeline.report_traffic import HOUR_MS, MINUTE_MS, dollars
from tieline.wire.report_parts import Loop, Objective, Spend, Totals, Usage, UsageHour, Wait

HOURS_MAX = 14 * 24  # two weeks by the hour are all that a chart can show
RETRY_MS = 5 * MINUTE_MS
"""A failed model call was retried if the same member calls the same model again within this time."""
_SUMS = (
    "cost_nano_usd", "exchanges", "failed", "unpriced", "input_tokens", "output_tokens", "cache_read_tokens",
    "cache_write_tokens",
)  # fmt: skip
_MEMBERS_MAX = 3
_NAME = re.compile(r"@?[\w.-]*\w")
"""A word in the reason of a block that may be the id of an objective, or a member (`@name`)."""


class Work:
    """Computes the report's parts about objectives and model calls of one time span. `to_ms` is its end."""

    def __init__(self, tables: ArrowTables, within: Window, to_ms: int | None) -> None:
        self._tables = tables
        self._within = within
        self._to_ms = to_ms
        self._hours = tables.read(
            "llm", ("hour_ms", "member", "model", "objective", *_SUMS), within, time="hour_ms", width_ms=HOUR_MS
        )
        self._objectives: list[dict[str, Any]] | None = None

    # Money.

    def add_to(self, totals: Totals, loops: Sequence[Loop]) -> Totals:
        """Add the numbers of model calls to `totals`, and return `totals`. `loops` are the loops of the time span."""
        totals.cost_usd = dollars(total(self._hours, "cost_nano_usd"))
        totals.exchanges, totals.failed_calls = total(self._hours, "exchanges"), total(self._hours, "failed")
        totals.cache_hit = _cache_hit({name: total(self._hours, name) for name in _SUMS})
        totals.retried_calls = self._retried() if totals.failed_calls else 0
        totals.loop_cost_usd = self._price_loops(loops)
        return totals

    def llm(self) -> list[Usage]:
        """Return the model calls by model and member, the most expensive first."""
        rows = summed(self._hours, ("model", "member"), _SUMS).to_pylist()
        return [Usage(cost_usd=dollars(row.pop("cost_nano_usd")), **row) for row in rows]

    def llm_by_hour(self) -> list[UsageHour]:
        """Return the model calls by hour and model, of the last two weeks."""
        if not self._hours.num_rows:
            return []
        first = int(pc.max(self._hours["hour_ms"]).as_py()) - HOURS_MAX * HOUR_MS
        late = self._hours.filter(pc.greater(self._hours["hour_ms"], first))
        rows = summed(late, ("hour_ms", "model"), ("exchanges", "input_tokens", "output_tokens", "cost_nano_usd"))
        rows = rows.sort_by([("hour_ms", "ascending"), ("model", "ascending")]).to_pylist()
        return [UsageHour(cost_usd=dollars(row.pop("cost_nano_usd")), **row) for row in rows]

    def spend(self) -> list[Spend]:
        """Return the model calls by objective, member, model, scope and thread, the most expensive first."""
        titles = {row["objective"]: row["title"] for row in self._known()}
        kinds = ((by, self._hours) for by in ("objective", "member", "model"))
        found = []
        for by, calls in (*kinds, *spent(self._tables, self._within, _SUMS)):
            members = _members(calls, by) if by != "member" else {}
            for row in summed(calls, (by,), _SUMS).to_pylist():
                name = row.pop(by)
                hit, cost = _cache_hit(row), dollars(row.pop("cost_nano_usd"))
                title = titles.get(name) if by == "objective" else None
                some = members.get(name, [])
                found.append(Spend(by, name, cost_usd=cost, cache_hit=hit, title=title, members=some, **row))
        # Of a long list, each kind keeps its most expensive rows.
        return sorted(found, key=lambda row: (-row.cost_usd, -row.exchanges))

    def unpriced(self) -> list[str]:
        """Return the models without a price, in order."""
        if not self._hours.num_rows:
            return []
        found = self._hours.filter(pc.greater(self._hours["unpriced"], 0))
        return sorted(pc.unique(found["model"]).to_pylist())

    def _retried(self) -> int:
        """Return the number of failed model calls after which the member soon called the same model again."""
        calls = self._calls(("number", "model", "ts_ms", "failed"), self._within)
        if not calls.num_rows:
            return 0
        of_row, _ = grouped(calls, ("number", "model"))
        times = numbers(calls, "ts_ms")
        order = np.lexsort((times, of_row))
        group, at = of_row[order], times[order]
        failed = pc.fill_null(calls["failed"], False).to_numpy()[order]
        again = (group[1:] == group[:-1]) & (at[1:] - at[:-1] <= RETRY_MS)
        return int((failed[:-1] & again).sum())

    def _price_loops(self, loops: Sequence[Loop]) -> float:
        """Set the cost of each loop. Return the cost of all of them, each model call counted once."""
        if not loops:
            return 0.0
        days = Window(min(one.first_ms for one in loops), max(one.last_ms for one in loops) + 1)
        calls = self._calls(("member", "number", "ts_ms", "cost_nano_usd"), days)
        if not calls.num_rows:
            return 0.0
        named = pc.coalesce(
            calls["member"], pc.binary_join_element_wise("member", pc.cast(calls["number"], pa.string()), "-")
        )
        of_row, names = grouped(calls.set_column(0, "member", named), ("member",))
        times, costs = numbers(calls, "ts_ms"), numbers(calls, "cost_nano_usd")
        order = np.lexsort((times, of_row))
        times, costs, of_row = times[order], costs[order], of_row[order]
        starts = dict(zip((name for (name,) in names), np.searchsorted(of_row, np.arange(len(names))), strict=True))
        ends = dict(
            zip((name for (name,) in names), np.searchsorted(of_row, np.arange(len(names)), "right"), strict=True)
        )
        counted = np.zeros(len(times), bool)
        for loop in loops:
            cost = 0
            for member in loop.members:
                if member not in starts:
                    continue
                mine = times[starts[member] : ends[member]]
                first, last = starts[member] + np.searchsorted(mine, (loop.first_ms, loop.last_ms + 1))
                cost += int(costs[first:last].sum())
                counted[first:last] = True
            loop.cost_usd = dollars(cost)
        return dollars(int(costs[counted].sum()))

    def _calls(self, columns: tuple[str, ...], within: Window) -> pa.Table:
        return self._tables.read(
            "activity", columns, within, time="ts_ms", where=pc.field("kind") == pc.scalar("llm_exchange")
        )

    def loops(self) -> list[Loop]:
        """Return the conversations in which agents answered each other automatically many times, newest first."""
        columns = ("day_ms", "conversation", "messages", "hops", "members", "pauses", "first_ms", "last_ms")
        rows = self._tables.read("loops", columns, self._within, time="day_ms", width_ms=DAY_MS).to_pylist()
        return sorted((Loop(**row) for row in rows), key=lambda row: (-row.last_ms, row.conversation))

    # Objectives.

    def _known(self) -> list[dict[str, Any]]:
        """Return all objectives, newest first."""
        if self._objectives is None:
            columns = (
                "objective", "title", "assignee", "status", "created_ms", "finished_ms", "cycle_ms", "blocked_ms",
                "blocked_since_ms", "exchanges", "input_tokens", "output_tokens", "cost_nano_usd",
            )  # fmt: skip
            rows = self._tables.read("objectives", columns).to_pylist()
            self._objectives = sorted(rows, key=lambda row: (-(row["created_ms"] or 0), row["objective"]))
        return self._objectives

    def objectives(self, most: int) -> tuple[list[Objective], int]:
        """Return the objectives that were open in the time span, newest first, and the number of omitted ones.

        `most` is the largest number of objectives in the list.
        """
        since = self._within.since_ms or 0
        rows = [row for row in self._known() if row["finished_ms"] is None or row["finished_ms"] >= since]
        kept = rows[:most]
        blocked = self._blocked([row for row in kept if row["blocked_ms"] or row["blocked_since_ms"]])
        found = []
        for row in kept:
            one = {
                name: value for name, value in row.items() if name not in ("objective", "cost_nano_usd", "blocked_ms")
            }
            found.append(
                Objective(
                    blocked=[span[:2] for span in blocked.get(row["objective"], [])],
                    blocked_ms=self._blocked_ms(row["blocked_ms"], row["blocked_since_ms"]),
                    id=row["objective"],
                    cost_usd=dollars(row["cost_nano_usd"]),
                    **one,
                )
            )
        return found, len(rows) - len(kept)

    def _blocked_ms(self, over_ms: int | None, since_ms: int | None) -> int | None:
        """Return the time in milliseconds for which an objective was blocked.

        `over_ms` is the total length of the blocks that have ended. `since_ms` is the start of a block that has not
        ended; it counts until the end of the log.
        """
        return over_ms if since_ms is None else (over_ms or 0) + max(0, (self._to_ms or 0) - since_ms)

    def _blocked(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[int, int | None, str]]]:
        """Return the blocked times of objectives: start, end (`None` if it has not ended), and the reason."""
        if not rows:
            return {}
        wanted = pa.array(sorted({row["objective"] for row in rows}))
        since = Window(min(row["created_ms"] or 0 for row in rows))
        events = self._tables.read(
            "objective_events", ("offset", "at_ms", "objective", "status", "happening"), since, time="at_ms",
            where=pc.field("objective").isin(wanted),
        )  # fmt: skip
        found: dict[str, list[tuple[int, int | None, str]]] = {}
        for row in events.sort_by("offset").to_pylist() if events.num_rows else ():
            spans = found.setdefault(row["objective"], [])
            if spans and spans[-1][1] is None:
                spans[-1] = (spans[-1][0], row["at_ms"], spans[-1][2])
            if row["status"] == "blocked":
                spans.append((row["at_ms"], None, _reason(row["happening"]) or (spans[-1][2] if spans else "")))
        return found

    def waits(self) -> list[Wait]:
        """Return the objectives that are blocked now, and what they wait for; the longest wait first."""
        known = {row["objective"]: row for row in self._known()}
        blocked = [row for row in known.values() if row["blocked_since_ms"] is not None]
        spans = self._blocked(blocked)
        reasons = {name: some[-1][2] for name, some in spans.items() if some}
        on = {row["objective"]: _named(reasons.get(row["objective"], ""), known) for row in blocked}
        found = []
        for row in blocked:
            name = row["objective"]
            chain, circle = _chain(name, on, known)
            objectives, members = on[name]
            found.append(
                Wait(name, row["title"], row["assignee"], row["blocked_since_ms"], reasons.get(name, ""),
                     objectives, members, chain, circle)
            )  # fmt: skip
        return sorted(found, key=lambda wait: (wait.since_ms, wait.objective))


def _members(calls: pa.Table, by: str) -> dict[str, list[str]]:
    """Return for each name in the column `by` the members whose calls cost most, at most `_MEMBERS_MAX`."""
    found: dict[str, list[str]] = {}
    for row in summed(calls, (by, "member"), ("cost_nano_usd",)).to_pylist():
        members = found.setdefault(row[by], [])
        if len(members) < _MEMBERS_MAX:
            members.append(row["member"])
    return found


def _reason(happening: str | None) -> str:
    try:
        told = json.loads(happening or "{}")
    except ValueError:
        # Somebody changed the database. The audit reports that.
        return ""
    reason = told.get("reason") if isinstance(told, dict) else None
    return reason if isinstance(reason, str) else ""


def _named(reason: str, known: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the objectives and the members that the reason of a block names, in their order."""
    words = list(dict.fromkeys(_NAME.findall(reason)))
    return [word for word in words if word in known], [word[1:] for word in words if word.startswith("@")]


def _chain(
    name: str, on: Mapping[str, tuple[list[str], list[str]]], known: Mapping[str, Mapping[str, Any]]
) -> tuple[list[str], bool]:
    """Return the chain from a blocked objective to the last one that it waits for, and the member who must act there.

    `on` has the objectives and the members that each blocked objective waits for. In the chain, each name is an
    objective or, at the end, a member (`@name`). Also return true if the chain leads back to itself.
    """
    chain = [name]
    while chain[-1] in on:
        objectives, members = on[chain[-1]]
        if not objectives:
            return [*chain, *(f"@{member}" for member in members[:1])], False
        if objectives[0] in chain:
            return [*chain, objectives[0]], True
        chain.append(objectives[0])
    assignee = known[chain[-1]]["assignee"]
    return [*chain, *([f"@{assignee}"] if assignee else [])], False


def _cache_hit(tokens: Mapping[str, int | None]) -> float | None:
    """Return the share of the input tokens that came from a cache. `input_tokens` has only tokens without any cache."""
    read = tokens["cache_read_tokens"] or 0
    whole = read + (tokens["input_tokens"] or 0) + (tokens["cache_write_tokens"] or 0)
    return round(read / whole, 4) if whole else None

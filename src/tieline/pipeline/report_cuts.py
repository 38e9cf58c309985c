"""Rows of tables by day, for a time span that begins or ends within a day: parts of days are made from facts.

Used by: the report about messages and deliveries. Uses: tables by day for whole days, and silver tables (facts) for
parts of days, read with Arrow. So if one time span ends within a day and the next one begins there, neither has rows of
the other.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence

import pyarrow as pa
import pyarrow.compute as pc

from tieline.pipeline.arrow_tables import DAY_MS, ArrowTables, Window, joined

_LATER_MS = 60_000
"""Time within which a message is accepted after its id was made."""


def split(within: Window) -> tuple[Window | None, list[Window]]:
    """Return the whole days of a time span, or `None` if it has none, and the parts of days before and after them."""
    first, last = within.since_ms, within.until_ms
    whole_from = None if first is None else -(-first // DAY_MS) * DAY_MS
    whole_to = None if last is None else last // DAY_MS * DAY_MS
    parts = []
    if first is not None and whole_from is not None and first < whole_from:
        parts.append(Window(first, whole_from if last is None else min(whole_from, last)))
    if last is not None and whole_to is not None and whole_to < last and (whole_from or 0) <= whole_to:
        parts.append(Window(whole_to, last))
    has_days = whole_from is None or whole_to is None or whole_from < whole_to
    return Window(whole_from, whole_to) if has_days else None, parts


def day_rows(tables: ArrowTables, name: str, columns: Sequence[str], within: Window) -> pa.Table:
    """Return rows of a table by day in a time span.

    The rows of the tables in `EXACT` are cut to the time span. Of other tables, all rows of its days are returned.
    """
    if name not in EXACT:
        return tables.read(name, columns, within, time="day_ms", width_ms=DAY_MS)
    whole, parts = split(within)
    found = [] if whole is None else [tables.read(name, columns, whole, time="day_ms")]
    rows = [one for part in parts for one in EXACT[name](tables, part) if one.num_rows]
    empty = pa.table({column: pa.nulls(0) for column in columns})
    return joined([*found, *(one.select(list(columns)) for one in rows), empty])


def _edges(tables: ArrowTables, part: Window) -> list[pa.Table]:
    sent = tables.read("deliveries", ("sender", "recipient"), part, time="sent_ms")
    return [_with(sent, messages=1, answers=0).append_column("response_ms", _none(sent)), _answers(tables, part)]


def _answers(tables: ArrowTables, part: Window) -> pa.Table:
    """Return a row for each message in the time span `part` that is an answer to another member's message."""
    is_reply = pc.field("reply_to").is_valid()
    new = tables.read("messages", ("sender", "reply_to", "sent_ms"), part, time="sent_ms", where=is_reply)
    if not new.num_rows:
        return new
    wanted = pc.field("id").isin(pc.unique(new["reply_to"]))
    spans = [Window(start, start + DAY_MS) for start in sorted(set(_days(new["reply_to"])))]
    asked = [tables.read("messages", ("id", "sender", "sent_ms"), day, time="sent_ms", where=wanted) for day in spans]
    known = joined(asked).rename_columns(["id", "recipient", "asked_ms"]) if asked else new.slice(0, 0)
    if not known.num_rows:
        return known
    rows = new.join(known, "reply_to", "id", "inner")
    rows = rows.filter(pc.not_equal(rows["sender"], rows["recipient"]))
    took = pc.subtract(rows["sent_ms"], rows["asked_ms"])
    return _with(rows, messages=0, answers=1).append_column("response_ms", _alone(took))


def _days(ids: pa.ChunkedArray) -> Iterator[int]:
    """Yield the starts of the days of the messages with these ids. An id begins with the time at which it was made."""
    times = pc.utf8_slice_codeunits(ids.filter(pc.match_substring_regex(ids, "^[0-9a-f]{8}-[0-9a-f]{4}-7")), 0, 8)
    for digits in pc.unique(times).to_pylist():
        begin = int(digits, 16) << 16
        # The message itself is a little later.
        yield begin // DAY_MS * DAY_MS
        yield (begin + 0xFFFF + _LATER_MS) // DAY_MS * DAY_MS


def _responses(tables: ArrowTables, part: Window) -> list[pa.Table]:
    asked = tables.read("messages", ("offset",), part, time="sent_ms")
    if not asked.num_rows:
        return []
    columns = ("offset", "responder", "response_ms")
    where = pc.field("offset").isin(asked["offset"])
    return [tables.read("responses", columns, part, time="day_ms", width_ms=DAY_MS, where=where)]


def _failures(tables: ArrowTables, part: Window) -> list[pa.Table]:
    is_refusal = pc.field("kind") == pc.scalar("refuse")
    refused = tables.read("records", ("member", "code", "count"), part, time="at_ms", where=is_refusal)
    calls = tables.read(
        "activity", ("member", "number", "error"), part, time="ts_ms", where=pc.field("failed") == pc.scalar(True)
    )
    calls = _named(calls)
    found = [_with(refused.rename_columns(["member", "cause", "count"]), kind="refused"),
             _with(calls.rename_columns(["member", "cause"]), kind="call", count=1)]  # fmt: skip
    for kind in ("expired", "dead"):
        ended = tables.at("deliveries", ("recipient", "cause"), part, f"{kind}_ms")
        found.append(_with(ended.rename_columns(["member", "cause"]), kind=kind, count=1))
    return found


def _threads(tables: ArrowTables, part: Window) -> list[pa.Table]:
    sent = tables.read("messages", ("conversation", "sender", "sent_ms"), part, time="sent_ms")
    times = {"first_ms": sent["sent_ms"], "last_ms": sent["sent_ms"]}
    rows = {"conversation": sent["conversation"], **times, "participants": _alone(sent["sender"])}
    return [_with(pa.table(rows), messages=1)]


def _service(tables: ArrowTables, part: Window) -> list[pa.Table]:
    found = []
    for state in ("acked", "expired", "dead"):
        time = f"{state}_ms"
        ended = tables.at("deliveries", ("recipient", "priority", "sent_ms", time), part, time)
        took = _alone(pc.subtract(pc.cast(ended[time], pa.int64()), pc.cast(ended["sent_ms"], pa.int64())))
        rows = pa.table({"member": ended["recipient"], "priority": ended["priority"]})
        counts = {name: int(name == state) for name in ("expired", "dead")}
        found.append(_with(rows, **counts).append_column("acked_ms", took if state == "acked" else _none(rows)))
    return found


def _members(tables: ArrowTables, part: Window) -> list[pa.Table]:
    found = []
    for name, member, counted, column in (
        ("storms", "sender", "messages", "sent"), ("backlog", "member", "arrived", "received"),
        ("latency", "member", "acked", "acked"),
    ):  # fmt: skip
        rows = tables.read(name, (member, counted), part, time="minute_ms")
        found.append(rows.rename_columns(["member", column]))
    is_refusal = pc.field("kind") == pc.scalar("refuse")
    refused = tables.read("records", ("member", "count"), part, time="at_ms", where=is_refusal)
    found.append(
        refused.rename_columns(["member", "refused"]).filter(pc.fill_null(pc.not_equal(refused["member"], ""), False))
    )
    is_call = pc.field("kind") == pc.scalar("llm_exchange")
    calls = tables.read("activity", ("member", "number", "cost_nano_usd"), part, time="ts_ms", where=is_call)
    found.append(_with(_named(calls), exchanges=1))
    sums = ("sent", "received", "acked", "refused", "exchanges", "cost_nano_usd")
    return [_with(rows, **{name: 0 for name in sums if name not in rows.column_names}) for rows in found]


def _named(rows: pa.Table) -> pa.Table:
    """Return rows of activity with the member's name, or its number if the name is unknown, in the column `member`."""
    numbered = pc.binary_join_element_wise("member", pc.cast(rows["number"], pa.string()), "-")
    names = pc.coalesce(pc.cast(rows["member"], pa.string()), numbered)
    return rows.set_column(rows.column_names.index("member"), "member", names).drop_columns("number")


def _alone(values: pa.ChunkedArray) -> pa.ListArray:
    """Return a column of lists: each value alone in a list."""
    return pa.ListArray.from_arrays(pa.array(range(len(values) + 1), pa.int32()), values.combine_chunks())


def _none(rows: pa.Table) -> pa.Array:
    """Return an empty list of numbers for each row."""
    return pa.array([[]] * rows.num_rows, pa.list_(pa.int64()))


def _with(rows: pa.Table, **values: object) -> pa.Table:
    """Return rows with more columns, which have the same value in every row."""
    for name, value in values.items():
        rows = rows.append_column(name, pa.repeat(pa.scalar(value), rows.num_rows))
    return rows


EXACT: Mapping[str, Callable[[ArrowTables, Window], list[pa.Table]]] = {
    "edges": _edges, "responses": _responses, "failures": _failures, "threads": _threads, "service": _service,
    "members": _members,
}  # fmt: skip
"""For each table that is cut to a time span, the function that makes its rows of a part of a day. They may have more
columns than the table, and several rows where the table has one.
"""

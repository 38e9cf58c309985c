"""The part of the report about the scope and the thread that each model call was for, and their cost.

Used by: `report_work`. Uses: the silver tables `activity` and `deliveries`, read with Arrow. A scope or thread that the
event of a call names counts. Otherwise, the call gets the scope (or thread) of the last message that the member had
taken before the call, among the messages that have one. A message is taken when it is seen or acknowledged, or sent on
a wire without acknowledgements. No table has the result, because the pipeline may read a message after the call, and a
sum cannot move to another row then.
"""

from collections.abc import Iterator, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from tieline.contract.scope import normalize
from tieline.pipeline.arrow_tables import DAY_MS, ArrowTables, Window, numbers
from tieline.pipeline.report_traffic import HOUR_MS

HELD_MS = 7 * DAY_MS
"""A message counts for the model calls within this time after it was sent."""
_NAMES = ("scope", "thread")
_TAKEN = ("seen_ms", "acked_ms", "muted_ms")
_TIME_BITS = 42
"""Bits for a time in a number that also has the member: times until the year 2109."""


def spent(tables: ArrowTables, within: Window, sums: Sequence[str]) -> Iterator[tuple[str, pa.Table]]:
    """Yield the model calls of a time span twice: as `scope` with the column `scope`, and as `thread` with `thread`.

    Each table also has the columns of the member and of the `sums`. The time span is extended to whole hours, as in the
    table `llm`.
    """
    within = _whole_hours(within)
    calls = _calls(tables, within, sums)
    since = None if within.since_ms is None else within.since_ms - HELD_MS
    taken = tables.read(
        "deliveries", ("number", "offset", "sent_ms", *_TAKEN, *_NAMES), Window(since, within.until_ms), time="sent_ms",
        where=pc.field("scope").is_valid() | pc.field("thread").is_valid(),
    )  # fmt: skip
    for name in _NAMES:
        found = _found(calls, taken, name)
        if name == "scope":
            # A repository has several addresses, such as those for ssh and for https.
            words = pc.dictionary_encode(found).unify_dictionaries().combine_chunks()
            found = pa.array(map(normalize, words.dictionary.to_pylist()), pa.string()).take(words.indices)
        yield name, calls.select(["member", *sums]).append_column(name, found)


def _whole_hours(within: Window) -> Window:
    since, until = within.since_ms, within.until_ms
    return Window(
        None if since is None else since // HOUR_MS * HOUR_MS, None if until is None else -(-until // HOUR_MS) * HOUR_MS
    )


def _calls(tables: ArrowTables, within: Window, sums: Sequence[str]) -> pa.Table:
    """Return the model calls of a time span: the member, the time, the scope and thread of the event, and the sums."""
    stored = [name for name in sums if name not in ("exchanges", "unpriced")]
    calls = tables.read(
        "activity", ("number", "member", "ts_ms", *_NAMES, *stored), within, time="ts_ms",
        where=pc.field("kind") == pc.scalar("llm_exchange"),
    )  # fmt: skip
    unpriced = pc.cast(pc.is_null(calls["cost_nano_usd"]), pa.int64())
    given = {"exchanges": pa.array(np.ones(calls.num_rows, np.int64)), "unpriced": unpriced}
    given |= {name: pa.array(numbers(calls, name)) for name in stored}
    numbered = pc.binary_join_element_wise("member", pc.cast(calls["number"], pa.string()), "-")
    given["member"] = pc.coalesce(pc.cast(calls["member"], pa.string()), numbered)
    return pa.table({**{name: calls[name] for name in ("number", "ts_ms", *_NAMES)}, **given})


def _found(calls: pa.Table, taken: pa.Table, name: str) -> pa.ChunkedArray:
    """Return the scope or the thread (`name`) of each call. It is empty if neither the call nor a message has one.

    The messages of a member are searched by time. Of two that were taken at the same time, the later one counts.
    """
    at = pc.min_element_wise(*(pc.cast(taken[time], pa.int64()) for time in _TAKEN))
    taken = taken.append_column("at_ms", at)
    taken = taken.filter(pc.and_(pc.is_valid(taken[name]), pc.is_valid(at)))
    found = pc.cast(calls[name], pa.string())
    if calls.num_rows and taken.num_rows:
        whose = np.concatenate([numbers(taken, "number"), numbers(calls, "number")])
        ranks = np.unique(whose, return_inverse=True)[1].astype(np.int64) << _TIME_BITS
        times = np.concatenate([numbers(taken, "at_ms"), numbers(calls, "ts_ms")])
        keys = ranks | np.clip(times, 0, (1 << _TIME_BITS) - 1)
        mine, asked = keys[: taken.num_rows], keys[taken.num_rows :]
        order = np.lexsort((numbers(taken, "offset"), mine))
        place = np.searchsorted(mine[order], asked, side="right") - 1
        message = order[place]
        is_held = numbers(calls, "ts_ms") - numbers(taken, "sent_ms")[message] <= HELD_MS
        is_known = (place >= 0) & (mine[message] >> _TIME_BITS == asked >> _TIME_BITS) & is_held
        found = pc.coalesce(found, taken[name].combine_chunks().take(pa.array(message, mask=~is_known)))
    return pc.fill_null(found, "")

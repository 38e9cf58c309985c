"""Tests of the shape (summary) of a batch: how many rows of each kind it has, and which hours they change."""

from typing import Any

import msgspec
import pyarrow as pa
import pytest

from tieline.pipeline.row import ACTIVITY, MAIN, SCHEMA
from tieline.pipeline.shape import Shape, page_shape, whole_shape
from tieline.pipeline.table import DAY_MS, HOUR_MS

AT = 500_000 * HOUR_MS


def shape_of(*rows: dict[str, Any]) -> Shape:
    """Return the shape of these rows, computed as in a run.

    A shape is made for each page of two rows, encoded as JSON, and then all shapes are added up.
    """
    pages = [pa.Table.from_pylist(list(rows[first : first + 2]), SCHEMA) for first in range(0, len(rows), 2)]
    told = [msgspec.json.encode(page_shape(page)) for page in pages]
    return whole_shape(msgspec.json.decode(one, type=Shape) for one in told)


def main_row(offset: int, kind: str, at_ms: int = AT, **more: Any) -> dict[str, Any]:
    return {
        "log": MAIN,
        "offset": offset,
        "kind": kind,
        "at_ms": at_ms,
        "hash": bytes([offset]),
        "chained": True,
    } | more


def told(offset: int, kind: str, at_ms: int, ts_ms: int | None) -> dict[str, Any]:
    return {"log": ACTIVITY, "offset": offset, "kind": kind, "at_ms": at_ms, "ts_ms": ts_ms}


def message_id(time_ms: int) -> str:
    digits = f"{time_ms:012x}"
    return f"{digits[:8]}-{digits[8:]}-7000-8000-000000000000"


def test_nothing_has_no_shape() -> None:
    assert shape_of() == Shape()
    assert shape_of().count() == 0


def test_rows_positions_and_the_last_hash_are_those_of_all_files() -> None:
    shape = shape_of(
        main_row(9, "ack", AT + 5),
        told(3, "llm_exchange", AT, AT),
        main_row(7, "send", AT + 1, keys=[1, 2]),
        main_row(8, "send", AT + 2, keys=[3]),
        told(4, "objective_open", AT, AT),
    )
    assert shape.rows == {MAIN: {"ack": 1, "send": 2}, ACTIVITY: {"llm_exchange": 1, "objective_open": 1}}
    assert (shape.count(), shape.count(MAIN)) == (5, 3)
    assert shape.ends == {MAIN: 10, ACTIVITY: 5}
    assert shape.span_ms == (AT + 1, AT + 5)
    assert shape.begun == 3
    assert shape.last_hash == "09"
    assert {"answers", "objective_events", "records", "loops", "findings"} == shape.empty()


def test_activity_happened_when_it_says_unless_that_cannot_be() -> None:
    shape = shape_of(
        told(0, "x", AT, AT - 3 * HOUR_MS - 1),
        told(1, "x", AT, AT + 2 * DAY_MS),
        told(2, "x", AT + HOUR_MS, None),
        told(3, "x", AT, AT - 367 * DAY_MS),
        told(4, "x", AT, AT + DAY_MS),
    )
    assert shape.activity_hours == {AT - 4 * HOUR_MS, AT, AT + HOUR_MS, AT + DAY_MS}


def test_the_hour_of_what_is_answered_is_known_by_its_id() -> None:
    ids = [message_id(AT - 1), message_id(AT - 5 * HOUR_MS + 1_800_000), "no id of a hub", None]
    hours = shape_of(*(main_row(n, "send", reply_to=one) for n, one in enumerate(ids))).asked_hours
    assert {AT - HOUR_MS, AT - 5 * HOUR_MS} <= hours
    assert hours <= {AT - HOUR_MS, AT, AT - 5 * HOUR_MS}


@pytest.mark.parametrize(
    ("row", "looped", "findings"),
    [
        (main_row(0, "pause"), 1, 0),
        (main_row(0, "send", hops=16), 1, 0),
        (main_row(0, "send", hops=15), 0, 0),
        (main_row(0, "send", signature="failed"), 0, 1),
        (main_row(0, "send", signature="verified"), 0, 0),
        (main_row(0, "send", chained=False, signature="failed"), 0, 1),
        (main_row(0, "ack", chained=None), 0, 0),
    ],
)
def test_what_loops_and_what_is_bad_is_counted(row: dict[str, Any], looped: int, findings: int) -> None:
    shape = shape_of(row)
    assert (shape.looped, shape.findings) == (looped, findings)


def test_a_file_is_touched_if_facts_can_fall_between_its_first_and_last_time() -> None:
    shape = shape_of(main_row(0, "send", AT + 5), told(0, "llm_exchange", AT, AT - 3 * HOUR_MS))
    hour = (AT, AT + 60_000)
    assert shape.touches(("messages",), hour, HOUR_MS)
    assert not shape.touches(("messages",), (AT - HOUR_MS, AT - 1), HOUR_MS)
    assert shape.touches(("messages",), (AT - DAY_MS, AT), DAY_MS)
    assert not shape.touches(("exchanges",), hour, HOUR_MS)
    assert shape.touches(("exchanges",), (AT - 3 * HOUR_MS, AT - 3 * HOUR_MS), HOUR_MS)
    assert not Shape().touches(("messages", "exchanges"), hour, HOUR_MS)

"""Shape: what a batch is made of, and which hours it touches."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tieline.pipeline.row import ACTIVITY, MAIN, SCHEMA
from tieline.pipeline.shape import Shape, shape_of, steps_of
from tieline.pipeline.table import DAY_MS, HOUR_MS

AT = 500_000 * HOUR_MS
NEVER = Shape({}, {}, {}, None, frozenset(), frozenset(), 0, 0, 0, "")


def written(folder: Path, *rows: dict[str, Any]) -> list[Path]:
    """A file for every two rows."""
    paths = []
    for first in range(0, len(rows), 2):
        path = folder / f"{first}.parquet"
        parquet.write_table(pa.Table.from_pylist(list(rows[first : first + 2]), SCHEMA), path)
        paths.append(path)
    return paths


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
    assert shape_of([]) == NEVER
    assert steps_of([]) == 0


def test_rows_positions_and_the_last_hash_are_those_of_all_files(folder: Path) -> None:
    files = written(
        folder,
        main_row(9, "ack", AT + 5),
        told(3, "llm_exchange", AT, AT),
        main_row(7, "send", AT + 1, keys=[1, 2]),
        main_row(8, "send", AT + 2, keys=[3]),
        told(4, "objective_open", AT, AT),
    )
    shape = shape_of(files)
    assert shape.rows == {
        (MAIN, "ack"): 1, (MAIN, "send"): 2, (ACTIVITY, "llm_exchange"): 1, (ACTIVITY, "objective_open"): 1,
    }  # fmt: skip
    assert shape.begins == {MAIN: 7, ACTIVITY: 3}
    assert shape.ends == {MAIN: 10, ACTIVITY: 5}
    assert shape.span_ms == (AT + 1, AT + 5)
    assert shape.begun == 3
    assert shape.last_hash == "09"
    assert {"answers", "objective_events", "records", "loops", "findings"} == shape.empty()


def test_activity_happened_when_it_says_unless_that_cannot_be(folder: Path) -> None:
    files = written(
        folder,
        told(0, "x", AT, AT - 3 * HOUR_MS - 1),
        told(1, "x", AT, AT + 2 * DAY_MS),
        told(2, "x", AT + HOUR_MS, None),
        told(3, "x", AT, AT - 367 * DAY_MS),
        told(4, "x", AT, AT + DAY_MS),
    )
    assert shape_of(files).activity_hours == {AT - 4 * HOUR_MS, AT, AT + HOUR_MS, AT + DAY_MS}


def test_the_hour_of_what_is_answered_is_known_by_its_id(folder: Path) -> None:
    ids = [message_id(AT - 1), message_id(AT - 5 * HOUR_MS + 1_800_000), "no id of a hub", None]
    hours = shape_of(written(folder, *(main_row(n, "send", reply_to=one) for n, one in enumerate(ids)))).asked_hours
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
def test_what_loops_and_what_is_bad_is_counted(folder: Path, row: dict[str, Any], looped: int, findings: int) -> None:
    shape = shape_of(written(folder, row))
    assert (shape.looped, shape.findings) == (looped, findings)


def test_one_row_may_tell_of_many_deliveries(folder: Path) -> None:
    events = ['{"keys":[[5,5],[7,1000006]]}', '{"keys":[[3,1]]}', '{"keys":"spoilt"}', "no JSON", "{}"]
    rows = [main_row(n, "ack", event=event) for n, event in enumerate(events)]
    assert steps_of(written(folder, *rows, main_row(9, "send", event=events[0]))) == 1_000_001

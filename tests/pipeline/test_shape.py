"""Shape: what a batch is made of, and which hours it touches."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema

from tieline.pipeline.catalogue import GOLD
from tieline.pipeline.row import ACTIVITY, MAIN, SCHEMA
from tieline.pipeline.shape import Shape, moved_by, shape_of
from tieline.pipeline.table import DAY_MS, HOUR_MS
from tieline.pipeline.tables import deliveries

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
    assert moved_by([], 10) == pa.table({"number": pa.array([], pa.int64()), "key": pa.array([], pa.int64())})


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


def test_deliveries_that_moved_are_known_one_by_one(folder: Path) -> None:
    events = ['{"number":4,"keys":[[5,5],[7,9]]}', '{"number":1,"keys":[[3,1]]}', '{"number":2,"keys":[[0,1]]}']
    rows = [main_row(n, "ack", event=event) for n, event in enumerate(events)]
    told_so = told(9, "ack", AT, AT) | {"event": "{}"}
    moved = moved_by(written(folder, *rows, main_row(9, "send", event=events[0]), told_so), 7)
    assert moved is not None
    assert moved.to_pydict() == {"number": [4, 4, 4, 4, 2, 2], "key": [5, 7, 8, 9, 0, 1]}


@pytest.mark.parametrize(
    "event",
    [
        '{"number":4,"keys":[[1,10000000]]}',
        '{"number":4,"keys":[[1,7]]}',
        '{"number":4,"keys":"spoilt"}',
        '{"number":4,"keys":[[-1,2]]}',
        '{"number":4,"keys":[[1]]}',
        '{"keys":[[1,2]]}',
        "no JSON",
    ],
)
def test_too_many_deliveries_or_a_spoilt_row_are_left_to_spark(folder: Path, event: str) -> None:
    assert moved_by(written(folder, main_row(0, "ack", event=event)), 7) is None


def test_open_deliveries_that_did_not_move_rest_or_are_closed_when_they_are_old() -> None:
    schema = to_arrow_schema(deliveries.TABLE.schema)
    sent = {(1, 1): AT, (1, 2): AT, (2, 1): AT - deliveries.WATERMARK_MS - 1, (2, 2): AT - deliveries.WATERMARK_MS}
    known = pa.Table.from_pylist(
        [{"number": number, "key": key, "sent_ms": at_ms} for (number, key), at_ms in sent.items()], schema
    )
    moving, others = deliveries.parted(known, pa.table({"number": [1, 9], "key": [2, 1]}), AT)
    assert moving.to_pylist() == [known.slice(1, 1).to_pylist()[0] | {"fresh": 0}]
    parts = {(row["number"], row["key"]): (row["part"], row["fresh"]) for row in others.to_pylist()}
    resting, closed = (deliveries.RESTING, 0), (deliveries.CLOSED, 0)
    assert parts == {(1, 1): resting, (2, 1): closed, (2, 2): resting}


@pytest.mark.parametrize(
    ("about", "same", "others"),
    [
        (["a"], ["a"], ["b", None]),
        (["a", "a", "x"], ["a"], ["b", None]),
        (["a", None], ["a", "b", None], []),
        ([], [], ["a", "b", None]),
    ],
)
def test_rows_that_no_fact_is_about_are_left_apart(
    about: list[str | None], same: list[str | None], others: list[str | None]
) -> None:
    gold = GOLD["threads"]
    known = pa.Table.from_pylist(
        [{"day_ms": DAY_MS, "conversation": name, "participants": ["p"]} for name in ("a", "b", None)],
        to_arrow_schema(gold.schema),
    )
    facts = pa.table(
        {"day_ms": pa.array([DAY_MS] * len(about), pa.int64()), "conversation": pa.array(about, pa.string())}
    )
    mine, left = gold.apart(known, facts)
    assert (mine["conversation"].to_pylist(), left["conversation"].to_pylist()) == (same, others)
    assert left["part"].to_pylist() == [DAY_MS] * len(others)

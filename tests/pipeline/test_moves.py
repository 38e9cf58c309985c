"""Tests of events that move deliveries: their columns in bronze, and the JSON that counts where there are none."""

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet
from pyspark.sql import SparkSession

from tests.pipeline.lakes import copied
from tests.pipeline.oracle import stored
from tieline.pipeline.catalogue import BRONZE, GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake
from tieline.pipeline.row import MOVES, SCHEMA, main_batch
from tieline.pipeline.run import rebuild_all, run
from tieline.pipeline.shape import page_shape
from tieline.pipeline.sqlite_log import SqliteLog
from tieline.pipeline.tables import deliveries
from tieline.pipeline.tasks import FileReader

TYPED = ("number", "protocol", "keys", "mute", "evidence")
"""Columns of an event that moves deliveries."""
DAMAGED = (
    b'{"event":"ack","number":4,"keys":[[1,2]',
    b'{"event":"ack","number":4,"keys":[[1],[2,2]]}',
    b'{"event":"ack","number":"four","keys":[[1,2]]}',
    b'{"event":"ack","number":-4,"keys":[[1,2]]}',
    b'{"event":"ack","number":4,"keys":[[2,1]]}',
    b'{"event":"ack","number":4,"keys":[[-2,1]]}',
    b'{"event":"ack","number":4,"keys":[[1152921504606846977,1152921504606846977]]}',
    b'{"event":"ack","number":4,"keys":[[1,99999999999]]}',
    b'{"event":"ack","number":4,"keys":[[1,2],[5,99999999999]]}',
    b'{"event":"ack","number":4,"keys":[[1,2]],"evidence":7}',
    b'{"event":"ack","number":4,"keys":' + b"[" * 5000,
    b'{"event":"ack","protocol":"\xff","number":4,"keys":[[1,2]]}',
)


def batch_of(*events: bytes) -> pa.RecordBatch:
    """Return log rows with these events."""
    return main_batch([], [(n, 1000 + n, event, b"") for n, event in enumerate(events)], [], {}, [])


def columns_of(event: bytes) -> tuple[Any, ...]:
    (row,) = batch_of(event).to_pylist()
    return tuple(row[name] for name in TYPED)


def test_a_move_has_its_deliveries_in_columns() -> None:
    said = b'{"event":"deliver","member":"ada","number":4,"keys":[[7,9],[12,12]],"protocol":"tieline","mute":true}'
    assert columns_of(said) == (4, "tieline", [7, 8, 9, 12], True, None)
    ended = b'{"event":"expire","number":5,"keys":[[7,7]],"evidence":"nobody read it"}'
    assert columns_of(ended) == (5, None, [7], None, "nobody read it")
    assert columns_of(b'{"event":"send","number":5,"keys":[[7,7]]}') == (None,) * len(TYPED)


@pytest.mark.parametrize("event", DAMAGED[:-1])
def test_a_damaged_event_has_no_deliveries_in_columns(event: bytes) -> None:
    assert columns_of(event) == (None,) * len(TYPED)


def test_an_event_with_very_many_deliveries_keeps_them_as_ranges() -> None:
    thousand = b'{"event":"ack","number":4,"keys":[[1,500],[601,1100]]}'
    assert len(columns_of(thousand)[2]) == 1000
    more = (b'{"event":"ack","number":4,"keys":[[1,500],[601,1101]]}', b'{"event":"ack","number":4,"keys":[[1,1001]]}')
    assert [columns_of(event)[2] for event in more] == [None, None]
    rows = pa.Table.from_batches([batch_of(thousand, *more)])
    assert (page_shape(rows).typed, page_shape(rows).is_typed) == (1, False)
    assert page_shape(rows[:1]).is_typed
    assert page_shape(rows).begun == 0


def test_every_move_of_a_log_has_columns(made_home: Path) -> None:
    log = SqliteLog(str(made_home))
    rows = pa.Table.from_batches(list(log.read("main", 0, log.end("main"))))
    moves = [row for row in rows.to_pylist() if row["kind"] in MOVES]
    assert {row["kind"] for row in moves} >= {"deliver", "ack", "expire", "die"}
    for row in moves:
        event = json.loads(row["event"])
        keys = [key for first, last in event["keys"] for key in range(first, last + 1)]
        told = (event["number"], event.get("protocol"), keys, event.get("mute"), event.get("evidence"))
        assert tuple(row[name] for name in TYPED) == told
    assert page_shape(rows).is_typed


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_file_of_an_older_version_is_read_without_these_columns(filled: Lake, tmp_path: Path) -> None:
    file = filled.data_files(BRONZE)[0]
    target = tmp_path / file.path
    target.parent.mkdir(parents=True)
    old = parquet.read_table(filled.storage.url(file.path), partitioning=None).drop_columns(["mute", "evidence"])
    parquet.write_table(old, target)
    read = FileReader(Lake(tmp_path).storage, [file.path], SCHEMA)
    rows = pa.Table.from_batches(list(read(iter([pa.RecordBatch.from_pydict({"id": [0]})]))))
    assert rows.schema == SCHEMA
    assert rows.drop_columns(["mute", "evidence"]).equals(old)
    assert rows["mute"].null_count == rows.num_rows == file.rows


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_columns_and_json_say_the_same(spark: SparkSession, made_home: Path) -> None:
    log = SqliteLog(str(made_home))
    rows = pa.Table.from_batches(list(log.read("main", 0, log.end("main"))))
    many = b'{"event":"ack","number":77,"keys":[[1,1500]],"protocol":"tieline"}'
    spoilt = pa.Table.from_batches([batch_of(*DAMAGED, many)])
    nulls = {name: pa.nulls(rows.num_rows, SCHEMA.field(name).type) for name in TYPED}
    untyped = rows
    for name, column in nulls.items():
        place = SCHEMA.get_field_index(name)
        untyped = untyped.set_column(place, SCHEMA.field(name), column)
    found = {}
    for name, table in (("typed", rows), ("untyped", untyped), ("spoilt", spoilt)):
        spark.createDataFrame(table, SCHEMAS[BRONZE]).createOrReplaceTempView(f"moves_{name}")
        query = f"SELECT * FROM {deliveries.reached(f'moves_{name}')} ORDER BY number, key"
        found[name] = [tuple(row) for row in spark.sql(query).collect()]
    only = f"SELECT * FROM {deliveries.reached('moves_typed', typed=True)} ORDER BY number, key"
    assert [tuple(row) for row in spark.sql(only).collect()] == found["typed"] == found["untyped"] != []
    # Every damaged event gives at most what is whole in it.
    spoilt_keys = {(row[0], row[1]) for row in found["spoilt"]}
    assert {key for number, key in spoilt_keys if number == 77} == set(range(1, 1501))
    assert {key for number, key in spoilt_keys if number == 4} == {1, 2}


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_lake_of_an_older_version_goes_on_and_is_rebuilt_to_equal_tables(
    spark: SparkSession, made_home: Path, begun: Lake, filled: Lake, tmp_path: Path
) -> None:
    lake = copied(begun, tmp_path / "lake")
    for path in lake.files(BRONZE):
        rows = parquet.read_table(path, partitioning=None)
        moved = pa.compute.is_in(rows["kind"], pa.array(MOVES))
        for name in ("number", "keys", "protocol"):
            empty = pa.nulls(rows.num_rows, rows.schema.field(name).type)
            values = pa.compute.if_else(moved, empty, rows[name])
            rows = rows.set_column(rows.schema.get_field_index(name), name, values)
        parquet.write_table(rows.drop_columns(["mute", "evidence"]), path)
    run(spark, lake, {"home": str(made_home)})
    for step in (lambda: None, lambda: rebuild_all(spark, lake)):
        step()
        for table in (*GOLD, *SILVER):
            columns = SCHEMAS[table].fieldNames()
            assert stored(lake.files(table), columns) == stored(filled.files(table), columns), table

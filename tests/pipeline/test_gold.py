"""Tests of the gold tables (sums): each has the rows that an independent computation makes of the same log."""

import json
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.synth import Generator
from tests.pipeline.lakes import copied
from tests.pipeline.oracle import QUERIES, Oracle, stored
from tests.pipeline.plain_oracle import PlainOracle
from tests.pipeline.test_missed import change
from tieline.pipeline import flow
from tieline.pipeline.catalogue import GOLD, SCHEMAS, SILVER
from tieline.pipeline.lake import Lake
from tieline.pipeline.run import rebuild_all, run

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

SPLIT = "spark.sql.files.maxPartitionBytes"


def test_the_oracle_knows_every_gold_table() -> None:
    assert set(QUERIES) == set(GOLD)


@pytest.mark.parametrize("table", list(QUERIES))
def test_a_gold_table_is_what_duckdb_and_plain_python_make_of_the_same_log(
    filled: Lake, oracle: Oracle, plain_oracle: PlainOracle, table: str
) -> None:
    expected = oracle.rows(table)
    assert expected
    assert stored(filled.files(table), SCHEMAS[table].fieldNames()) == expected
    assert plain_oracle.rows(table) == expected


def make_gaps(home: Path) -> Path:
    """Make a home with a log that lacks rows, messages and activity. Return it."""
    Generator(home, 1000, seed=8).run()
    change(home / "tieline.db", "DELETE FROM log WHERE offset BETWEEN 300 AND 309 OR offset IN (0, 700)")
    # Retention deletes messages, together with their lists of recipients, and activity.
    change(home / "tieline.db", "DELETE FROM message WHERE offset < 200 OR offset BETWEEN 300 AND 309 OR offset = 700")
    change(home / "activity.db", "DELETE FROM activity WHERE offset < 20 OR offset BETWEEN 40 AND 49")
    return home


def test_the_tables_of_a_log_with_gaps_are_those_of_its_other_rows(spark: SparkSession, scratch: Path) -> None:
    home, lake = make_gaps(scratch / "gaps"), Lake(scratch / "gaps" / "lake")
    expected, duck = PlainOracle(home), Oracle(home)
    for until in ({"main": 700, "activity": 45}, None):
        run(spark, lake, {"home": str(home)}, until=until)
    missed = lake.head().missed()
    assert (missed["rows"], missed["activity"]) == (12, 30)
    assert missed["messages"] > 20
    for table in GOLD:
        assert stored(lake.files(table), SCHEMAS[table].fieldNames()) == expected.rows(table), table
        assert duck.rows(table) == expected.rows(table), table
    chain = [row for row in expected.rows("findings") if row[2] == "chain"]
    assert [row[1] for row in chain] == [1, 310, 701]


def require_same(lake: Lake, other: Lake) -> None:
    """Fail the test if a table of facts or of sums differs between two lakes."""
    for table in (*GOLD, *SILVER):
        columns = SCHEMAS[table].fieldNames()
        assert stored(lake.files(table), columns) == stored(other.files(table), columns), table


def test_batches_that_are_too_large_for_one_task_make_the_same_tables(
    spark: SparkSession, made_home: Path, scratch: Path, begun: Lake, filled: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    lake, where = copied(begun, scratch / "many"), {"home": str(made_home)}
    for limit in ("FEW_ROWS", "_HASHED_ROWS", "_LATE_MAX"):
        monkeypatch.setattr(flow, limit, 0)
    # In one partition, a task has all rows of a key, whatever the query does.
    kept = {name: str(spark.conf.get(name)) for name in ("spark.sql.shuffle.partitions", SPLIT)}
    try:
        spark.conf.set("spark.sql.shuffle.partitions", "3")
        spark.conf.set(SPLIT, "20000")
        ends = filled.head().position
        run(spark, lake, where, until={"main": ends["main"] - 2, "activity": ends["activity"] // 3})
        run(spark, lake, where)
        assert lake.head().counts == {"late": 2, "unknown": 0}
        require_same(lake, filled)
        rebuild_all(spark, lake)
        require_same(lake, filled)
    finally:
        for name, value in kept.items():
            spark.conf.set(name, value)


def test_what_was_planted_is_found(filled: Lake, made_home: Path) -> None:
    answers = json.loads((made_home / "answers.json").read_text())
    loops = stored(filled.files("loops"), ["conversation", "hops", "pauses"])
    assert {row[0] for row in loops if row[1] >= 16} == set(answers["loops"])
    storms = stored(filled.files("storms"), ["sender", "minute_ms", "storm"])
    assert sorted([row[0], row[1]] for row in storms if row[2]) == answers["storms"]
    late = stored(filled.files("latency"), ["late"])
    assert sum(row[0] for row in late) == answers["late_acks"] > 0
    told = stored(filled.files("activity"), ["kind", "late"])
    assert sum(kind == "llm_exchange" for kind, _ in told) == answers["counts"]["exchanges"]
    assert answers["counts"]["duplicates"] > 0
    findings = stored(filled.files("findings"), ["kind"])
    assert len(findings) == answers["failed_signatures"]


def test_every_delivery_has_one_row_with_its_last_rung(filled: Lake, made_home: Path) -> None:
    answers = json.loads((made_home / "answers.json").read_text())
    rows = stored(filled.files("deliveries"), ["number", "key", "offered_ms", "acked_ms", "expired_ms", "dead_ms"])
    assert len(rows) == len({row[:2] for row in rows}) == answers["deliveries"]
    assert sum(row[3] is not None for row in rows) == answers["states"]["ack"]
    assert sum(row[5] is not None for row in rows) == answers["states"].get("die", 0)
    assert sum(row[4] is not None for row in rows) == answers["states"].get("expire", 0)

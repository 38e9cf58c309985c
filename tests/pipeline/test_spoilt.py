"""Tests of bad activity of members and bad rows in the log: they do not stop a run, or change figures of others."""

import json
import re
import sqlite3
from pathlib import Path

import pytest
from pyspark.sql import SparkSession

from bench.synth import Generator
from tests.pipeline.lakes import copied
from tests.pipeline.oracle import stored
from tieline.pipeline.catalogue import SCHEMAS
from tieline.pipeline.lake import Lake, LakeError
from tieline.pipeline.report import make_report
from tieline.pipeline.run import RunFailed, rebuild, run
from tieline.pipeline.tables import deliveries

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

HOUR_MS, DAY_MS = 3_600_000, 86_400_000


def tell(home: Path, ts_ms: int, usage: dict[str, int], lasted_ms: int) -> int:
    """Add a model call to the activity of the first member. Return the time at which it was reported."""
    database = sqlite3.connect(home / "activity.db")
    offset, at_ms = database.execute("SELECT max(offset) + 1, max(at_ms) FROM activity").fetchone()
    response = {"model": "claude-opus-4-5", "usage": usage, "status": 200, "error": None}
    event = {"kind": "llm_exchange", "ts": ts_ms, "duration": lasted_ms, "entry": {"response": response}}
    row = (offset, at_ms, 1, "llm_exchange", ts_ms, json.dumps(event).encode())
    database.execute("INSERT INTO activity (offset, at_ms, number, kind, ts_ms, event) VALUES (?, ?, ?, ?, ?, ?)", row)
    database.commit()
    database.close()
    return int(at_ms)


def spoil(home: Path, find: bytes, put: bytes) -> int:
    """In the first log row whose event matches `find`, replace the match by `put`. Return the offset of the row."""
    database = sqlite3.connect(home / "tieline.db")
    rows = database.execute("SELECT offset, event FROM log ORDER BY offset").fetchall()
    offset, event = next(row for row in rows if re.search(find, row[1]))
    database.execute("UPDATE log SET event = ? WHERE offset = ?", (re.sub(find, put, event), offset))
    database.commit()
    database.close()
    return int(offset)


def test_no_event_stops_a_run_or_moves_the_hours_of_others(spark: SparkSession, tmp_path: Path) -> None:
    home, lake = tmp_path / "home", Lake(tmp_path / "lake")
    Generator(home, 2000, seed=3).run()
    huge = 2**62
    told_ms = tell(home, huge, {"inputTokens": huge, "outputTokens": -5}, huge)
    tell(home, 0, {"inputTokens": huge}, huge)
    broken = [spoil(home, rb'"keys":\[\[', b'"keys":[[5],['), spoil(home, rb'"recipients":\d+', b'"recipients":"x"')]
    run(spark, lake, {"home": str(home)})
    hours = [row[0] for row in stored(lake.files("llm"), ["hour_ms"])]
    assert max(hours) == told_ms // HOUR_MS * HOUR_MS
    assert min(hours) > told_ms - 30 * DAY_MS
    spent = stored(lake.files("activity"), ["input_tokens", "output_tokens", "lasted_ms"])
    assert spent.count((100_000_000, 0, None)) == 2
    found = [row[1] for row in stored(lake.files("findings"), ["kind", "offset"]) if row[0] == "chain"]
    assert found == sorted(broken)


def test_a_lake_takes_nothing_from_another_log(spark: SparkSession, begun: Lake, tmp_path: Path) -> None:
    lake = copied(begun, tmp_path / "lake")
    Generator(tmp_path / "other", 2000, seed=2).run()
    # A hub of an older version has no epochs, by which the log would be known.
    for name in ("tieline.db", "activity.db"):
        database = sqlite3.connect(tmp_path / "other" / name)
        database.execute("DROP TABLE IF EXISTS log_state")
        database.commit()
        database.close()
    before = lake.head()
    with pytest.raises(LakeError, match="is of another log"):
        run(spark, lake, {"home": str(tmp_path / "other")})
    assert lake.head() == before


def test_a_damaged_file_is_named_with_the_command_that_mends_it(
    spark: SparkSession, made_home: Path, begun: Lake, tmp_path: Path
) -> None:
    lake, where = copied(begun, tmp_path / "lake"), {"home": str(made_home)}
    for table in ("edges", "bronze"):
        path = Path(lake.files(table)[0])
        kept = path.read_bytes()
        path.write_bytes(kept[:100])
        if table == "bronze":
            with pytest.raises(Exception, match=path.name):
                rebuild(spark, lake, "edges")
            path.write_bytes(kept)
            continue
        with pytest.raises(RunFailed, match=rf"{path.name}.*'tieline pipeline rebuild edges'"):
            run(spark, lake, where, until={"main": 700, "activity": 60})
        with pytest.raises(LakeError, match="rebuild edges"):
            make_report(lake)
    rebuild(spark, lake, "edges")
    run(spark, lake, where, until={"main": 700, "activity": 60})
    assert lake.head().position["main"] == 700


def test_a_delivery_was_offered_by_the_wire_that_was_first(spark: SparkSession) -> None:
    rows = [
        ("main", 3, 1000, "deliver", 1, [7], "tieline", True),
        ("main", 9, 2000, "deliver", 1, [7], "backchannel", False),
    ]
    names = [field.name for field in SCHEMAS["bronze"]]
    known = ["log", "offset", "at_ms", "kind", "number", "keys", "protocol", "mute"]
    told = [dict(zip(known, row, strict=True)) for row in rows]
    bronze = spark.createDataFrame([tuple(row.get(name) for name in names) for row in told], SCHEMAS["bronze"])
    bronze.createOrReplaceTempView("told_twice")
    (found,) = spark.sql(f"SELECT * FROM {deliveries.reached('told_twice')}").collect()
    assert (found["offered_ms"], found["offered_by"], found["muted_ms"]) == (1000, "tieline", 1000)

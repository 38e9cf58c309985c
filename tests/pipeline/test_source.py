"""Tests of the `tieline` data source in Spark: a query reads the rows that it asks for, and no others."""

import re
from pathlib import Path

import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession

from tieline.pipeline.lake import Lake
from tieline.pipeline.table import quoted

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_a_query_for_offsets_reads_those_and_no_others(spark: SparkSession, made_home: Path) -> None:
    rows = spark.read.format("tieline").option("home", str(made_home)).load()
    few = rows.where("log = 'main' and offset >= 40 and offset < 50").select("offset", "kind", "chained")
    found = few.collect()
    assert [row["offset"] for row in found] == list(range(40, 50))
    assert all(row["chained"] for row in found)
    plan = few._jdf.queryExecution().executedPlan()
    scan = plan.collectLeaves().head()
    assert scan.metrics().apply("numOutputRows").value() == 10, "the reader yielded no others"
    # Spark does not apply the filters again that the source has applied.
    again = re.compile(r"Filter \(.*(?<!#)\b(40|50|main)\b")
    assert [line for line in plan.toString().splitlines() if again.search(line)] == []


@pytest.mark.parametrize("text", ["it's", "a\\", "\\'", "' OR true --", "a\nb", "ü\t%_"])
def test_a_text_in_a_statement_is_what_it_was(spark: SparkSession, text: str) -> None:
    (row,) = spark.sql(f"SELECT {quoted(text)} AS text").collect()
    assert row["text"] == text


def test_a_source_that_names_no_log_is_refused(spark: SparkSession) -> None:
    with pytest.raises(AnalysisException, match="say where the log is"):
        spark.read.format("tieline").load().collect()


def test_the_audit_finds_what_was_changed_dropped_or_cut_off(spark: SparkSession, scratch: Path) -> None:
    import sqlite3

    from bench.synth import Generator
    from tieline.core.checkpoints import Checkpoint
    from tieline.pipeline.verify import verify

    home = scratch / "tampered"
    answers = Generator(home, 2000, seed=3).run()
    where = {"home": str(home)}
    whole = verify(spark, where, [Checkpoint(answers.main, answers.head, 0, "")])
    assert (whole.verified_rows, whole.messages) == (answers.main, answers.messages)
    assert {finding.kind for finding in whole.findings} <= {"signature"}
    database = sqlite3.connect(home / "tieline.db")
    (changed,) = database.execute("SELECT offset FROM message ORDER BY offset LIMIT 1 OFFSET 50").fetchone()
    database.execute("UPDATE message SET content = ? WHERE offset = ?", (b'{"body":"other"}', changed))
    database.execute("DELETE FROM log WHERE offset = 700")
    database.execute("UPDATE log SET at_ms = at_ms, event = ? WHERE offset = 900", (b'{"event":"pause","thread":"x"}',))
    database.execute("DELETE FROM log WHERE offset >= ?", (answers.main - 3,))
    database.commit()
    database.close()
    report = verify(spark, where, [Checkpoint(answers.main, answers.head, 0, "")])
    found = {(finding.offset, finding.kind) for finding in report.findings if finding.kind != "signature"}
    end = answers.main - 3
    assert {(changed, "seal"), (700, "missing"), (701, "chain"), (900, "chain"), (end, "checkpoint")} <= found
    assert report.verified_rows == end - 1


def test_views_answer_sql_about_one_commit(spark: SparkSession, filled: Lake) -> None:
    from tieline.pipeline.views import register

    register(spark, filled)
    (row,) = spark.sql("select count(*) as n, sum(messages) as m from edges").collect()
    assert row["n"] == filled.head().rows("edges")
    assert row["m"] == filled.head().rows("deliveries")

"""Tests of the gold tables (sums): each has the rows that an independent computation makes of the same log."""

import json
from pathlib import Path

import pytest

from tests.pipeline.oracle import QUERIES, Oracle, stored
from tieline.pipeline.catalogue import GOLD, SCHEMAS
from tieline.pipeline.lake import Lake

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


def test_the_oracle_knows_every_gold_table() -> None:
    assert set(QUERIES) == set(GOLD)


@pytest.mark.parametrize("table", list(QUERIES))
def test_a_gold_table_is_what_duckdb_makes_of_the_same_log(filled: Lake, oracle: Oracle, table: str) -> None:
    expected = oracle.rows(table)
    assert expected
    assert stored(filled.files(table), SCHEMAS[table].fieldNames()) == expected


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

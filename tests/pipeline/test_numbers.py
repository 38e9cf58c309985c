"""Tests of the report's numbers: each is what DuckDB makes of the same log, over all time and over the last day."""

from pathlib import Path
from typing import Any

import duckdb
import pytest
from deltalake import DeltaTable
from pyspark.sql import SparkSession

from tests.pipeline.lakes import DAY, MINUTE
from tests.pipeline.oracle import QUERIES, Oracle
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report
from tieline.pipeline.run import run
from tieline.wire.report_parts import Report

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(params=[None, DAY, 2 * DAY], ids=["all time", "a day", "two days"])
def made(request: pytest.FixtureRequest, filled: Lake) -> Report:
    """Fixture: a report over all time, or over the last days, of the lake `filled`."""
    return make_report(filled, window_ms=request.param)


def since(made: Report, time: str) -> str:
    """Return a condition in SQL: a time is not before the report's start."""
    return f"{time} >= {made.since_ms or 0}"


def one(oracle: Oracle, query: str) -> Any:
    """Return the only value of a query."""
    ((value,),) = oracle.ask(query)
    return value


def test_the_time_to_the_first_response(made: Report, oracle: Oracle) -> None:
    first = (
        f"SELECT min(response_ms) AS ms, arg_min(sender, offset_) AS who FROM answer WHERE {since(made, 'asked_ms')}"
    )
    first += " GROUP BY asked"
    assert made.totals.first_response_p50_ms == one(oracle, f"SELECT quantile_disc(ms, 0.5) FROM ({first})")
    query = f"SELECT who, count(*), quantile_disc(ms, 0.5), quantile_disc(ms, 0.99) FROM ({first}) GROUP BY who"
    expected = oracle.ask(query)
    assert expected or made.since_ms
    assert sorted((row.member, row.answers, row.p50_ms, row.p99_ms) for row in made.responses) == sorted(expected)


def test_failures_by_kind_cause_and_member(made: Report, oracle: Oracle) -> None:
    columns = "(day, kind, member, cause, n)"
    query = f"SELECT kind, cause, member, sum(n)::BIGINT FROM ({QUERIES['failures']}) AS t{columns} "
    expected = oracle.ask(f"{query} WHERE {since(made, 'day')} GROUP BY ALL")
    assert sorted((row.kind, row.cause, row.member, row.count) for row in made.failures) == sorted(expected)
    assert {row.kind for row in made.failures} == {row[0] for row in expected}
    assert made.totals.refused == sum(row[3] for row in expected if row[0] == "refused")


def test_service_levels_by_member_and_priority(made: Report, oracle: Oracle) -> None:
    ms = "at_ms - sent_ms"
    acked = "FILTER (rung = 'acked')"
    query = (
        f"SELECT recipient, priority, count(*) {acked}, quantile_disc({ms}, 0.5) {acked}, "
        f"round(count(*) FILTER (rung = 'acked' AND {ms} <= {MINUTE}) / nullif(count(*) {acked}, 0), 4), "
        "count(*) FILTER (rung = 'expired'), count(*) FILTER (rung = 'dead') "
        f"FROM rung WHERE rung IN ('acked', 'expired', 'dead') AND {since(made, 'at_ms')} GROUP BY ALL"
    )
    found = [
        (row.member, row.priority, row.acked, row.p50_ms, row.within_minute, row.expired, row.dead)
        for row in made.service
    ]
    assert sorted(found) == sorted(oracle.ask(query))


def test_spend_by_objective_member_model_scope_and_thread_and_from_the_cache(made: Report, oracle: Oracle) -> None:
    names = {"objective": "coalesce(focus, '')", "member": "member.name", "model": "model", "scope": "scope",
             "thread": "thread"}  # fmt: skip
    for by, name in names.items():
        query = (
            f"SELECT {name}, count(*), count(*) FILTER (failed), count(*) FILTER (cost IS NULL), sum(asked)::BIGINT, "
            "coalesce(sum(cost), 0)::BIGINT, round(sum(read_) / sum(asked + read_ + written), 4) "
            f"FROM spent JOIN member USING (number) WHERE {since(made, 'ts_ms')} GROUP BY 1"
        )
        found = [
            (row.name, row.exchanges, row.failed, row.unpriced, row.input_tokens, row.cost_usd, row.cache_hit)
            for row in made.spend
            if row.by == by
        ]
        # DuckDB rounds a half of a millionth in another way.
        expected = [(*row[:5], round(row[5] / 1e9, 6), row[6]) for row in oracle.ask(query)]
        assert sorted(found) == sorted(expected), by
        assert found or made.since_ms, by
    assert {row.name for row in made.spend if row.by == "scope"} <= {
        "", "github.com/acme/api", "acme/web", "acme/cli",
    }  # fmt: skip
    unpriced = f"SELECT DISTINCT model FROM exchange WHERE cost IS NULL AND {since(made, 'ts_ms')} ORDER BY 1"
    assert made.unpriced == [row[0] for row in oracle.ask(unpriced)]


def test_a_message_that_is_read_after_the_call_that_it_led_to_counts_the_same(
    spark: SparkSession, made_home: Path, scratch: Path, filled: Lake
) -> None:
    lake, ends = Lake(scratch / "late"), filled.head().position
    run(spark, lake, {"home": str(made_home)}, until={"main": 300, "activity": ends["activity"]})
    early = make_report(lake).spend
    run(spark, lake, {"home": str(made_home)})
    assert make_report(lake).spend == make_report(filled).spend != early


def test_the_documented_join_makes_the_spend_by_thread(filled: Lake) -> None:
    page = (Path(__file__).parents[2] / "docs" / "pipeline.md").read_text("utf-8")
    (query,) = (text for text in page.split('"""') if "asof left join" in text)
    duck, head = duckdb.connect(), filled.head()
    for name in ("activity", "deliveries"):
        duck.register(name, DeltaTable(str(filled.path / name), head.versions[name]).to_pyarrow_table())
    found = {thread or "": usd for thread, usd in duck.sql(query).fetchall()}
    spend = {row.name: row.cost_usd for row in make_report(filled).spend if row.by == "thread"}
    assert {name: usd or 0.0 for name, usd in found.items()} == pytest.approx(spend, abs=1e-6)


def test_failed_and_retried_calls(made: Report, oracle: Oracle) -> None:
    calls = (
        "SELECT failed, lead(ts_ms) OVER (PARTITION BY number, model ORDER BY ts_ms) - ts_ms AS next_ms FROM exchange "
        f"WHERE {since(made, 'ts_ms')}"
    )
    assert made.totals.failed_calls == one(oracle, f"SELECT count(*) FROM ({calls}) WHERE failed")
    retried = one(oracle, f"SELECT count(*) FROM ({calls}) WHERE failed AND next_ms <= {5 * MINUTE}")
    assert made.totals.retried_calls == retried


def test_the_cost_of_loops_is_what_their_members_spent_meanwhile(made: Report, oracle: Oracle) -> None:
    columns = "(day, conversation, n, hops, members, pauses, first, last)"
    meanwhile = "list_contains(members, member.name) AND ts_ms BETWEEN first AND last"
    query = (
        f"SELECT conversation, day, round(coalesce(sum(cost), 0) / 1e9, 6) FROM ({QUERIES['loops']}) AS t{columns} "
        f"LEFT JOIN (exchange JOIN member USING (number)) ON {meanwhile} WHERE {since(made, 'day')} GROUP BY ALL"
    )
    expected = oracle.ask(query)
    assert sorted((row.conversation, row.day_ms, row.cost_usd) for row in made.loops) == sorted(expected)
    whole = (
        "SELECT round(coalesce(sum(cost), 0) / 1e9, 6) FROM exchange JOIN member USING (number) WHERE EXISTS ("
        f"SELECT 1 FROM ({QUERIES['loops']}) AS t{columns} WHERE {meanwhile} AND {since(made, 'day')})"
    )
    assert made.totals.loop_cost_usd == one(oracle, whole)


def test_totals_and_what_was_before(made: Report, oracle: Oracle) -> None:
    assert made.totals.messages == one(oracle, f"SELECT count(*) FROM message WHERE {since(made, 'at_ms')}")
    assert made.totals.deliveries == one(oracle, f"SELECT count(*) FROM delivery WHERE {since(made, 'sent_ms')}")
    left = "least(acked_ms, expired_ms, dead_ms, muted_ms) IS NULL"
    assert made.totals.waiting == one(oracle, f"SELECT count(*) FROM delivery WHERE {left}")
    if made.since_ms is None:
        assert (made.before, made.changes) == (None, [])
        return
    assert made.before is not None
    before = f"at_ms >= {made.before_ms} AND at_ms < {made.since_ms}"
    assert made.before.messages == one(oracle, f"SELECT count(*) FROM message WHERE {before}")
    assert made.before.acked == one(oracle, f"SELECT count(*) FROM rung WHERE rung = 'acked' AND {before}")
    cost = one(oracle, f"SELECT coalesce(sum(cost), 0) FROM exchange WHERE {before.replace('at_ms', 'ts_ms')}")
    assert made.before.cost_usd == pytest.approx(float(cost) / 1e9, abs=1e-6)

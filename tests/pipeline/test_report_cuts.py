"""Tests of reports on time spans that begin or end within a day: every number is that of the events in them."""

from collections import Counter
from collections.abc import Iterable

import pytest

from tests.pipeline.plain_oracle import Fact, PlainOracle, grouped, rank
from tieline.pipeline.arrow_tables import ArrowTables, Window
from tieline.pipeline.lake import Lake
from tieline.pipeline.report_traffic import MINUTE_MS, Traffic, last_minute_end

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HOUR_MS = 60 * MINUTE_MS
SPANS = ((0, 13), (7 * 60 + 5, 31 * 60), (100, 26 * 60 + 44), (0, 60 * 60))
"""Time spans: minutes before the end of the log at which they end, and at which they begin."""


def counted(facts: Iterable[Fact], *names: str) -> Counter[tuple[str, ...]]:
    return Counter(tuple(fact[name] for name in names) for fact in facts)


@pytest.mark.parametrize("span", SPANS)
def test_a_cut_time_span_has_the_events_in_it_and_no_others(
    filled: Lake, plain_oracle: PlainOracle, span: tuple[int, int]
) -> None:
    tables = ArrowTables(filled)
    end_ms = last_minute_end(tables)
    assert end_ms is not None
    until, since = (end_ms - minutes * MINUTE_MS for minutes in span)
    traffic = Traffic(tables, Window(since, until))

    def within(facts: Iterable[Fact], time: str = "at") -> list[Fact]:
        return [fact for fact in facts if since <= fact[time] < until]

    sent, steps = within(plain_oracle._messages), within(plain_oracle._steps)
    answers, calls = within(plain_oracle._answers), within(plain_oracle._calls)
    deliveries, refused = within(plain_oracle._deliveries.values(), "sent"), within(plain_oracle._refusals())
    edges = {(one.sender, one.recipient): (one.messages, one.answers, one.response_p50_ms) for one in traffic.edges()}
    pairs, told = counted(deliveries, "sender", "recipient"), grouped(answers, lambda one: (one["by"], one["to"]))
    assert edges == {
        pair: (pairs[pair], len(told.get(pair, [])), rank(sorted(one["after"] for one in told.get(pair, [])), 0.5))
        for pair in {*pairs, *told}
    }
    failures = {(one.kind, one.cause, one.member): one.count for one in traffic.failures()}
    ended = [step for step in steps if step["rung"] in ("expired", "dead")]
    expected = counted(ended, "rung", "cause", "recipient")
    expected.update({("call", *key): count for key, count in counted(
        (call for call in calls if call["failed"]), "error", "member").items()})  # fmt: skip
    for one in refused:
        expected["refused", one["code"], one["who"]] += one["count"]
    assert failures == expected
    totals = traffic.totals()
    assert (totals.messages, totals.deliveries, totals.refused) == (
        len(sent), len(deliveries), sum(one["count"] for one in refused),
    )  # fmt: skip
    first = [min(replies, key=lambda one: one["offset"]) for replies in grouped(
        plain_oracle._answers, lambda one: (one["asked"]["offset"],)).values()]  # fmt: skip
    first = [one for one in first if since <= one["asked"]["at"] < until]
    assert {one.member: one.answers for one in traffic.responses()} == {
        k[0]: n for k, n in counted(first, "by").items()
    }
    threads = counted(sent, "conversation")
    assert (traffic.threads().conversations, sum(one["messages"] for one in traffic.threads().longest)) == (
        len(threads), sum(sorted(threads.values())[-50:]),
    )  # fmt: skip
    acked = [step for step in steps if step["rung"] == "acked"]
    levels = {(one.member, one.priority): one.acked for one in traffic.service() if one.acked}
    assert levels == counted(acked, "recipient", "priority")
    members = {one.member: (one.sent, one.received, one.acked, one.refused, one.exchanges) for one in traffic.members()}
    parts = (counted(sent, "sender"), counted(deliveries, "recipient"), counted(acked, "recipient"),
             Counter((one["who"],) for one in refused for _ in range(one["count"])),
             counted(calls, "member"))  # fmt: skip
    names = {key[0] for part in parts for key in part if key[0]}
    assert {name: row for name, row in members.items() if any(row)} == {
        name: tuple(part[name,] for part in parts) for name in names
    }

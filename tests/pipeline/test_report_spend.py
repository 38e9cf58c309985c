"""Tests of the scope and the thread of model calls: which message of a member they come from."""

from pathlib import Path

import pytest

from tests.pipeline.lakes import DAY, START, lake_of
from tieline.pipeline.report import make_report

pytestmark = pytest.mark.slow  # each test writes a lake


def test_a_call_is_for_the_scope_and_thread_of_the_message_that_its_member_took_last(folder: Path) -> None:
    def call(at: int, number: int = 1, **own: str) -> dict[str, object]:
        return {"offset": at, "at_ms": START, "ts_ms": START + at, "number": number, "kind": "llm_exchange",
                "member": "alice" if number == 1 else None,
                "cost_nano_usd": 10**9, "failed": False, **own}  # fmt: skip

    def taken(offset: int, at: int, *, by: str = "acked_ms", sent: int = 0, **named: str) -> dict[str, object]:
        return {"number": 1, "key": offset, "offset": offset, "sent_ms": START + sent, by: START + at, **named}

    calls = [*map(call, (9, 10, 19, 20, 30, 40, 50, 60, 70, 7 * DAY + 5, 7 * DAY + 70)), call(60, number=2),
             call(61, scope="git@host:a/own.git", thread="own")]  # fmt: skip
    messages = [
        taken(1, 10, thread="first", scope="https://Host/a/b.git"),
        taken(2, 20, thread="second"),
        taken(3, 30, by="seen_ms", thread="seen"),
        taken(4, 40, by="muted_ms", thread="muted"),
        taken(5, 50, thread="at the same time, earlier"),
        taken(6, 50, thread="later"),
        {**taken(7, 55), "acked_ms": None, "thread": "never taken"},
        taken(8, 70, sent=65, scope="host/a/b"),
    ]
    report = make_report(lake_of(folder, {"activity": calls, "deliveries": messages}))
    spend = {by: {row.name: row.exchanges for row in report.spend if row.by == by} for by in ("scope", "thread")}
    # Without a message: the first call, the one of the other member, and those more than a week later.
    assert spend["thread"] == {"": 4, "first": 2, "second": 1, "seen": 1, "muted": 1, "later": 3, "own": 1}
    assert spend["scope"] == {"": 3, "host/a/b": 9, "host/a/own": 1}
    assert {row.name: row.members for row in report.spend if row.by == "scope"} == {
        "": ["alice", "member-2"], "host/a/b": ["alice"], "host/a/own": ["alice"],
    }  # fmt: skip
    assert sum(spend["thread"].values()) == sum(spend["scope"].values()) == len(calls)

"""Test data: a report, as the pipeline writes it for the console."""

import json
from pathlib import Path
from typing import Any

from tieline.wire.insights import FILE

REPORT: dict[str, Any] = {
    "totals": {"messages": 3, "deliveries": 4, "acked": 2, "expired": 1, "dead": 0, "waiting": 1, "cost_usd": 1.25,
               "refused": 2, "exchanges": 2, "failed_calls": 1, "retried_calls": 1, "cache_hit": 0.25,
               "loop_cost_usd": 0.5, "first_response_p50_ms": 4000},
    "edges": [{"from": "<b>alice", "to": "bob", "messages": 3, "answers": 1, "response_p50_ms": 5000}],
    "latency": [
        {"member": "bob", "protocol": "ac7", "p50_ms": 5, "p99_ms": 50, "deliveries": 4, "measured": "offered"}
    ],
    "latency_series": [{"at_ms": 60_000 * at, "acked": 1, "p50_ms": 5, "p99_ms": 50 + at} for at in range(10)],
    "backlog": [{"member": "bob", "waiting": 1, "arrived": 2, "departed": 1}],
    "backlog_series": [{"at_ms": 60_000 * at, "waiting": at, "arrived": 1, "departed": 0} for at in range(10)],
    "objectives": [
        {"id": "o-1", "title": "Ship it", "assignee": "bob", "status": "done", "cycle_ms": 120_000, "blocked_ms": 5000,
         "exchanges": 2, "input_tokens": 1200, "output_tokens": 34, "cost_usd": 0.75},
    ],
    "llm": [
        {"model": "m-1", "member": "bob", "exchanges": 2, "input_tokens": 9, "output_tokens": 1, "cost_usd": 1.25,
         "unpriced": 1},
    ],
    "llm_by_hour": [{"hour_ms": 0, "model": "m-1", "exchanges": 2, "input_tokens": 9, "output_tokens": 1}],
    "loops": [
        {"conversation": "@alice+@bob", "members": ["alice", "bob"], "messages": 70, "hops": 64, "last_ms": 1,
         "cost_usd": 0.5},
    ],
    "storms": [{"minute_ms": 0, "sender": "bob", "messages": 90, "deliveries": 90}],
    "threads": {"conversations": 1, "unanswered": 0, "longest": [
        {"conversation": "thread:build", "messages": 9, "participants": ["alice", "bob"], "first_ms": 0, "last_ms": 1},
    ]},
    "members": [],
    "service": [
        {"member": "bob", "priority": "urgent", "acked": 4, "p50_ms": 5, "p99_ms": 50, "within_minute": 1.0,
         "expired": 1, "dead": 0},
    ],
    "responses": [{"member": "bob", "answers": 1, "p50_ms": 4000, "p99_ms": 4000}],
    "failures": [{"kind": "expired", "cause": "time to live passed", "member": "bob", "count": 1, "before": 7}],
    "waits": [
        {"objective": "o-2", "title": "Test it", "assignee": "alice", "since_ms": 0, "reason": "waits for o-1",
         "objectives": ["o-1"], "members": [], "chain": ["o-2", "o-1", "@bob"], "circle": False},
    ],
    "spend": [
        {"by": by, "name": name, "exchanges": 2, "failed": 1, "unpriced": 1, "input_tokens": 9, "output_tokens": 1,
         "cache_read_tokens": 3, "cache_write_tokens": 0, "cost_usd": 1.25, "cache_hit": 0.25, "before_usd": 2.5,
         "title": "Ship it" if by == "objective" else None, "members": [] if by == "member" else ["bob", "alice"]}
        for by, name in (("objective", "o-1"), ("member", "bob"), ("model", "m-1"), ("scope", "acme/api"),
                         ("thread", "build"))
    ],
    "unpriced": ["m-2"],
    "before": None,
    "before_ms": None,
    "changes": [{"what": "cost_usd of the model", "name": "m-1", "before": 2.5, "now": 1.25}],
    "failed_checks": [],
    "ranges": {},
    "from_ms": 0,
    "to_ms": 600_000,
    "series_ms": 60_000,
    "audit": {"verified_rows": 9, "intact": False, "findings": [
        {"kind": "signature", "offset": 5, "member": "alice", "what": "row 5"},
    ]},
    "refreshed_at_ms": 0,
}  # fmt: skip


def leave(home: Path, report: dict[str, Any]) -> None:
    """Write a report into a hub's home, to the place where the hub stores it."""
    (home / FILE).write_text(json.dumps(report))

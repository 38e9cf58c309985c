"""Test data: a report, as the pipeline writes it for the console."""

import json
from pathlib import Path
from typing import Any

REPORT: dict[str, Any] = {
    "totals": {"messages": 3, "deliveries": 4, "acked": 2, "expired": 1, "dead": 0, "waiting": 1, "cost_usd": 1.25},
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
    "loops": [{"conversation": "@alice+@bob", "members": ["alice", "bob"], "messages": 70, "hops": 64, "last_ms": 1}],
    "audit": {"verified_rows": 9, "intact": False, "findings": [{"kind": "break", "offset": 5, "what": "row 5"}]},
    "refreshed_at_ms": 0,
}  # fmt: skip


def leave(home: Path, report: dict[str, Any]) -> None:
    """Write a report into a hub's home, to the place where the pipeline writes it."""
    lake = home / "lake"
    lake.mkdir(exist_ok=True)
    (lake / "report.json").write_text(json.dumps(report))

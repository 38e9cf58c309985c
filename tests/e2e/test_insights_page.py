"""What the pipeline found, in a real browser."""

import json
from typing import Any

import pytest
from playwright.async_api import expect

from tests.e2e.browsers import Office, serious

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]

REPORT: dict[str, Any] = {
    "totals": {"messages": 3, "deliveries": 4, "acked": 2, "expired": 1, "dead": 0, "waiting": 1, "cost_usd": 1.25},
    "edges": [{"from": "<b>alice", "to": "bob", "messages": 3, "answers": 1, "response_p50_ms": 5000}],
    "latency": [
        {"member": "bob", "protocol": "ac7", "p50_ms": 5, "p99_ms": 50, "deliveries": 4, "measured": "offered"}
    ],
    "latency_series": [{"at_ms": 60_000 * at, "acked": 1, "p50_ms": 5, "p99_ms": 50 + at} for at in range(10)],
    "backlog": [{"member": "bob", "waiting": 1, "arrived": 2, "departed": 1}],
    "backlog_series": [{"at_ms": 60_000 * at, "waiting": at, "arrived": 1, "departed": 0} for at in range(10)],
    "objectives": [],
    "llm": [
        {"model": "m-1", "member": "bob", "exchanges": 2, "input_tokens": 9, "output_tokens": 1, "cost_usd": 1.25,
         "unpriced": 1},
    ],
    "llm_by_hour": [{"hour_ms": 0, "model": "m-1", "exchanges": 2, "input_tokens": 9, "output_tokens": 1}],
    "loops": [{"conversation": "@alice+@bob", "members": ["alice", "bob"], "messages": 70, "hops": 64, "last_ms": 1}],
    "audit": {"verified_rows": 9, "intact": False, "findings": [{"kind": "break", "offset": 5, "what": "row 5"}]},
    "refreshed_at_ms": 0,
}  # fmt: skip


async def test_insights_say_what_the_pipeline_found_or_how_to_run_it(there: Office) -> None:
    page = await there.enter(path="#/insights")
    await expect(page.get_by_text("tieline pipeline run")).to_be_visible()
    lake = there.there.home / "lake"
    lake.mkdir()
    (lake / "report.json").write_text(json.dumps(REPORT))
    await page.reload()
    await expect(page.locator(".chart canvas")).to_have_count(3)
    await expect(page.locator(".graph path")).to_have_count(1)
    await expect(page.locator(".totals")).to_contain_text("broken")
    for heading in ("Who writes to whom", "Latency by member", "Waiting now", "Tokens and cost", "Loops"):
        await expect(page.get_by_role("heading", name=heading)).to_be_visible()
    await expect(page.get_by_role("heading", name="Audit findings")).to_be_visible()
    await expect(page.locator("td", has_text="<b>alice")).to_be_visible()
    assert await serious(page) == []

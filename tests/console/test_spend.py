"""Tests of the sums of model calls of the present day, which the console's first page shows."""

import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx2 as httpx
import pytest

from tests.server.hubs import ALONE, HubHarness, running_hub
from tieline.client import Client
from tieline.console import spend
from tieline.console.spend import PATH


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, **ALONE) as built:
        await built.add("alice", "bob")
        await built.add("chief", permissions=("activity.read",))
        yield built


def call(model: str, ago_s: int = 0, **usage: Any) -> dict[str, Any]:
    response = {"model": model, "usage": usage, "messages": []}
    return {
        "kind": "llm_exchange",
        "ts": int((time.time() - ago_s) * 1000),
        "entry": {"request": {"model": "asked"}, "response": response},
    }


async def ask(there: HubHarness, name: str = "chief", ago_s: int = 3600) -> httpx.Response:
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        headers = {"authorization": f"Bearer {there.tokens[name]}"}
        return await client.get(PATH, params={"from_ms": int((time.time() - ago_s) * 1000)}, headers=headers)


async def rows(there: HubHarness, ago_s: int = 3600) -> list[tuple[Any, ...]]:
    found = (await ask(there, ago_s=ago_s)).json()["spend"]
    return [tuple(row.values()) for row in found]


async def test_calls_are_summed_by_member_and_model_with_what_they_cost(there: HubHarness) -> None:
    alice, bob = await there.join("alice"), await there.join("bob")
    await alice.record_activity(
        call("claude-opus-4", inputTokens=1000, outputTokens=100, cacheReadInputTokens=2000),
        call("claude-opus-4", inputTokens=1000, cacheCreationInputTokens=400),
        call("gpt-5-mini-high", inputTokens=1_000_000),
        {"kind": "other"},
    )
    await bob.record_activity(call("nobody knows it", inputTokens=7), call("gpt-5", 7200, inputTokens=5))
    assert await rows(there) == [
        ("alice", "claude-opus-4", 2, 4400, 100, 0.016),
        ("alice", "gpt-5-mini-high", 1, 1_000_000, 0, 0.25),
        ("bob", "nobody knows it", 1, 7, 0, None),
    ]
    assert [row[:2] for row in await rows(there, 10_000)][2] == ("bob", "gpt-5")


async def test_a_later_request_has_what_came_meanwhile_and_nothing_twice(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(spend, "_PAGE_ROWS", 3)
    alice = await there.join("alice")
    await alice.record_activity(*(call("m", 60, inputTokens=1) for _ in range(3)), call("m", -3600, inputTokens=1))
    await alice.record_activity(*(call("m", 50 - number, inputTokens=1) for number in range(6)))
    assert (await rows(there))[0][2:4] == (10, 10)
    await alice.record_activity(call("m", 55, inputTokens=1), call("m", inputTokens=1))
    assert (await rows(there))[0][2:4] == (12, 12)
    assert (await rows(there))[0][2:4] == (12, 12)


async def test_a_program_may_report_anything(there: HubHarness) -> None:
    alice: Client = await there.join("alice")
    await alice.record_activity(
        {"kind": "llm_exchange"},
        {"kind": "llm_exchange", "entry": "?"},
        {"kind": "llm_exchange", "entry": {"response": {"usage": {"inputTokens": -5, "outputTokens": 1.5}}}},
        {"kind": "llm_exchange", "entry": {"response": None, "request": {"model": "m"}}},
    )
    assert await rows(there) == [("alice", "", 3, 0, 1, None), ("alice", "m", 1, 0, 0, None)]


async def test_the_prices_of_the_lake_count(there: HubHarness) -> None:
    (there.home / "lake").mkdir()
    path = there.home / "lake" / "prices.json"
    path.write_text(json.dumps({"mine": [1, 0, 0, 0]}))
    alice = await there.join("alice")
    await alice.record_activity(call("mine", inputTokens=1_000_000), call("gpt-5", inputTokens=1_000_000))
    assert [row[-1] for row in await rows(there)] == [None, 1.0]
    path.write_text("{")
    assert [row[-1] for row in await rows(there)] == [1.75, None]


async def test_it_is_for_those_who_may_read_activity(there: HubHarness) -> None:
    answer = await ask(there, "alice")
    assert (answer.status_code, answer.json()["error"]) == (403, "alice lacks the permission activity.read")
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        assert (await client.get(PATH, params={"from_ms": 0})).status_code == 401
        headers = {"authorization": f"Bearer {there.tokens['chief']}"}
        assert (await client.get(PATH, headers=headers)).status_code == 400
        foreign = {**headers, "origin": "https://elsewhere.example", "sec-fetch-site": "cross-site"}
        assert (await client.get(PATH, params={"from_ms": 0}, headers=foreign)).status_code == 403

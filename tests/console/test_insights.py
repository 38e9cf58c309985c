"""Tests that the hub serves the pipeline's report to members that may read the log."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.server.hubs import HubHarness, running_hub
from tieline.console.insights import PATH, REPORT


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="memory") as built:
        await built.add("alice")
        await built.add("chief", permissions=("log.read",))
        yield built


async def ask(there: HubHarness, name: str | None, **headers: str) -> httpx.Response:
    if name is not None:
        headers["authorization"] = f"Bearer {there.tokens[name]}"
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        return await client.get(PATH, headers=headers)


async def test_before_the_pipeline_ran_there_is_nothing_to_show(there: HubHarness) -> None:
    answer = await ask(there, "chief")
    assert (answer.status_code, answer.json()["error"]) == (404, "the pipeline has not run for this hub yet")


async def test_the_report_is_handed_on_as_it_is_and_once(there: HubHarness) -> None:
    report = there.home / REPORT
    report.parent.mkdir()
    report.write_text('{"totals": {"messages": 3}}')
    answer = await ask(there, "chief")
    assert answer.json() == {"totals": {"messages": 3}}
    again = await ask(there, "chief", **{"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    report.write_text('{"totals": {"messages": 4}}')
    newer = await ask(there, "chief", **{"if-none-match": answer.headers["etag"]})
    assert newer.json() == {"totals": {"messages": 4}}


@pytest.mark.parametrize(("name", "status"), [(None, 401), ("alice", 403), ("chief", 404)])
async def test_it_is_for_those_who_may_read_the_log(there: HubHarness, name: str | None, status: int) -> None:
    assert (await ask(there, name)).status_code == status


async def test_a_page_from_elsewhere_gets_nothing(there: HubHarness) -> None:
    assert (await ask(there, "chief", origin="http://evil.example")).status_code == 401

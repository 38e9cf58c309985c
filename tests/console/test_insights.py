"""Tests that the hub stores the pipeline's report, and serves it to members that may read the log."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx2 as httpx
import pytest

from tests.server.hubs import ALONE, HubHarness, running_hub
from tests.wire.reports import NOW_MS, report
from tieline.wire.insights import BYTES_MAX, FILE, PATH


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, **ALONE) as built:
        await built.add("alice")
        await built.add("chief", permissions=("log.read",))
        await built.add("writer", permissions=("insights.write",))
        await built.add("pipeline", permissions=("log.read", "insights.write"))
        yield built


async def ask(
    there: HubHarness, name: str | None, body: bytes | None = None, method: str = "GET", **headers: str
) -> httpx.Response:
    if name is not None:
        headers["authorization"] = f"Bearer {there.tokens[name]}"
    async with httpx.AsyncClient(base_url=there.running.http) as client:
        return await client.request(method, PATH, content=body, headers=headers)


async def put(there: HubHarness, body: bytes, name: str | None = "pipeline", **headers: str) -> httpx.Response:
    return await ask(there, name, body, "PUT", **headers)


async def test_before_the_pipeline_ran_there_is_nothing_to_show(there: HubHarness) -> None:
    answer = await ask(there, "chief")
    assert (answer.status_code, answer.json()["error"]) == (404, "the pipeline has not run for this hub yet")


@pytest.mark.slow
async def test_a_stored_report_is_handed_on_as_it_came_and_only_when_it_changed(there: HubHarness) -> None:
    assert (await put(there, report(of_a_newer_program=1))).status_code == 204
    answer = await ask(there, "chief")
    assert answer.content == report(of_a_newer_program=1)
    again = await ask(there, "chief", None, "GET", **{"if-none-match": answer.headers["etag"]})
    assert (again.status_code, again.content) == (304, b"")
    await put(there, report(commit=2))
    newer = await ask(there, "chief", None, "GET", **{"if-none-match": answer.headers["etag"]})
    assert newer.json()["commit"] == 2


async def test_it_survives_a_restart_of_the_hub(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("pipeline", permissions=("log.read", "insights.write"))
        token = there.tokens["pipeline"]
        await put(there, report())
    async with running_hub(folder) as there:
        there.tokens["pipeline"] = token
        assert (await ask(there, "pipeline")).content == report()


async def test_what_is_no_report_is_refused_and_changes_nothing(there: HubHarness) -> None:
    await put(there, report())
    for body in (b"", report()[:-20], b"{}", report(edges=5)):
        answer = await put(there, body)
        assert (answer.status_code, answer.json()["code"]) == (400, "invalid_report")
        assert "this is no report of the pipeline" in answer.json()["error"]
    assert (await ask(there, "chief")).content == report()


async def test_a_report_that_is_too_large_is_refused_before_it_is_read(there: HubHarness) -> None:
    answer = await put(there, report(padding="x" * BYTES_MAX))
    assert answer.status_code == 413
    assert (await ask(there, "chief")).status_code == 404


async def test_a_report_may_come_twice_and_an_older_one_does_not_replace_a_newer_one(there: HubHarness) -> None:
    assert [(await put(there, report())).status_code for _ in range(2)] == [204, 204]
    older = await put(there, report(refreshed_at_ms=NOW_MS - 1))
    assert (older.status_code, older.json()["code"]) == (409, "outdated_report")
    assert "the stored report is newer" in older.json()["error"]
    assert (await ask(there, "chief")).content == report()


async def test_it_is_for_those_who_may_read_the_log(there: HubHarness) -> None:
    names = (None, "alice", "chief", "writer")
    assert [(await ask(there, name)).status_code for name in names] == [401, 403, 404, 403]


async def test_only_a_member_with_both_permissions_stores_it(there: HubHarness) -> None:
    for name, status, lacks in (
        (None, 401, "token"),
        ("alice", 403, "log.read"),
        ("chief", 403, "insights.write"),
        ("writer", 403, "log.read"),
    ):
        answer = await put(there, report(), name)
        assert answer.status_code == status
        assert lacks in answer.json()["error"]
    assert not (there.home / FILE).exists()


async def test_a_page_from_elsewhere_gets_nothing_and_stores_nothing(there: HubHarness) -> None:
    assert (await ask(there, "chief", origin="http://evil.example")).status_code == 401
    assert (await put(there, report(), origin="http://evil.example")).status_code == 401


async def test_other_methods_are_refused(there: HubHarness) -> None:
    answer = await ask(there, "chief", b"{}", "POST")
    assert (answer.status_code, answer.json()["error"]) == (405, "only GET and PUT are answered here")

"""The logs over HTTP: who may read them, what is answered, and what bad requests get."""

import asyncio
import gzip
import json
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.hubs import House, house
from tieline.contract.permission import LOG_READ


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[House]:
    async with house(folder) as built:
        await built.add("reader", permissions=(LOG_READ,))
        await built.add("ada", "bob")
        yield built


async def get(there: House, path: str, token: str | None, **headers: str) -> tuple[int, Any, int]:
    """Status, lines or error, and where the log ends."""
    shown = {**headers, **({"authorization": f"Bearer {token}"} if token else {})}

    def read() -> tuple[int, Any, int]:
        request = urllib.request.Request(f"{there.running.http}{path}", headers=shown)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                lines = gzip.decompress(response.read()).splitlines()
                return response.status, [json.loads(line) for line in lines], int(response.headers["x-tieline-end"])
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), 0

    return await asyncio.to_thread(read)


async def test_rows_come_as_they_were_hashed_without_bodies(there: House) -> None:
    ada = await there.join("ada")
    await ada.send("@bob", "a secret plan", thread="t")
    status, lines, end = await get(there, "/api/log/main?from=0", there.tokens["reader"])
    assert status == 200
    assert [line["offset"] for line in lines] == list(range(end))
    (sent,) = [line for line in lines if "message" in line]
    assert json.loads(sent["event"])["id"] == sent["message"]["id"]
    assert (sent["message"]["thread"], sent["message"]["body_bytes"]) == ("t", 13)
    assert sent["message"]["recipients"] == ["bob"]
    assert "secret" not in json.dumps(lines)


async def test_a_range_is_answered_and_no_more(there: House) -> None:
    _, lines, end = await get(there, "/api/log/main?from=1&to=3", there.tokens["reader"])
    assert [line["offset"] for line in lines] == [1, 2]
    assert await get(there, "/api/log/main?from=0&to=0", there.tokens["reader"]) == (200, [], end)
    assert await get(there, f"/api/log/main?from={end + 5}", there.tokens["reader"]) == (200, [], end)
    assert await get(there, "/api/log/activity", there.tokens["reader"]) == (200, [], 0)


async def test_only_a_token_with_the_permission_reads_the_logs(there: House) -> None:
    status, told, _ = await get(there, "/api/log/main", None)
    assert (status, told["code"]) == (401, "unauthorized")
    status, told, _ = await get(there, "/api/log/main", "tie_wrong")
    assert (status, told["code"]) == (401, "unauthorized")
    status, told, _ = await get(there, "/api/log/main", there.tokens["ada"])
    assert (status, told["code"]) == (403, "forbidden")
    foreign = await get(there, "/api/log/main", there.tokens["reader"], origin="https://elsewhere.example")
    assert foreign[0] == 401


@pytest.mark.parametrize("query", ["from=-1", "from=x", "to=1.5", f"from={2**70}", "from=%00"])
async def test_offsets_that_are_none_are_refused(there: House, query: str) -> None:
    status, told, _ = await get(there, f"/api/log/main?{query}", there.tokens["reader"])
    assert (status, told["code"]) == (400, "invalid_request")


async def test_a_log_that_there_is_not_is_refused(there: House) -> None:
    status, told, _ = await get(there, "/api/log/other", there.tokens["reader"])
    assert (status, told["code"]) == (404, "unknown_log")

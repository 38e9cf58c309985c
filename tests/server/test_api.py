"""Tests of receipts and search over plain HTTP."""

import asyncio
import json
from collections.abc import AsyncIterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import pytest

from tests.server.hubs import ALONE, WAIT_SECONDS, HubHarness, running_hub, take

BEYOND_64_BITS = (2**63, -(2**63) - 1, "1" * 100)


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder / "h", store="memory", **ALONE) as built:
        await built.add("ada", "bob", "eve")
        yield built


async def get(there: HubHarness, path: str, token: str | None, method: str = "GET", **headers: str) -> tuple[int, Any]:
    def ask() -> tuple[int, Any]:
        connection = HTTPConnection(urlsplit(there.running.http).netloc, timeout=WAIT_SECONDS)
        try:
            shown = {"authorization": f"Bearer {token}"} if token else {}
            connection.request(method, path, headers={**shown, **headers})
            response = connection.getresponse()
            assert response.headers["content-type"].startswith("application/json")
            return response.status, json.loads(response.read())
        finally:
            connection.close()

    return await asyncio.to_thread(ask)


async def test_sender_and_recipient_read_the_receipts_of_a_message_and_others_do_not(there: HubHarness) -> None:
    ada, bob = await there.join("ada"), await there.join("bob", receive=True)
    sent = await ada.send("@bob", "hello")
    await take(bob, 1, ack=True)
    await bob.members()
    for name in ("ada", "bob"):
        status, found = await get(there, f"/api/messages/{sent.id}/receipts", there.tokens[name])
        assert (status, found["id"]) == (200, sent.id)
        (receipt,) = found["receipts"]
        assert (receipt["member"], receipt["state"]) == ("bob", "acked")
        assert [step["state"] for step in receipt["steps"]] == ["pending", "offered", "acked"]
        assert receipt["steps"][-1]["protocol"] == "tieline"
        assert receipt["steps"][-1]["evidence"] == "ack"
    status, found = await get(there, f"/api/messages/{sent.id}/receipts", there.tokens["eve"])
    assert (status, found["code"]) == (404, "unknown_message")


async def test_a_member_searches_what_it_may_see(there: HubHarness) -> None:
    ada = await there.join("ada")
    await ada.send("@bob", "the red fox", thread="t")
    await ada.send("@eve", "the red hen")
    query = urlencode({"q": "red", "from": "ada", "in": "t", "since": 0, "until": 2**53, "limit": 5})
    status, found = await get(there, f"/api/search?{query}", there.tokens["bob"])
    assert status == 200
    assert [message["body"] for message in found["messages"]] == ["the red fox"]
    assert found["messages"][0]["from"] == "ada"
    status, found = await get(there, "/api/search?q=red", there.tokens["ada"])
    assert [message["body"] for message in found["messages"]] == ["the red hen", "the red fox"]
    status, found = await get(there, f"/api/search?q=red&before={found['messages'][0]['offset']}", there.tokens["ada"])
    assert [message["body"] for message in found["messages"]] == ["the red fox"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "q=",
        "q=%F0%9F%98%80",
        "q=x&limit=many",
        "q=x&unknown=1",
        "q=%FF",
        f"q={'x' * 1001}",
        "&".join("q=x" for _ in range(99)),
        "q=a%00b",
        "q=%22a%00",
        *(f"q=x&{name}={number}" for name in ("before", "since", "until", "limit") for number in BEYOND_64_BITS),
    ],
)
async def test_a_bad_query_is_refused_in_words(there: HubHarness, query: str) -> None:
    status, found = await get(there, f"/api/search?{query}", there.tokens["ada"])
    assert (status, found["code"]) == (400, "invalid_request")
    assert found["error"]


@pytest.mark.parametrize("name", ["before", "since", "until", "limit"])
async def test_every_number_of_64_bits_is_searched_with(folder: Path, name: str) -> None:
    async with running_hub(folder / "h") as there:
        await there.add("ada")
        for number in (2**63 - 1, -(2**63), 0):
            status, _ = await get(there, f"/api/search?q=x&{name}={number}", there.tokens["ada"])
            assert status == 200


async def test_who_shows_no_token_or_a_wrong_one_learns_nothing(there: HubHarness) -> None:
    for path in ("/api/search?q=x", "/api/messages/m/receipts"):
        for token in (None, "wrong"):
            status, found = await get(there, path, token)
            assert (status, found["code"]) == (401, "unauthorized")


async def test_only_get_is_answered_and_no_page_from_elsewhere(there: HubHarness) -> None:
    token = there.tokens["ada"]
    assert (await get(there, "/api/search?q=x", token, "POST"))[0] == 405
    assert (await get(there, "/api/search?q=x", token, origin="http://elsewhere"))[0] == 403


async def test_an_id_may_be_anything(there: HubHarness) -> None:
    status, found = await get(there, f"/api/messages/{quote('; DROP TABLE')}/receipts", there.tokens["ada"])
    assert (status, found["code"]) == (404, "unknown_message")

"""Tests of the logs over HTTP: permissions, answers, and bad requests."""

import asyncio
import gzip
import http.client
import json
import socket
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.server.hubs import ALONE, HubHarness, running_hub
from tieline.contract.permission import LOG_READ
from tieline.core.store import StoreError
from tieline.server import log_api


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe", **ALONE) as built:
        await built.add("reader", permissions=(LOG_READ,))
        await built.add("ada", "bob")
        yield built


async def get(there: HubHarness, path: str, token: str | None, **headers: str) -> tuple[int, Any, int]:
    """Request a page of a log. Return the status, the lines or the error, and the end of the log."""
    shown = {**headers, **({"authorization": f"Bearer {token}"} if token else {})}

    def read() -> tuple[int, Any, int]:
        request = urllib.request.Request(f"{there.running.http}{path}", headers=shown)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                body = response.read()
                packed = response.headers["content-encoding"] == "gzip"
                lines = (gzip.decompress(body) if packed else body).splitlines()
                return response.status, [json.loads(line) for line in lines], int(response.headers["x-tieline-end"])
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read()), 0

    return await asyncio.to_thread(read)


async def test_rows_come_as_they_were_hashed_without_bodies(there: HubHarness) -> None:
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


async def test_a_range_is_answered_and_no_more(there: HubHarness) -> None:
    _, lines, end = await get(there, "/api/log/main?from=1&to=3", there.tokens["reader"])
    assert [line["offset"] for line in lines] == [1, 2]
    assert await get(there, "/api/log/main?from=0&to=0", there.tokens["reader"]) == (200, [], end)
    assert await get(there, f"/api/log/main?from={end + 5}", there.tokens["reader"]) == (200, [], end)
    assert await get(there, "/api/log/activity", there.tokens["reader"]) == (200, [], 0)


async def test_only_a_token_with_the_permission_reads_the_logs(there: HubHarness) -> None:
    status, told, _ = await get(there, "/api/log/main", None)
    assert (status, told["code"]) == (401, "unauthorized")
    status, told, _ = await get(there, "/api/log/main", "tie_wrong")
    assert (status, told["code"]) == (401, "unauthorized")
    status, told, _ = await get(there, "/api/log/main", there.tokens["ada"])
    assert (status, told["code"]) == (403, "forbidden")
    foreign = await get(there, "/api/log/main", there.tokens["reader"], origin="https://elsewhere.example")
    assert foreign[0] == 401


@pytest.mark.parametrize(
    "query",
    ["from=-1", "from=x", "to=1.5", "to=", f"from={2**70}", f"from={2**62 + 1}", "from=%00", "from=%D9%A3",
     f"to={'9' * 5000}", "&".join(f"f{number}=1" for number in range(40))],
)  # fmt: skip
async def test_offsets_that_are_none_are_refused(there: HubHarness, query: str) -> None:
    status, told, _ = await get(there, f"/api/log/main?{query}", there.tokens["reader"])
    assert (status, told["code"]) == (400, "invalid_request")


async def test_a_log_that_there_is_not_is_refused(there: HubHarness) -> None:
    status, told, _ = await get(there, "/api/log/other", there.tokens["reader"])
    assert (status, told["code"]) == (404, "unknown_log")


async def test_an_answer_is_compressed_only_for_a_reader_that_asks_for_it(there: HubHarness) -> None:
    reader = there.tokens["reader"]
    plain = await get(there, "/api/log/main", reader)
    for accepted in ("gzip", "br, gzip;q=0.5", "*"):
        assert await _encoding(there, {"accept-encoding": accepted}) == "gzip"
        assert await get(there, "/api/log/main", reader, **{"accept-encoding": accepted}) == plain
    for refused in ("identity", "gzip;q=0", "gzip; q=0.0, br"):
        assert await _encoding(there, {"accept-encoding": refused}) is None
    assert await _encoding(there, {}) is None


async def _encoding(there: HubHarness, headers: dict[str, str], method: str = "GET") -> str | None:
    def read() -> str | None:
        connection = http.client.HTTPConnection(there.running.http.partition("://")[2], timeout=10)
        shown = {"authorization": f"Bearer {there.tokens['reader']}", **headers}
        connection.request(method, "/api/log/main", headers=shown)
        response = connection.getresponse()
        assert response.status == 200
        assert int(response.headers["x-tieline-next"]) == int(response.headers["x-tieline-end"]) > 0
        assert bool(response.read()) == (method == "GET")
        connection.close()
        return response.headers["content-encoding"]

    return await asyncio.to_thread(read)


async def test_a_question_for_the_head_reads_no_rows(there: HubHarness, monkeypatch: pytest.MonkeyPatch) -> None:
    pages = _counted(monkeypatch)
    assert await _encoding(there, {}, "HEAD") is None
    assert pages == []


async def test_an_answer_that_breaks_off_can_be_told_from_a_whole_one(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_api, "_PAGE_ROWS", 2)
    _counted(monkeypatch, fail_at=(1, 2))
    with pytest.raises(json.JSONDecodeError):
        await get(there, "/api/log/main", there.tokens["reader"])
    with pytest.raises(EOFError):
        await get(there, "/api/log/main", there.tokens["reader"], **{"accept-encoding": "gzip"})
    assert (await get(there, "/api/log/main", there.tokens["reader"]))[0] == 200


def _counted(monkeypatch: pytest.MonkeyPatch, fail_at: tuple[int, ...] = ()) -> list[int]:
    """Patch the function that reads a page of the log. Return a list that gets the first offset of each page it reads.

    Reads are numbered from 0; those in `fail_at` raise a `StoreError`.
    """
    pages: list[int] = []
    read = log_api._page

    def page(*asked: Any) -> bytes:
        pages.append(asked[2])
        if len(pages) - 1 in fail_at:
            raise StoreError("the disk is gone")
        return read(*asked)

    monkeypatch.setattr(log_api, "_page", page)
    return pages


async def _slow_reader(there: HubHarness) -> socket.socket:
    """Request a log, read the first bytes of the answer, and then no more. Return the open socket."""
    host, _, port = there.running.http.partition("://")[2].partition(":")
    reader = socket.socket()
    reader.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    await asyncio.to_thread(reader.connect, (host, int(port)))
    token = there.tokens["reader"]
    reader.sendall(
        f"GET /api/log/activity HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {token}\r\n\r\n".encode()
    )
    assert (await asyncio.to_thread(reader.recv, 12)) == b"HTTP/1.1 200"
    return reader


@pytest.mark.slow
async def test_a_reader_that_is_slow_or_gone_costs_no_more_than_it_takes(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    ada = await there.join("ada")
    for _ in range(20):
        await ada.record_activity(*({"kind": "llm_exchange", "ts": 5, "text": "x" * 40_000} for _ in range(20)))
    monkeypatch.setattr(log_api, "_PAGE_ROWS", 2)
    pages = _counted(monkeypatch)
    readers = [await _slow_reader(there) for _ in range(6)]
    held = await _settled(pages)
    # Some pages are in the buffers of both sockets.
    assert 6 <= held < 6 * 150
    # More slow readers than threads keep nobody else waiting, nor the writer from moving its log.
    assert (await get(there, "/api/log/main?to=1", there.tokens["reader"]))[0] == 200
    wal = there.home / "activity.db-wal"
    before = wal.read_bytes()[12:16]
    for _ in range(30):
        await ada.record_activity(*({"kind": "llm_exchange", "ts": 6, "text": "y" * 40_000} for _ in range(20)))
    assert wal.read_bytes()[12:16] > before, "the log ahead was moved, and begun anew"
    held = await _settled(pages)
    for reader in readers:
        reader.close()
    assert await _settled(pages) <= held + 2 * len(readers)


async def _settled(pages: list[int]) -> int:
    """Wait until no more pages are read. Return the number of pages."""
    before = -1
    while before != len(pages):
        before = len(pages)
        await asyncio.sleep(0.3)
    return before


async def ask(there: HubHarness, method: str, path: str, token: str | None, form: Any = None) -> tuple[int, Any]:
    """Make a request about readers of a log. Return the status and the decoded answer."""
    shown = {"authorization": f"Bearer {token}"} if token else {}
    body = None if form is None else json.dumps(form).encode()

    def send() -> tuple[int, Any]:
        url = f"{there.running.http}{path}"
        request = urllib.request.Request(url, method=method, headers=shown, data=body)
        try:
            with urllib.request.urlopen(request, timeout=10) as response:
                return response.status, json.loads(response.read() or b"null")
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read() or b"null")

    return await asyncio.to_thread(send)


async def test_a_reader_is_made_moved_listed_and_forgotten(there: HubHarness) -> None:
    token = there.tokens["reader"]
    status, made = await ask(there, "PUT", "/api/log/readers/lake", token, {"position": 1})
    reader, log = made["reader"], made["log"]
    assert (status, reader["name"], reader["log"], reader["position"]) == (200, "lake", "main", 1)
    assert (reader["by"], log["log"], log["kept_from"]) == ("reader", "main", 0)
    status, _ = await ask(there, "PUT", "/api/log/readers/lake", token, {"position": 0, "log": "activity"})
    assert status == 200
    status, told = await ask(there, "GET", "/api/log", token)
    assert status == 200
    assert [one["log"] for one in told["logs"]] == ["main", "activity"]
    assert [(one["log"], one["position"]) for one in told["readers"]] == [("main", 1), ("activity", 0)]
    assert (await ask(there, "DELETE", "/api/log/readers/lake", token))[0] == 204
    status, told = await ask(there, "DELETE", "/api/log/readers/lake", token)
    assert (status, told["code"]) == (404, "unknown_reader")


async def test_a_log_says_its_epoch_and_what_is_kept(there: HubHarness) -> None:
    token = there.tokens["reader"]
    _, told = await ask(there, "GET", "/api/log", token)

    def headers() -> Any:
        request = urllib.request.Request(
            f"{there.running.http}/api/log/main?to=0", headers={"authorization": f"Bearer {token}"}
        )
        with urllib.request.urlopen(request, timeout=10) as response:
            return response.headers

    found = await asyncio.to_thread(headers)
    assert (found["x-tieline-epoch"], found["x-tieline-kept-from"]) == (told["logs"][0]["epoch"], "0")
    wrong = {"position": 1, "epoch": told["logs"][1]["epoch"]}
    status, refused = await ask(there, "PUT", "/api/log/readers/lake", token, wrong)
    assert (status, refused["code"]) == (409, "wrong_epoch")


@pytest.mark.parametrize(
    ("form", "code"),
    [
        ({}, None),
        ({"position": "1"}, None),
        ({"position": 1, "more": 1}, None),
        ({"position": -1}, "invalid_request"),
        ({"position": 10**30}, None),
        ({"position": 10**9}, "invalid_request"),
        ({"position": 1, "log": "x" * 5000}, None),
    ],
)
async def test_a_bad_position_is_refused(there: HubHarness, form: Any, code: str | None) -> None:
    status, told = await ask(there, "PUT", "/api/log/readers/lake", there.tokens["reader"], form)
    assert status in (400, 413)
    assert told.get("code") in (code, "invalid_request", "message_too_large", None)
    assert (await ask(there, "GET", "/api/log", there.tokens["reader"]))[1]["readers"] == []


async def test_readers_are_for_who_may_read_the_log(there: HubHarness) -> None:
    for token, expected in ((None, 401), ("tie_wrong", 401), (there.tokens["ada"], 403)):
        assert (await ask(there, "GET", "/api/log", token))[0] == expected
        assert (await ask(there, "PUT", "/api/log/readers/lake", token, {"position": 0}))[0] == expected
        assert (await ask(there, "DELETE", "/api/log/readers/lake", token))[0] == expected


async def test_metrics_show_the_readers(there: HubHarness) -> None:
    await ask(there, "PUT", "/api/log/readers/lake", there.tokens["reader"], {"position": 1})

    def read() -> str:
        with urllib.request.urlopen(f"{there.running.http}/metrics", timeout=10) as response:
            return str(response.read(), "utf-8")

    lines = (await asyncio.to_thread(read)).splitlines()
    rows = next(int(float(line.split()[-1])) for line in lines if line.startswith('tieline_log_rows{log="main"}'))
    assert f'tieline_reader_unread{{log="main",reader="lake"}} {rows - 1}.0' in lines
    assert 'tieline_reader_missed_total{log="main",reader="lake"} 0.0' in lines
    assert 'tieline_reader_late{log="main",reader="lake"} 0.0' in lines
    assert "tieline_reader_wait_seconds 2.592e+06" in lines

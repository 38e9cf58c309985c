"""Tests of OpenTelemetry over HTTP: JSON and protobuf, plain and compressed, become activity.

The answer has the form of the request.
"""

import asyncio
import gzip
import json
from http.client import HTTPConnection
from urllib.parse import urlsplit

import msgspec
import pytest

from tests.protocols.ac7.teams import Seat, Team
from tests.protocols.ac7.test_activity_routes import activity
from tests.server.hubs import WAIT_SECONDS
from tests.services.test_otlp import CHAT, START_NS, logs, packed_traces, traces
from tieline.protocols.ac7.activity import ActivityList
from tieline.services.otlp import JSON, PROTOBUF


def post(seat: Seat, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, str, bytes]:
    """Make a POST request. Return the status, content type and bytes of the answer."""
    connection = HTTPConnection(urlsplit(seat.url).netloc, timeout=WAIT_SECONDS)
    try:
        connection.request("POST", path, body, {"authorization": f"Bearer {seat.token}", **headers})
        response = connection.getresponse()
        return response.status, response.headers["content-type"], response.read()
    finally:
        connection.close()


async def export(seat: Seat, signal: str, body: bytes, kind: str = JSON, packed: str = "") -> tuple[int, str, bytes]:
    headers = {"content-type": kind, **({"content-encoding": packed} if packed else {})}
    return await asyncio.to_thread(post, seat, f"/otlp/v1/{signal}", body, headers)


async def test_logs_and_traces_become_exchanges_and_are_answered_in_their_own_form(crew: Team) -> None:
    ann = await crew.seat("ann")
    assert await export(ann, "traces", traces(CHAT)) == (200, JSON, b"{}")
    assert await export(ann, "traces", packed_traces(CHAT), PROTOBUF) == (200, PROTOBUF, b"")
    assert await export(ann, "traces", gzip.compress(packed_traces(CHAT)), PROTOBUF, "gzip") == (200, PROTOBUF, b"")
    assert await export(ann, "logs", logs(CHAT)) == (200, JSON, b"{}")
    rows = await activity(ann, "ann", "?kind=llm_exchange")
    assert len(rows) == 4
    assert {row["event"]["entry"]["request"]["model"] for row in rows} == {"claude-x"}
    assert rows[-1]["event"]["ts"] == START_NS // 1_000_000
    reply = await ann.ask("GET", "/members/ann/activity")
    assert len(msgspec.json.decode(reply.text, type=ActivityList).activity) == 4, "strict readers can read it"


async def test_secrets_in_telemetry_are_taken_out(crew: Team) -> None:
    ann = await crew.seat("ann")
    secret = {
        "http.request.method": "GET",
        "url.full": "https://example.test/",
        "http.request.header.authorization": ["Bearer abcdefgh12345678"],
    }
    assert (await export(ann, "traces", traces(secret)))[0] == 200
    (row,) = await activity(ann, "ann")
    assert row["event"]["kind"] == "opaque_http"
    assert "abcdefgh" not in json.dumps(row)


async def test_what_is_no_telemetry_is_refused_in_the_form_of_the_request(crew: Team) -> None:
    ann = await crew.seat("ann")
    status, kind, body = await export(ann, "traces", b"{")
    assert (status, kind.partition(";")[0]) == (400, JSON)
    assert "no request of traces" in json.loads(body)["error"]
    status, kind, body = await export(ann, "traces", b"\xff\xff", PROTOBUF)
    assert (status, kind) == (400, PROTOBUF)
    assert body[:1] == b"\x12"
    assert b"no request of traces" in body
    assert (await export(ann, "logs", b"<xml/>", "text/xml"))[0] == 415
    assert (await export(ann, "logs", b"{}", JSON, "br"))[0] == 415
    assert (await export(Seat(crew.url, "x", "wrong"), "logs", b"{}"))[0] == 401
    assert await activity(ann, "ann") == []


@pytest.mark.slow
async def test_more_records_than_one_upload_holds_are_all_kept(crew: Team) -> None:
    ann = await crew.seat("ann")
    assert (await export(ann, "traces", traces(*[CHAT] * 1200)))[0] == 200
    assert len(await activity(ann, "ann", "?limit=1000")) == 1000
    oldest = await activity(ann, "ann", "?limit=1000")
    assert oldest[0]["id"] == 1199

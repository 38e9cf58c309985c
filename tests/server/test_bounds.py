"""Tests of limits of HTTP: requests that are too large, too slow or invalid get an answer, and no line in the log."""

import asyncio
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub
from tieline.server.bounds import HEAD_BYTES_MAX, HEADERS_MAX, BoundedProtocol


@pytest.fixture
async def there(folder: Path, caplog: pytest.LogCaptureFixture) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe") as built:
        yield built
    assert caplog.records == []


class Line:
    """Test client: a raw connection, so that a test can send any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def dial(cls, there: HubHarness) -> "Line":
        address = urlsplit(there.running.http)
        return cls(*await asyncio.open_connection(address.hostname, address.port))

    async def say(self, data: bytes) -> None:
        self._writer.write(data)
        await self._writer.drain()

    async def answer(self) -> tuple[int, Any]:
        async with asyncio.timeout(WAIT_SECONDS):
            head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
            size = int(head.partition("content-length: ")[2].partition("\r\n")[0])
            assert "content-type: application/json" in head
            return int(head.split()[1]), json.loads(await self._reader.readexactly(size))

    async def status(self) -> int:
        async with asyncio.timeout(WAIT_SECONDS):
            return int((await self._reader.readuntil(b"\r\n")).split()[1])

    async def ended(self) -> bool:
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                return await self._reader.read(1) == b""
            except ConnectionError:
                return True

    def close(self) -> None:
        self._writer.close()


async def test_what_is_no_http_is_400_in_json_and_ends_that_connection_alone(there: HubHarness) -> None:
    other = await Line.dial(there)
    await other.say(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n")
    for bad in (b"\x16\x03\x01\x02\x00", b"hello\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"GET /\xff HTTP/1.1\r\n\r\n"):
        line = await Line.dial(there)
        await line.say(bad)
        assert await line.answer() == (400, {"error": "this is not HTTP"})
        assert await line.ended()
        line.close()
    await other.say(b"\r\n")
    assert (await other.answer())[0] == 200
    other.close()


@pytest.mark.parametrize("start", [b"GET /", b"GET / HTTP/1.1\r\nx: ", b"GET / HTTP/1.1\r\n"])
async def test_headers_without_end_are_431(there: HubHarness, start: bytes) -> None:
    line = await Line.dial(there)
    filler = b"x-y: zzzzzzzz\r\n" if start.endswith(b"\n") else b"z" * 16
    await line.say(start + filler * (HEAD_BYTES_MAX // 8))
    assert (await line.answer())[0] == 431
    assert await line.ended()
    line.close()


async def test_more_headers_than_any_client_sends_are_431(there: HubHarness) -> None:
    line = await Line.dial(there)
    await line.say(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n" + b"a:\r\n" * HEADERS_MAX + b"\r\n")
    assert await line.answer() == (431, {"error": f"the request has more than {HEADERS_MAX} headers"})
    assert await line.ended()
    line.close()


HOSTILE = [
    (path, name, unit)
    for path in (b"/v1/send", b"/api/session", b"/api/search?q=x", b"/api/log/main", b"/subscribe?name=x")
    for name, unit in (
        (b"authorization", b" "),
        (b"authorization", b"bearer "),
        (b"cookie", b";"),
        (b"cookie", b"tieline_session="),
        (b"cookie", b"ac7_session=;"),
        (b"cookie", b" "),
        (b"origin", b"://"),
        (b"content-type", b" "),
        (b"accept-encoding", b","),
        (b"accept-encoding", b" "),
        (b"x-ac7-protocol", b"1"),
        (b"if-none-match", b'"'),
    )
] + [
    (path, b"x-nothing", b"")
    for path in (b"/", b"//", b"/api/messages/", b"/fs/read/", b"/objectives/", b"/api/search?q=", b"/subscribe?name=")
]


@pytest.mark.slow
@pytest.mark.parametrize("upgrade", [False, True], ids=["http", "websocket"])
async def test_what_a_strangers_headers_cost_grows_with_their_length_alone(there: HubHarness, upgrade: bool) -> None:
    """The cost is the processor time of one thread, which runs the hub and the test client."""
    more = b"connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n" if upgrade else b""
    more += b"sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n" if upgrade else b""

    async def seconds(path: bytes, name: bytes, unit: bytes, size: int) -> float:
        line = await Line.dial(there)
        target = path if unit else path + b"%2f&=;a/" * (size // 8)
        value = b"x" + unit * (size // max(len(unit), 1)) + b"x"
        started = time.thread_time()
        await line.say(b"GET %s HTTP/1.1\r\nhost: localhost\r\n%s%s: %s\r\n\r\n" % (target, more, name, value))
        await line.status()
        spent = time.thread_time() - started
        line.close()
        return spent

    for path, name, unit in HOSTILE:
        small = min([await seconds(path, name, unit, 2_000) for _ in range(3)])
        large = min([await seconds(path, name, unit, 32_000) for _ in range(2)])
        assert large < 40 * small, (path, name, unit)


@pytest.mark.parametrize("fill", [b" ", b"bearer ", b"x"])
async def test_a_token_longer_than_any_is_refused_before_it_is_looked_at(there: HubHarness, fill: bytes) -> None:
    line = await Line.dial(there)
    shown = b"x" + fill * (60_000 // len(fill)) + b"x"
    await line.say(b"GET /v1/agents HTTP/1.1\r\nhost: localhost\r\nauthorization: %s\r\n\r\n" % shown)
    assert await line.answer() == (431, {"error": "the Authorization header is larger than 4096 bytes"})
    line.close()


async def test_trailers_without_end_are_cut_off(there: HubHarness) -> None:
    line = await Line.dial(there)
    await line.say(
        b"POST /v1/register HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    )
    answer = asyncio.create_task(line.answer())
    async with asyncio.timeout(WAIT_SECONDS):
        while not answer.done():
            await line.say(b"x-y: zzzzzzzz\r\n" * 1000)
            await asyncio.sleep(0.01)
    assert (await answer)[0] == 431
    assert await line.ended()
    line.close()


async def test_large_headers_within_the_limit_and_large_bodies_are_served(there: HubHarness) -> None:
    line = await Line.dial(there)
    await line.say(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nx-long: " + b"y" * (HEAD_BYTES_MAX // 2) + b"\r\n\r\n")
    assert (await line.answer())[0] == 200
    body = b'{"name":"' + b"x" * 60_000 + b'"}'
    for _ in range(3):
        await line.say(
            b"POST /v1/register HTTP/1.1\r\nhost: localhost\r\ncontent-length: %d\r\n\r\n" % len(body) + body
        )
        assert (await line.answer())[0] == 400, "no name is that long"
    line.close()


@pytest.mark.parametrize("start", [b"", b"G", b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n"])
async def test_headers_that_do_not_come_end_the_connection(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch, start: bytes
) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_seconds_max", 0.1)
    line = await Line.dial(there)
    await line.say(start)
    if start:
        assert (await line.answer())[0] == 408
    assert await line.ended()
    line.close()


async def test_the_second_request_of_a_connection_has_as_much_time_as_the_first(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_seconds_max", 0.3)
    line = await Line.dial(there)
    await line.say(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert (await line.answer())[0] == 200
    await line.say(b"GET /healthz HTTP/1.1\r\n")
    assert (await line.answer())[0] == 408
    assert await line.ended()
    line.close()


async def test_requests_that_come_together_are_answered_in_order(there: HubHarness) -> None:
    line = await Line.dial(there)
    await line.say(
        b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\n\r\nGET /healthz HTTP/1.1\r\nhost: localhost\r\n\r\n" * 5
    )
    for _ in range(5):
        assert (await line.answer())[1]["ok"] is True
        assert (await line.answer())[1]["status"] == "ok"
    line.close()


async def test_the_rest_of_a_request_that_was_answered_early_does_not_hold_the_connection(
    there: HubHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(BoundedProtocol, "head_seconds_max", 0.3)
    line = await Line.dial(there)
    await line.say(b"POST /v1/send HTTP/1.1\r\nhost: localhost\r\ncontent-length: 100000\r\n\r\n")
    assert (await line.answer())[0] == 401, "nobody without a token is listened to"
    ended = asyncio.create_task(line.ended())
    async with asyncio.timeout(WAIT_SECONDS):
        while not ended.done():
            await line.say(b"x")
            await asyncio.sleep(0.05)
    line.close()


async def test_an_offer_of_another_protocol_is_passed_over(there: HubHarness) -> None:
    line = await Line.dial(there)
    await line.say(
        b"GET /v1/health HTTP/1.1\r\nhost: localhost\r\nconnection: upgrade, http2-settings\r\nupgrade: h2c\r\n\r\n"
    )
    assert (await line.answer())[1]["ok"] is True
    line.close()

"""Tests of the loopback: the proxy between an agent's program and the API of its model provider.

Requests and answers pass unchanged and without delay, and each model call becomes an event. Both sides of the proxy are
real sockets on the loopback address. The far side, which stands for the provider, does what a test wants.
"""

import asyncio
import contextlib
import gzip
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any

import pytest

from tieline.agents import loopback
from tieline.agents.loopback import ANTHROPIC, OPENAI, OTLP, Loopback, open_loopback

Events = asyncio.Queue[dict[str, Any]]
Far = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
SECONDS = 10.0


class Site:
    """A running loopback proxy for one test, and the queue of events that the proxy reports."""

    def __init__(self, local: Loopback, events: Events) -> None:
        self.local = local
        self.events = events

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        port = int(self.local.address("x").split(":")[2].partition("/")[0])
        return await asyncio.open_connection("127.0.0.1", port)

    def path(self, name: str, rest: str) -> str:
        return f"/{self.local.address(name).partition('//')[2].partition('/')[2]}{rest}"

    async def event(self) -> dict[str, Any]:
        async with asyncio.timeout(SECONDS):
            return await self.events.get()


@contextlib.asynccontextmanager
async def site(far: Far, base: str = "") -> AsyncIterator[Site]:
    """Start a loopback proxy before a server that calls `far` for each connection.

    `base` is the path in the server's URL.
    """

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                await far(reader, writer)
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}{base}"
    events = Events()
    upstreams = {ANTHROPIC: url, OPENAI: url}
    async with server, asyncio.timeout(SECONDS), open_loopback(events.put_nowait, upstreams) as local:
        yield Site(local, events)


async def head_of(reader: asyncio.StreamReader) -> str:
    return (await reader.readuntil(b"\r\n\r\n")).decode()


async def answer(writer: asyncio.StreamWriter, body: bytes, kind: str = "application/json") -> None:
    writer.write(f"HTTP/1.1 200 OK\r\nContent-Type: {kind}\r\nContent-Length: {len(body)}\r\n\r\n".encode() + body)
    await writer.drain()


def request(path: str, body: bytes = b"", *headers: str, method: str = "POST") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "Host: here", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


ASKED = json.dumps({"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": "hi"}]}).encode()


def stream(*events: dict[str, Any]) -> bytes:
    return b"".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n".encode() for event in events)


FIRST = stream(
    {"type": "message_start", "message": {"id": "msg", "model": "m-1", "usage": {"input_tokens": 5}}},
    {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "hel"}},
)
REST = stream(
    {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "lo"}},
    {
        "type": "content_block_start",
        "index": 1,
        "content_block": {"type": "tool_use", "id": "t", "name": "ls", "input": {}},
    },
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": '{"a":'}},
    {"type": "content_block_delta", "index": 1, "delta": {"type": "input_json_delta", "partial_json": "1}"}},
    {"type": "message_delta", "delta": {"stop_reason": "tool_use"}, "usage": {"output_tokens": 7}},
    {"type": "message_stop"},
)


async def test_a_stream_passes_piece_by_piece_and_is_told_as_one_model_call() -> None:
    told: list[str] = []
    go_on = asyncio.Event()

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        told.append(await head_of(reader))
        assert await reader.readexactly(len(ASKED)) == ASKED
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
        for piece in (FIRST, REST):
            writer.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
            await writer.drain()
            await go_on.wait()
        writer.write(b"0\r\n\r\n")

    async with site(far) as there:
        reader, writer = await there.connect()
        path = there.path(ANTHROPIC, "/v1/messages?beta=true")
        writer.write(request(path, ASKED, "X-Api-Key: secret-of-the-user", "Accept-Encoding: gzip, br"))
        await head_of(reader)
        # The far side waits until the first half has passed; a proxy that gathers would wait for the far side.
        assert FIRST in await reader.readuntil(b'"hel"}}\n\n')
        go_on.set()
        await reader.readuntil(b"0\r\n\r\n")
        event = await there.event()
        writer.close()
    assert told[0].startswith("POST /v1/messages?beta=true HTTP/1.1\r\n")
    assert "X-Api-Key: secret-of-the-user" in told[0]
    assert "Accept-Encoding: identity" in told[0]
    assert "Host: 127.0.0.1:" in told[0]
    assert event["kind"] == "llm_exchange"
    response = event["entry"]["response"]
    assert response["messages"][0]["content"] == [
        {"type": "text", "text": "hello"},
        {"type": "tool_use", "id": "t", "name": "ls", "input": {"a": 1}},
    ]
    assert (response["stopReason"], response["id"], response["status"]) == ("tool_use", "msg", 200)
    assert (response["usage"]["inputTokens"], response["usage"]["outputTokens"]) == (5, 7)


async def test_one_connection_carries_many_requests_also_in_chunks() -> None:
    connections = 0

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        nonlocal connections
        connections += 1
        while True:
            head = await head_of(reader)
            if "chunked" in head.lower():
                await reader.readuntil(b"0\r\n\r\n")
            else:
                await reader.readexactly(2)
            await answer(writer, head.split(" ")[1].encode())

    async with site(far, "/base") as there:
        reader, writer = await there.connect()
        for number in range(3):
            writer.write(request(there.path(OPENAI, f"/n{number}"), b"{}"))
            assert f"/base/n{number}" in (await reader.readuntil(f"/base/n{number}".encode())).decode()
        chunked = f"POST {there.path(OPENAI, '/c')} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(chunked.encode() + b"3\r\nabc\r\n0\r\n\r\n")
        await reader.readuntil(b"/base/c")
        events = [await there.event() for _ in range(4)]
        writer.close()
    assert connections == 1
    assert [event["kind"] for event in events] == ["opaque_http"] * 4
    assert events[3]["entry"]["requestBodyPreview"] == "abc"
    assert events[3]["entry"]["url"].endswith("/base/c")


@pytest.mark.parametrize("path", ["/", "/anthropic/v1/messages", f"/{'x' * 32}/anthropic/v1/messages"])
async def test_who_does_not_know_the_secret_gets_nothing(path: str) -> None:
    async def far(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        pytest.fail("it was passed on")

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(request(path, b"{}"))
        assert (await head_of(reader)).startswith("HTTP/1.1 404")
        writer.close()
        assert there.events.empty()


async def test_a_far_side_that_cannot_be_reached_is_a_502_and_is_told() -> None:
    events = Events()
    async with open_loopback(events.put_nowait, {ANTHROPIC: "http://127.0.0.1:1"}) as local:
        there = Site(local, events)
        reader, writer = await there.connect()
        writer.write(request(there.path(ANTHROPIC, "/v1/messages"), ASKED))
        assert (await head_of(reader)).startswith("HTTP/1.1 502")
        event = await there.event()
        writer.close()
    assert (event["kind"], event["entry"]["response"]) == ("llm_exchange", None)


async def test_a_far_side_that_hangs_up_in_the_middle_is_a_lost_connection_and_what_passed_is_told() -> None:
    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: 100000\r\n\r\n" + FIRST)
        await writer.drain()

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(request(there.path(ANTHROPIC, "/v1/messages"), ASKED))
        passed = await reader.read()
        assert passed.endswith(FIRST)
        event = await there.event()
        writer.close()
    assert event["entry"]["response"]["messages"][0]["content"] == [{"type": "text", "text": "hel"}]


async def test_a_program_that_hangs_up_in_the_middle_hurts_nobody() -> None:
    gone = asyncio.Event()

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        with contextlib.suppress(OSError):
            while True:
                writer.write(b"5\r\nabcde\r\n")
                await writer.drain()
                await asyncio.sleep(0)
        gone.set()

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(request(there.path(ANTHROPIC, "/v1/other"), b"{}"))
        await reader.readuntil(b"abcde")
        writer.transport.abort()
        await gone.wait()
        assert (await there.event())["kind"] == "opaque_http"


async def test_interim_answers_and_bodiless_ones_pass() -> None:
    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        assert await reader.readexactly(2) == b"ok"
        writer.write(b"HTTP/1.1 204 No Content\r\n\r\n")
        await head_of(reader)
        writer.write(b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n")
        await head_of(reader)
        await answer(writer, b"last")

    async with site(far) as there:
        reader, writer = await there.connect()
        path = there.path(ANTHROPIC, "/x")
        writer.write(f"POST {path} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: 2\r\n\r\n".encode())
        assert "100" in await head_of(reader)
        writer.write(b"ok")
        assert "204" in await head_of(reader)
        writer.write(request(path, method="HEAD"))
        assert "Content-Length: 5" in await head_of(reader)
        writer.write(request(path, method="GET"))
        assert (await reader.readuntil(b"last")).endswith(b"last")
        writer.close()


@pytest.mark.parametrize("length", ["Content-Length: 4\r\n", ""])
async def test_a_far_side_that_speaks_an_older_http_is_passed_on(length: str) -> None:
    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        writer.write(f"HTTP/1.0 200 OK\r\n{length}\r\nlast".encode())
        await writer.drain()
        writer.close()

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(request(there.path(ANTHROPIC, "/x"), method="GET"))
        assert (await head_of(reader)).startswith("HTTP/1.1 200 OK\r\n")
        assert b"last" in await reader.readuntil(b"last")
        assert (await there.event())["entry"]["status"] == 200
        writer.close()


async def test_another_protocol_is_carried_both_ways() -> None:
    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await head_of(reader)
        assert "Connection: Upgrade" in head
        writer.write(b"HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n\r\n")
        writer.write((await reader.readexactly(3)).upper())
        await writer.drain()

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(
            request(there.path(OPENAI, "/responses"), b"", "Connection: Upgrade", "Upgrade: websocket", method="GET")
        )
        await head_of(reader)
        writer.write(b"abc")
        assert await reader.readexactly(3) == b"ABC"
        writer.close()
        assert (await there.event())["entry"]["status"] == 101


@pytest.mark.parametrize(
    "said", [b"nonsense\r\n\r\n", b"\x00" * 100_000, b"POST / HTTP/1.1\r\nbad header\r\n\r\n", b"GET /", b""]
)
async def test_what_is_no_http_ends_its_connection_and_nothing_else(said: bytes) -> None:
    async def far(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        pytest.fail("it was passed on")

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(said)
        writer.write_eof()
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()
        reader, writer = await there.connect()
        writer.write(request("/"))
        assert (await head_of(reader)).startswith("HTTP/1.1 404")
        writer.close()


async def test_what_is_too_long_to_be_kept_still_passes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(loopback, "CAPTURED_BYTES_MAX", 1000)
    long = b"x" * 300_000

    async def far(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await head_of(reader)
        assert await reader.readexactly(len(long)) == long
        await answer(writer, long)

    async with site(far) as there:
        reader, writer = await there.connect()
        writer.write(request(there.path(ANTHROPIC, "/v1/messages"), long))
        await head_of(reader)
        assert await reader.readexactly(len(long)) == long
        event = await there.event()
        writer.close()
    assert (event["kind"], event["entry"]["truncated"]) == ("opaque_http", True)


LOGS = {
    "resourceLogs": [
        {
            "scopeLogs": [
                {
                    "logRecords": [
                        {
                            "timeUnixNano": "1700000000000000000",
                            "body": {"stringValue": "claude_code.api_request"},
                            "attributes": [
                                {"key": "model", "value": {"stringValue": "m"}},
                                {"key": "output_tokens", "value": {"stringValue": "4"}},
                            ],
                        }
                    ]
                }
            ]
        }
    ]
}


@pytest.mark.parametrize(
    ("target", "body", "headers", "status", "events"),
    [
        ("/v1/logs", json.dumps(LOGS).encode(), (), 200, 1),
        ("/v1/logs", gzip.compress(json.dumps(LOGS).encode()), ("Content-Encoding: gzip",), 200, 1),
        ("/v1/metrics", b"{}", (), 200, 0),
        ("/v1/logs", b"no JSON", (), 400, 0),
    ],
)
async def test_telemetry_is_taken(target: str, body: bytes, headers: tuple[str, ...], status: int, events: int) -> None:
    heard = Events()
    async with asyncio.timeout(SECONDS), open_loopback(heard.put_nowait, {}) as local:
        there = Site(local, heard)
        reader, writer = await there.connect()
        for _ in range(2):
            writer.write(request(there.path(OTLP, target), body, "Content-Type: application/json", *headers))
            head = await head_of(reader)
            assert head.startswith(f"HTTP/1.1 {status}")
            length = int(head.lower().partition("content-length: ")[2].partition("\r")[0])
            await reader.readexactly(length)
        writer.close()
    assert heard.qsize() == 2 * events
    assert all(heard.get_nowait()["kind"] == "llm_exchange" for _ in range(2 * events))

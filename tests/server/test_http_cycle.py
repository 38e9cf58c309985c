"""Tests of answers on the HTTP port: a whole one leaves in one write, and a wrong one is an error of the server."""

import asyncio
import socket
import struct
from collections.abc import AsyncIterator
from functools import partial
from typing import Any, cast

import pytest
import uvicorn
from starlette.types import Receive, Scope, Send

from tests.server.hubs import WAIT_SECONDS
from tieline.contract.limits import Limits
from tieline.server.bounds import BoundedProtocol
from tieline.wire.http import Bodies, answer, failure, respond
from tieline.wire.unfinished import Unfinished

# Position of `tcpi_data_segs_in` in Linux's `struct tcp_info`.
_DATA_SEGMENTS_IN = 152

PARTS: dict[str, list[dict[str, Any]]] = {
    "/long": [{"headers": [(b"content-length", b"1")], "body": b"ab"}],
    "/short": [{"headers": [(b"content-length", b"3")], "body": b"ab"}],
    "/forged": [{"headers": [(b"content-length", b"2"), (b"x", b"a\r\nset-cookie: b")], "body": b"ab"}],
    "/named": [{"headers": [(b"content-length", b"2"), (b"a b", b"c")], "body": b"ab"}],
    "/parts": [{"headers": [(b"content-length", b"4")], "body": b"ab"}, {"body": b"cd"}],
    "/chunks": [{"headers": [], "body": b"ab"}, {"body": b"cd"}],
}


async def app(scope: Scope, receive: Receive, send: Send) -> None:
    """The application under the server: answers with its parts, or with the length of the request's body."""
    if scope["path"] == "/broken":
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        raise OSError("no disk")
    if scope["path"] not in PARTS:
        body = await Bodies(Unfinished(Limits())).read(scope, receive, 10_000)
        await respond(send, answer(len(body)) if isinstance(body, bytes) else body)
        return
    first, *rest = PARTS[scope["path"]]
    await send({"type": "http.response.start", "status": 200, "headers": first["headers"]})
    await send({"type": "http.response.body", "body": first["body"], "more_body": bool(rest)})
    for index, part in enumerate(rest, 1):
        await send({"type": "http.response.body", "body": part["body"], "more_body": index < len(rest)})


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """The port of the application, served as the hub serves its own."""
    protocol = cast("type[asyncio.Protocol]", partial(BoundedProtocol, Unfinished(Limits())))
    server = uvicorn.Server(uvicorn.Config(app, http=protocol, lifespan="off", log_config=None, server_header=False))
    listener = socket.create_server(("127.0.0.1", 0))
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    async with asyncio.timeout(WAIT_SECONDS):
        while not server.started:  # noqa: ASYNC110 - nothing tells when uvicorn has started
            await asyncio.sleep(0.001)
    yield listener.getsockname()[1]
    server.should_exit = True
    await serving


async def ask(port: int, *pieces: bytes) -> tuple[bytes, int]:
    """Send a request in pieces, each after the server has read those before. Return the answer and its segments."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    async with asyncio.timeout(WAIT_SECONDS):
        for index, piece in enumerate(pieces):
            if index:
                # Another connection is answered only after what came before on this one.
                await ask(port, b"GET /chunks HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")
            writer.write(piece)
        said = await reader.read()
    info = writer.get_extra_info("socket").getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 192)
    writer.close()
    return said, struct.unpack_from("I", info, _DATA_SEGMENTS_IN)[0]


def request(path: str, body: bytes = b"", *, method: str = "GET", version: str = "1.1") -> bytes:
    head = f"{method} {path} HTTP/{version}\r\nhost: a\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    return head.encode() + body


async def test_head_and_body_of_an_answer_are_one_segment(port: int) -> None:
    said, segments = await ask(port, request("/", b"12345"))
    assert said.endswith(b"connection: close\r\n\r\n5")
    assert segments == 1


async def test_an_answer_to_head_and_to_an_old_client_have_the_same_head(port: int) -> None:
    said, segments = await ask(port, request("/", method="HEAD"))
    assert (said.partition(b"\r\n\r\n")[2], b"content-length: 1\r\n" in said, segments) == (b"", True, 1)
    said, _ = await ask(port, b"GET / HTTP/1.0\r\n\r\n")
    assert said.endswith(b"\r\nconnection: close\r\n\r\n0")


@pytest.mark.parametrize(("path", "expected"), [("/parts", b"abcd"), ("/chunks", b"2\r\nab\r\n2\r\ncd\r\n0\r\n\r\n")])
async def test_an_answer_in_parts_is_whole(port: int, path: str, expected: bytes) -> None:
    said, _ = await ask(port, request(path))
    assert said.startswith(b"HTTP/1.1 200 OK\r\n")
    assert said.partition(b"\r\n\r\n")[2] == expected


@pytest.mark.parametrize("path", ["/long", "/short", "/forged", "/named", "/broken"])
async def test_a_wrong_answer_is_not_sent_but_500(port: int, path: str, caplog: pytest.LogCaptureFixture) -> None:
    said, _ = await ask(port, request(path))
    assert said.startswith(b"HTTP/1.1 500 ")
    assert b"set-cookie" not in said
    assert [record.message.strip() for record in caplog.records] == ["Exception in ASGI application"]


@pytest.mark.parametrize("cut", [0, 1, 2_000, 4_000, 5_000])
async def test_a_body_is_read_whole_however_it_comes(port: int, cut: int) -> None:
    whole = request("/", b"x" * 4_000)
    head, _, body = whole.partition(b"\r\n\r\n")
    pieces = [piece for piece in (head + b"\r\n\r\n" + body[:cut], body[cut:]) if piece]
    said, _ = await ask(port, *pieces)
    assert said.endswith(b"\r\n\r\n4000")
    said, _ = await ask(port, request("/", b"x" * 10_001))
    assert said.endswith(failure(413, "the body is larger than 10000 bytes").body)

"""Test client for the hub's HTTP port, with every request and answer in the transcript."""

import asyncio
import json
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from msgspec import Struct

from tests.golden.stage import Stage
from tests.server.hubs import WAIT_SECONDS

_UNTOLD = frozenset({"date", "server", "content-length", "connection", "transfer-encoding"})
"""Headers that are left out of the transcript: the HTTP server adds them, or they depend on the chunks of an answer."""

Headers = list[tuple[str, str]]
Show = Callable[[bytes], list[str]]


class Answer(Struct, frozen=True):
    """Answer to an HTTP request, unchanged."""

    status: int
    headers: Headers
    body: bytes

    @property
    def value(self) -> Any:
        """Return the body decoded as JSON."""
        return json.loads(self.body)

    def header(self, name: str) -> str:
        """Return the value of a header. The header must exist."""
        return next(value for key, value in self.headers if key == name)


class Web:
    """Test client that makes HTTP requests, with a token, a cookie or neither."""

    def __init__(self, stage: Stage, name: str, token: str = "", *, show: Show | None = None, **headers: str) -> None:
        self.stage = stage
        self.name = name
        # Function that selects the part of a body for the transcript.
        self._show = show or _shown
        shown = {"authorization": f"Bearer {token}"} if token else {}
        self.headers = {**shown, **{key.replace("_", "-"): value for key, value in headers.items()}}

    async def ask(self, method: str, path: str, body: Any = None, /, **headers: str) -> Answer:
        """Make a request and return its answer. A body of bytes is sent unchanged, any other value as JSON."""
        reader, _ = await self._request(method, path, body, {"connection": "close", **headers})
        async with asyncio.timeout(WAIT_SECONDS):
            status, answered = await _head(reader)
            data = await reader.read()
        if ("transfer-encoding", "chunked") in answered:
            data = _whole(data)
        self.stage.recorder.heard(self.name, *_shown_head(status, answered), *self._show(data))
        return Answer(status, answered, data)

    async def stream(self, path: str, /, **headers: str) -> "Events":
        """Open a stream of server-sent events. The request must succeed."""
        reader, writer = await self._request("GET", path, None, headers)
        async with asyncio.timeout(WAIT_SECONDS):
            status, answered = await _head(reader)
        assert status == 200, status
        self.stage.recorder.heard(self.name, *_shown_head(status, answered))
        return Events(self, reader, writer)

    async def _request(
        self, method: str, path: str, body: Any, more: dict[str, str]
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        address = urlsplit(self.stage.url)
        headers = dict(self.headers)
        data = body if isinstance(body, bytes) else b""
        if body is not None and not isinstance(body, bytes):
            data = json.dumps(body, separators=(",", ":"), ensure_ascii=False).encode()
            headers["content-type"] = "application/json"
        headers |= {name.replace("_", "-"): value for name, value in more.items()}
        await self.stage.turn()
        shown = _shown_headers(list(headers.items()))
        self.stage.recorder.said(self.name, f"{method} {path}", *shown, *_shown(data))
        headers = {"host": address.netloc, **headers}
        headers |= {"content-length": str(len(data))} if body is not None else {}
        reader, writer = await asyncio.open_connection(address.hostname, address.port, limit=2**26)
        self.stage.closing.callback(writer.close)
        head = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in headers.items())]
        writer.write("\r\n".join([*head, "", ""]).encode() + data)
        return reader, writer


class Events:
    """Test client: an open stream of server-sent events."""

    def __init__(self, web: Web, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._web = web
        self._reader = reader
        self._writer = writer
        self._text = b""

    async def hear(self) -> Any:
        """Wait for the next event. Return its data decoded as JSON, or `None` if it has no data."""
        async with asyncio.timeout(WAIT_SECONDS):
            while b"\n\n" not in self._text:
                self._text += await self._chunk()
        block, _, self._text = self._text.partition(b"\n\n")
        self._web.stage.recorder.heard(self._web.name, block)
        data = [line[6:] for line in block.split(b"\n") if line.startswith(b"data: ")]
        return json.loads(b"\n".join(data)) if data else None

    async def leave(self) -> None:
        """Close the connection, and wait until the hub is idle. No event may be left unread."""
        await self._web.stage.turn()
        assert not self._text, self._text
        self._web.stage.recorder.said(self._web.name, "(hangs up)")
        self._writer.close()
        await self._writer.wait_closed()
        await self._web.stage.settle()

    async def _chunk(self) -> bytes:
        size = int(await self._reader.readuntil(b"\r\n"), 16)
        return (await self._reader.readexactly(size + 2))[:-2]


async def _head(reader: asyncio.StreamReader) -> tuple[int, Headers]:
    lines = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1").split("\r\n")
    pairs = [line.split(": ", 1) for line in lines[1:] if line]
    return int(lines[0].split()[1]), [(name.lower(), value) for name, value in pairs]


def _whole(chunked: bytes) -> bytes:
    """Return the body of a chunked answer, without the chunk sizes."""
    whole = b""
    while chunked:
        size, _, rest = chunked.partition(b"\r\n")
        whole += rest[: int(size, 16)]
        chunked = rest[int(size, 16) + 2 :]
    return whole


def _shown_head(status: int, headers: Headers) -> list[str]:
    return [str(status), *_shown_headers(headers)]


def _shown_headers(headers: Headers) -> list[str]:
    # Methods that a path allows have no order.
    sorted_ = {name: ", ".join(sorted(value.split(", "))) for name, value in headers if name == "allow"}
    return [f"{name}: {sorted_.get(name, value)}" for name, value in headers if name not in _UNTOLD]


def _shown(data: bytes) -> list[str]:
    """Return a body as a line for the transcript, in hexadecimal if it is not text.

    Return no line for an empty body.
    """
    if not data:
        return []
    try:
        return [data.decode()]
    except UnicodeDecodeError:
        return [f"bytes {data.hex(' ')}"]

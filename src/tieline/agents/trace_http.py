"""HTTP/1.1 as it passes the trace proxy: heads that are read and written again, bodies that go through as they come.

Above: `trace.py`. Below: streams of bytes. A server's own parser would gather a body before it hands it on; here every
piece is handed on when it arrives, because programs show what a model says while it says it.
"""

import asyncio
from collections.abc import AsyncIterator
from enum import Enum
from typing import Final

from msgspec import Struct

HEAD_BYTES_MAX = 65_536
"""A request line or status line with its headers, tokens and all."""

_PIECE_BYTES = 65_536
_BODILESS = frozenset({204, 304})
_CHUNK_LINE_MAX = 1024
_CONTINUE, _SWITCHING, _OK = 100, 101, 200


class Broken(Exception):
    """What came is no HTTP, or ended in the middle."""


class Framing(Enum):
    """How a body's end is known, when it is not by its length."""

    CHUNKED = "chunked"
    UNTIL_CLOSE = "until close"


BodySize = int | Framing
NO_BODY: Final = 0


class Head(Struct, frozen=True):
    """The first line and the headers of a message."""

    first: tuple[str, str, str]
    """Method, target and version; or version, status and reason."""
    headers: tuple[tuple[str, str], ...]

    def get(self, name: str) -> str:
        """The value of a header, or nothing; all of its values when it is there more than once."""
        return ", ".join(value for key, value in self.headers if key.lower() == name)

    @property
    def status(self) -> int:
        """The status of a response."""
        try:
            return int(self.first[1])
        except ValueError:
            raise Broken(f"no status: {self.first[1]!r}") from None

    @property
    def closes(self) -> bool:
        """Whether nothing follows on this connection."""
        old = "HTTP/1.0" in self.first
        return "close" in self.get("connection").lower() or (old and "keep-alive" not in self.get("connection").lower())

    def encode(self) -> bytes:
        """The head as it is on the wire."""
        lines = [" ".join(self.first).rstrip(), *(f"{name}: {value}" for name, value in self.headers)]
        return "\r\n".join([*lines, "", ""]).encode("latin-1")


async def read_head(reader: asyncio.StreamReader) -> Head | None:
    """The next head; `None` when the other side has nothing more to say."""
    try:
        data = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if error.partial.strip():
            raise Broken("a head is cut short") from None
        return None
    except asyncio.LimitOverrunError:
        raise Broken(f"a head is longer than {HEAD_BYTES_MAX} bytes") from None
    first, *lines = data.decode("latin-1").lstrip("\r\n").split("\r\n")
    parts = first.split(" ", 2)
    headers = []
    for line in lines:
        name, colon, value = line.partition(":")
        if line and (not colon or name != name.strip()):
            raise Broken("a header has no name")
        if line:
            headers.append((name, value.strip()))
    if len(parts) < 2:  # noqa: PLR2004 - a reason may be missing
        raise Broken("a first line is no HTTP")
    return Head((parts[0], parts[1], parts[2] if parts[2:] else ""), tuple(headers))


def request_size(head: Head) -> BodySize:
    """How long the body of a request is."""
    return _size(head, without=NO_BODY)


def response_size(head: Head, method: str) -> BodySize:
    """How long the body of a response is."""
    status = head.status
    if method == "HEAD" or status < _OK or status in _BODILESS:
        return NO_BODY
    return _size(head, without=Framing.UNTIL_CLOSE)


def is_interim(head: Head) -> bool:
    """Whether the response itself is still to come."""
    return _CONTINUE <= head.status < _OK and head.status != _SWITCHING


def switches(head: Head) -> bool:
    """Whether another protocol follows."""
    return head.status == _SWITCHING


def _size(head: Head, *, without: BodySize) -> BodySize:
    if "chunked" in head.get("transfer-encoding").lower():
        return Framing.CHUNKED
    length = head.get("content-length")
    if not length:
        return without
    if not (length.isascii() and length.isdigit()):
        raise Broken("a length is no number")
    return int(length)


async def pieces(reader: asyncio.StreamReader, size: BodySize) -> AsyncIterator[tuple[bytes, bytes]]:
    """A body as it arrives: what is on the wire, and what of it is content."""
    match size:
        case Framing.CHUNKED:
            async for piece in _chunks(reader):
                yield piece
        case Framing.UNTIL_CLOSE:
            while data := await reader.read(_PIECE_BYTES):
                yield data, data
        case int():
            async for data in _exactly(reader, size):
                yield data, data


async def _exactly(reader: asyncio.StreamReader, size: int) -> AsyncIterator[bytes]:
    while size:
        data = await reader.read(min(size, _PIECE_BYTES))
        if not data:
            raise Broken("a body is cut short")
        size -= len(data)
        yield data


async def _chunks(reader: asyncio.StreamReader) -> AsyncIterator[tuple[bytes, bytes]]:
    while True:
        line = await _line(reader)
        try:
            size = int(line.partition(b";")[0], 16)
        except ValueError:
            raise Broken("a chunk has no size") from None
        yield line, b""
        if size == 0:
            break
        async for data in _exactly(reader, size):
            yield data, data
        yield await _line(reader), b""
    while (line := await _line(reader)) != b"\r\n":
        yield line, b""
    yield line, b""


async def _line(reader: asyncio.StreamReader) -> bytes:
    try:
        line = await reader.readuntil(b"\r\n")
    except (asyncio.IncompleteReadError, asyncio.LimitOverrunError):
        raise Broken("a chunk is cut short") from None
    if len(line) > _CHUNK_LINE_MAX:
        raise Broken("a chunk's first line is too long")
    return line

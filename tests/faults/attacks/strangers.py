"""Attacks by clients without a token: they open connections, send bytes to every listener, and never finish."""

import asyncio
import contextlib
import json
import struct
from collections import Counter
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator
from itertools import count
from pathlib import Path

from tests.faults.attacks.campaign import WatchedHub
from tests.faults.processes import SOAK

MEBIBYTE = 1024 * 1024
_CHUNK = b"x" * (256 * 1024)
_ANSWER_SECONDS = 60
_SILENCE_SECONDS = 1.0
_FATE = (ConnectionError, BrokenPipeError, asyncio.IncompleteReadError, TimeoutError, OSError)
"""Errors that the hub may cause at a client without a token at any time."""
FATES: Counter[str] = Counter()
"""Counts of the results: status codes of answers, and connections that ended without an answer."""

OPEN_ROUTES = ("/v1/register", "/session/totp", "/enroll", "/enroll/poll")
"""Routes that are answered without a token. The hub reads the bodies of their requests."""
CLOSED_ROUTES = ("/push", "/otlp/v1/logs", "/members/ann/activity", "/fs/write?path=/ann/x", "/v1/send")
WEBSOCKETS = ("/", "/peerbus", "/api/stream", "/subscribe?name=ann")

Reader = asyncio.StreamReader
Writer = asyncio.StreamWriter


@contextlib.asynccontextmanager
async def dialled(hub: WatchedHub) -> AsyncIterator[tuple[Reader, Writer]]:
    """Yield a connection to the hub's HTTP port. Abort it at the end."""
    reader, writer = await asyncio.open_connection(*hub.address)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def dialled_socket(path: Path) -> AsyncIterator[tuple[Reader, Writer]]:
    """Yield a connection to a Unix socket file. Abort it at the end."""
    reader, writer = await asyncio.open_unix_connection(path)
    try:
        yield reader, writer
    finally:
        writer.transport.abort()


def head(hub: WatchedHub, method: str, path: str, *headers: tuple[str, str]) -> bytes:
    """Return the request line and headers of a request, without the empty line that ends them."""
    host, port = hub.address
    lines = [f"{method} {path} HTTP/1.1", f"host: {host}:{port}", *(f"{name}: {value}" for name, value in headers)]
    return "\r\n".join(lines).encode("latin-1") + b"\r\n"


def upgrade(hub: WatchedHub, path: str) -> bytes:
    """Return a request to open a WebSocket."""
    wanted = (("connection", "upgrade"), ("upgrade", "websocket"), ("sec-websocket-version", "13"))
    return head(hub, "GET", path, *wanted, ("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")) + b"\r\n"


def ws_frame(payload: bytes = b"", *, announced: int | None = None, opcode: int = 1, final: bool = True) -> bytes:
    """Return a client's WebSocket frame with a mask of zeros.

    `announced` is the length in its header, if not the real one.
    """
    size = len(payload) if announced is None else announced
    return struct.pack("!BBQI", (0x80 if final else 0) | opcode, 0x80 | 127, size, 0) + payload


async def pour(writer: Writer, size: int) -> None:
    """Write about `size` bytes as fast as the hub reads them."""
    for _ in range(size // len(_CHUNK)):
        writer.write(_CHUNK)
        await writer.drain()


async def all_at_once(*attempts: Awaitable[None]) -> None:
    """Run all attacks at once and wait for their ends. Count broken connections, and raise other errors."""
    for outcome in await asyncio.gather(*attempts, return_exceptions=True):
        if isinstance(outcome, BaseException):
            if not isinstance(outcome, _FATE):
                raise outcome
            FATES["silent" if isinstance(outcome, TimeoutError) else "hung up"] += 1


# Bytes.

_CONNECTIONS = 40 if SOAK else 6
"""Number of connections that send frames, for each listener."""
_BODIES = 10 if SOAK else 4
"""Number of requests with a body, for each route."""
_HEADS = 500 if SOAK else 30
_POURED = (30 if SOAK else 10) * MEBIBYTE
_HELD_SECONDS = 3.0 if SOAK else 0.2


async def send_bytes(hub: WatchedHub) -> None:
    """Send unfinished requests and frames to every listener at once. Some connections stay open, some are dropped."""
    tasks = [_half_head(hub) for _ in range(_HEADS)]
    for path in (*OPEN_ROUTES, *CLOSED_ROUTES):
        tasks += [_half_body(hub, path) for _ in range(_BODIES)]
    for path in WEBSOCKETS:
        tasks += [_half_frame(hub, path, pieces=number % 2 == 0) for number in range(_CONNECTIONS)]
    await all_at_once(*tasks)


async def _half_head(hub: WatchedHub) -> None:
    async with dialled(hub) as (_, writer):
        writer.write(head(hub, "GET", "/", *((f"x-{number}", "y" * 500) for number in range(100))))
        await writer.drain()
        await asyncio.sleep(_HELD_SECONDS)  # the attack is to hold on to it


async def _half_body(hub: WatchedHub, path: str) -> None:
    async with dialled(hub) as (_, writer):
        writer.write(head(hub, "POST", path, ("content-length", str(_POURED + 1))) + b"\r\n")
        await pour(writer, _POURED)
        await asyncio.sleep(_HELD_SECONDS)  # the attack is to hold on to it


async def _half_frame(hub: WatchedHub, path: str, *, pieces: bool) -> None:
    async with dialled(hub) as (reader, writer):
        writer.write(upgrade(hub, path))
        await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _ANSWER_SECONDS)
        if not pieces:
            writer.write(ws_frame(announced=_POURED + 1))
            await pour(writer, _POURED)
        else:
            for number in range(_POURED // MEBIBYTE):
                writer.write(ws_frame(announced=MEBIBYTE, opcode=0 if number else 1, final=False))
                await pour(writer, MEBIBYTE)
        await asyncio.sleep(_HELD_SECONDS)  # the attack is to hold on to it


async def send_local_bytes(hub: WatchedHub) -> None:
    """Send frames that never end to the Unix socket files, which only the hub's own user can open."""
    running = hub.running
    assert running.places["relay_socket"] is not None
    assert running.places["channels_dir"] is not None
    assert running.places["peerbus_socket"] is not None
    doors = [
        (Path(running.hub_socket), struct.pack("!I", 32 * MEBIBYTE)),
        (Path(running.places["relay_socket"]), struct.pack("!I", MEBIBYTE)),
        (Path(running.places["channels_dir"], "general.sock"), struct.pack("!I", 16 * MEBIBYTE)),
        (Path(running.places["peerbus_socket"]), b'{"'),
    ]
    await all_at_once(*(_half_local(path, begin) for path, begin in doors for _ in range(_CONNECTIONS)))


async def _half_local(path: Path, begin: bytes) -> None:
    async with dialled_socket(path) as (_, writer):
        writer.write(begin)
        await pour(writer, _POURED)
        await asyncio.sleep(_HELD_SECONDS)  # the attack is to hold on to it


# Processor time.

_WIDTHS = (4000, 60_000)
"""Lengths of hostile headers and paths: a length that the hub's limits accept, and the most that one request can
have."""
_SIZES = (3_000, 60_000, 900_000)
"""Sizes of hostile documents in bytes, from accepted to too large."""
_CPU_ROUNDS = 20 if SOAK else 1


def _hostile_headers(wide: int) -> Iterator[tuple[str, str]]:
    for value in (
        *(f"x{' ' * wide}x", f"Bearer {' ' * wide}x", f"Bearer {'a' * wide}", "bearer\t" * (wide // 7)),
        *("Basic " + "=" * wide, "Bearer " + "a." * (wide // 2)),
    ):
        yield "authorization", value
    for value in ("a=b; " * (wide // 5), "=" * wide, ";" * wide, '"\\' * (wide // 2), "ac7_session=" + "a" * wide):
        yield "cookie", value
    for value in ("http://" + "[" * wide, "http://" + "a." * (wide // 2), ":" * wide):
        yield "origin", value
    yield "accept-encoding", "gzip;q=0," * (wide // 9)
    yield "accept-encoding", "gzip;q=" + "0." * (wide // 2)
    yield "content-type", "multipart/form-data; " + "boundary=a; " * (wide // 12)
    yield "if-none-match", '"a", ' * (wide // 5)
    yield "range", "bytes=" + "0-," * (wide // 3)
    yield "last-event-id", "9" * wide
    yield "content-length", "9" * 5000
    yield "transfer-encoding", "chunked, " * (wide // 9)
    yield "sec-websocket-protocol", "a," * (wide // 2)
    yield "x-forwarded-for", "1.1.1.1," * (wide // 8)
    yield "x-backchannel-room", "-" * wide


def _hostile_paths(wide: int) -> Iterator[str]:
    yield "/" + "%2f" * (wide // 3)
    yield "/api/messages/" + "a/" * (wide // 2) + "receipts"
    yield "/api/log/" + "%2e" * (wide // 3)
    yield "/fs/read/" + "../" * (wide // 3)
    yield "/objectives/" + "%00" * (wide // 3)
    yield "/history?" + "a=b&" * (wide // 4)
    yield "/api/search?q=" + "%41" * (wide // 3)
    yield "/api/search?q=" + "%22a%22+" * (wide // 8)
    yield "/login#" + "a" * wide
    yield "/assets/" + "..%2f" * (wide // 5)


def hostile_documents(size: int) -> Iterator[bytes]:
    """Yield JSON documents of about `size` bytes that are expensive for a careless parser."""
    yield b"[" * size
    yield b'{"name":' * (size // 8)
    yield b'{"name":"' + b"\\u00e9" * (size // 6) + b'"}'
    yield b'{"name":"' + b"\\ud800" * (size // 6) + b'"}'
    yield b'{"name":' + b"1" * size + b"}"
    yield b'{"name":1e' + b"9" * size + b"}"
    yield b'{"name":"a"' + b',"name":"a"' * (size // 11) + b"}"
    yield b"{" + b",".join(b'"%d":0' % number for number in range(size // 10)) + b"}"
    yield b"[" + b"{}," * (size // 3) + b"{}]"
    yield b'{"name":"' + b"a" * size + b'"}'
    yield b" " * size + b"{}"


async def spend_time(hub: WatchedHub) -> None:
    """Send headers, paths and documents that are slow to parse, to every listener that parses them."""
    for _ in range(_CPU_ROUNDS):
        for wide in _WIDTHS:
            for pair in _hostile_headers(wide):
                for path in ("/api/search?q=x", "/history", "/v1/agents"):
                    await all_at_once(_ask(hub, head(hub, "GET", path, pair) + b"\r\n"))
            for path in _hostile_paths(wide):
                await all_at_once(_ask(hub, head(hub, "GET", path) + b"\r\n"))
        for size in _SIZES:
            documents = list(hostile_documents(size))
            for document in documents:
                await all_at_once(*(_offer(hub, path, document) for path in (*OPEN_ROUTES, *CLOSED_ROUTES)))
            for path in WEBSOCKETS:
                await all_at_once(*(_say(hub, path, document) for document in documents))


async def _offer(hub: WatchedHub, path: str, document: bytes) -> None:
    sized = ("content-length", str(len(document)))
    await _ask(hub, head(hub, "POST", path, sized, ("content-type", "application/json")) + b"\r\n" + document)


async def _ask(hub: WatchedHub, request: bytes) -> None:
    async with dialled(hub) as (reader, writer):
        writer.write(request)
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n"), _ANSWER_SECONDS)
        FATES[answer.split()[1].decode()] += 1


async def _say(hub: WatchedHub, path: str, document: bytes) -> None:
    async with dialled(hub) as (reader, writer):
        writer.write(upgrade(hub, path))
        answer = await asyncio.wait_for(reader.readuntil(b"\r\n\r\n"), _ANSWER_SECONDS)
        FATES[answer.split()[1].decode()] += 1
        if b" 101 " in answer.split(b"\r\n")[0]:
            writer.write(ws_frame(document))
            await writer.drain()
            # Until it is answered or hung up on; a hub may also wait for more.
            await asyncio.wait_for(reader.read(1), _SILENCE_SECONDS)


# Rows.

ATTEMPTS = 2000 if SOAK else 40
"""Number of attempts at each listener."""
_LANES = 8


Attempt = Callable[[WatchedHub, str], Coroutine[None, None, None]]
INVENTIONS: tuple[Attempt, ...] = (
    lambda hub, name: _post(hub, "/v1/register", {"name": name}, "wrong"),
    lambda hub, name: _post(hub, "/v1/register", {"name": name}, name),
    lambda hub, name: _post(hub, "/session/totp", {"member": name, "code": "000000"}),
    lambda hub, name: _post(hub, "/enroll", {"labelHint": name}),
    lambda hub, name: _post(hub, "/enroll/poll", {"deviceCode": name}),
    lambda hub, name: _post(hub, "/push", {"body": "x", "to": name}, name),
    lambda hub, name: _greet(hub, "/peerbus", {"type": "register", "token": name, "name": name}),
    lambda hub, name: _greet(hub, "/api/stream", [{"t": "hello", "token": name, "member": name}]),
    lambda hub, name: _greet(hub, f"/subscribe?name={name}", {}),
)


async def invent_names(hub: WatchedHub) -> None:
    """Register, log in and send hello with unknown names, over every protocol."""
    numbers = count()
    lanes = asyncio.Semaphore(_LANES)

    async def attempt(door: Attempt) -> None:
        async with lanes:
            await all_at_once(door(hub, f"stranger-{next(numbers)}"))

    await asyncio.gather(*(attempt(door) for _ in range(ATTEMPTS) for door in INVENTIONS))


async def _post(hub: WatchedHub, path: str, document: object, token: str = "") -> None:
    body = json.dumps(document).encode()
    shown = [("authorization", f"Bearer {token}")] if token else []
    sized = ("content-length", str(len(body)))
    await _ask(hub, head(hub, "POST", path, *shown, sized, ("content-type", "application/json")) + b"\r\n" + body)


async def _greet(hub: WatchedHub, path: str, document: object) -> None:
    greeting = {"protocol_version": 1, **document} if isinstance(document, dict) else document
    await _say(hub, path, json.dumps(greeting).encode())


def stored_bytes(home: Path) -> int:
    """Return the total size of the files in a home, without databases, in bytes."""
    found = [path for path in home.rglob("*") if path.is_file() and not path.name.endswith((".db", "-wal", "-shm"))]
    return sum(path.stat().st_size for path in found)

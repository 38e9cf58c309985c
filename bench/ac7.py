"""ac7 over HTTP: a push until it is on a stream, and pushes per second, beside a bare POST echo on the same server."""

import asyncio
import json
import sys
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager, contextmanager
from functools import partial
from statistics import median
from urllib.parse import urlsplit

import uvloop
from websockets.asyncio.client import connect as connect_websocket

from bench import processes
from bench.ac7_server import ECHO_PATH
from bench.context import Context
from bench.plan import BODY
from bench.processes import Server
from bench.report import Report, Table, spread
from tieline.client import connect
from tieline.wire.home import read_running

STORES = ("sqlite", "sqlite:unsafe")
SINGLES = 200
WARM_UP = 20
LANES = 32
LANE_PUSHES = 100
PUSH_PATH = "/push"
SSE, WEBSOCKET = "SSE", "WebSocket"
_PUSH = json.dumps({"to": "bob", "body": BODY}).encode()


@contextmanager
def _hub(context: Context, store: str) -> Iterator[Server]:
    with processes.temporary_home(context.folder) as home:
        command = [sys.executable, "-m", "bench.ac7_server", "--home", str(home), "--store", store]
        with processes.started(command, home / "bench.log", lambda: read_running(home) is not None):
            running = read_running(home)
            assert running is not None, "the hub said so a moment ago"
            yield Server(running.pid, home, running.http)


class _Line:
    """One connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer, self._token = reader, writer, token

    async def post(self, path: str) -> None:
        """Send a message's bytes and wait for the answer."""
        head = f"POST {path} HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self._token}\r\n"
        self._writer.write(f"{head}content-length: {len(_PUSH)}\r\n\r\n".encode() + _PUSH)
        read = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in read.split("\r\n")[0], read
        await self._reader.readexactly(int(read.split("content-length: ")[1].split("\r\n")[0]))

    def close(self) -> None:
        """Hang up."""
        self._writer.close()


class _Client:
    """Two members of one hub, with its address and their tokens."""

    def __init__(self, server: Server, alice: str, bob: str, stack: AsyncExitStack) -> None:
        self._address = urlsplit(server.http).netloc
        self._alice, self._bob = alice, bob
        self._stack = stack

    async def line(self) -> _Line:
        """A connection of the sender."""
        host, _, port = self._address.rpartition(":")
        made = _Line(*await asyncio.open_connection(host, int(port)), self._alice)
        self._stack.callback(made.close)
        return made

    @asynccontextmanager
    async def stream(self, kind: str) -> AsyncIterator[Callable[[], Awaitable[object]]]:
        """The recipient's stream; yields a function that waits for the next message."""
        if kind == SSE:
            host, _, port = self._address.rpartition(":")
            reader, writer = await asyncio.open_connection(host, int(port))
            head = f"GET /subscribe?name=bob HTTP/1.1\r\nhost: localhost\r\nauthorization: Bearer {self._bob}\r\n\r\n"
            writer.write(head.encode())
            await reader.readuntil(b"\r\n\r\n")
            try:
                yield lambda: reader.readuntil(b"}\n\n")
            finally:
                writer.close()
        else:
            url = f"ws://{self._address}/subscribe?name=bob"
            shown = {"authorization": f"Bearer {self._bob}"}
            async with connect_websocket(url, additional_headers=shown, proxy=None) as socket:
                yield socket.recv


async def _open(server: Server, stack: AsyncExitStack) -> _Client:
    async with await connect(home=server.home) as operator:
        alice, bob = [(await operator.add_member(name)).token for name in ("alice", "bob")]
    return _Client(server, alice, bob, stack)


async def _p50(count: int, work: Callable[[], Awaitable[object]]) -> float:
    """Median time of one call, in microseconds; the calls run one at a time."""
    taken = []
    for _ in range(WARM_UP + count):
        started = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - started)
    return 1e6 * median(taken[WARM_UP:])


async def _rate(client: _Client, count: int, path: str) -> float:
    """Requests per second over many connections."""
    lines = [await client.line() for _ in range(LANES)]

    async def lane(line: _Line) -> None:
        for _ in range(count):
            await line.post(path)

    started = time.perf_counter()
    await asyncio.gather(*(lane(line) for line in lines))
    taken = time.perf_counter() - started
    for line in lines:
        line.close()
    return LANES * count / taken


async def _measure(context: Context, server: Server, store: str, report: Report) -> None:
    singles, pushes = context.scaled(SINGLES), context.scaled(LANE_PUSHES)
    async with AsyncExitStack() as stack:
        client = await _open(server, stack)
        for kind in (SSE, WEBSOCKET):
            line = await client.line()
            async with client.stream(kind) as next_message:
                # The first message on the stream says that a session is online.
                await next_message()
                report.add(f"{store} {kind} us", await _p50(singles, partial(_reach, line, next_message)))
        line = await client.line()
        report.add(f"{store} push us", await _p50(singles, lambda: line.post(PUSH_PATH)))
        report.add(f"{store} echo us", await _p50(singles, lambda: line.post(ECHO_PATH)))
        report.add(f"{store} pushes", await _rate(client, pushes, PUSH_PATH))
        report.add(f"{store} echoes", await _rate(client, pushes, ECHO_PATH))


async def _reach(line: _Line, next_message: Callable[[], Awaitable[object]]) -> None:
    await asyncio.gather(line.post(PUSH_PATH), next_message())


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("ac7")
    for _ in context.rounds():
        with ExitStack() as stack:
            servers = {store: stack.enter_context(_hub(context, store)) for store in STORES}
            names = list(servers)
            context.chance.shuffle(names)
            for store in names:
                uvloop.run(_measure(context, servers[store], store, report))
    table = Table("ac7: a push of 200 bytes over HTTP", ["store", "what", "figure", "÷ echo"])
    for store in STORES:
        for what, series, reference in (
            ("push to SSE, p50 µs", f"{store} {SSE} us", f"{store} echo us"),
            ("push to WebSocket, p50 µs", f"{store} {WEBSOCKET} us", f"{store} echo us"),
            ("push answered, p50 µs", f"{store} push us", f"{store} echo us"),
            ("echo answered, p50 µs", f"{store} echo us", f"{store} echo us"),
            ("pushes a second", f"{store} pushes", f"{store} echoes"),
            ("echoes a second", f"{store} echoes", f"{store} echoes"),
        ):
            ratios = spread(report.ratios(series, reference), "{:.2f}")
            table.rows.append([store, what, report.spread(series), ratios])
    report.tables.append(table)
    report.notes.append(
        f"Echo is POST {ECHO_PATH} on the hub's own port with the same bytes and nothing behind it. One at a time, "
        f"until the recipient's stream has the message; by the second, {LANES} connections at once, no stream open."
    )
    return report

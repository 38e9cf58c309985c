"""backchannel's relay over HTTP, against one request through the same server that asks the hub nothing."""

import asyncio
import json
import time
from collections.abc import Iterator
from statistics import median
from typing import Any
from urllib.parse import urlsplit

import uvloop

from bench import processes
from bench.context import Context
from bench.machine import read_cpu
from bench.plan import BODY
from bench.processes import Server
from bench.report import Report, Table, spread
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

STORES = ("sqlite", "sqlite:unsafe")
CONNECTIONS = 32
"""Open connections, as many as a team of agents might have. Each waits for its answer before it asks again."""
REQUESTS = 8_000
LIGHT = 200
PAUSE_SECONDS_MAX = 0.01
ANSWER_SECONDS_MAX = 30.0


class Caller(asyncio.Protocol):
    """One connection that stays open. It writes and reads bytes by hand, so that the client costs nearly nothing."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for requests."""
        # No `isinstance` check: uvloop's transports do not inherit from asyncio's classes.
        self._transport = transport  # type: ignore[assignment]

    def data_received(self, data: bytes) -> None:
        """Set the answer once it is complete."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        size = int(head.partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= size and self._answer is not None:
            assert head.startswith(b"HTTP/1.1 200"), self._data[:500]
            self._data = body[size:]
            self._answer.set_result(body[:size])

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the open request, so that nobody waits forever."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the hub hung up"))

    async def ask(self, request: bytes) -> bytes:
        """Send a request and wait for its answer."""
        assert self._transport is not None, "connected before"
        self._answer = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return await self._answer

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()


class Relay:
    """A hub's relay and two agents on it."""

    def __init__(self, server: Server) -> None:
        self.server = server
        address = urlsplit(server.http)
        assert address.hostname is not None
        assert address.port is not None
        self._host, self._port, self._netloc = address.hostname, address.port, address.netloc
        self.callers: list[Caller] = []
        self.tokens: dict[str, str] = {}

    async def open(self, connections: int) -> None:
        """Connect, and register the agents."""
        loop = asyncio.get_running_loop()
        for _ in range(connections):
            _, caller = await loop.create_connection(Caller, self._host, self._port)
            self.callers.append(caller)
        room = load_config(self.server.home).of(BackchannelSettings).room_token
        for name in ("alice", "bob"):
            registered = await self.callers[0].ask(self.request("POST", "/v1/register", room, {"name": name}))
            self.tokens[name] = json.loads(registered)["token"]

    def close(self) -> None:
        """Hang up."""
        for caller in self.callers:
            caller.close()

    def request(self, method: str, path: str, token: str, body: dict[str, Any] | None = None) -> bytes:
        """The bytes of a request."""
        data = json.dumps(body).encode() if body is not None else b""
        head = f"{method} {path} HTTP/1.1\r\nhost: {self._netloc}\r\nauthorization: Bearer {token}\r\n"
        return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data

    @property
    def echo(self) -> bytes:
        """A request that the HTTP server answers without asking the hub."""
        return self.request("GET", "/v1/health", self.tokens["alice"])

    @property
    def send(self) -> bytes:
        """A message to bob."""
        return self.request("POST", "/v1/send", self.tokens["alice"], {"to": "@bob", "body": BODY})

    def take(self, message_id: str) -> bytes:
        """Bob's claim of a message."""
        return self.request("POST", "/v1/take", self.tokens["bob"], {"id": message_id})

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """The stream of bob's messages, after its headers; it stays open while reader and writer are kept."""
        reader, writer = await asyncio.open_connection(self._host, self._port, limit=2**20)
        writer.write(self.request("GET", "/v1/events/bob", self.tokens["bob"]))
        await reader.readuntil(b"\r\n\r\n")
        return reader, writer


async def _run(relay: Relay, requests: list[bytes]) -> tuple[float, float, list[bytes]]:
    """Send all requests over all connections.

    Returns the requests per second, the hub's processor seconds per request, and the answers.
    """
    waiting = iter(requests)
    answers: list[bytes] = []

    async def work(caller: Caller, turns: Iterator[bytes]) -> None:
        for request in turns:
            answer = await caller.ask(request)
            answers.append(answer)

    before, started = read_cpu(relay.server.pid), time.perf_counter()
    await asyncio.gather(*(work(caller, waiting) for caller in relay.callers))
    seconds = time.perf_counter() - started
    cpu = read_cpu(relay.server.pid).since(before).total
    return len(requests) / seconds, cpu / len(requests), answers


async def _rates(context: Context, server: Server, store: str, report: Report) -> None:
    count = context.scaled(REQUESTS)
    relay = Relay(server)
    await relay.open(CONNECTIONS)
    await _run(relay, [relay.echo] * CONNECTIONS * 4)
    rate, cpu, _ = await _run(relay, [relay.echo] * count)
    report.add(f"{store} echo per s", rate)
    report.add(f"{store} echo cpu us", 1e6 * cpu)
    send_rate, cpu, sent = await _run(relay, [relay.send] * count)
    report.add(f"{store} send per s", send_rate)
    report.add(f"{store} send cpu us", 1e6 * cpu)
    take_rate, cpu, taken = await _run(relay, [relay.take(json.loads(message)["id"]) for message in sent])
    assert all(json.loads(answer)["message"] for answer in taken), "each was there to be taken"
    report.add(f"{store} take per s", take_rate)
    report.add(f"{store} take cpu us", 1e6 * cpu)
    report.add(f"{store} both per s", 1 / (1 / send_rate + 1 / take_rate))
    relay.close()


async def _latencies(context: Context, server: Server, store: str, report: Report) -> None:
    relay = Relay(server)
    await relay.open(1)
    (caller,) = relay.callers
    stream, writer = await relay.stream()
    echoes: list[float] = []
    accepted: list[float] = []
    delivered: list[float] = []

    async def arrival(started: float) -> None:
        await stream.readuntil(b"\n\n\r\n")
        delivered.append(time.perf_counter() - started)

    for _ in range(context.scaled(LIGHT)):
        started = time.perf_counter()
        await caller.ask(relay.echo)
        echoes.append(time.perf_counter() - started)
        await asyncio.sleep(context.chance.random() * PAUSE_SECONDS_MAX)
        started = time.perf_counter()
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            arriving = asyncio.create_task(arrival(started))
            await caller.ask(relay.send)
            accepted.append(time.perf_counter() - started)
            await arriving
        await asyncio.sleep(context.chance.random() * PAUSE_SECONDS_MAX)
    report.add(f"{store} echo us", 1e6 * median(echoes))
    report.add(f"{store} accepted us", 1e6 * median(accepted))
    report.add(f"{store} event us", 1e6 * median(delivered))
    writer.close()
    relay.close()


def measure(context: Context) -> Report:
    """See the module."""
    report = Report("backchannel")
    for _ in context.rounds():
        for store in context.chance.sample(STORES, len(STORES)):
            with processes.hub(context.folder, store) as server:
                uvloop.run(_rates(context, server, store, report))
            with processes.hub(context.folder, store) as server:
                uvloop.run(_latencies(context, server, store, report))
    rates = Table(
        f"backchannel relay, {CONNECTIONS} connections, one request at a time on each",
        ["what", "requests/s", "÷ echo", "hub CPU µs each"],
    )
    light = Table("backchannel relay, one message at a time, p50", ["what", "µs", "÷ echo"])
    for store in STORES:
        for what in ("echo", "send", "take", "both"):
            series = f"{store} {what} per s"
            ratio = spread(report.ratios(series, f"{store} echo per s"), "{:.2f}")
            name = {"echo": "GET /v1/health (echo)", "both": "send and take"}.get(what, what)
            rates.rows.append(
                [f"{store}: {name}", report.spread(series), ratio, report.spread(f"{store} {what} cpu us")]
            )
        for what, name in (("echo", "echo"), ("accepted", "send → accepted"), ("event", "send → event in the stream")):
            series = f"{store} {what} us"
            ratio = spread(report.ratios(series, f"{store} echo us"), "{:.2f}")
            light.rows.append([f"{store}: {name}", report.spread(series), ratio])
    report.tables += [rates, light]
    return report

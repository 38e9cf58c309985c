"""ac7 and backchannel: requests over HTTP connections that stay open, and the recipient's server-sent events.

All of it is bytes written and read by hand, so that the client costs nearly nothing. `plan.port` is
`take` for the claims of backchannel, anything else for sends, each with its event on the recipient's stream.
"""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlsplit

from msgspec import Struct

from bench.plan import BODY, Plan
from bench.traffic import Meter, Times, Traffic
from tieline.client import connect
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config

ROOM_TOKEN = "room"
"""The room token of the stand-in for backchannel."""
TAKE = "take"
_EVENT_END = b"}\n\n"


class Caller(asyncio.Protocol):
    """A connection for one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self._answer: asyncio.Future[bytes] | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport for requests."""
        self._transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        """Set the answer once it is complete."""
        self._data += data
        head, found, body = self._data.partition(b"\r\n\r\n")
        if not found:
            return
        size = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
        if len(body) >= size and self._answer is not None:
            assert head.startswith(b"HTTP/1.1 200"), self._data[:500]
            self._data = body[size:]
            self._answer.set_result(body[:size])

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail the open request, so that nobody waits forever."""
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(ConnectionError("the server hung up"))

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


class Events(asyncio.Protocol):
    """A stream of server-sent events: counts the events whose data is an object."""

    def __init__(self, request: bytes, counted: Callable[[int], None]) -> None:
        self._request = request
        self._counted = counted
        self._tail = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Ask for the stream."""
        cast(asyncio.Transport, transport).write(self._request)

    def data_received(self, data: bytes) -> None:
        """Count the ends of events, also of one that comes in two parts."""
        data = self._tail + data
        if not self.opened.done():
            head, found, data = data.partition(b"\r\n\r\n")
            if not found:
                self._tail = head
                return
            assert head.startswith(b"HTTP/1.1 200"), head[:500]
            self.opened.set_result(None)
        count = data.count(_EVENT_END)
        self._tail = data[1 - len(_EVENT_END) :]
        if count:
            self._counted(count)


class Wire(Struct, frozen=True):
    """Requests of two members: bytes that only need to be sent."""

    send: bytes
    events: bytes
    greeting: int
    """Messages that the server itself puts on a new stream."""
    bob: str
    """Token of the recipient."""
    host: str

    def take(self, message_id: str) -> bytes:
        """Bob's claim of a message."""
        return _request("POST", "/v1/take", self.host, self.bob, {"id": message_id})


def _request(method: str, path: str, host: str, token: str, body: dict[str, Any] | None = None) -> bytes:
    data = b"" if body is None else json.dumps(body).encode()
    head = f"{method} {path} HTTP/1.1\r\nhost: {host}\r\nauthorization: Bearer {token}\r\n"
    return f"{head}content-length: {len(data)}\r\n\r\n".encode() + data


class HttpTraffic(Traffic):
    """Senders on connections of their own, and one recipient with a stream."""

    def __init__(self, plan: Plan, wire: Wire, callers: list[Caller], meter: Meter) -> None:
        self._wire = wire
        self._callers = callers
        self._meter = meter
        self._takes = plan.port == TAKE
        self._waiting: list[bytes] = []

    async def prepare(self, messages: int) -> None:
        """Send what will be taken."""
        if self._takes:
            answers = await self._ask_all([self._wire.send] * messages)
            self._waiting = [self._wire.take(json.loads(answer)["id"]) for answer in answers]

    async def _ask_all(self, requests: list[bytes]) -> list[bytes]:
        """Send all requests over all connections; each waits for its answer before it asks again."""
        turns = iter(requests)
        answers: list[bytes] = []

        async def work(caller: Caller, turns: Iterator[bytes]) -> None:
            for request in turns:
                answer = await caller.ask(request)
                answers.append(answer)

        await asyncio.gather(*(work(caller, turns) for caller in self._callers))
        return answers

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        if self._takes:
            requests, self._waiting = self._waiting[:messages], self._waiting[messages:]
            taken = await self._ask_all(requests)
            assert all(json.loads(answer)["message"] for answer in taken), "each was there to be taken"
            return
        self._meter.expect(messages)
        await asyncio.gather(self._ask_all([self._wire.send] * messages), self._meter.wait())

    async def one(self) -> Times:
        """See `Traffic`."""
        self._meter.expect(1)
        started = time.perf_counter()

        async def receive() -> float:
            await self._meter.wait()
            return time.perf_counter() - started

        arriving = asyncio.create_task(receive())
        await self._callers[0].ask(self._wire.send)
        return Times(time.perf_counter() - started, await arriving)


async def _ac7(plan: Plan, host: str) -> Wire:
    alice, bob = f"{plan.name}-alice", f"{plan.name}-bob"
    tokens = {name: f"token-{name}" for name in (alice, bob)}
    if plan.is_hub:
        async with await connect(home=Path(plan.home)) as operator:
            tokens = {name: (await operator.add_member(name)).token for name in tokens}
    send = _request("POST", "/push", host, tokens[alice], {"to": bob, "body": BODY})
    events = _request("GET", f"/subscribe?name={bob}", host, tokens[bob])
    return Wire(send, events, greeting=1, bob=tokens[bob], host=host)


async def _backchannel(plan: Plan, host: str, caller: Caller) -> Wire:
    alice, bob = f"{plan.name}-alice", f"{plan.name}-bob"
    room = load_config(Path(plan.home)).of(BackchannelSettings).room_token if plan.is_hub else ROOM_TOKEN
    tokens = {}
    for name in (alice, bob):
        registered = await caller.ask(_request("POST", "/v1/register", host, room, {"name": name}))
        tokens[name] = json.loads(registered)["token"]
    send = _request("POST", "/v1/send", host, tokens[alice], {"to": f"@{bob}", "body": BODY})
    events = _request("GET", f"/v1/events/{bob}", host, tokens[bob])
    return Wire(send, events, greeting=0, bob=tokens[bob], host=host)


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Make the members, connect the senders, and open the recipient's stream."""
    host = urlsplit(plan.http).netloc if plan.is_hub else plan.address
    name, _, port = host.rpartition(":")
    loop = asyncio.get_running_loop()
    callers = []
    for _ in range(plan.senders):
        _, caller = await loop.create_connection(Caller, name, int(port))
        stack.callback(caller.close)
        callers.append(caller)
    wire = await _ac7(plan, host) if plan.client == "ac7" else await _backchannel(plan, host, callers[0])
    meter = Meter()
    if plan.port != TAKE:
        meter.expect(wire.greeting)
        transport, events = await loop.create_connection(lambda: Events(wire.events, meter.count), name, int(port))
        stack.callback(transport.close)
        await events.opened
        if wire.greeting:
            await meter.wait()
    return HttpTraffic(plan, wire, callers, meter)

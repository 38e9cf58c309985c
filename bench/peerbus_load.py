"""A load of signed messages over a WebSocket: `python -m bench.peerbus_load PLAN`.

Every message is signed when it is sent and verified when it arrives. On a hub there are two peers, and each delivery is
acknowledged; with an echo server, the sender is also the recipient. The client writes its frames by hand, so that its
own cost does not hide the server's cost.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from statistics import median

import msgspec
import uvloop
from msgspec import Struct
from websockets.speedups import apply_mask

from bench.machine import Cpu, read_cpu
from bench.plan import BODY
from tieline.protocols.peerbus import codec

SECRET = b"k" * 32
TOKEN = "a token of the benchmark"
WINDOW = 256
ANSWER_SECONDS_MAX = 120.0
_MASK = b"\x37\xfa\x21\x3d"
_SETTLE_SECONDS = 0.2


class Plan(Struct, frozen=True):
    """A load on one server."""

    address: str
    server_pid: int
    echo: bool
    messages: int
    singles: int
    """Messages that are sent one at a time, for the round trip."""
    pause_seconds: float = 0.0


class Result(Struct, frozen=True):
    """Time and processor use of a load."""

    seconds: float
    messages: int
    server: Cpu
    round_trip_seconds: float


class Wire(asyncio.Protocol):
    """A WebSocket client that builds its frames by hand."""

    def __init__(self, received: Callable[[bytes], None]) -> None:
        self._received = received
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are none of asyncio's classes
        request = (
            "GET / HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
            "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
        )
        transport.write(request.encode())  # type: ignore[attr-defined]

    def send(self, *payloads: bytes) -> None:
        """Send text messages."""
        parts = []
        for payload in payloads:
            size = len(payload)
            head = bytes((0x81, 0x80 | size)) if size < 126 else b"\x81\xfe" + size.to_bytes(2, "big")
            parts += [head, _MASK, apply_mask(payload, _MASK)]
        assert self._transport is not None, "connected before"
        self._transport.write(b"".join(parts))

    def data_received(self, data: bytes) -> None:
        data = self._data + data
        if not self.opened.done():
            _, found, data = data.partition(b"\r\n\r\n")
            if found:
                self.opened.set_result(None)
        at = 0
        while len(data) - at >= 2:
            size, start = data[at + 1], at + 2
            if size == 126:
                size, start = int.from_bytes(data[start : start + 2], "big"), start + 2
            if start + size > len(data):
                break
            self._received(data[start : start + size])
            at = start + size
        self._data = data[at:]


class Load:
    """Sends within a window and counts the messages that come back."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._number = 0
        self._received = 0
        self._wanted = 0
        self._done = asyncio.Event()
        self._answered: asyncio.Event = asyncio.Event()
        self._sender: Wire | None = None
        self._recipient: Wire | None = None

    async def connect(self) -> None:
        """Connect; on a hub, also register the peers."""
        host, _, port = self._plan.address.rpartition(":")
        loop = asyncio.get_running_loop()

        async def dial(name: str) -> Wire:
            _, wire = await loop.create_connection(lambda: Wire(self._on_text), host, int(port))
            await wire.opened
            if not self._plan.echo:
                wire.send(codec.encode_register(name, TOKEN))
                await self._answer()
            return wire

        self._recipient = await dial("bob")
        self._sender = self._recipient if self._plan.echo else await dial("alice")

    async def _answer(self) -> None:
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await self._answered.wait()
        self._answered.clear()

    async def pass_on(self, count: int) -> None:
        """Send messages as fast as the window allows, until all have arrived."""
        self._wanted = self._received + count
        self._done.clear()
        self._fill()
        async with asyncio.timeout(ANSWER_SECONDS_MAX):
            await self._done.wait()

    async def settle(self) -> None:
        """Wait until the hub has taken every acknowledgement."""
        if not self._plan.echo:
            assert self._recipient is not None, "connected before"
            self._recipient.send(codec.encode_peers())
            await self._answer()

    def _fill(self) -> None:
        frames = []
        limit = min(self._wanted, self._received + WINDOW)
        while self._number < limit:
            self._number += 1
            ident = f"{self._number:032x}"
            fields = (codec.VERSION, ident, "alice", "bob", "2026-11-15T12:00:00Z", "peer-bus", codec.MESSAGE)
            frames.append(codec.encode_envelope(fields, b'{"text":"' + BODY.encode() + b'"}', SECRET))
        if frames:
            assert self._sender is not None, "connected before"
            self._sender.send(*frames)

    def _on_text(self, payload: bytes) -> None:
        if self._plan.echo:
            envelope = codec.decode_envelope(payload)
        else:
            push = codec.decode_push(payload)
            if not isinstance(push, codec.Deliver):
                self._answered.set()
                return
            envelope = push.envelope
            assert self._recipient is not None, "registered before"
            self._recipient.send(codec.encode_ack(push.key))
        assert envelope.verify(SECRET), "nothing is changed on the way"
        self._received += 1
        if self._received == self._wanted:
            self._done.set()
        elif self._number - self._received <= WINDOW // 2:
            self._fill()


async def run(plan: Plan) -> Result:
    """Put the load on the server."""
    load = Load(plan)
    await load.connect()
    await load.pass_on(max(1, plan.messages // 10))
    times = []
    for _ in range(plan.singles):
        started = time.perf_counter()
        await load.pass_on(1)
        times.append(time.perf_counter() - started)
        await asyncio.sleep(plan.pause_seconds)
    await load.settle()
    await asyncio.sleep(_SETTLE_SECONDS)
    before = read_cpu(plan.server_pid)
    started = time.perf_counter()
    await load.pass_on(plan.messages)
    await load.settle()
    seconds = time.perf_counter() - started
    await asyncio.sleep(_SETTLE_SECONDS)
    return Result(seconds, plan.messages, read_cpu(plan.server_pid).since(before), median(times))


if __name__ == "__main__":
    result = uvloop.run(run(msgspec.json.decode(sys.argv[1], type=Plan)))
    sys.stdout.buffer.write(msgspec.json.encode(result))

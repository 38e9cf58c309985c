"""peerbus: two peers on a WebSocket. Every message is signed when it is sent, and verified and acknowledged on arrival.

The client writes its frames by hand, so that its own cost does not hide the server's cost. `plan.port` is `own` for the
hub's port for peers only, and `http` for its HTTP port. A single message is answered by the other peer.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from urllib.parse import urlsplit

from websockets.speedups import apply_mask

from bench.plan import BODY, Plan
from bench.traffic import Meter, Times, Traffic
from tieline.protocols.peerbus import codec
from tieline.wire.home import read_running

SECRET = b"k" * 32
TOKEN = "a token of the benchmark"
OWN, HTTP = "own", "http"
_BODY = b'{"text":"' + BODY.encode() + b'"}'
_MASK = b"\x37\xfa\x21\x3d"


class Wire(asyncio.Protocol):
    """A WebSocket client that builds its frames by hand."""

    def __init__(self, path: str, received: Callable[[bytes], None]) -> None:
        self._path = path
        self._received = received
        self._transport: asyncio.Transport | None = None
        self._data = b""
        self.opened: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # uvloop's transports are none of asyncio's classes
        request = (
            f"GET {self._path} HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
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

    def close(self) -> None:
        """Hang up."""
        if self._transport is not None:
            self._transport.close()

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


class Peer:
    """A registered peer."""

    def __init__(self, name: str, arrived: Callable[[], None]) -> None:
        self.name = name
        self._arrived = arrived
        self._answered = asyncio.Event()
        self._wire: Wire | None = None
        self._number = 0

    async def register(self, host: str, path: str) -> Callable[[], None]:
        """Connect and register; returns the function that hangs up."""
        address, _, port = host.rpartition(":")
        _, wire = await asyncio.get_running_loop().create_connection(
            lambda: Wire(path, self._on_text), address, int(port)
        )
        self._wire = wire
        await wire.opened
        wire.send(codec.encode_register(self.name, TOKEN))
        await self._answered.wait()
        return wire.close

    def send(self, to: str, count: int) -> None:
        """Send signed messages."""
        frames = []
        for _ in range(count):
            self._number += 1
            ident = f"{self.name}-{self._number:022x}"
            fields = (codec.VERSION, ident, self.name, to, "2026-11-15T12:00:00Z", "peer-bus", codec.MESSAGE)
            frames.append(codec.encode_envelope(fields, _BODY, SECRET))
        assert self._wire is not None, "connected before"
        self._wire.send(*frames)

    async def settle(self) -> None:
        """Wait until the server has read everything that this peer sent."""
        assert self._wire is not None, "connected before"
        self._answered.clear()
        self._wire.send(codec.encode_peers())
        await self._answered.wait()

    def _on_text(self, payload: bytes) -> None:
        push = codec.decode_push(payload)
        if not isinstance(push, codec.Deliver):
            self._answered.set()
            return
        assert push.envelope.verify(SECRET), "nothing is changed on the way"
        assert self._wire is not None, "registered before"
        self._wire.send(codec.encode_ack(push.key))
        self._arrived()


class PeerTraffic(Traffic):
    """Alice sends within a window; bob counts, or answers a single message."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self._meter = Meter()
        self._unsent = self._open = 0
        self._echoes = False
        self._alice = Peer(f"{plan.name}-a", self._meter.count)
        self._bob = Peer(f"{plan.name}-b", self._at_bob)

    async def open(self, stack: AsyncExitStack) -> None:
        """Register both peers."""
        host, path = self._plan.address, "/"
        if self._plan.is_hub:
            running = read_running(Path(self._plan.home))
            assert running is not None, "the hub runs"
            own = running.places["peerbus"]
            assert own is not None, "it was configured"
            host = own.removeprefix("ws://")
            if self._plan.port == HTTP:
                host, path = urlsplit(running.http).netloc, "/peerbus"
        for peer in (self._bob, self._alice):
            stack.callback(await peer.register(host, path))

    def _at_bob(self) -> None:
        if self._echoes:
            self._bob.send(self._alice.name, 1)
            return
        self._open -= 1
        self._meter.count()
        if self._unsent and self._open <= self._plan.window // 2:
            self._fill()

    def _fill(self) -> None:
        count = min(self._unsent, self._plan.window - self._open)
        self._unsent -= count
        self._open += count
        self._alice.send(self._bob.name, count)

    async def run(self, messages: int) -> None:
        """See `Traffic`."""
        self._echoes = False
        self._unsent = messages
        self._meter.expect(messages)
        self._fill()
        await self._meter.wait()
        await self._bob.settle()

    async def one(self) -> Times:
        """Send one message and wait for the other peer's answer."""
        self._echoes = True
        self._meter.expect(1)
        started = time.perf_counter()
        self._alice.send(self._bob.name, 1)
        await self._meter.wait()
        return Times(0.0, time.perf_counter() - started)


async def open_traffic(plan: Plan, stack: AsyncExitStack) -> Traffic:
    """Connect and register both peers."""
    traffic = PeerTraffic(plan)
    await traffic.open(stack)
    return traffic

"""ac7: push to stream, and pushes per second, as ratios to a bare POST echo on the same server.

Run it with `python -m bench.ac7`. Hub, echo and clients share one process and one loop, so only the ratios say much.
"""

import asyncio
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path

import uvloop
from starlette.types import Receive, Scope, Send
from websockets.asyncio.client import connect as connect_websocket

from tieline.client import connect
from tieline.protocols.ac7.server import Ac7
from tieline.server.http import HttpListener
from tieline.server.hub import Options, RunningHub
from tieline.wire.http import Answer, Bodies, respond

ROUNDS = 300
LANES = 32
LANE_ROUNDS = 60


class _Echo:
    """Answers with what it was sent."""

    def __init__(self) -> None:
        self._bodies = Bodies(65536)

    def serves(self, scope: Scope) -> bool:
        return bool(scope["path"] == "/echo")

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = await self._bodies.read(scope, receive, 65536)
        await respond(send, body if isinstance(body, Answer) else Answer(200, body))

    def close(self) -> None:
        pass


class _Line:
    """One connection that is kept."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, token: str) -> None:
        self._reader, self._writer, self._token = reader, writer, token

    async def post(self, path: str) -> None:
        body = json.dumps({"to": "bob", "body": "hello"}).encode()
        head = f"POST {path} HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {self._token}\r\n"
        self._writer.write(f"{head}content-length: {len(body)}\r\n\r\n".encode() + body)
        read = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        assert " 200 " in read.split("\r\n")[0], read
        await self._reader.readexactly(int(read.split("content-length: ")[1].split("\r\n")[0]))

    def close(self) -> None:
        self._writer.close()


async def _median(work: Callable[[], Awaitable[object]]) -> float:
    taken = []
    for _ in range(ROUNDS):
        started = time.perf_counter()
        await work()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


async def _rate(lines: list[_Line], path: str) -> float:
    async def lane(line: _Line) -> None:
        for _ in range(LANE_ROUNDS):
            await line.post(path)

    started = time.perf_counter()
    await asyncio.gather(*(lane(line) for line in lines))
    return len(lines) * LANE_ROUNDS / (time.perf_counter() - started)


async def _measure(home: Path) -> None:
    hub = RunningHub(Options(home=home, http="127.0.0.1:0", ac7=False))
    await hub.start()
    assert hub.exchange is not None
    listener = HttpListener(hub.exchange, [_Echo(), Ac7(hub.exchange, announce=False)])
    await listener.start("127.0.0.1", 0)
    host, _, port = listener.address.rpartition(":")
    async with await connect(home=home) as operator:
        alice, bob = [(await operator.add_member(name)).token for name in ("alice", "bob")]

    async def line(token: str) -> _Line:
        return _Line(*await asyncio.open_connection(host, int(port)), token)

    single = await line(alice)
    echo = await _median(lambda: single.post("/echo"))
    # After that, because the hub hangs up on who connects and asks nothing.
    lines = [await line(alice) for _ in range(LANES)]
    echo_rate, push_rate = await _rate(lines, "/echo"), await _rate(lines, "/push")
    reader, writer = await asyncio.open_connection(host, int(port))
    writer.write(f"GET /subscribe?name=bob HTTP/1.1\r\nhost: hub\r\nauthorization: Bearer {bob}\r\n\r\n".encode())
    await reader.readuntil(b"\r\n\r\n")

    async def to_events() -> None:
        await asyncio.gather(lines[0].post("/push"), reader.readuntil(b"}\n\n"))

    events = await _median(to_events)
    writer.close()
    shown = {"authorization": f"Bearer {bob}"}
    url = f"ws://{listener.address}/subscribe?name=bob"
    async with connect_websocket(url, additional_headers=shown, proxy=None) as socket:

        async def to_socket() -> None:
            await asyncio.gather(lines[0].post("/push"), socket.recv())

        frames = await _median(to_socket)
    for one in lines:
        one.close()
    await listener.stop()
    await hub.stop()
    for name, ours, theirs, unit in (
        ("push to SSE, p50", events * 1e3, echo * 1e3, "ms"),
        ("push to WebSocket, p50", frames * 1e3, echo * 1e3, "ms"),
        ("pushes a second", push_rate, echo_rate, "/s"),
    ):
        sys.stdout.write(f"{name}: {ours:.2f} {unit}, a bare echo {theirs:.2f} {unit}, ratio {ours / theirs:.2f}\n")


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory(prefix="tl-") as folder:
        uvloop.run(_measure(Path(folder) / "home"))


if __name__ == "__main__":
    main()

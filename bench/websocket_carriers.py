"""Compares WebSocket servers in Python: round trips, received messages, and memory of an idle connection.

`python -m bench.websocket_carriers [ROUNDS]` prints the table of docs/adr/0006. Messages are text of about 300 bytes.
The client in this process writes bytes by hand and keeps 64 messages in flight. Every server runs under uvloop in its
own process, without compression and without pings. picows is measured if it is installed.
"""

import asyncio
import contextlib
import json
import logging
import random
import socket
import statistics
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Coroutine, Iterator
from importlib import import_module
from importlib.util import find_spec
from typing import Any

import uvicorn
import uvloop
from websockets.asyncio.server import ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.frames import Frame, Opcode
from websockets.http11 import Request
from websockets.server import ServerProtocol

from bench.machine import read_cpu, read_resident_bytes
from bench.peerbus_echo import EchoServer
from bench.processes import ROOT
from tieline.protocols.peerbus.websocket import WebSocketCarrier

WINDOW = 64
SINGLES = 2_000
ECHOED = 20_000
SUNK = 40_000
IDLE = 2_000
FRAME_BYTES_MAX = 1024 * 1024
_MASK = b"\x37\xfa\x21\x3d"


# The servers. Each function returns the port, and an object that must be kept alive.


async def _websockets(*, echo: bool) -> tuple[int, object]:
    """The asyncio server of websockets."""

    async def handle(websocket: ServerConnection) -> None:
        with contextlib.suppress(ConnectionClosed):
            while True:
                message = await websocket.recv(decode=False)
                if echo:
                    await websocket.send(message, text=True)

    server = await serve(handle, "127.0.0.1", 0, compression=None, max_size=FRAME_BYTES_MAX, ping_interval=None)
    return server.sockets[0].getsockname()[1], server


async def _uvicorn(*, echo: bool) -> tuple[int, object]:
    """uvicorn, the server of the shared port, with the same library behind ASGI."""

    async def app(scope: Any, receive: Any, send: Any) -> None:
        del scope
        await receive()
        await send({"type": "websocket.accept"})
        while (message := await receive())["type"] != "websocket.disconnect":
            if echo:
                await send({"type": "websocket.send", "text": message["text"]})

    sock = socket.socket()
    sock.bind(("127.0.0.1", 0))
    settings: dict[str, Any] = {"lifespan": "off", "ws_per_message_deflate": False, "ws_ping_interval": None}
    server = uvicorn.Server(uvicorn.Config(app, log_config=None, ws="websockets-sansio", **settings))
    serving = asyncio.create_task(server.serve(sockets=[sock]))
    while not server.started:  # noqa: ASYNC110 - uvicorn has no event for it
        await asyncio.sleep(0.01)
    return sock.getsockname()[1], (server, serving)


async def _library(*, echo: bool) -> tuple[int, object]:
    """The sans-I/O protocol of websockets in an asyncio protocol."""
    silent = logging.getLogger("silent")
    silent.setLevel(logging.CRITICAL + 1)

    class Carrier(asyncio.Protocol):
        __slots__ = ("protocol", "transport")

        def connection_made(self, transport: Any) -> None:
            self.transport = transport
            self.protocol = ServerProtocol(max_size=FRAME_BYTES_MAX, logger=silent)

        def data_received(self, data: bytes) -> None:
            protocol = self.protocol
            protocol.receive_data(data)
            for event in protocol.events_received():
                if isinstance(event, Request):
                    protocol.send_response(protocol.accept(event))
                elif isinstance(event, Frame) and echo and event.opcode is Opcode.TEXT:
                    protocol.send_text(event.data)
            out = protocol.data_to_send()
            if out:
                self.transport.write(b"".join(out))

    server = await asyncio.get_running_loop().create_server(Carrier, "127.0.0.1", 0)
    return server.sockets[0].getsockname()[1], server


async def _ours(*, echo: bool) -> tuple[int, object]:
    """The hub's own carrier, around the sans-I/O protocol of websockets."""
    made = EchoServer(silent=not echo)
    server = await asyncio.get_running_loop().create_server(lambda: WebSocketCarrier(made.server), "127.0.0.1", 0)
    return server.sockets[0].getsockname()[1], server


async def _picows(*, echo: bool) -> tuple[int, object]:
    """picows, a library in Cython."""
    picows = import_module("picows")

    class Listener(picows.WSListener):  # type: ignore[name-defined, misc]
        def on_ws_frame(self, transport: Any, frame: Any) -> None:
            if frame.msg_type == picows.WSMsgType.TEXT:
                payload = frame.get_payload_as_bytes()
                if echo:
                    transport.send(picows.WSMsgType.TEXT, payload)

    server = await picows.ws_create_server(lambda _: Listener(), "127.0.0.1", 0)
    return server.sockets[0].getsockname()[1], server


SERVERS: dict[str, Callable[..., Coroutine[Any, Any, tuple[int, object]]]] = {
    "websockets": _websockets,
    "uvicorn": _uvicorn,
    "library": _library,
    "ours": _ours,
    "picows": _picows,
}


async def _serve(name: str, *, echo: bool) -> None:
    port, _kept = await SERVERS[name](echo=echo)
    print(port, flush=True)
    await asyncio.Event().wait()


# The client.


def _frame(payload: bytes) -> bytes:
    masked = bytes(byte ^ _MASK[index % 4] for index, byte in enumerate(payload))
    return struct.pack("!BBH", 0x81, 0xFE, len(payload)) + _MASK + masked


PAYLOAD = json.dumps(
    {"id": "m" * 32, "from": "alice", "to": "bob", "body": {"text": "x" * 150}, "hmac": "a" * 64}
).encode()
MESSAGE = _frame(PAYLOAD)
BACK_BYTES = len(PAYLOAD) + 4
_PING = b"\x89\x80" + _MASK
_PONG = 0x8A


def _dial(port: int) -> socket.socket:
    sock = socket.create_connection(("127.0.0.1", port))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    request = (
        "GET / HTTP/1.1\r\nHost: hub\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n"
    )
    sock.sendall(request.encode())
    answer = b""
    while b"\r\n\r\n" not in answer:
        answer += sock.recv(4096)
    return sock


@contextlib.contextmanager
def _server(name: str, mode: str) -> Iterator[tuple[int, int]]:
    """Start a server in its own process; yields its pid and port."""
    command = [sys.executable, "-m", "bench.websocket_carriers", "serve", name, mode]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        try:
            assert process.stdout is not None, "asked for"
            yield process.pid, int(process.stdout.readline())
        finally:
            process.kill()


def _back(sock: socket.socket, count: int, window: int) -> float:
    """Seconds until `count` messages were sent and came back."""
    sent = received = 0
    started = time.perf_counter()
    while received < count * BACK_BYTES:
        more = min(window - (sent - received // BACK_BYTES), count - sent)
        if more > 0:
            sock.sendall(MESSAGE * more)
            sent += more
        received += len(sock.recv(1 << 18))
    return time.perf_counter() - started


def _round(name: str) -> dict[str, float]:
    found: dict[str, float] = {}
    with _server(name, "echo") as (pid, port), _dial(port) as sock:
        _back(sock, 500, 1)
        found["round trip"] = statistics.median(1e6 * _back(sock, 1, 1) for _ in range(SINGLES))
        before = read_cpu(pid)
        found["echo/s"] = ECHOED / _back(sock, ECHOED, WINDOW)
        found["echo CPU"] = 1e6 * read_cpu(pid).since(before).total / ECHOED
    with _server(name, "sink") as (pid, port), _dial(port) as sock:
        before = read_cpu(pid)
        for _ in range(SUNK // 100):
            sock.sendall(MESSAGE * 100)
        sock.sendall(_PING)
        while _PONG not in sock.recv(4096):
            pass
        found["taken CPU"] = 1e6 * read_cpu(pid).since(before).total / SUNK
    with _server(name, "sink") as (pid, port), contextlib.ExitStack() as stack:
        for _ in range(20):
            stack.enter_context(_dial(port))
        time.sleep(0.2)
        resident = read_resident_bytes(pid)
        for _ in range(IDLE):
            stack.enter_context(_dial(port))
        time.sleep(0.5)
        found["idle KiB"] = (read_resident_bytes(pid) - resident) / IDLE / 1024
    return found


def main(rounds: int) -> None:
    """Measure every server in every round, in a new random order, and print the medians."""
    names = [name for name in SERVERS if name != "picows" or find_spec("picows") is not None]
    samples: dict[str, list[dict[str, float]]] = {name: [] for name in names}
    chance = random.Random(7117)
    for _ in range(rounds):
        for name in chance.sample(names, len(names)):
            samples[name].append(_round(name))
    columns = list(samples[names[0]][0])
    print("| server | " + " | ".join(columns) + " |")
    print("| --- |" + " --- |" * len(columns))
    for name in names:
        middle = [statistics.median(sample[column] for sample in samples[name]) for column in columns]
        print(
            f"| {name} | " + " | ".join(f"{value:,.0f}" if value >= 100 else f"{value:.1f}" for value in middle) + " |"
        )


if __name__ == "__main__":
    if sys.argv[1:2] == ["serve"]:
        uvloop.run(_serve(sys.argv[2], echo=sys.argv[3] == "echo"))
    else:
        main(int(sys.argv[1]) if len(sys.argv) > 1 else 7)

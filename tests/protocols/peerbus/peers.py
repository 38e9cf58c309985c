"""Raw test clients of peerbus, which write frames like a foreign client, over every carrier (kind of connection)."""

import asyncio
import contextlib
import itertools
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any, Self

from msgspec import structs
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from tests.server.hubs import ALONE, WAIT_SECONDS, HubHarness, running_hub
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.server import PeerbusServer

SECRET = "k" * 32
TOKEN = "token-one-of-the-tests"
OTHER_TOKEN = "token-two-of-the-tests"
CONFIG = f"""
[peerbus]
tokens = ["{TOKEN}", "{OTHER_TOKEN}"]
hmac_secret = "{SECRET}"
"""

PORT, HTTP, HTTP_ROOT, LINES = "the port of its own", "the HTTP port", "the root of the HTTP port", "lines"
WEBSOCKETS = (PORT, HTTP, HTTP_ROOT)
CARRIERS = (PORT, HTTP, LINES)

Frame = dict[str, Any]
_numbers = itertools.count(1)


def new_id() -> str:
    """Return an id that no other envelope of the tests has."""
    return f"{next(_numbers):032x}"


def envelope(sender: str, to: str, body: Any = None, **fields: str) -> bytes:
    """Return a signed envelope (message of peerbus). `raw`, if given, is the whole body as JSON text."""
    kind = fields.get("kind", "broadcast" if to == "*" else "msg")
    raw = fields.get("raw")
    named = ("v1", fields.get("id") or new_id(), sender, to, "2026-05-18T12:00:00Z", "peer-bus", kind)
    text = raw.encode() if raw is not None else json.dumps({"text": body}, separators=(",", ":")).encode()
    return codec.encode_envelope(named, text, fields.get("secret", SECRET).encode())


def spliced(frame: bytes) -> bytes:
    """Return the envelope in a deliver frame, byte for byte."""
    return frame.partition(b',"envelope":')[2].removesuffix(b"}")


def text(frame: Frame) -> Any:
    """Return the text of the message in a deliver frame."""
    return frame["envelope"]["body"]["text"]


def register(name: str, token: str = TOKEN) -> bytes:
    """Return the frame that registers a peer, which is the first on a connection."""
    return codec.encode_register(name, token)


class Closed(Exception):
    """Error: the hub closed the connection.

    A WebSocket also has the code and the reason of the close. The code is 1006 if the connection broke.
    """

    def __init__(self, code: int, reason: str) -> None:
        super().__init__(code, reason)
        self.code = code
        self.reason = reason


class Peer:
    """Base class of the test clients: one connection of a peer."""

    name = ""

    async def raw(self, *frames: bytes) -> None:
        """Write frames unchanged."""
        raise NotImplementedError

    async def receive_raw(self) -> bytes:
        """Wait for the next frame. Return its bytes. Raises `Closed`."""
        raise NotImplementedError

    async def close(self) -> None:
        """Close the connection."""
        raise NotImplementedError

    async def receive(self) -> Frame:
        """Wait for the next frame. Return it decoded."""
        found: Frame = json.loads(await self.receive_raw())
        return found

    async def expect(self, kind: str) -> Frame:
        """Wait for the next frame, which must be of this type. Return it."""
        frame = await self.receive()
        assert frame["type"] == kind, frame
        return frame

    async def register(self, name: str, token: str = TOKEN) -> Self:
        """Register a name. The answer must be the list of peers. Return this peer."""
        await self.raw(register(name, token))
        names = (await self.expect("peers"))["names"]
        assert name in names
        self.name = name
        return self

    async def say(self, to: str, body: Any = None, **fields: str) -> bytes:
        """Send a signed envelope. Return its bytes."""
        made = envelope(self.name, to, body, **fields)
        await self.raw(made)
        return made

    async def peers(self) -> list[str]:
        """Ask for the list of peers, and return it. No other frame may come before the answer."""
        await self.raw(codec.encode_peers())
        names: list[str] = (await self.expect("peers"))["names"]
        return names

    async def settled(self) -> list[Frame]:
        """Ask for the list of peers. Return all frames that came before the answer."""
        await self.raw(codec.encode_peers())
        before: list[Frame] = []
        while (frame := await self.receive())["type"] != "peers":
            before.append(frame)
        return before

    async def silent(self) -> None:
        """Check that the hub has sent no unread frame."""
        assert await self.settled() == []

    async def deliveries(self, count: int, *, ack: bool = False) -> list[Frame]:
        """Wait for `count` deliver frames in a row, and acknowledge them if `ack` is true. Return them."""
        found = [await self.expect("deliver") for _ in range(count)]
        if ack:
            await self.ack(*(frame["delivery_key"] for frame in found))
        return found

    async def texts(self, count: int, *, ack: bool = False) -> list[Any]:
        """Wait for `count` deliver frames in a row. Return the texts of their messages."""
        return [frame["envelope"]["body"]["text"] for frame in await self.deliveries(count, ack=ack)]

    async def ack(self, *keys: str) -> None:
        """Acknowledge deliveries by their keys."""
        await self.raw(*map(codec.encode_ack, keys))

    async def closed(self) -> tuple[int, str]:
        """Wait until the hub closes the connection. Return code and reason. Fail if a frame comes before."""
        try:
            frame = await self.receive_raw()
        except Closed as end:
            return end.code, end.reason
        raise AssertionError(frame)


class WebSocketPeer(Peer):
    """Test client: a peer over a WebSocket."""

    def __init__(self, websocket: ClientConnection) -> None:
        self.websocket = websocket

    async def raw(self, *frames: bytes) -> None:
        try:
            for frame in frames:
                await self.websocket.send(frame, text=True)
        except ConnectionClosed as end:
            raise _closed(end) from end

    async def receive_raw(self) -> bytes:
        try:
            async with asyncio.timeout(WAIT_SECONDS):
                return await self.websocket.recv(decode=False)
        except ConnectionClosed as end:
            raise _closed(end) from end

    async def close(self) -> None:
        await self.websocket.close()


def _closed(end: ConnectionClosed) -> Closed:
    return Closed(end.rcvd.code, end.rcvd.reason) if end.rcvd else Closed(1006, "")


class LinePeer(Peer):
    """Test client: a peer over the Unix socket with one frame per line."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def raw(self, *frames: bytes) -> None:
        self.writer.write(b"".join(frame.replace(b"\n", b" ") + b"\n" for frame in frames))
        with contextlib.suppress(ConnectionError):
            await self.writer.drain()

    async def receive_raw(self) -> bytes:
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                line = await self.reader.readline()
            except ConnectionError:
                line = b""
        if not line.endswith(b"\n"):
            raise Closed(1006, "")
        return line[:-1]

    async def close(self) -> None:
        self.writer.close()


class Bus(HubHarness):
    """Test helper: a running hub, and the raw peers that connect to it."""

    peers: list[Peer]
    door: str

    def url(self, door: str) -> str:
        """Return the address of one of the hub's WebSockets for peers. `door` names it."""
        if door == PORT:
            assert self.running.places["peerbus"] is not None
            return self.running.places["peerbus"]
        base = self.running.http.replace("http", "ws", 1)
        return f"{base}/peerbus" if door == HTTP else base

    async def dial(self, door: str | None = None, **options: Any) -> Peer:
        """Open a connection and send nothing. `door` names the kind of connection, if not the helper's own."""
        door = door or self.door
        peer: Peer
        if door == LINES:
            assert self.running.places["peerbus_socket"] is not None
            reader, writer = await asyncio.open_unix_connection(self.running.places["peerbus_socket"], limit=1 << 22)
            peer = LinePeer(reader, writer)
        else:
            # A peer whose queue is full would not hear the answer to its close frame.
            options.setdefault("max_queue", None)
            peer = WebSocketPeer(await connect(self.url(door), compression=None, proxy=None, max_size=None, **options))
        self.peers.append(peer)
        return peer

    async def peer(self, name: str, token: str = TOKEN, door: str | None = None) -> Peer:
        """Open a connection and register a name."""
        return await (await self.dial(door)).register(name, token)

    async def several(self, *names: str) -> list[Peer]:
        """Open a connection for each name and register the name."""
        return [await self.peer(name) for name in names]

    async def leave(self, peer: Peer) -> None:
        """Close a peer's connection, and wait until the hub has noticed it."""
        await peer.close()
        operator = await self.operator()
        async with asyncio.timeout(WAIT_SECONDS):
            while any(one.name == peer.name and "peerbus" in one.sessions for one in await operator.members()):
                pass


@contextlib.asynccontextmanager
async def bus(home: Path, door: str = PORT, config: str = CONFIG, **options: Any) -> AsyncIterator[Bus]:
    """Start a hub with all kinds of peerbus connections, and yield it. `door` is the kind that its peers use."""
    home.mkdir(mode=0o700, exist_ok=True)
    if not (home / "tieline.toml").exists():
        (home / "tieline.toml").write_text(config)
    options = ALONE | {"peerbus": True, "store": "sqlite:unsafe", "peerbus_listen": "127.0.0.1:0"} | options
    async with running_hub(home, **options) as built:
        made = Bus(built.home, built.hub, built.running)
        made._clients = built._clients
        made.peers = []
        made.door = door
        yield made
        for peer in made.peers:
            await peer.close()


@contextlib.asynccontextmanager
async def listener(hub: Bus) -> AsyncIterator[PeerbusServer]:
    """Open another port for peers, and yield its server, which a test can inspect.

    Peers of this hub helper connect to that port from now on.
    """
    assert hub.hub.local_hub is not None
    server = PeerbusServer(hub.hub.local_hub, tokens=(TOKEN, OTHER_TOKEN), secret=SECRET)
    await server.listen("127.0.0.1", 0)
    hub.running = structs.replace(hub.running, places={**hub.running.places, "peerbus": f"ws://{server.address}"})
    try:
        yield server
    finally:
        await server.stop()

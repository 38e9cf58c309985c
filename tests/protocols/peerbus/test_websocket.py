"""Tests of peerbus on its own port, byte by byte: frames that no client library sends, and closing of connections."""

import asyncio
import gc
import struct
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from tests.protocols.peerbus.peers import CONFIG, PORT, Bus, bus, envelope, register
from tests.server.hubs import WAIT_SECONDS, until
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.websocket import WebSocketCarrier

MIB = 1024 * 1024
TEXT, BINARY, CONTINUATION, CLOSE, PING, PONG = 1, 2, 0, 8, 9, 10
FIN = 0x80


def frame(payload: bytes, opcode: int = TEXT, *, fin: bool = True, masked: bool = True, reserved: int = 0) -> bytes:
    """Return one encoded WebSocket frame of a client."""
    first = opcode | reserved | (FIN if fin else 0)
    size = len(payload)
    mask_bit = 0x80 if masked else 0
    if size < 126:
        head = bytes((first, mask_bit | size))
    elif size < 65536:
        head = struct.pack("!BBH", first, mask_bit | 126, size)
    else:
        head = struct.pack("!BBQ", first, mask_bit | 127, size)
    if not masked:
        return head + payload
    key = b"\x37\xfa\x21\x3d"
    return head + key + bytes(byte ^ key[index % 4] for index, byte in enumerate(payload))


class Socket:
    """Test client: a raw WebSocket connection, so that a test can send any bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def upgrade(self) -> None:
        """Do the opening handshake of the WebSocket."""
        self.writer.write(upgrade())
        head = await self.reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 101"), head

    async def receive(self) -> tuple[int, bytes]:
        """Wait for the next frame. Return its opcode and payload. Raises `EOFError`."""
        async with asyncio.timeout(WAIT_SECONDS):
            first, second = await self.reader.readexactly(2)
            size = second
            if second == 126:
                (size,) = struct.unpack("!H", await self.reader.readexactly(2))
            elif second == 127:
                (size,) = struct.unpack("!Q", await self.reader.readexactly(8))
            return first & 0x0F, await self.reader.readexactly(size)

    async def register(self, name: str) -> None:
        """Register a peer with this name. The answer must be the list of peers."""
        self.writer.write(frame(register(name)))
        opcode, payload = await self.receive()
        assert opcode == TEXT
        assert b'"peers"' in payload

    async def closing(self) -> int:
        """Wait for a close frame, answer it, and wait for the end. Return the code of the frame."""
        opcode, payload = await self.receive()
        assert opcode == CLOSE, (opcode, payload)
        self.writer.write(frame(payload, CLOSE))
        await self.ended()
        return int.from_bytes(payload[:2], "big")

    async def ended(self) -> None:
        """Check that the hub closed the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            assert await self.reader.read() == b""


def upgrade(*headers: str) -> bytes:
    lines = [
        "GET / HTTP/1.1",
        "Host: localhost",
        "Upgrade: websocket",
        "Connection: Upgrade",
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
        "Sec-WebSocket-Version: 13",
        *headers,
    ]
    return "\r\n".join([*lines, "", ""]).encode()


Dial = Callable[[Bus], Awaitable[Socket]]


@pytest.fixture
async def dial() -> AsyncIterator[Dial]:
    """Fixture: a function that opens a raw connection to a hub. The connection ends with the test."""
    opened: list[Socket] = []

    async def connect(hub: Bus) -> Socket:
        assert hub.running.places["peerbus"] is not None
        host, _, port = hub.running.places["peerbus"].removeprefix("ws://").rpartition(":")
        opened.append(Socket(*await asyncio.open_connection(host, int(port))))
        return opened[-1]

    yield connect
    for socket in opened:
        socket.writer.close()


@pytest.fixture
async def alice(hub: Bus, dial: Dial) -> Socket:
    """Fixture: a raw connection, registered as the peer alice."""
    socket = await dial(hub)
    await socket.upgrade()
    await socket.register("alice")
    return socket


def said(body: str) -> bytes:
    return envelope("alice", "alice", body)


async def heard(socket: Socket) -> str:
    opcode, payload = await socket.receive()
    assert opcode == TEXT
    push = codec.decode_push(payload)
    assert isinstance(push, codec.Deliver)
    return push.envelope.body.decode()


async def test_a_frame_may_come_byte_by_byte_and_many_in_one_chunk(alice: Socket) -> None:
    for byte in frame(said("slow")):
        alice.writer.write(bytes([byte]))
        await alice.writer.drain()
        await asyncio.sleep(0)
    alice.writer.write(b"".join(frame(said(str(number))) for number in range(50)))
    assert [await heard(alice) for _ in range(51)] == [
        f'{{"text":"{text}"}}' for text in ("slow", *map(str, range(50)))
    ]


@pytest.mark.parametrize("size", [0, 1, 125, 126, 127, 65535, 65536, 300_000])
async def test_every_form_of_a_length_is_read_and_written(alice: Socket, size: int) -> None:
    alice.writer.write(frame(said("x" * size)))
    assert await heard(alice) == f'{{"text":"{"x" * size}"}}'


async def test_a_message_may_come_in_fragments_with_control_frames_between(alice: Socket) -> None:
    whole = said("in pieces")
    alice.writer.write(frame(whole[:10], fin=False) + frame(b"ping!", PING) + frame(whole[10:20], 0, fin=False))
    assert await alice.receive() == (PONG, b"ping!")
    alice.writer.write(frame(whole[20:], CONTINUATION) + frame(said("whole")))
    assert [await heard(alice), await heard(alice)] == ['{"text":"in pieces"}', '{"text":"whole"}']


async def test_fragments_of_a_binary_message_mean_nothing(alice: Socket) -> None:
    alice.writer.write(frame(b"x", BINARY, fin=False) + frame(said("no"), CONTINUATION) + frame(said("yes")))
    assert await heard(alice) == '{"text":"yes"}'


async def test_a_ping_is_answered_and_a_pong_means_nothing(alice: Socket) -> None:
    alice.writer.write(frame(b"unsolicited", PONG) + frame(b"hello", PING))
    assert await alice.receive() == (PONG, b"hello")


async def test_a_close_frame_is_answered_and_the_connection_ends(alice: Socket) -> None:
    alice.writer.write(frame((1000).to_bytes(2, "big") + b"bye", CLOSE))
    assert await alice.receive() == (CLOSE, b"\x03\xe8bye")
    await alice.ended()


@pytest.mark.parametrize(
    ("data", "code"),
    [
        (frame(b"{}", masked=False), 1002),
        (frame(b"{}", 3), 1002),
        (frame(b"{}", reserved=0x40), 1002),
        (frame(b"x", CONTINUATION), 1002),
        (frame(b"x" * 126, PING), 1002),
        (frame(b"x", PING, fin=False), 1002),
        (frame(b"x", fin=False) + frame(b"y"), 1002),
        (frame(b"\x03", CLOSE), 1002),
        (struct.pack("!BBQ", 0x81, 0xFF, MIB + 1), 1009),
        (struct.pack("!BBQ", 0x81, 0xFF, 2**63 - 1), 1009),
        (frame(b"x" * MIB, fin=False) + frame(b"x", CONTINUATION), 1009),
    ],
    ids=[
        "not masked",
        "an unknown opcode",
        "a reserved bit",
        "a continuation of nothing",
        "a long ping",
        "a ping in fragments",
        "a new message within fragments",
        "a close code of one byte",
        "too large",
        "far too large",
        "fragments that are too large",
    ],
)
async def test_what_breaks_the_websocket_protocol_ends_the_connection(alice: Socket, data: bytes, code: int) -> None:
    alice.writer.write(data)
    assert await alice.closing() == code


async def test_a_frame_that_is_too_large_is_refused_before_its_payload_comes(alice: Socket) -> None:
    alice.writer.write(struct.pack("!BBQ", 0x81, 0xFF, MIB + 1)[:9])
    alice.writer.write(struct.pack("!BBQ", 0x81, 0xFF, MIB + 1)[9:])
    assert await alice.closing() == 1009


GREETING = 64 * 1024


async def test_a_strangers_large_frame_is_refused_by_its_header(hub: Bus, dial: Dial) -> None:
    for data in (
        struct.pack("!BBQ", 0x81, 0xFF, GREETING + 1) + bytes(4),
        struct.pack("!BBQ", 0x82, 0xFF, GREETING + 1) + bytes(4),
        frame(b"x" * GREETING, fin=False) + frame(b"x", CONTINUATION, fin=False),
    ):
        socket = await dial(hub)
        await socket.upgrade()
        socket.writer.write(data)
        assert await socket.closing() == 1009


async def test_a_large_frame_right_behind_the_first_is_taken(hub: Bus, dial: Dial) -> None:
    socket = await dial(hub)
    await socket.upgrade()
    large = frame(said("x" * 500_000))
    socket.writer.write(frame(register("alice")) + large + frame(said("small")))
    assert (await socket.receive())[0] == TEXT
    assert len(await heard(socket)) > 500_000
    assert await heard(socket) == '{"text":"small"}'


@pytest.mark.slow
async def test_all_strangers_together_hold_no_more_than_their_bound(folder: Path, dial: Dial) -> None:
    async with bus(folder / "h", PORT, CONFIG + f"\n[limits]\nstrangers_bytes_max = {4 * GREETING}\n") as hub:
        peer = await dial(hub)
        await peer.upgrade()
        await peer.register("alice")
        strangers = []
        for _ in range(8):
            strangers.append(await dial(hub))
            await strangers[-1].upgrade()
            strangers[-1].writer.write(struct.pack("!BBQ", 0x81, 0xFF, GREETING) + bytes(4) + b"x" * (GREETING - 1))
        ends = [asyncio.create_task(stranger.receive()) for stranger in strangers]
        done, waiting = await asyncio.wait(ends, timeout=WAIT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        assert {end.result()[0] for end in done} == {CLOSE}
        assert {end.result()[1][:2] for end in done} == {(1013).to_bytes(2, "big")}
        assert hub.hub.unfinished is not None
        assert hub.hub.unfinished.size <= 4 * GREETING
        peer.writer.write(frame(said("x" * 500_000)))
        assert len(await heard(peer)) > 500_000
        for end in waiting:
            end.cancel()


@pytest.mark.slow
@pytest.mark.parametrize("registers", [False, True])
async def test_a_connection_that_is_gone_is_freed_without_the_garbage_collector(
    hub: Bus, dial: Dial, registers: bool
) -> None:
    def carriers() -> int:
        return sum(type(found) is WebSocketCarrier for found in gc.get_objects())

    gc.collect()
    before = carriers()
    gc.disable()
    try:
        socket = await dial(hub)
        await socket.upgrade()
        if registers:
            await socket.register("alice")
        socket.writer.write(struct.pack("!BBQ", 0x81, 0xFF, GREETING) + bytes(4) + b"x" * (GREETING - 1))
        await socket.writer.drain()
        assert carriers() == before + 1
        socket.writer.transport.abort()
        await until(lambda: carriers() == before)
    finally:
        gc.enable()


@pytest.mark.slow
async def test_a_peer_that_does_not_answer_a_close_frame_is_hung_up_on(hub: Bus, dial: Dial) -> None:
    socket = await dial(hub)
    await socket.upgrade()
    socket.writer.write(frame(b"x") + frame(b"y" * 100_000))
    opcode, payload = await socket.receive()
    assert (opcode, payload[2:]) == (CLOSE, b"malformed handshake")
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await socket.receive()


@pytest.mark.parametrize(
    ("request_", "status"),
    [
        (b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"426"),
        (upgrade("Origin: http://elsewhere"), b"403"),
        (upgrade("Origin: http://localhost", "Origin: http://elsewhere"), b"403"),
        (upgrade("Origin: http://rebound.example").replace(b": localhost", b": rebound.example"), b"421"),
        (upgrade("Host: rebound.example"), b"421"),
        (upgrade().replace(b"Version: 13", b"Version: 8"), b"4"),
        (upgrade().replace(b"dGhl", b"!"), b"4"),
        (b"POST / HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}", b""),
        (b"nonsense\r\n\r\n", b""),
    ],
    ids=[
        "no upgrade",
        "a foreign page",
        "a page of two origins",
        "a page that rebound its name",
        "two hosts",
        "an old version",
        "a bad key",
        "a post",
        "nonsense",
    ],
)
async def test_what_is_no_opening_handshake_is_answered_in_http_or_hung_up_on(
    hub: Bus, request_: bytes, status: bytes, dial: Dial
) -> None:
    socket = await dial(hub)
    socket.writer.write(request_)
    async with asyncio.timeout(WAIT_SECONDS):
        answer = await socket.reader.read()
    assert answer.startswith(b"HTTP/1.1 " + status) or (answer == b"" and status == b"")


@pytest.mark.parametrize("host", ["Host: 127.0.0.1:1\r\n", "Host: peers.localhost\r\n", ""])
async def test_a_peer_by_address_or_localhost_or_without_a_host_is_let_in(hub: Bus, host: str, dial: Dial) -> None:
    socket = await dial(hub)
    socket.writer.write(upgrade().replace(b"Host: localhost\r\n", host.encode()))
    async with asyncio.timeout(WAIT_SECONDS):
        assert (await socket.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")


async def test_endless_headers_are_hung_up_on(hub: Bus, dial: Dial) -> None:
    socket = await dial(hub)
    socket.writer.write(b"GET / HTTP/1.1\r\nX: " + b"x" * 100_000)
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        async with asyncio.timeout(WAIT_SECONDS):
            await socket.reader.readexactly(1)


async def test_a_connection_that_says_nothing_at_all_is_hung_up_on(folder: Path, dial: Dial) -> None:
    async with bus(folder / "h", PORT, CONFIG + "\n[limits]\nhello_ms = 100\n") as hub:
        socket = await dial(hub)
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            async with asyncio.timeout(WAIT_SECONDS):
                await socket.reader.readexactly(1)


async def test_frames_right_behind_the_opening_request_are_read(hub: Bus, dial: Dial) -> None:
    socket = await dial(hub)
    socket.writer.write(upgrade() + frame(register("alice")) + frame(said("early")))
    assert (await socket.reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 101")
    await socket.receive()
    assert await heard(socket) == '{"text":"early"}'


async def test_a_line_that_breaks_at_any_place_leaves_nothing_behind(hub: Bus, dial: Dial) -> None:
    whole = upgrade() + frame(register("alice")) + frame(said("x"))
    for length in range(0, len(whole), 37):
        socket = await dial(hub)
        socket.writer.write(whole[:length])
        await socket.writer.drain()
        socket.writer.transport.abort()
    local_hub = hub.hub.local_hub
    assert local_hub is not None
    sessions = local_hub._broker.directory.sessions
    await until(lambda: all(session.protocol != codec.PROTOCOL for session in list(sessions.values())))

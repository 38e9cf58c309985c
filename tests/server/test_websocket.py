"""Tests of limits of WebSockets: the memory that unknown clients can use, and its release when they leave."""

import asyncio
import gc
import json
import struct
import weakref
from collections.abc import AsyncIterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from tests.server.hubs import WAIT_SECONDS, HubHarness, running_hub, until
from tieline.contract.limits import DEFAULT_LIMITS
from tieline.server.bounds import BoundedProtocol
from tieline.server.websocket import BoundedWebSocket
from tieline.wire.native import frames as f

CONTINUATION, TEXT, BINARY, CLOSE, PING, PONG = 0, 1, 2, 8, 9, 10
MIB = 1024 * 1024
GREETING = DEFAULT_LIMITS.greeting_bytes_max

DOORS = ["/api/stream", "/peerbus", "/"]


class Socket:
    """Test client: a raw WebSocket, so that a test can send any frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    @classmethod
    async def open(cls, there: HubHarness, path: str, *headers: str) -> "Socket":
        address = urlsplit(there.running.http)
        socket = cls(*await asyncio.open_connection(address.hostname, address.port))
        head = [f"GET {path} HTTP/1.1", f"Host: {address.netloc}", "Connection: Upgrade", "Upgrade: websocket"]
        head += ["Sec-WebSocket-Version: 13", "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==", *headers]
        socket.writer.write("\r\n".join([*head, "", ""]).encode())
        async with asyncio.timeout(WAIT_SECONDS):
            assert b" 101 " in await socket.reader.readuntil(b"\r\n\r\n")
        return socket

    def begin(self, size: int, opcode: int = TEXT) -> None:
        """Send only the header of a frame of this size."""
        self.writer.write(struct.pack("!BBQ", 0x80 | opcode, 0xFF, size) + bytes(4))

    def say(self, payload: bytes, opcode: int = TEXT, *, fin: bool = True) -> None:
        """Send a whole frame."""
        self.writer.write(struct.pack("!BBQ", fin << 7 | opcode, 0xFF, len(payload)) + bytes(4) + payload)

    async def hear(self) -> tuple[int, bytes]:
        """Wait for the next frame. Return its opcode and payload."""
        async with asyncio.timeout(WAIT_SECONDS):
            first, size = await self.reader.readexactly(2)
            if size == 126:
                size = int.from_bytes(await self.reader.readexactly(2), "big")
            elif size == 127:
                size = int.from_bytes(await self.reader.readexactly(8), "big")
            return first & 15, await self.reader.readexactly(size)

    async def answered(self) -> None:
        """Send two pings and wait for their answers, so that the hub has read everything before.

        The hub may read the first ping together with earlier data, but the second only after it.
        """
        for _ in range(2):
            self.say(b"", PING)
            assert await self.hear() == (PONG, b"")

    async def closing(self) -> tuple[int, str]:
        """Wait for the close frame. Skip other frames. Return the code and the reason of the close."""
        while (heard := await self.hear())[0] != CLOSE:
            pass
        return int.from_bytes(heard[1][:2], "big"), heard[1][2:].decode()

    async def babble(self, size: int) -> None:
        """Send blocks of `size` bytes until the hub has closed the connection."""
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                while True:
                    self.writer.write(b"x" * size)
                    await self.writer.drain()
                    await asyncio.sleep(0.005)
            except ConnectionError:
                pass

    async def ended(self) -> None:
        async with asyncio.timeout(WAIT_SECONDS):
            try:
                while await self.reader.read(65536):
                    pass
            except ConnectionError:
                pass
        self.writer.close()


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, store="sqlite:unsafe") as built:
        await built.add("alice", "bob")
        yield built


def hello(there: HubHarness, name: str = "alice") -> bytes:
    return f.encode_batch([f.Hello(token=there.tokens[name])])


@pytest.mark.parametrize("path", DOORS)
@pytest.mark.parametrize("opcode", [TEXT, BINARY])
async def test_a_strangers_large_frame_is_refused_by_its_header(there: HubHarness, path: str, opcode: int) -> None:
    socket = await Socket.open(there, path)
    socket.begin(GREETING + 1, opcode)
    code, reason = await socket.closing()
    assert (code, str(GREETING) in reason) == (1009, True)
    await socket.ended()


@pytest.mark.parametrize("path", DOORS)
async def test_a_strangers_fragments_are_refused_when_they_are_too_large_together(there: HubHarness, path: str) -> None:
    socket = await Socket.open(there, path)
    socket.say(b"x" * (GREETING // 2), fin=False)
    socket.say(b"x" * (GREETING // 2), CONTINUATION, fin=False)
    socket.say(b"x", CONTINUATION, fin=False)
    assert (await socket.closing())[0] == 1009
    await socket.ended()


async def test_a_reader_of_ac7_that_says_much_is_hung_up_on(there: HubHarness) -> None:
    socket = await Socket.open(there, "/subscribe?name=alice", f"Authorization: Bearer {there.tokens['alice']}")
    for _ in range(3):
        socket.say(b"whatever")
    socket.begin(GREETING)
    assert (await socket.closing())[0] == 1009
    await socket.ended()


async def test_a_member_may_send_its_first_large_batch_right_behind_its_hello(there: HubHarness) -> None:
    bob = await there.join("bob", receive=True)
    socket = await Socket.open(there, "/api/stream")
    large = f.encode_batch([f.Send(1, "@bob", "x" * 4 * MIB)])
    greeting = hello(there)
    together = b"".join(
        struct.pack("!BBQ", 0x81, 0xFF, len(part)) + bytes(4) + part for part in (greeting, large, large)
    )
    socket.writer.write(together)
    async with asyncio.timeout(WAIT_SECONDS):
        assert len((await anext(aiter(bob))).message.body) == 4 * MIB
    socket.writer.close()


@pytest.mark.parametrize("apart", [True, False])
async def test_a_batch_that_says_nothing_may_come_before_hello(there: HubHarness, *, apart: bool) -> None:
    socket = await Socket.open(there, "/api/stream")
    for _ in range(3):
        socket.say(b"[]")
        if apart:
            await socket.answered()
    socket.say(hello(there))
    (welcome,) = f.decode_hub_batch((await socket.hear())[1])
    assert isinstance(welcome, f.Welcome)
    socket.say(f.encode_batch([f.Send(1, "@bob", "x" * 4 * GREETING)]))
    (accepted,) = f.decode_hub_batch((await socket.hear())[1])
    assert isinstance(accepted, f.Accepted)
    socket.writer.close()


async def test_behind_a_batch_that_says_nothing_a_stranger_has_no_more_room(there: HubHarness) -> None:
    socket = await Socket.open(there, "/api/stream")
    socket.say(b"[]")
    await socket.answered()
    socket.begin(GREETING + 1)
    assert (await socket.closing())[0] == 1009
    await socket.ended()


@pytest.mark.slow
async def test_a_hello_that_is_refused_says_why_and_is_heard_no_more(there: HubHarness) -> None:
    socket = await Socket.open(there, "/api/stream")
    socket.say(f.encode_batch([f.Hello(token="wrong")]))
    socket.begin(30 * MIB)
    opcode, payload = await socket.hear()
    assert opcode == TEXT
    assert json.loads(payload)[0]["code"] == "unauthorized"
    assert (await socket.closing())[0] == 1000
    await socket.babble(65536)
    assert there.hub.unfinished is not None
    assert there.hub.unfinished.size == 0
    await socket.ended()


@pytest.mark.slow
@pytest.mark.parametrize("path", DOORS)
async def test_who_does_not_greet_in_time_is_dropped_though_it_neither_reads_nor_closes(
    folder: Path, path: str
) -> None:
    (folder / "tieline.toml").write_text("[limits]\nhello_ms = 100\n")
    async with running_hub(folder) as there:
        socket = await Socket.open(there, path)
        socket.begin(GREETING)
        socket.writer.write(b"x" * (GREETING // 2))
        code, _ = await socket.closing()
        assert code in (1000, 1002)
        # It goes on, and never answers the close frame.
        await socket.babble(1)
        await socket.ended()


@pytest.mark.slow
async def test_who_asks_for_pongs_and_reads_none_is_not_answered_without_end(there: HubHarness) -> None:
    made = spy(BoundedWebSocket)
    socket = await Socket.open(there, "/api/stream")
    (connection,) = made()
    socket.reader._transport.pause_reading()  # type: ignore[attr-defined]  # a client that does not read
    ping = struct.pack("!BB", 0x80 | PING, 0x80 | 125) + bytes(4) + b"x" * 125
    try:
        async with asyncio.timeout(WAIT_SECONDS):
            for _ in range(150):
                socket.writer.write(ping * 500)
                await socket.writer.drain()
    except ConnectionError:
        pass
    assert connection.transport.get_write_buffer_size() < 512 * 1024
    socket.writer.close()


@pytest.mark.slow
async def test_empty_fragments_are_no_heap_of_objects(there: HubHarness) -> None:
    made = spy(BoundedWebSocket)
    socket = await Socket.open(there, "/api/stream")
    (connection,) = made()
    socket.say(b"[", fin=False)
    for _ in range(20):
        socket.writer.write((struct.pack("!BB", CONTINUATION, 0x80) + bytes(4)) * 1000)
        await socket.writer.drain()
    socket.say(b"ping", PING)
    assert await socket.hear() == (PONG, b"ping")
    assert len(connection.frames) == 1
    socket.writer.close()


async def test_all_strangers_together_hold_no_more_than_their_bound_and_members_do_not_notice(folder: Path) -> None:
    (folder / "tieline.toml").write_text(f"[limits]\nstrangers_bytes_max = {8 * GREETING}\n")
    async with running_hub(folder) as there:
        await there.add("alice", "bob")
        alice = await there.join("alice", carrier="websocket")
        bob = await there.join("bob", receive=True, carrier="websocket")
        strangers = [await Socket.open(there, DOORS[number % len(DOORS)]) for number in range(20)]
        for stranger in strangers:
            stranger.begin(GREETING)
            stranger.writer.write(b"x" * (GREETING - 1))
        unfinished = there.hub.unfinished
        assert unfinished is not None
        codes = [asyncio.create_task(stranger.closing()) for stranger in strangers]
        await until(lambda: sum(code.done() for code in codes) >= 12)
        assert unfinished.size <= 8 * GREETING
        assert {(await code)[0] for code in codes if code.done()} == {1013}
        await alice.send("@bob", "x" * MIB)
        async with asyncio.timeout(WAIT_SECONDS):
            assert len((await anext(aiter(bob))).message.body) == MIB
        for code, stranger in zip(codes, strangers, strict=True):
            code.cancel()
            stranger.writer.close()
        await until(lambda: unfinished.size == 0)


async def test_a_member_that_holds_most_is_told_to_send_again_and_another_is_not(folder: Path) -> None:
    (folder / "tieline.toml").write_text(f"[limits]\nunfinished_bytes_max = {4 * MIB}\n")
    async with running_hub(folder) as there:
        await there.add("alice", "bob", "mallory")
        greedy = []
        for _ in range(3):
            greedy.append(await Socket.open(there, "/api/stream"))
            greedy[-1].say(hello(there, "mallory"))
            assert (await greedy[-1].hear())[0] == TEXT
            greedy[-1].begin(30 * MIB)
            greedy[-1].writer.write(b"x" * MIB)
            await greedy[-1].writer.drain()
        unfinished = there.hub.unfinished
        assert unfinished is not None
        await until(lambda: unfinished.size > 2.9 * MIB)
        alice = await there.join("alice", carrier="websocket")
        bob = await there.join("bob", receive=True, carrier="websocket")
        await alice.send("@bob", "x" * 2 * MIB)
        async with asyncio.timeout(WAIT_SECONDS):
            assert len((await anext(aiter(bob))).message.body) == 2 * MIB
        ends = [asyncio.create_task(socket.closing()) for socket in greedy]
        await until(lambda: any(end.done() for end in ends))
        assert {(await end)[0] for end in ends if end.done()} == {1013}
        for end, socket in zip(ends, greedy, strict=True):
            end.cancel()
            socket.writer.close()


def spy(kind: type) -> "type":
    """Return a function that returns all objects of a type that were created since this call."""
    known = {id(found) for found in gc.get_objects() if type(found) is kind}
    return lambda: [  # type: ignore[return-value]
        found for found in gc.get_objects() if type(found) is kind and id(found) not in known
    ]


@pytest.mark.slow
@pytest.mark.parametrize("path", [*DOORS, "/subscribe?name=alice"])
@pytest.mark.parametrize("greets", [False, True])
async def test_a_connection_that_is_gone_is_freed_without_the_garbage_collector(
    there: HubHarness, path: str, greets: bool
) -> None:
    made = {kind: spy(kind) for kind in (BoundedWebSocket, BoundedProtocol)}
    gc.disable()
    try:
        sockets = []
        for _ in range(6):
            sockets.append(await Socket.open(there, path, f"Authorization: Bearer {there.tokens['alice']}"))
            if greets:
                sockets[-1].say(f.encode_batch([f.Hello()]))
            sockets[-1].begin(4000)
            sockets[-1].writer.write(b"x" * 3000)
            await sockets[-1].writer.drain()
        left = [weakref.ref(found) for look in made.values() for found in look()]
        assert len(left) >= 6
        buffers = [weakref.ref(found().conn) for found in left if isinstance(found(), BoundedWebSocket)]  # type: ignore[union-attr]
        for socket in sockets:
            socket.writer.transport.abort()
        await until(lambda: not any(found() for found in [*left, *buffers]))
    finally:
        gc.enable()

"""Tests of bridges over real sockets and TCP.

A bridge passes messages in both directions, never back to their sender, and connects again after a loss.
"""

import asyncio
import random
import socket
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.protocols.agent_channels.sockets import WAIT_SECONDS, Log, Peer
from tieline.protocols.agent_channels import bridge as bridge_module
from tieline.protocols.agent_channels.bridge import Bridge, TcpBridgeClient, TcpBridgeServer
from tieline.protocols.agent_channels.channel import Channel
from tieline.protocols.agent_channels.codec import DecodeError, Message
from tieline.protocols.agent_channels.connection import Connection
from tieline.server.certificate import own_certificate
from tieline.wire.address import with_pin
from tieline.wire.frames import encode_frame
from tieline.wire.tls import client_context

MIB = 1024 * 1024


class Naps:
    """Test double: a sleep function that returns at once and records the requested times."""

    def __init__(self) -> None:
        self.seconds: list[float] = []

    async def __call__(self, seconds: float) -> None:
        self.seconds.append(seconds)
        await asyncio.sleep(0)


@pytest.fixture
async def channel(folder: Path) -> AsyncIterator[Channel]:
    """Fixture: the running channel of machine A."""
    channel = Channel(folder / "a.sock")
    await channel.start()
    yield channel
    await channel.stop()


@pytest.fixture
async def other(folder: Path) -> AsyncIterator[Channel]:
    """Fixture: the running channel of machine B."""
    channel = Channel(folder / "b.sock")
    await channel.start()
    yield channel
    await channel.stop()


@pytest.fixture
async def server(channel: Channel) -> AsyncIterator[TcpBridgeServer]:
    """Fixture: a running bridge server on machine A."""
    log = Log(channel)
    server = TcpBridgeServer(channel.path, port=0)
    await server.start()
    await log.wait("connect")
    yield server
    await server.stop()


@pytest.fixture
def free_port() -> Iterator[int]:
    """Fixture: a TCP port without a listener, reserved until the end of the test."""
    with socket.socket() as holder:
        holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        holder.bind(("127.0.0.1", 0))
        yield holder.getsockname()[1]


async def join(channel: Channel) -> Peer:
    """Connect a client and wait until the channel knows it. Return the client."""
    log = Log(channel)
    peer = await Peer.unix(channel.path)
    await log.wait("connect")
    return peer


async def dial(server: TcpBridgeServer, log: Log) -> Peer:
    """Connect a client over TCP and wait until the bridge knows it. Return the client."""
    before = len(log.of("tcp-connect"))
    peer = await Peer.tcp(server.port)
    await log.wait("tcp-connect", before + 1)
    return peer


# Two machines


async def test_messages_on_each_machine_s_channel_appear_on_the_other_s(
    channel: Channel, other: Channel, server: TcpBridgeServer
) -> None:
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port)
    await bridge.start()
    a, b = await join(channel), await join(other)
    await a.send({"msg": "from A", "data": {"n": 1}, "extra": True})
    assert await b.receive() == Message("from A", {"n": 1}, {"extra": True})
    await b.send({"msg": "from B"})
    assert await a.texts(1) == ["from B"], "and a does not hear its own message come back"
    sent = [str(number) for number in range(500)]
    await a.send(*({"msg": text} for text in sent))
    await b.send(*({"msg": text} for text in sent))
    assert await b.texts(500) == await a.texts(500) == sent
    a.close()
    b.close()
    await bridge.stop()


async def test_messages_cross_a_bridge_with_tls(channel: Channel, other: Channel, folder: Path) -> None:
    certificate = own_certificate(folder, ())
    server = TcpBridgeServer(channel.path, tls=certificate.context())
    await server.start()
    trusted = client_context(with_pin("https://127.0.0.1", certificate.fingerprint))
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port, tls=trusted)
    await bridge.start()
    a, b = await join(channel), await join(other)
    await a.send({"msg": "from A"})
    assert await b.texts(1) == ["from A"]
    await b.send({"msg": "from B"})
    assert await a.texts(1) == ["from B"]
    a.close()
    b.close()
    await bridge.stop()
    await server.stop()


def test_a_bridge_leaves_this_machine_only_with_tls_or_on_a_network_that_is_said_to_be_safe(folder: Path) -> None:
    with pytest.raises(ValueError, match="needs TLS"):
        TcpBridgeServer(folder / "a.sock", "0.0.0.0")
    with pytest.raises(ValueError, match="needs TLS"):
        TcpBridgeClient(folder / "a.sock", "192.0.2.1", 1)
    TcpBridgeServer(folder / "a.sock", "0.0.0.0", insecure=True)
    TcpBridgeClient(folder / "a.sock", "192.0.2.1", 1, insecure=True)


async def test_three_machines_hear_each_other_through_one_server(
    channel: Channel, other: Channel, server: TcpBridgeServer, folder: Path
) -> None:
    third = Channel(folder / "c.sock")
    await third.start()
    bridges = [TcpBridgeClient(remote.path, "127.0.0.1", server.port) for remote in (other, third)]
    for bridge in bridges:
        await bridge.start()
    a, b, c = await join(channel), await join(other), await join(third)
    await b.send({"msg": "from B"})
    assert await a.texts(1) == await c.texts(1) == ["from B"]
    await c.send({"msg": "from C"})
    assert await a.texts(1) == await b.texts(1) == ["from C"]
    for bridge in bridges:
        await bridge.stop()
    await third.stop()
    for peer in (a, b, c):
        peer.close()


async def test_after_the_server_restarts_the_client_reconnects_and_messages_flow_again(
    channel: Channel, other: Channel, server: TcpBridgeServer
) -> None:
    naps = Naps()
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port, sleep=naps, chance=lambda: 0.5)
    log = Log(bridge)
    await bridge.start()
    port = server.port
    await server.stop()
    await log.wait("tcp-disconnect")
    assert bridge.status == "running"
    await log.wait("reconnecting", 3)
    restarted = TcpBridgeServer(channel.path, port=port)
    await restarted.start()
    await log.wait("tcp-connect", 2)
    a, b = await join(channel), await join(other)
    await a.send({"msg": "again from A"})
    assert await b.texts(1) == ["again from A"]
    await b.send({"msg": "again from B"})
    assert await a.texts(1) == ["again from B"]
    assert log.of("reconnecting")[:3] == [(1, 500), (2, 1000), (3, 2000)]
    assert naps.seconds[:3] == [0.5, 1.0, 2.0]
    assert log.of("error") == []
    await bridge.stop()
    await restarted.stop()
    a.close()
    b.close()


# Server


async def test_messages_from_the_channel_fan_out_to_all_tcp_clients(channel: Channel, server: TcpBridgeServer) -> None:
    log = Log(server)
    one, two = await dial(server, log), await dial(server, log)
    local = await join(channel)
    await local.send({"msg": "hello"})
    assert await one.texts(1) == await two.texts(1) == ["hello"]
    assert await log.wait("message") == [(Message("hello"), "channel")]
    for peer in (one, two, local):
        peer.close()


async def test_messages_from_a_tcp_client_go_to_the_channel_and_to_other_tcp_clients(
    channel: Channel, server: TcpBridgeServer
) -> None:
    log = Log(server)
    one, two = await dial(server, log), await dial(server, log)
    local = await join(channel)
    await one.send({"msg": "from one"})
    assert await local.texts(1) == await two.texts(1) == ["from one"]
    await two.send({"msg": "from two"})
    assert await one.texts(1) == ["from two"], "one does not hear itself"
    assert log.of("message") == [(Message("from one"), "tcp-0"), (Message("from two"), "tcp-1")]
    for peer in (one, two, local):
        peer.close()


async def test_tcp_clients_come_and_go_with_events_and_ids(server: TcpBridgeServer) -> None:
    log = Log(server)
    one, two = await dial(server, log), await dial(server, log)
    one.close()
    await log.wait("tcp-disconnect")
    assert log.entries == [("tcp-connect", "tcp-0"), ("tcp-connect", "tcp-1"), ("tcp-disconnect", "tcp-0")]
    two.close()


async def test_the_server_listens_on_loopback_unless_told_otherwise(server: TcpBridgeServer) -> None:
    assert server.host == "127.0.0.1"
    assert server.port != 0


async def test_the_port_asked_for_is_the_port(channel: Channel, free_port: int) -> None:
    server = TcpBridgeServer(channel.path, "127.0.0.1", free_port)
    assert server.port == free_port
    await server.start()
    assert server.port == free_port
    await server.stop()


async def test_bad_input_disconnects_that_tcp_client_alone_after_the_messages_before_it(
    channel: Channel, server: TcpBridgeServer
) -> None:
    log = Log(server)
    bad, good = await dial(server, log), await dial(server, log)
    local = await join(channel)
    await bad.send({"msg": "before"}, encode_frame(b"[]"), {"msg": "after"})
    assert await local.texts(1) == await good.texts(1) == ["before"]
    (error,) = await log.wait("error")
    assert isinstance(error, DecodeError)
    assert str(error) == "Invalid message format: []"
    assert await bad.closed() == b""
    assert await log.wait("tcp-disconnect") == ["tcp-0"]
    await good.send({"msg": "still here"})
    assert await local.texts(1) == ["still here"]
    assert server.status == "running"
    for peer in (bad, good, local):
        peer.close()


async def test_status_is_stopped_then_running_then_stopped(channel: Channel) -> None:
    server: Bridge = TcpBridgeServer(channel.path)
    assert server.status == "stopped"
    await server.start()
    running = server.status
    await server.stop()
    await server.stop()
    assert (running, server.status) == ("running", "stopped")


async def test_starting_a_running_bridge_is_an_error(channel: Channel, server: TcpBridgeServer) -> None:
    with pytest.raises(RuntimeError, match=r"^Bridge already running$"):
        await server.start()
    client = TcpBridgeClient(channel.path, "127.0.0.1", server.port)
    outcomes = await asyncio.gather(client.start(), client.start(), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes if outcome] == ["Bridge already running"]
    with pytest.raises(RuntimeError, match=r"^Bridge already running$"):
        await client.start()
    await client.stop()


async def test_a_lost_channel_is_an_error_and_the_bridge_can_be_started_again(
    channel: Channel, server: TcpBridgeServer
) -> None:
    log = Log(server)
    await channel.stop()
    (error,) = await log.wait("error")
    assert str(error) == "Local channel disconnected"
    statuses = [server.status]
    await channel.start()
    await server.start()
    statuses.append(server.status)
    assert statuses == ["error", "running"]
    remote, local = await dial(server, log), await join(channel)
    await remote.send({"msg": "back"})
    assert await local.texts(1) == ["back"]
    remote.close()
    local.close()


async def test_a_channel_that_sends_garbage_is_a_lost_channel(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    channel.on("connect", lambda client_id: channel.send(client_id, bytes(4)))
    await channel.start()
    server = TcpBridgeServer(channel.path)
    log = Log(server)
    await server.start()
    assert [str(error) for error in await log.wait("error", 2)] == [
        "Invalid JSON in message frame: ",
        "Local channel disconnected",
    ]
    assert server.status == "error"
    await server.stop()
    await channel.stop()


async def test_without_a_channel_neither_bridge_starts(folder: Path, free_port: int) -> None:
    for bridge in (
        TcpBridgeServer(folder / "a.sock"),
        TcpBridgeClient(folder / "a.sock", "127.0.0.1", free_port),
    ):
        with pytest.raises(FileNotFoundError):
            await bridge.start()
        assert bridge.status == "stopped"


async def test_a_port_in_use_leaves_nothing_connected_to_the_channel(channel: Channel, server: TcpBridgeServer) -> None:
    log = Log(channel)
    second = TcpBridgeServer(channel.path, port=server.port)
    with pytest.raises(OSError, match="in use"):
        await second.start()
    assert second.status == "stopped"
    await log.wait("disconnect")
    assert channel.client_count == 1


@pytest.mark.slow
async def test_a_channel_that_does_not_keep_up_makes_tcp_wait_and_loses_nothing(
    channel: Channel, server: TcpBridgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    paused = asyncio.Event()
    pause_reading = Connection.pause_reading

    def note(connection: Connection) -> None:
        pause_reading(connection)
        if connection.id == "tcp-0":
            paused.set()

    monkeypatch.setattr(Connection, "pause_reading", note)
    log = Log(server, "message")
    remote, local = await dial(server, log), await join(channel)
    channel.pause_reading("client-0")
    count = 96
    sending = asyncio.create_task(remote.send(*({"msg": f"{number:<10}" + "x" * MIB} for number in range(count))))
    async with asyncio.timeout(WAIT_SECONDS):
        await paused.wait()
    assert not sending.done(), "the sender waits while the channel does not read"
    channel.resume_reading("client-0")
    assert [int(text[:10]) for text in await local.texts(count)] == list(range(count))
    await sending
    assert log.of("error") == []
    remote.close()
    local.close()


GROWING = encode_frame(b'{"msg":"m","data":{"n":[' + b",".join([b"1e9"] * 15) + b"]}}")


async def test_a_message_from_tcp_that_grows_beyond_the_limit_costs_its_sender_the_connection(
    channel: Channel, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "MESSAGE_BYTES_MAX", 100)
    server = TcpBridgeServer(channel.path)
    log = Log(server)
    await server.start()
    bad, good, local = await dial(server, log), await dial(server, log), await join(channel)
    await bad.send(GROWING)
    (error,) = await log.wait("error")
    assert str(error).endswith("exceeds maximum 100")
    assert await log.wait("tcp-disconnect") == ["tcp-0"]
    await good.send({"msg": "go on"})
    assert await local.texts(1) == ["go on"]
    await server.stop()
    for peer in (bad, good, local):
        peer.close()


async def test_a_message_from_the_channel_that_grows_beyond_the_limit_is_dropped_with_an_error(
    channel: Channel, server: TcpBridgeServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bridge_module, "MESSAGE_BYTES_MAX", 100)
    log = Log(server)
    remote, local = await dial(server, log), await join(channel)
    await local.send(GROWING, {"msg": "go on"})
    assert await remote.texts(1) == ["go on"]
    assert [str(error).endswith("exceeds maximum 100") for error in log.of("error")] == [True]
    assert server.status == "running"
    remote.close()
    local.close()


async def test_tcp_clients_still_hear_each_other_when_the_channel_is_lost(
    channel: Channel, server: TcpBridgeServer
) -> None:
    log = Log(server)
    one, two = await dial(server, log), await dial(server, log)
    await channel.stop()
    await log.wait("error")
    await one.send({"msg": "anybody?"})
    assert await two.texts(1) == ["anybody?"]
    one.close()
    two.close()


async def test_stop_hangs_up_on_tcp_clients_and_leaves_the_channel(channel: Channel, server: TcpBridgeServer) -> None:
    log, events = Log(server), Log(channel)
    remote = await dial(server, log)
    await server.stop()
    assert await remote.closed() == b""
    assert await events.wait("disconnect") == ["client-0"]
    remote.close()


# Client


async def test_a_first_connection_that_fails_rejects_start(channel: Channel, free_port: int) -> None:
    events = Log(channel)
    bridge = TcpBridgeClient(channel.path, "127.0.0.1", free_port)
    log = Log(bridge)
    with pytest.raises(ConnectionRefusedError):
        await bridge.start()
    assert bridge.status == "stopped"
    assert log.entries == []
    await events.wait("disconnect")


async def test_messages_while_tcp_is_down_are_dropped(
    channel: Channel, other: Channel, server: TcpBridgeServer
) -> None:
    awake = asyncio.Event()

    async def sleep(_: float) -> None:
        await awake.wait()

    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port, sleep=sleep)
    log = Log(bridge)
    await bridge.start()
    port = server.port
    await server.stop()
    await log.wait("reconnecting")
    a, b = await join(channel), await join(other)
    await b.send({"msg": "into the void"})
    await log.wait("message")
    restarted = TcpBridgeServer(channel.path, port=port)
    await restarted.start()
    awake.set()
    await log.wait("tcp-connect", 2)
    await b.send({"msg": "back again"})
    assert await a.texts(1) == ["back again"]
    await bridge.stop()
    await restarted.stop()
    a.close()
    b.close()


async def test_without_reconnect_a_lost_connection_is_the_end(other: Channel, server: TcpBridgeServer) -> None:
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port, reconnect=False)
    log = Log(bridge)
    await bridge.start()
    await server.stop()
    await log.wait("tcp-disconnect")
    assert log.entries == [("tcp-connect",), ("tcp-disconnect",)]
    assert bridge.status == "error"
    await bridge.stop()


async def test_stop_ends_the_reconnecting_and_emits_nothing(other: Channel, server: TcpBridgeServer) -> None:
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port)
    log = Log(bridge)
    await bridge.start()
    await server.stop()
    await log.wait("reconnecting")
    before = list(log.entries)
    await bridge.stop()
    assert bridge.status == "stopped"
    assert log.entries == before


async def test_stop_while_starting_leaves_nothing_open(other: Channel, server: TcpBridgeServer) -> None:
    events = Log(other)
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port)
    bridge.on("tcp-connect", lambda: stopping.append(asyncio.get_running_loop().create_task(bridge.stop())))
    stopping: list[asyncio.Task[None]] = []
    try:
        await bridge.start()
    except ConnectionAbortedError as error:
        assert str(error) == "Bridge stopped during connect"  # noqa: PT017 - which comes first is up to the loop
    await stopping[0]
    await events.wait("disconnect")
    assert bridge.status == "stopped"


async def test_bad_input_from_the_server_makes_the_client_reconnect(other: Channel) -> None:
    connections: asyncio.Queue[asyncio.StreamWriter] = asyncio.Queue()

    async def serve(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.put_nowait(writer)

    rude = await asyncio.start_server(serve, "127.0.0.1", 0)
    bridge = TcpBridgeClient(other.path, "127.0.0.1", rude.sockets[0].getsockname()[1], sleep=Naps())
    log = Log(bridge)
    await bridge.start()
    first = await connections.get()
    first.write(encode_frame(b"[]"))
    await log.wait("tcp-connect", 2)
    second = await connections.get()
    await bridge.stop()
    assert [event for event, *_ in log.entries] == [
        "tcp-connect",
        "error",
        "tcp-disconnect",
        "reconnecting",
        "tcp-connect",
    ]
    for writer in (first, second):
        writer.close()
    rude.close()


def test_the_delay_doubles_varies_by_a_quarter_either_way_and_is_capped() -> None:
    def delays(chance: float, attempts: int = 10) -> list[int]:
        bridge = TcpBridgeClient("a.sock", "127.0.0.1", 1, chance=lambda: chance)
        return [bridge._delay(attempt) for attempt in range(1, attempts + 1)]

    assert delays(0.5) == [500, 1000, 2000, 4000, 8000, 16000, 30000, 30000, 30000, 30000]
    assert delays(0.0)[:3] == [375, 750, 1500]
    assert delays(1.0)[:3] == [625, 1250, 2500]
    assert delays(0.5, 5000)[-1] == 30000


def test_delays_are_configurable_in_milliseconds() -> None:
    chance = random.Random(7)
    bridge = TcpBridgeClient("a.sock", "localhost", 1, reconnect_delay=10, max_reconnect_delay=55, chance=chance.random)
    for attempt in range(1, 20):
        base = 10 * 2 ** (attempt - 1)
        assert min(round(base * 0.75), 55) <= bridge._delay(attempt) <= min(round(base * 1.25), 55)


async def test_the_shortest_waits_are_real_ones(other: Channel, server: TcpBridgeServer, channel: Channel) -> None:
    bridge = TcpBridgeClient(other.path, "127.0.0.1", server.port, reconnect_delay=1, max_reconnect_delay=5)
    log = Log(bridge)
    await bridge.start()
    port = server.port
    await server.stop()
    await log.wait("reconnecting", 3)
    restarted = TcpBridgeServer(channel.path, port=port)
    await restarted.start()
    async with asyncio.timeout(WAIT_SECONDS):
        await log.wait("tcp-connect", 2)
    await bridge.stop()
    await restarted.stop()

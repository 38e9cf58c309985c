"""Tests of the client over real sockets: its events, its message loop, and its errors without a connection."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.agent_channels.sockets import WAIT_SECONDS, Log, Peer
from tieline.protocols.agent_channels import client as client_module
from tieline.protocols.agent_channels.channel import Channel
from tieline.protocols.agent_channels.client import ChannelClient
from tieline.protocols.agent_channels.codec import DecodeError, InvalidMessage, Message, encode
from tieline.wire.frames import encode_frame
from tieline.wire.unix import SocketPathTooLong, listen

MIB = 1024 * 1024


@pytest.fixture
async def channel(folder: Path) -> AsyncIterator[Channel]:
    """Fixture: a running channel."""
    channel = Channel(folder / "general.sock")
    await channel.start()
    yield channel
    await channel.stop()


@pytest.fixture
def log(channel: Channel) -> Log:
    """Fixture: a log of the channel's events, from before the first client."""
    return Log(channel)


async def test_a_client_sends_to_the_others_and_hears_them(channel: Channel) -> None:
    async with ChannelClient(channel.path) as a, ChannelClient(str(channel.path)) as b:
        heard = Log(b)
        a.send({"msg": "hello from a1", "data": {"from": "a1", "status": "ready"}})
        assert await heard.wait("message") == [Message("hello from a1", {"from": "a1", "status": "ready"})]


async def test_connect_emits_connect_before_anything_else(channel: Channel) -> None:
    channel.on("connect", lambda client_id: channel.send(client_id, encode({"msg": "welcome"})))
    client = ChannelClient(channel.path)
    log = Log(client)
    assert not client.connected
    await client.connect()
    assert client.connected
    await log.wait("message")
    assert log.entries == [("connect",), ("message", Message("welcome"))]
    client.disconnect()


async def test_connecting_twice_is_an_error(channel: Channel) -> None:
    client = ChannelClient(channel.path)
    outcomes = await asyncio.gather(client.connect(), client.connect(), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes if outcome] == ["Already connected"]
    with pytest.raises(RuntimeError, match=r"^Already connected$"):
        await client.connect()
    client.disconnect()


async def test_sending_while_not_connected_is_an_error(channel: Channel) -> None:
    client = ChannelClient(channel.path)
    with pytest.raises(ConnectionError, match=r"^Not connected$"):
        client.send({"msg": "hello?"})
    await client.connect()
    client.disconnect()
    assert not client.connected
    with pytest.raises(ConnectionError, match=r"^Not connected$"):
        client.send({"msg": "hello?"})
    with pytest.raises(ConnectionError, match=r"^Not connected$"):
        await client.drain()


async def test_connecting_to_nobody_fails_without_events_and_can_be_tried_again(folder: Path) -> None:
    client = ChannelClient(folder / "a.sock")
    log = Log(client)
    with pytest.raises(FileNotFoundError):
        await client.connect()
    assert log.entries == []
    assert not client.connected
    channel = Channel(folder / "a.sock")
    await channel.start()
    await client.connect()
    assert client.connected
    client.disconnect()
    await channel.stop()


async def test_a_path_too_long_for_a_unix_address_is_refused_not_cut_short(folder: Path) -> None:
    with pytest.raises(SocketPathTooLong, match="Socket path too long"):
        await ChannelClient(folder / ("x" * 120)).connect()


async def test_what_no_channel_would_accept_is_not_sent(channel: Channel, log: Log) -> None:
    async with ChannelClient(channel.path, max_message_size=100) as client:
        for value in ({"msg": ""}, {"msg": "m", "data": None}, {"msg": "x" * 91}):
            with pytest.raises(InvalidMessage):
                client.send(value)
        client.send({"msg": "fine"})
        assert await log.wait("message") == [(Message("fine"), "client-0")]


async def test_disconnect_by_the_user_emits_nothing_and_is_no_error_twice(channel: Channel, log: Log) -> None:
    client = ChannelClient(channel.path)
    await client.connect()
    events = Log(client)
    client.disconnect()
    client.disconnect()
    await log.wait("disconnect")
    assert not client.connected
    assert events.entries == []


async def test_what_was_sent_before_disconnect_arrives(channel: Channel, log: Log) -> None:
    client = ChannelClient(channel.path)
    await client.connect()
    client.send({"msg": "x" * MIB})
    client.send({"msg": "bye"})
    client.disconnect()
    assert [message.msg[:3] for message, _ in await log.wait("message", 2)] == ["xxx", "bye"]


async def test_a_lost_connection_emits_disconnect_and_the_consumer_can_reconnect_by_hand(channel: Channel) -> None:
    client = ChannelClient(channel.path)
    log = Log(client)
    await client.connect()
    await channel.stop()
    await log.wait("disconnect")
    assert log.entries == [("connect",), ("disconnect",)]
    assert not client.connected
    await channel.start()
    client.disconnect()
    await client.connect()
    assert client.connected
    client.disconnect()


async def test_disconnect_then_connect_at_once_gives_a_new_connection(channel: Channel, log: Log) -> None:
    client = ChannelClient(channel.path)
    events = Log(client)
    await client.connect()
    client.disconnect()
    await client.connect()
    await log.wait("disconnect")
    client.send({"msg": "back"})
    assert await log.wait("message") == [(Message("back"), "client-1")]
    assert events.entries == [("connect",), ("connect",)]
    client.disconnect()


async def test_disconnect_while_connecting_leaves_nothing_connected(channel: Channel) -> None:
    client = ChannelClient(channel.path)
    events = Log(client)
    connecting = asyncio.create_task(client.connect())
    await asyncio.sleep(0)
    client.disconnect()
    await asyncio.wait([connecting])
    assert not client.connected
    assert events.of("disconnect") == []


@pytest.mark.parametrize(
    ("chunk", "text"),
    [(bytes(4), "Invalid JSON in message frame: "), (encode_frame(b"[]"), "Invalid message format: []")],
)
async def test_bad_input_emits_error_and_disconnects_silently_after_the_messages_before_it(
    folder: Path, chunk: bytes, text: str
) -> None:
    class Rude(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            transport.write(encode({"msg": "good"}) + chunk)  # type: ignore[attr-defined]

    server = await listen(folder / "a.sock", Rude)
    client = ChannelClient(folder / "a.sock")
    log = Log(client)
    await client.connect()
    (error,) = await log.wait("error")
    assert isinstance(error, DecodeError)
    assert str(error) == text
    assert not client.connected
    server.close()
    await server.wait_closed()
    assert [event for event, *_ in log.entries] == ["connect", "message", "error"]


# The loop


async def test_a_loop_gives_messages_in_order_and_ends_when_the_connection_does(channel: Channel, log: Log) -> None:
    client = ChannelClient(channel.path)
    await client.connect()
    await log.wait("connect")
    for number in range(5):
        channel.broadcast({"msg": str(number)})
    await channel.stop()
    async with asyncio.timeout(WAIT_SECONDS):
        assert [message.msg async for message in client] == ["0", "1", "2", "3", "4"]
        assert [message async for message in client] == []


async def test_disconnect_by_the_user_ends_a_loop_that_waits(channel: Channel) -> None:
    client = ChannelClient(channel.path)
    await client.connect()

    async def listen_on() -> list[Message]:
        return [message async for message in client]

    listening = asyncio.create_task(listen_on())
    await asyncio.sleep(0)
    client.disconnect()
    async with asyncio.timeout(WAIT_SECONDS):
        assert await listening == []


async def test_messages_that_came_before_the_loop_began_are_not_lost(channel: Channel, log: Log) -> None:
    async with ChannelClient(channel.path) as client:
        await log.wait("connect")
        channel.broadcast({"msg": "early"})
        async for message in client:
            assert message == Message("early")
            break
        channel.broadcast({"msg": "later"})
        async for message in client:
            assert message == Message("later")
            break


async def test_a_loop_and_a_handler_both_hear_a_message(channel: Channel, log: Log) -> None:
    async with ChannelClient(channel.path) as client:
        await log.wait("connect")
        heard: list[Message] = []
        client.on("message", heard.append)
        asyncio.get_running_loop().call_soon(channel.broadcast, {"msg": "twice"})
        async for message in client:
            assert heard == [message] == [Message("twice")]
            break


async def test_with_a_handler_and_no_loop_nothing_is_kept(channel: Channel, log: Log) -> None:
    async with ChannelClient(channel.path) as client:
        events = Log(client)
        await log.wait("connect")
        channel.broadcast({"msg": "handled"})
        await events.wait("message")
        await channel.stop()
        assert [message async for message in client] == []


async def test_a_busy_loop_makes_reading_pause_and_loses_nothing(
    channel: Channel, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "INBOX_MAX", 4)
    count = 60
    async with ChannelClient(channel.path) as client:
        await log.wait("connect")
        channel.broadcast({"msg": "first"})
        received: list[str] = []
        async for message in client:
            received.append(message.msg[:10])
            if message.msg == "first":
                for number in range(count):
                    channel.broadcast({"msg": f"{number:<10}" + "x" * MIB})
                # The channel holds what a paused client does not read.
                assert channel.unsent_bytes("client-0") > MIB
            if len(received) == count + 1:
                break
        assert [text.strip() for text in received] == ["first", *map(str, range(count))]


async def test_a_client_that_only_sends_keeps_the_newest_messages_and_never_stalls_the_channel(
    channel: Channel, log: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client_module, "INBOX_MAX", 4)
    client = ChannelClient(channel.path)
    await client.connect()
    await log.wait("connect")
    for number in range(100):
        channel.broadcast({"msg": str(number)})
    await channel.stop()
    async with asyncio.timeout(WAIT_SECONDS):
        # Nobody has looked yet, so wait for the end of the connection by its event.
        events = Log(client, "message")
        await events.until(lambda: not client.connected)
    assert [message.msg async for message in client] == ["96", "97", "98", "99"]


# Writers who care


async def test_drain_waits_until_the_channel_has_read(channel: Channel, log: Log) -> None:
    async with ChannelClient(channel.path) as client:
        events = Log(client)
        await log.wait("connect")
        channel.pause_reading("client-0")
        while client.writable:
            client.send({"msg": "x" * MIB})
            await asyncio.sleep(0)
        draining = asyncio.create_task(client.drain())
        await asyncio.sleep(0)
        assert not draining.done()
        channel.resume_reading("client-0")
        async with asyncio.timeout(WAIT_SECONDS):
            await draining
        assert client.writable
        assert events.of("drain")


async def test_drain_fails_when_the_connection_is_lost_meanwhile(channel: Channel, log: Log) -> None:
    client = ChannelClient(channel.path)
    await client.connect()
    await log.wait("connect")
    channel.pause_reading("client-0")
    while client.writable:
        client.send({"msg": "x" * MIB})
        await asyncio.sleep(0)
    draining = asyncio.create_task(client.drain())
    await asyncio.sleep(0)
    await channel.stop()
    async with asyncio.timeout(WAIT_SECONDS):
        with pytest.raises(ConnectionError, match=r"^Not connected$"):
            await draining


async def test_a_sender_whose_channel_does_not_read_is_told_when_too_much_waits(channel: Channel, log: Log) -> None:
    client = ChannelClient(channel.path, unsent_bytes_max=MIB)
    events = Log(client)
    await client.connect()
    await log.wait("connect")
    channel.pause_reading("client-0")

    async def pour() -> None:
        while True:
            client.send({"msg": "x" * MIB})
            await asyncio.sleep(0)

    with pytest.raises(ConnectionError, match=r"^Not connected$"):
        await pour()
    assert "the other end does not read" in str(events.of("error")[0])
    assert not client.connected
    channel.resume_reading("client-0")


async def test_leaving_the_context_waits_until_the_connection_is_gone(channel: Channel) -> None:
    async with ChannelClient(channel.path) as client:
        peer = await Peer.unix(channel.path)
        client.send({"msg": "bye"})
    assert not client.connected
    assert await peer.texts(1) == ["bye"]
    peer.close()

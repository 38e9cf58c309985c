"""Tests of a channel over real sockets: the recipients of a message, and the limits of the harm of a bad client."""

import asyncio
import os
import re
import socket
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_channels.halls import MIB, Hall, join, running
from tests.protocols.agent_channels.sockets import WAIT_SECONDS, Log, Peer
from tieline.protocols.agent_channels.channel import Channel, ClientError
from tieline.protocols.agent_channels.codec import DecodeError, InvalidMessage, Message, encode
from tieline.protocols.agent_channels.connection import SlowReader
from tieline.wire.frames import encode_frame
from tieline.wire.unix import SocketInUse

# Promises of the specification


async def test_a_client_hears_what_is_said_right_after_its_connect_returned(hall: Hall) -> None:
    channel, log, peers = hall
    for number in range(20):
        with socket.socket(socket.AF_UNIX) as late:
            # The kernel has connected it, and the event loop knows nothing of it yet.
            late.connect(str(channel.path))
            peers[0].writer.write(encode({"msg": f"number {number}"}))
            late.setblocking(False)
            async with asyncio.timeout(WAIT_SECONDS):
                received = await asyncio.get_running_loop().sock_recv(late, 4096)
            assert received == encode({"msg": f"number {number}"})
        await log.until(lambda: channel.client_count == 3)
    assert await peers[1].texts(20) == [f"number {number}" for number in range(20)]


async def test_a_client_hears_what_is_said_after_its_connect_if_it_is_read_together_with_an_earlier_message(
    hall: Hall,
) -> None:
    channel, log, _ = hall
    before, after = encode({"msg": "before"}), encode({"msg": "after"})
    with socket.socket(socket.AF_UNIX) as speaker:
        speaker.connect(str(channel.path))
        await log.until(lambda: channel.client_count == 4)
        for _ in range(5):
            with socket.socket(socket.AF_UNIX) as late:
                # The event loop sees all of this at once, and the speaker's socket was readable first.
                speaker.sendall(before)
                late.connect(str(channel.path))
                speaker.sendall(after)
                late.setblocking(False)
                received = b""
                async with asyncio.timeout(WAIT_SECONDS):
                    while not received.endswith(after):
                        received += await asyncio.get_running_loop().sock_recv(late, 4096)
            await log.until(lambda: channel.client_count == 4)


async def test_a_client_that_is_sent_away_at_once_is_hung_up_on_and_hears_nothing(hall: Hall) -> None:
    channel, log, peers = hall
    channel.on("connect", lambda client_id: channel.disconnect(client_id, "not today"))
    late = await Peer.unix(channel.path)
    await peers[0].send({"msg": "for those who stay"})
    assert await late.closed() == b""
    late.close()
    assert str((await log.wait("error"))[0]) == "not today"
    assert await peers[1].texts(1) == ["for those who stay"]


async def test_what_a_handler_does_to_a_client_at_its_connect_holds(folder: Path) -> None:
    async with running(Channel(folder / "general.sock")) as (channel, log):
        channel.on("connect", channel.pause_reading)
        channel.on("connect", lambda client_id: channel.send(client_id, encode({"msg": "welcome"})))
        late = await Peer.unix(channel.path)
        assert await late.texts(1) == ["welcome"]
        await late.send({"msg": "wait for me"})
        await asyncio.sleep(0)
        assert log.of("message") == []
        channel.resume_reading("client-0")
        assert [message.msg for message, _ in await log.wait("message")] == ["wait for me"]
        late.close()


async def test_when_one_client_sends_a_message_all_others_receive_it_and_the_sender_does_not(hall: Hall) -> None:
    _, _, (a, b, c) = hall
    await a.send({"msg": "from a", "data": {"status": "ready"}})
    assert await b.receive() == await c.receive() == Message("from a", {"status": "ready"})
    await b.send({"msg": "from b"})
    assert await a.texts(1) == ["from b"], "the first thing a hears is not its own message"


async def test_with_echo_to_sender_the_sender_receives_it_too(folder: Path) -> None:
    async with running(Channel(folder / "a.sock", echo_to_sender=True)) as (channel, log):
        a, b = await join(channel, log, 2)
        await a.send({"msg": "echo"})
        assert await a.texts(1) == await b.texts(1) == ["echo"]
        a.close()
        b.close()


async def test_messages_of_one_client_arrive_in_the_order_it_sent_them(hall: Hall) -> None:
    _, _, (a, b, _) = hall
    sent = [str(number) for number in range(2000)]
    await a.send(*({"msg": text} for text in sent))
    assert await b.texts(len(sent)) == sent


async def test_a_message_event_has_the_message_and_the_client(hall: Hall) -> None:
    _, log, (_, b, _) = hall
    await b.send({"msg": "hi"})
    assert await log.wait("message") == [(Message("hi"), "client-1")]


async def test_clients_are_numbered_in_the_order_they_connect_and_numbers_are_not_used_again(hall: Hall) -> None:
    channel, log, (a, _, _) = hall
    assert channel.client_ids == log.of("connect") == ["client-0", "client-1", "client-2"]
    a.close()
    assert await log.wait("disconnect") == ["client-0"]
    (d,) = await join(channel, log, 1)
    assert channel.client_ids == ["client-1", "client-2", "client-3"]
    d.close()


async def test_client_count_is_the_number_of_connected_clients(hall: Hall) -> None:
    channel, log, (a, b, _) = hall
    assert channel.client_count == 3
    a.close()
    b.close()
    await log.wait("disconnect", 2)
    assert channel.client_count == 1


async def test_broadcast_goes_to_everybody(hall: Hall) -> None:
    channel, _, peers = hall
    channel.broadcast({"msg": "announcement from the server"})
    for peer in peers:
        assert await peer.texts(1) == ["announcement from the server"]


async def test_broadcast_can_leave_one_out(hall: Hall) -> None:
    channel, _, (a, b, c) = hall
    channel.broadcast(Message("not for b"), exclude="client-1")
    channel.broadcast(Message("for all"))
    assert await a.texts(2) == await c.texts(2) == ["not for b", "for all"]
    assert await b.texts(1) == ["for all"]


@pytest.mark.parametrize("value", [{"msg": ""}, {"msg": "m", "data": []}, {"msg": "x" * 200}])
async def test_broadcast_refuses_what_its_clients_would_refuse(folder: Path, value: dict[str, Any]) -> None:
    with pytest.raises(InvalidMessage):
        Channel(folder / "a.sock", max_message_size=100).broadcast(value)


async def test_other_top_level_keys_are_forwarded(hall: Hall) -> None:
    _, _, (a, b, _) = hall
    await a.send(encode_frame(b'{"v":2,"msg":"hi","tags":["x"]}'))
    assert await b.receive() == Message("hi", None, {"v": 2, "tags": ["x"]})


async def test_start_makes_the_folders_and_stop_disconnects_all_and_unlinks_the_socket(folder: Path) -> None:
    channel = Channel(folder / "deep" / "er" / "a.sock")
    assert not channel.started
    await channel.start()
    log = Log(channel)
    assert channel.started
    assert channel.path.is_socket()
    (a,) = await join(channel, log, 1)
    await channel.stop()
    assert not channel.started
    assert not channel.path.exists()
    assert await a.closed() == b""
    assert log.of("disconnect") == ["client-0"]
    assert channel.client_count == 0
    a.close()


async def test_stopping_twice_or_before_a_start_is_no_error(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    await channel.stop()
    await channel.start()
    await channel.stop()
    await channel.stop()


async def test_a_stopped_channel_can_be_started_again(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    for _ in range(2):
        async with running(channel) as (_, log):
            (a,) = await join(channel, log, 1)
            a.close()


async def test_starting_twice_is_an_error(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    outcomes = await asyncio.gather(channel.start(), channel.start(), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes if outcome] == ["Channel already started"]
    with pytest.raises(RuntimeError, match=r"^Channel already started$"):
        await channel.start()
    await channel.stop()


async def test_a_stale_socket_is_removed_and_replaced(folder: Path) -> None:
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(os.fspath(folder / "a.sock"))
    async with running(Channel(folder / "a.sock")) as (channel, log):
        (a,) = await join(channel, log, 1)
        a.close()


async def test_a_socket_somebody_listens_on_is_already_in_use_and_the_channel_can_try_again(folder: Path) -> None:
    late = Channel(folder / "a.sock")
    async with running(Channel(folder / "a.sock")):
        with pytest.raises(SocketInUse, match=f"^Socket already in use: {re.escape(str(late.path))}$"):
            await late.start()
        assert not late.started
    async with running(late):
        pass


async def test_stop_hangs_up_on_a_client_that_it_has_not_yet_noticed(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    log = Log(channel)
    await channel.start()
    unnoticed = await Peer.unix(channel.path)
    await channel.stop()
    assert await unnoticed.closed() == b""
    assert len(log.of("connect")) == len(log.of("disconnect"))
    unnoticed.close()


async def test_what_was_broadcast_before_stop_still_arrives(hall: Hall) -> None:
    channel, _, peers = hall
    channel.broadcast({"msg": "bye " + "x" * MIB})
    received = [asyncio.create_task(peer.texts(1)) for peer in peers]
    await channel.stop()
    for texts in received:
        assert (await texts)[0].startswith("bye")


# Bad input


BAD_INPUT: dict[str, tuple[bytes, str]] = {
    "length 0": (bytes(4), "Invalid JSON in message frame: "),
    "a length beyond the maximum": (b"\x01\x00\x00\x01", "Message size 16777217 exceeds maximum 16777216"),
    "not JSON": (encode_frame(b"GET / HTTP/1.1"), "Invalid JSON in message frame: GET / HTTP/1.1"),
    "not UTF-8": (encode_frame(b'{"msg":"\xff"}'), 'Invalid JSON in message frame: {"msg":"�"}'),
    "an array": (encode_frame(b"[1,2]"), "Invalid message format: [1,2]"),
    "an empty msg": (encode_frame(b'{"msg":""}'), 'Invalid message format: {"msg":""}'),
    "no msg": (encode_frame(b'{"data":{}}'), 'Invalid message format: {"data":{}}'),
    "data is an array": (encode_frame(b'{"msg":"m","data":[]}'), 'Invalid message format: {"msg":"m","data":[]}'),
    "data is null": (encode_frame(b'{"msg":"m","data":null}'), 'Invalid message format: {"msg":"m","data":null}'),
    "nested beyond any stack": (encode_frame(b"[" * 100_000), f"Invalid JSON in message frame: {'[' * 100}"),
}


@pytest.mark.parametrize("case", BAD_INPUT)
async def test_bad_input_disconnects_that_client_alone_with_an_error(hall: Hall, case: str) -> None:
    channel, log, (a, b, c) = hall
    chunk, text = BAD_INPUT[case]
    await a.send(chunk)
    (error,) = await log.wait("error")
    assert isinstance(error, ClientError)
    assert isinstance(error.__cause__, DecodeError)
    assert (error.client_id, str(error)) == ("client-0", text)
    assert await a.closed() == b""
    assert await log.wait("disconnect") == ["client-0"]
    await b.send({"msg": "still here"})
    assert await c.texts(1) == ["still here"]
    assert channel.client_ids == ["client-1", "client-2"]


async def test_messages_before_a_bad_frame_in_the_same_chunk_are_delivered(hall: Hall) -> None:
    _, log, (a, b, c) = hall
    await a.send({"msg": "one"}, {"msg": "two"}, bytes(4), {"msg": "never"})
    assert await b.texts(2) == await c.texts(2) == ["one", "two"]
    await log.wait("disconnect")
    assert [event for event, *_ in log.entries[3:]] == ["message", "message", "error", "disconnect"]
    await b.send({"msg": "next"})
    assert await c.texts(1) == ["next"]


async def test_the_limit_is_exclusive_and_configurable(folder: Path) -> None:
    async with running(Channel(folder / "a.sock", max_message_size=100)) as (channel, log):
        a, b = await join(channel, log, 2)
        await a.send({"msg": "x" * 90})
        assert await b.texts(1) == ["x" * 90]
        await a.send({"msg": "x" * 91})
        (error,) = await log.wait("error")
        assert str(error) == "Message size 101 exceeds maximum 100"
        a.close()
        b.close()


async def test_a_message_of_16_mebibytes_is_delivered(hall: Hall) -> None:
    _, _, (a, b, _) = hall
    text = "x" * (16 * MIB - 10)
    sending = asyncio.create_task(a.send({"msg": text}))
    assert await b.texts(1) == [text]
    await sending


async def test_a_message_whose_numbers_grow_beyond_the_limit_hurts_only_its_sender(folder: Path) -> None:
    async with running(Channel(folder / "a.sock", max_message_size=100)) as (channel, log):
        a, b = await join(channel, log, 2)
        await a.send(encode_frame(b'{"msg":"m","data":{"n":[' + b",".join([b"1e9"] * 15) + b"]}}"))
        (error,) = await log.wait("error")
        assert re.fullmatch(r"Message size \d+ exceeds maximum 100", str(error))
        assert await log.wait("disconnect") == ["client-0"]
        channel.broadcast({"msg": "still here"})
        assert await b.texts(1) == ["still here"]
        a.close()
        b.close()


async def test_half_a_frame_then_silence_keeps_the_others_going_and_hanging_up_is_just_a_disconnect(hall: Hall) -> None:
    _, log, (a, b, c) = hall
    await a.send(encode({"msg": "never finished"})[:-3])
    await b.send({"msg": "anybody?"})
    assert await a.texts(1) == await c.texts(1) == ["anybody?"]
    a.close()
    assert await log.wait("disconnect") == ["client-0"]
    assert log.of("error") == []


async def test_a_frame_sent_byte_by_byte_arrives_whole(hall: Hall) -> None:
    _, _, (a, b, _) = hall
    for byte in encode({"msg": "slowly"}):
        await a.send(bytes([byte]))
    assert await b.texts(1) == ["slowly"]


# Leaving


async def test_half_close_is_a_silent_disconnect_after_the_messages_before_it(hall: Hall) -> None:
    _, log, (a, b, _) = hall
    a.writer.write(encode({"msg": "last words"}))
    a.writer.write_eof()
    assert await b.texts(1) == ["last words"]
    assert await log.wait("disconnect") == ["client-0"]
    assert await a.closed() == b""
    assert log.of("error") == []


async def test_a_connection_reset_is_a_silent_disconnect(hall: Hall) -> None:
    channel, log, (a, b, _) = hall
    # Closing a Unix socket with unread input resets the other end.
    a.writer.transport.pause_reading()  # type: ignore[attr-defined]
    await b.send({"msg": "unread"})
    await log.wait("message")
    a.writer.transport.abort()
    channel.broadcast({"msg": "into the void"})
    assert await log.wait("disconnect") == ["client-0"]
    assert log.of("error") == []


async def test_many_clients_come_and_go_at_once_and_the_rest_hear_everything(folder: Path) -> None:
    async with running(Channel(folder / "a.sock")) as (channel, log):
        peers = await asyncio.gather(*(Peer.unix(channel.path) for _ in range(50)))
        await log.wait("connect", 50)
        for peer in peers[::2]:
            peer.close()
        for number in range(100):
            channel.broadcast({"msg": str(number)})
        await log.wait("disconnect", 25)
        for peer in peers[1::2]:
            assert await peer.texts(100) == [str(number) for number in range(100)]
            peer.close()


# A client that does not read


async def test_a_client_that_does_not_read_is_disconnected_with_an_error_when_too_much_waits(folder: Path) -> None:
    async with running(Channel(folder / "a.sock", unsent_bytes_max=2 * MIB)) as (channel, log):
        stuck, reading = await join(channel, log, 2)
        stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
        sent = 0
        while not log.of("error"):
            channel.broadcast({"msg": "x" * MIB})
            sent += 1
            assert len((await reading.texts(1))[0]) == MIB, "the others hear everything meanwhile"
            assert sent < 100
        (error,) = log.of("error")
        assert isinstance(error.__cause__, SlowReader)
        assert re.fullmatch(r"Unsent bytes \d+ exceed maximum 2097152: the other end does not read", str(error))
        assert await log.wait("disconnect") == [error.client_id] == ["client-0"]
        channel.broadcast({"msg": "go on"})
        assert await reading.texts(1) == ["go on"]
        stuck.close()
        reading.close()


@pytest.mark.slow
async def test_stop_does_not_wait_for_a_client_that_does_not_read(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    log = Log(channel)
    await channel.start()
    (stuck,) = await join(channel, log, 1)
    stuck.writer.transport.pause_reading()  # type: ignore[attr-defined]
    for _ in range(8):
        channel.broadcast({"msg": "x" * MIB})
    async with asyncio.timeout(5):
        await channel.stop()
    assert channel.client_count == 0
    stuck.close()

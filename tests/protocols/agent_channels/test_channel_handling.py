"""Tests of the parts of a channel that the hub uses: it handles posts, single clients and their limits itself."""

import asyncio
import os
import socket
import stat
import tracemalloc
from contextlib import suppress
from pathlib import Path
from typing import Any

from tests.protocols.agent_channels.halls import MIB, Hall, join, running
from tests.protocols.agent_channels.sockets import Peer
from tieline.protocols.agent_channels.channel import Channel
from tieline.protocols.agent_channels.codec import Message, encode


async def test_post_replaces_the_fan_out(folder: Path) -> None:
    posted: list[tuple[str, Message]] = []
    channel = Channel(folder / "a.sock", post=lambda client_id, message: posted.append((client_id, message)))
    async with running(channel) as (_, log):
        a, b = await join(channel, log, 2)
        await a.send({"msg": "to the hub"})
        await log.wait("message")
        assert posted == [("client-0", Message("to the hub"))]
        channel.broadcast({"msg": "from the hub"}, exclude="client-0")
        assert await b.texts(1) == ["from the hub"]
        assert channel.unsent_bytes("client-0") == 0
        a.close()
        b.close()


async def test_a_post_that_raises_costs_only_the_client_whose_message_it_was(folder: Path) -> None:
    def post(client_id: str, message: Message) -> None:
        raise ZeroDivisionError(f"{message.msg} of {client_id}")

    reported: list[dict[str, Any]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    async with running(Channel(folder / "a.sock", post=post)) as (channel, log):
        a, b = await join(channel, log, 2)
        await a.send({"msg": "trouble"})
        assert await log.wait("disconnect") == ["client-0"]
        assert [str(error) for error in log.of("error")] == ["trouble of client-0"]
        assert len(reported) == 1
        channel.broadcast({"msg": "go on"})
        assert await b.texts(1) == ["go on"]
        a.close()
        b.close()


async def test_framed_bytes_can_be_sent_to_one_or_to_all_but_one(hall: Hall) -> None:
    channel, log, (a, b, c) = hall
    assert channel.send("client-0", encode({"msg": "one"}))
    assert channel.send_all(encode({"msg": "two"}), exclude="client-1") == 2
    assert channel.send_all(encode({"msg": "three"})) == 3
    assert await a.texts(3) == ["one", "two", "three"]
    assert await b.texts(1) == ["three"]
    assert await c.texts(2) == ["two", "three"]
    a.close()
    await log.wait("disconnect")
    assert not channel.send("client-0", encode({"msg": "gone"}))


async def test_a_client_that_is_not_there_is_no_error(hall: Hall) -> None:
    channel, _, _ = hall
    assert not channel.send("client-9", b"")
    assert channel.unsent_bytes("client-9") == 0
    assert channel.peer_uid("client-9") is None
    channel.pause_reading("client-9")
    channel.resume_reading("client-9")
    channel.disconnect("client-9", "never was")


async def test_reading_from_one_client_can_be_paused_and_resumed_any_number_of_times(hall: Hall) -> None:
    channel, log, (a, b, c) = hall
    for _ in range(2):
        channel.pause_reading("client-0")
    await a.send({"msg": "late"})
    await b.send({"msg": "early"})
    assert await c.texts(1) == ["early"]
    assert [message.msg for message, _ in log.of("message")] == ["early"]
    for _ in range(2):
        channel.resume_reading("client-0")
    assert await c.texts(1) == ["late"]


async def test_unsent_bytes_tell_how_far_behind_a_client_is_and_drain_when_it_has_caught_up(hall: Hall) -> None:
    channel, log, (a, _, _) = hall
    a.writer.transport.pause_reading()  # type: ignore[attr-defined]
    frame = encode({"msg": "x" * MIB})
    for _ in range(8):
        channel.send("client-0", frame)
    assert channel.unsent_bytes("client-0") > MIB
    a.writer.transport.resume_reading()  # type: ignore[attr-defined]
    assert len(await a.texts(8)) == 8
    assert await log.wait("drain") == ["client-0"]
    assert channel.unsent_bytes("client-0") == 0


async def test_one_client_can_be_disconnected_for_a_reason(hall: Hall) -> None:
    channel, log, (_, b, _) = hall
    channel.disconnect("client-1", "another uid")
    channel.disconnect("client-1", "again")
    assert await b.closed() == b""
    assert await log.wait("disconnect") == ["client-1"]
    assert [(error.client_id, str(error)) for error in log.of("error")] == [("client-1", "another uid")]


async def test_a_client_disconnected_as_it_connects_is_never_heard(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    channel.on("connect", lambda client_id: channel.disconnect(client_id, "not welcome"))
    async with running(channel) as (_, log):
        a = await Peer.unix(channel.path)
        with suppress(ConnectionError):
            await a.send({"msg": "let me in"})
        assert await a.closed() == b""
        await log.wait("disconnect")
        assert log.of("message") == []
        a.close()


async def test_a_client_disconnected_while_its_message_is_handled_is_not_heard_further(folder: Path) -> None:
    channel = Channel(folder / "a.sock")
    channel.on("message", lambda message, client_id: channel.disconnect(client_id, message.msg))
    async with running(channel) as (_, log):
        (a,) = await join(channel, log, 1)
        await a.send({"msg": "one"}, {"msg": "two"}, bytes(4))
        await log.wait("disconnect")
        assert [message.msg for message, _ in log.of("message")] == ["one"]
        assert [str(error) for error in log.of("error")] == ["one"]
        a.close()


async def test_with_a_mode_the_socket_has_it_and_the_peer_has_a_uid(folder: Path) -> None:
    async with running(Channel(folder / "a.sock", mode=0o600)) as (channel, log):
        assert stat.S_IMODE(channel.path.stat().st_mode) == 0o600
        (a,) = await join(channel, log, 1)
        assert channel.peer_uid("client-0") == os.getuid()
        a.close()


async def test_an_idle_client_costs_little_memory(folder: Path) -> None:
    count = 500
    async with running(Channel(folder / "a.sock")) as (channel, log):
        sockets = []
        (first,) = await join(channel, log, 1)
        tracemalloc.start()
        try:
            for _ in range(count):
                client = socket.socket(socket.AF_UNIX)
                client.connect(os.fspath(channel.path))
                sockets.append(client)
            await log.until(lambda: channel.client_count == count + 1)
            held, _ = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        for client in sockets:
            client.close()
        first.close()
    # Python's share of both ends and of this test's log; asyncio's transports are the larger part.
    assert held / count < 4096


async def test_who_hangs_up_without_hearing_the_others_is_heard_itself(hall: Hall) -> None:
    channel, log, (reader, *_) = hall
    with socket.socket(socket.AF_UNIX) as hasty:
        hasty.connect(str(channel.path))
        await log.wait("connect", 4)
        # In one turn of the loop: it has something to read, speaks, and is gone before the channel looks.
        channel.broadcast({"msg": "unread"})
        hasty.sendall(encode({"msg": "last words"}) + encode({"msg": "really"}))
    channel.broadcast({"msg": "to nobody"})
    assert await reader.texts(4) == ["unread", "to nobody", "last words", "really"]
    await log.wait("disconnect")
    assert [message.msg for message, _ in log.of("message")] == ["last words", "really"]

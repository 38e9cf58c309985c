"""Tests of peerbus on its Unix socket: each line is one JSON object, however the bytes are split into chunks."""

import asyncio
import json
import stat
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocols.peerbus.peers import LINES, PORT, SECRET, Bus, Closed, LinePeer, envelope, register
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.lines import LineBuffer, LineTooLong, encode_line

MIB = 1024 * 1024


@given(st.lists(st.binary(min_size=1, max_size=20).map(lambda data: data.replace(b"\n", b"x").strip())), st.data())
def test_lines_come_out_as_they_went_in_whatever_the_chunks(lines: list[bytes], data: st.DataObject) -> None:
    stream = b"".join(line + b"\n" for line in lines)
    buffer, found = LineBuffer(), []
    while stream:
        size = data.draw(st.integers(1, len(stream)))
        buffer.receive_data(stream[:size])
        found += list(buffer.next_lines())
        stream = stream[size:]
    assert found == [line for line in lines if line]


def test_a_line_at_the_limit_is_taken_and_one_byte_more_is_not() -> None:
    buffer = LineBuffer(8)
    buffer.receive_data(b"12345678\n12345678")
    assert list(buffer.next_lines()) == [b"12345678"]
    buffer.receive_data(b"9")
    with pytest.raises(LineTooLong):
        list(buffer.next_lines())


def test_lines_before_one_that_is_too_long_count() -> None:
    buffer = LineBuffer(4)
    buffer.receive_data(b"one\n12345\n")
    lines = buffer.next_lines()
    assert next(lines) == b"one"
    with pytest.raises(LineTooLong):
        next(lines)


def test_no_byte_is_searched_twice() -> None:
    buffer = LineBuffer()
    for _ in range(100_000):
        buffer.receive_data(b"x")
        assert not list(buffer.next_lines())
    buffer.receive_data(b"\n")
    assert [len(line) for line in buffer.next_lines()] == [100_000]


def test_a_newline_between_tokens_becomes_a_space() -> None:
    pretty = json.dumps({"a": [1, 2], "b": "x\ny"}, indent=2).encode()
    line = encode_line(pretty)
    assert line.count(b"\n") == 1
    assert line.endswith(b"\n")
    assert json.loads(line) == json.loads(pretty)


async def line_peer(hub: Bus, name: str) -> LinePeer:
    peer = await hub.peer(name, door=LINES)
    assert isinstance(peer, LinePeer)
    return peer


async def test_the_socket_is_for_the_hubs_user_alone(hub: Bus) -> None:
    assert hub.running.places["peerbus_socket"] is not None
    assert stat.S_IMODE(Path(hub.running.places["peerbus_socket"]).stat().st_mode) == 0o600


async def test_a_senders_newlines_between_tokens_reach_a_line_as_spaces_and_the_signature_holds(hub: Bus) -> None:
    alice, bob = await hub.peer("alice", door=PORT), await line_peer(hub, "bob")
    carol = await hub.peer("carol", door=PORT)
    made = envelope("alice", "*", raw='{\n  "text":\n"pretty"\n}').replace(b',"to"', b',\n"to"')
    await alice.raw(made)
    push = codec.decode_push(await bob.receive_raw())
    assert isinstance(push, codec.Deliver)
    assert push.envelope.raw == made.replace(b"\n", b" ")
    assert push.envelope.verify(SECRET.encode())
    assert made in await carol.receive_raw(), "a WebSocket has it byte for byte"


async def test_blank_lines_and_white_space_around_an_object_mean_nothing(hub: Bus) -> None:
    peer = await hub.dial(LINES)
    assert isinstance(peer, LinePeer)
    peer.writer.write(b"\n \r\n" + register("alice") + b" \r\n\n" + envelope("alice", "alice", "x") + b"\r\n")
    await peer.expect("peers")
    assert await peer.texts(1) == ["x"]


async def test_a_line_beyond_1_mib_ends_the_connection_and_what_came_before_counts(hub: Bus) -> None:
    alice = await line_peer(hub, "alice")
    await alice.raw(envelope("alice", "alice", "before"))
    alice.writer.write(b" " * (MIB + 2))
    with pytest.raises(Closed):
        await alice.texts(2)
    # The message comes again, even if it came before the end: nobody has acknowledged it.
    assert await (await line_peer(hub, "alice")).texts(1) == ["before"]


async def test_a_line_of_1_mib_is_taken(hub: Bus) -> None:
    alice = await line_peer(hub, "alice")
    await alice.raw(b'{"type":"deliver","x":"' + b"x" * (MIB - 25) + b'"}')
    await alice.silent()


async def test_a_rejected_line_peer_is_hung_up_on(hub: Bus) -> None:
    for frame in (b"x", register("alice", "wrong"), codec.encode_peers()):
        peer = await hub.dial(LINES)
        await peer.raw(frame)
        assert await peer.closed() == (1006, "")


async def test_everything_asked_before_the_end_of_the_input_is_answered_before_the_connection_ends(hub: Bus) -> None:
    bob = await hub.peer("bob", door=PORT)
    for _ in range(10):
        peer = await hub.dial(LINES)
        assert isinstance(peer, LinePeer)
        await peer.raw(register("alice"), envelope("alice", "bob", "x"), codec.encode_peers(), codec.encode_peers())
        peer.writer.write_eof()
        assert [(await peer.expect("peers"))["names"] for _ in range(3)] == [["alice", "bob"]] * 3
        assert await peer.closed() == (1006, "")
    assert await bob.texts(10) == ["x"] * 10


async def test_an_end_before_the_handshake_is_the_end(hub: Bus) -> None:
    peer = await hub.dial(LINES)
    assert isinstance(peer, LinePeer)
    peer.writer.write_eof()
    assert await peer.closed() == (1006, "")


async def test_a_line_may_come_byte_by_byte(hub: Bus) -> None:
    alice = await line_peer(hub, "alice")
    for byte in envelope("alice", "alice", "slow") + b"\n":
        alice.writer.write(bytes([byte]))
        await alice.writer.drain()
        await asyncio.sleep(0)
    assert await alice.texts(1) == ["slow"]

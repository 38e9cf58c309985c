"""Tests of transport and framing: valid frames and envelopes, and the answers to invalid ones."""

import asyncio
import json
import stat
from pathlib import Path

import pytest

from tests.protocols.agent_relay.relays import MIB, Relay
from tests.protocols.agent_relay.wire import Frame, Wire, frame, framed, said
from tests.server.hubs import WAIT_SECONDS, running_hub
from tieline.protocols.agent_relay.codec import NESTING_MAX


async def closes_alone(relay: Relay, data: bytes, code: str) -> str:
    """Check that bytes end only the connection that sent them, with this error code. Return the error message."""
    bystander, broken = await relay.agents("bystander", "broken")
    await broken.raw(data)
    error = await broken.failed()
    assert error["code"] == code
    await bystander.silent()
    message: str = error["message"]
    return message


async def test_the_socket_is_for_the_hubs_user_alone(relay: Relay) -> None:
    assert stat.S_IMODE(Path(relay.path).stat().st_mode) == 0o600


async def test_a_frame_may_come_byte_by_byte_and_many_in_one_chunk(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    for byte in framed(json.dumps(said("slow", "bob")).encode()):
        await alice.raw(bytes([byte]))
    await alice.send(*(said(str(number), "bob") for number in range(50)))
    assert await bob.bodies(51) == ["slow", *map(str, range(50))]


async def test_a_frame_of_exactly_max_frame_bytes_is_taken(relay: Relay) -> None:
    alice = await relay.agent("alice")
    padded = frame("PADDING", {"x": ""})
    padded["payload"]["x"] = "x" * (MIB - len(json.dumps(padded)))
    await alice.send(padded)
    await alice.silent()


async def test_a_frame_beyond_max_frame_bytes_closes_the_connection_with_an_error(relay: Relay) -> None:
    await closes_alone(relay, (MIB + 1).to_bytes(4, "big"), "TOO_LARGE")


async def test_a_length_of_zero_closes_the_connection_with_an_error(relay: Relay) -> None:
    await closes_alone(relay, bytes(4), "BAD_REQUEST")


@pytest.mark.parametrize("payload", [b"[1]", b'"text"', b"null", b"{", b"{}", b'{"v":1,"type":7}'])
async def test_a_payload_that_is_no_envelope_closes_the_connection_with_an_error(relay: Relay, payload: bytes) -> None:
    await closes_alone(relay, framed(payload), "BAD_REQUEST")


async def test_bad_utf8_closes_the_connection_with_an_error(relay: Relay) -> None:
    await closes_alone(relay, framed(b'{"v":1,"type":"LOG","id":"\xff"}'), "BAD_REQUEST")


async def test_another_version_closes_the_connection_with_an_error(relay: Relay) -> None:
    message = await closes_alone(relay, framed(json.dumps(frame("SEND", v=2)).encode()), "BAD_REQUEST")
    assert "version 1" in message


async def test_frames_before_a_bad_one_in_the_same_chunk_count(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.raw(framed(json.dumps(said("last words", "bob")).encode()) + bytes(4))
    await alice.failed()
    assert await bob.bodies(1) == ["last words"]


async def test_unknown_types_are_ignored(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(frame("LOG", {"data": "x"}), frame("NEVER_HEARD_OF"))
    await alice.silent()


async def test_numbers_beyond_64_bits_and_lone_surrogates_harm_nobody(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob")
    for odd in (b'{"n":18446744073709551616000}', b'{"n":1e999}', b'{"n":"\\ud800"}'):
        wire = await relay.agent("odd")
        head = b'{"v":1,"id":"odd","ts":1,"to":"bob","payload_meta":%b,' % odd
        await wire.raw(framed(b'{"v":1,"type":"PING","id":"p","ts":1,"payload":%b}' % odd))
        await wire.raw(framed(head + b'"type":"SEND","payload":{"body":"x","data":%b}}' % odd))
        assert (await wire.receive())["type"] in ("PONG", "ERROR")
    await alice.send(said("still here", "bob"))
    async with asyncio.timeout(WAIT_SECONDS):
        while await bob.bodies(1) != ["still here"]:
            pass


@pytest.mark.parametrize("half", [b"\\ud83d", b"\\ud83d.", b"\\uDE00", b"\\uDE00\\uD83D\\uD83D\\ude00"])
async def test_half_a_surrogate_pair_becomes_the_replacement_character(relay: Relay, half: bytes) -> None:
    alice, bob = await relay.agents("alice", "bob")
    # A backslash of its own before it makes it text.
    payload = b'{"body":"cut %b \\\\ud83d \\ud83d\\ude00"}' % half
    await alice.raw(framed(b'{"v":1,"type":"SEND","id":"1","ts":1,"to":"bob","payload":%b}' % payload))
    (body,) = await bob.bodies(1)
    assert body == f"{json.loads(payload)['body']}".encode("utf-16", "surrogatepass").decode("utf-16", "replace")
    assert "\ufffd" in body
    await alice.silent()


@pytest.mark.parametrize("place", [b'"payload_meta":{"x":%b},"payload":{"body":"x"}', b'"payload":{"body":"x","x":%b}'])
async def test_what_nests_as_deep_as_it_may_arrives_live_and_later(relay: Relay, place: bytes) -> None:
    alice, bob = await relay.agents("alice", "bob")
    nested = place % (b"[" * (NESTING_MAX - 1) + b"]" * (NESTING_MAX - 1))
    await alice.raw(framed(b'{"v":1,"type":"SEND","id":"1","ts":1,"to":"bob",%b}' % nested))
    await alice.raw(framed(b'{"v":1,"type":"PING","id":"2","ts":1,%b}' % nested))
    await alice.expect("PONG")
    (live,) = await bob.deliveries(1)
    again = await relay.agent("bob")
    (later,) = await again.deliveries(1)
    assert {**live, "delivery": None} == {**later, "delivery": None}


@pytest.mark.parametrize("place", [b'"payload_meta":{"x":%b}', b'"payload":{"x":%b}', b'"delivery":{"x":%b}'])
async def test_what_nests_deeper_closes_the_connection_with_an_error(relay: Relay, place: bytes) -> None:
    nested = place % (b"[" * NESTING_MAX + b"]" * NESTING_MAX)
    sent = framed(b'{"v":1,"type":"SEND","id":"1","ts":1,"to":"bystander",%b}' % nested)
    assert "512 levels" in await closes_alone(relay, sent, "BAD_REQUEST")


@pytest.mark.parametrize("depth", [250, 500, 900, 990, 5000])
async def test_deep_nesting_harms_nobody(relay: Relay, depth: int) -> None:
    odd, alice, bob = await relay.agents("odd", "alice", "bob")
    nested = b'{"x":' * depth + b"1" + b"}" * depth
    for place in (b'"payload":{"body":"x"},"payload_meta":%b', b'"payload":{"body":"x","data":%b}', b'"payload":%b'):
        await odd.raw(framed(b'{"v":1,"type":"SEND","id":"%b","ts":1,"to":"bob",%b}' % (place[:9], place % nested)))
    await odd.send(frame("LIST_AGENTS"))
    assert (await odd.receive())["type"] in ("ERROR", "LIST_AGENTS_RESPONSE")
    await alice.send(said("still here", "bob"))
    async with asyncio.timeout(WAIT_SECONDS):
        while await bob.bodies(1) != ["still here"]:
            pass


@pytest.mark.parametrize(
    "wrong",
    [{"payload": []}, {"payload": None}, {"id": 7}, {"ts": "now"}, {"to": 1}, {"topic": {}}, {"payload_meta": "x"}],
    ids=str,
)
async def test_a_key_of_the_wrong_type_closes_the_connection_with_an_error(relay: Relay, wrong: Frame) -> None:
    await closes_alone(relay, framed(json.dumps(frame("SEND") | wrong).encode()), "BAD_REQUEST")


async def test_an_id_that_no_answer_has_room_for_closes_the_connection_with_an_error(relay: Relay) -> None:
    await closes_alone(relay, framed(json.dumps(frame("STATUS", id="x" * 1025)).encode()), "BAD_REQUEST")


async def test_the_path_of_the_socket_is_configurable(folder: Path) -> None:
    path = folder / "elsewhere.sock"
    async with running_hub(folder / "h", store="sqlite:unsafe", relay_socket=path) as built:
        assert built.running.places["relay_socket"] == str(path)
        alice = await Wire.dial(path)
        await alice.hello("alice")
        await alice.close()
    assert not path.exists()

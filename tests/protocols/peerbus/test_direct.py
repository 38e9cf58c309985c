"""Tests of direct messages on a real hub: one test for each rule, with raw frames over every kind of connection."""

import json
from typing import Any

import pytest

from tests.protocols.peerbus.evidence import refusals
from tests.protocols.peerbus.peers import (
    HTTP,
    PORT,
    SECRET,
    Bus,
    WebSocketPeer,
    envelope,
    text,
)
from tieline.protocols.peerbus import codec


async def test_a_direct_message_reaches_its_recipient_under_its_id(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "hello", id="m-1")
    frame = await bob.expect("deliver")
    assert frame["protocol_version"] == "v1"
    assert frame["delivery_key"] == frame["envelope"]["id"] == "m-1"
    assert list(frame) == ["protocol_version", "type", "delivery_key", "envelope"]


async def test_a_known_but_offline_peer_gets_it_on_its_next_register(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await anyhow.leave(bob)
    await alice.say("bob", "while you were away")
    await alice.settled()
    assert await (await anyhow.peer("bob")).texts(1) == ["while you were away"]


async def test_a_name_that_was_never_registered_is_dropped_and_audited(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    await alice.say("nobody", "hello")
    await alice.silent()
    await refusals(await anyhow.operator(), "unknown_member")
    await (await anyhow.peer("nobody")).silent()


async def test_a_peer_may_write_to_itself(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    await alice.say("alice", "note to self")
    assert await alice.texts(1) == ["note to self"]


async def test_a_re_sent_duplicate_id_is_a_benign_no_op(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    made = await alice.say("bob", "once")
    await alice.raw(made, made)
    await alice.settled()
    assert [text(frame) for frame in await bob.settled()] == ["once"]


async def test_the_original_row_stands_whoever_sends_its_id_again(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    await alice.say("bob", "the first", id="m-1")
    await alice.settled()
    await carol.say("bob", "the second", id="m-1")
    await alice.say("bob", "the third", id="m-1")
    await carol.settled()
    await alice.settled()
    assert [text(frame) for frame in await bob.settled()] == ["the first"]
    await refusals(await anyhow.operator(), "wire_id_reused", "wire_id_reused")


async def test_the_broker_routes_by_the_bound_name_not_by_from(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.raw(envelope("bob", "bob", "forged"))
    frame = await bob.expect("deliver")
    assert frame["envelope"]["from"] == "bob", "from is carried verbatim"
    (message,) = await (await anyhow.operator()).history()
    assert (message.sender, message.signature) == ("alice", "misnamed")


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        ({"id": ""}, "invalid_message"),
        ({"to": ""}, "invalid_message"),
        ({"id": None}, "invalid_message"),
        ({"to": "*"}, "invalid_target"),
        ({"kind": "broadcast"}, "invalid_target"),
        ({"to": "no such name!"}, "invalid_name"),
        ({"id": "x" * 5000}, "invalid_message"),
        ({"id": 5}, "invalid_message"),
    ],
)
async def test_a_bad_envelope_is_dropped_and_audited(hub: Bus, fields: dict[str, Any], code: str) -> None:
    alice, bob = await hub.several("alice", "bob")
    made = json.loads(envelope("alice", "bob", "x"))
    await alice.raw(json.dumps(made | fields).encode())
    await alice.silent()
    await bob.silent()
    await refusals(await hub.operator(), code)


@pytest.mark.parametrize("frame", [b"", b"x", b"[]", b"{", b'"x"', b"5", b"null", b"{}", b'{"type":"unknown"}'])
async def test_a_frame_that_is_neither_control_nor_envelope_is_ignored(hub: Bus, frame: bytes) -> None:
    alice = await hub.peer("alice")
    await alice.raw(frame)
    await alice.silent()
    await alice.say("alice", "still here")
    assert await alice.texts(1) == ["still here"]


async def test_refusals_of_one_kind_share_a_row_of_the_chain(hub: Bus) -> None:
    alice = await hub.peer("alice")
    for _ in range(200):
        await alice.say("nobody", "x")
    await alice.settled()
    await refusals(await hub.operator(), "unknown_member")


async def test_an_unknown_type_is_an_envelope(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    made = json.loads(envelope("alice", "bob", "typed"))
    await alice.raw(json.dumps({"type": "message"} | made).encode(), json.dumps({"type": 7} | made).encode())
    assert await bob.texts(1) == ["typed"]


async def test_the_version_of_an_envelope_is_not_checked_after_register(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    fields = ("v9", "m-1", "alice", "bob", "", "", "msg")
    await alice.raw(codec.encode_envelope(fields, b'{"text":"future"}', SECRET.encode()))
    assert await bob.texts(1) == ["future"]


async def test_any_other_kind_with_a_name_is_direct(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "x", kind="note")
    assert await bob.texts(1) == ["x"]


async def test_binary_messages_are_ignored_after_the_handshake(hub: Bus) -> None:
    for door in (PORT, HTTP):
        alice = await hub.peer("alice", door=door)
        assert isinstance(alice, WebSocketPeer)
        await alice.websocket.send(envelope("alice", "alice", "binary"), text=False)
        await alice.websocket.send(b"\x00\xff", text=False)
        await alice.silent()


async def test_a_client_that_sends_deliver_is_ignored(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    await alice.raw(codec.encode_deliver("k", envelope("alice", "alice", "x")))
    await alice.silent()

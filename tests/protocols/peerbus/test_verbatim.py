"""Tests that a signed message arrives with unchanged bytes, or not at all."""

from pathlib import Path

import pytest

from tests.protocols.peerbus.evidence import receipts
from tests.protocols.peerbus.peers import (
    HTTP,
    LINES,
    PORT,
    SECRET,
    Bus,
    bus,
    envelope,
    spliced,
)
from tieline.protocols.peerbus import codec

MIB = 1024 * 1024


BODIES = [
    "null",
    "true",
    "1.50e+10",
    '"text"',
    '""',
    "{}",
    '{"b": 1, "a": {"z": [1,  2 ,3]}, "b": 2}',
    '{"text": "<b>&amp; \u2028 é \\u003c \\/ \\ud83d"}',
    "12345678901234567890123456789012345678901234567890",
    "1e400",
    "[" * 300 + "]" * 300,
]


@pytest.mark.parametrize("raw", BODIES)
async def test_the_envelope_arrives_byte_for_byte(anyhow: Bus, raw: str) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    for to in ("bob", "*"):
        made = envelope("alice", to, raw=raw)
        await alice.raw(made)
        received = spliced(await bob.receive_raw())
        assert received == made
        assert codec.decode_envelope(received).verify(SECRET.encode())


async def test_fields_that_nobody_knows_and_any_spelling_are_kept(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    made = (
        envelope("alice", "bob", "x").replace(b'"id"', b' "ID" ', 1).replace(b'"ts"', b'"extra": {"q":[1 , 2]}, "ts"')
    )
    await alice.raw(made)
    received = spliced(await bob.receive_raw())
    assert received == made.strip()
    assert codec.decode_envelope(received).verify(SECRET.encode())


@pytest.mark.parametrize("to", ["bob", "*"])
async def test_the_bytes_are_the_same_across_a_restart(folder: Path, to: str) -> None:
    made = envelope("alice", to, raw='{"z" : 1,\t"a":"<é>" }')
    async with bus(folder / "h") as first:
        alice, _ = await first.several("alice", "bob")
        await alice.raw(made)
        await alice.settled()
    for door in (PORT, HTTP, LINES):
        async with bus(folder / "h", door) as again:
            bob = await again.peer("bob")
            assert spliced(await bob.receive_raw()) == made
    async with bus(folder / "h") as last:
        bob = await last.peer("bob")
        await bob.deliveries(1, ack=True)
        await bob.settled()


async def test_what_is_no_utf8_is_dropped(hub: Bus) -> None:
    alice = await hub.peer("alice")
    made = envelope("alice", "alice", "x")
    await alice.raw(made.replace(b'"x"', b'"\xff"'), made.replace(b'"ts"', b'"y":"\xff","ts"'))
    await alice.silent()


async def test_text_that_is_no_utf8_ends_a_connection_of_the_http_port_without_a_word_in_the_log(
    hub: Bus, caplog: pytest.LogCaptureFixture
) -> None:
    for peer in (await hub.dial(HTTP), await hub.peer("alice", door=HTTP)):
        await peer.raw(b'{"type":"register","x":"\xff"}')
        assert (await peer.closed())[0] == 1007
    assert caplog.records == []


async def test_an_envelope_that_does_not_fit_a_deliver_frame_is_dead_and_the_sender_can_see_it(hub: Bus) -> None:
    alice, bob = await hub.several("alice", "bob")
    bare = len(envelope("alice", "bob", raw='""', id="m-1"))
    await alice.raw(envelope("alice", "bob", raw='"' + "x" * (MIB - bare) + '"', id="m-1"))
    await alice.settled()
    await bob.silent()
    assert await receipts(hub, "m-1") == {"bob": ("dead", "too_large")}
    await hub.leave(bob)
    await (await hub.peer("bob")).silent()


async def test_the_notice_of_a_message_that_was_not_delivered_names_the_id_that_the_peer_gave(hub: Bus) -> None:
    alice, _ = await hub.several("alice", "bob")
    bare = len(envelope("alice", "bob", raw='""', id="m-1"))
    await alice.raw(envelope("alice", "bob", raw='"' + "x" * (MIB - bare) + '"', id="m-1"))
    body = (await alice.expect("deliver"))["envelope"]["body"]
    assert body["title"] == "message not delivered"
    assert body["text"].startswith("bob cannot be given your message m-1 (here ")
    assert body["data"]["wire_id"] == "m-1"


async def test_the_largest_envelope_that_fits_arrives(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    frame = len(codec.encode_deliver("m-1", envelope("alice", "bob", raw='""', id="m-1")))
    made = envelope("alice", "bob", raw='"' + "x" * (MIB - frame) + '"', id="m-1")
    await alice.raw(made)
    received = await bob.receive_raw()
    assert len(received) == MIB
    assert spliced(received) == made

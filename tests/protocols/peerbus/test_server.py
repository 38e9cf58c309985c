"""The broker's rules on a real hub, each as a sentence, shown by raw frames over every carrier."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from websockets.exceptions import InvalidStatus

from tests.protocols.peerbus.peers import (
    HTTP,
    LINES,
    OTHER_TOKEN,
    PORT,
    SECRET,
    Bus,
    Frame,
    WebSocketPeer,
    bus,
    envelope,
    new_id,
    register,
)
from tests.server.hubs import WAIT_SECONDS
from tieline.client import Client
from tieline.protocols.peerbus import codec

MIB = 1024 * 1024


def spliced(frame: bytes) -> bytes:
    """The envelope of a deliver frame, byte for byte."""
    return frame.partition(b',"envelope":')[2].removesuffix(b"}")


async def refusals(desk: Client, *expected: str) -> None:
    """Wait until the audit chain has exactly these refusals of sends, by code."""
    async with asyncio.timeout(WAIT_SECONDS):
        while True:
            rows = [json.loads(row.event) for row in (await desk.read_log("main", 0, 10_000)).rows]
            found = sorted(row["code"] for row in rows if row["event"] == "refuse" and row["what"] == "Send")
            if found == sorted(expected):
                return


async def receipts(hub: Bus, wire_id: str) -> dict[str, tuple[str, str]]:
    """State and evidence of a message's deliveries, by recipient."""
    desk = await hub.operator()
    (message,) = [one for one in await desk.history(limit=1000) if one.wire_id == wire_id]
    found = await desk.receipts(message.id)
    return {receipt.member: (receipt.state, receipt.steps[-1].evidence) for receipt in found}


def text(frame: Frame) -> Any:
    return frame["envelope"]["body"]["text"]


# Direct messages


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


# Verbatim

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


async def test_the_largest_envelope_that_fits_arrives(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    frame = len(codec.encode_deliver("m-1", envelope("alice", "bob", raw='""', id="m-1")))
    made = envelope("alice", "bob", raw='"' + "x" * (MIB - frame) + '"', id="m-1")
    await alice.raw(made)
    received = await bob.receive_raw()
    assert len(received) == MIB
    assert spliced(received) == made


# Broadcast


async def test_a_broadcast_reaches_every_peer_but_the_sender(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    made = await alice.say("*", "all", id="b-1")
    for peer in (bob, carol):
        raw = await peer.receive_raw()
        assert json.loads(raw)["delivery_key"] == f"b-1|{peer.name}"
        assert spliced(raw) == made
    await alice.silent()


async def test_each_copy_is_acknowledged_on_its_own(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    await alice.say("*", "all", id="b-1")
    await bob.deliveries(1, ack=True)
    await carol.deliveries(1)
    await bob.settled()
    states = {name: state for name, (state, _) in (await receipts(anyhow, "b-1|*")).items()}
    assert states == {"bob": "acked", "carol": "offered"}


async def test_acknowledging_a_copy_by_the_envelopes_id_settles_nothing(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("*", "all", id="b-1")
    await bob.deliveries(1)
    await bob.ack("b-1")
    await anyhow.leave(bob)
    assert await (await anyhow.peer("bob")).texts(1) == ["all"]


async def test_there_is_no_backfill(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await anyhow.leave(bob)
    await alice.say("*", "missed")
    await alice.settled()
    await (await anyhow.peer("bob")).silent()
    await (await anyhow.peer("late")).silent()


async def test_a_copy_waits_for_a_peer_that_drops_later(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("*", "all")
    await bob.deliveries(1)
    await anyhow.leave(bob)
    assert await (await anyhow.peer("bob")).texts(1) == ["all"]


async def test_a_broadcast_and_a_direct_message_of_one_id_are_two_messages(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "direct", id="m-1")
    await alice.say("*", "broadcast", id="m-1")
    frames = await bob.deliveries(2, ack=True)
    assert [frame["delivery_key"] for frame in frames] == ["m-1", "m-1|bob"]
    await anyhow.leave(bob)
    await (await anyhow.peer("bob")).silent()


async def test_a_broadcast_to_nobody_is_no_error(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    await alice.say("*", "anybody?")
    await alice.silent()
    await refusals(await anyhow.operator())


# Acknowledging


async def test_unacknowledged_messages_come_again_and_acknowledged_ones_do_not(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    for number in range(4):
        await alice.say("bob", number, id=f"m-{number}")
    await bob.deliveries(4)
    await bob.ack("m-0", "m-2")
    await anyhow.leave(bob)
    again = await anyhow.peer("bob")
    assert await again.texts(2) == [1, 3]
    await again.silent()


@pytest.mark.parametrize("key", ["", "never", "m-1|bob", "m-1|", "|", "x" * 10_000, "\u2028<"])
async def test_an_ack_for_an_unknown_id_is_a_graceful_no_op(hub: Bus, key: str) -> None:
    alice, bob = await hub.several("alice", "bob")
    await alice.say("bob", "x", id="m-1")
    await bob.deliveries(1)
    await bob.ack(key)
    await bob.silent()
    assert (await receipts(hub, "m-1"))["bob"][0] == "offered"


async def test_a_late_or_duplicate_ack_is_a_graceful_no_op(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "x", id="m-1")
    await bob.deliveries(1)
    await bob.ack("m-1", "m-1")
    await bob.ack("m-1")
    await bob.silent()
    assert (await receipts(anyhow, "m-1"))["bob"] == ("acked", "ack")


async def test_nobody_settles_what_is_anothers(anyhow: Bus) -> None:
    alice, bob, mallory = await anyhow.several("alice", "bob", "mallory")
    await alice.say("bob", "x", id="m-1")
    await bob.deliveries(1)
    await mallory.ack("m-1")
    await mallory.settled()
    assert (await receipts(anyhow, "m-1"))["bob"][0] == "offered"


async def test_an_ack_counts_on_the_next_connection_too(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "direct", id="m-1")
    await alice.say("*", "broadcast", id="b-1")
    await bob.deliveries(2)
    await anyhow.leave(bob)
    again = await anyhow.dial()
    await again.raw(register("bob"), codec.encode_ack("m-1"), codec.encode_ack("b-1|bob"))
    await again.expect("peers")
    await again.settled()
    again.name = "bob"
    await anyhow.leave(again)
    await (await anyhow.peer("bob")).silent()


async def test_two_deliveries_of_one_key_are_settled_one_by_one(hub: Bus) -> None:
    alice, bob = await hub.several("alice", "bob")
    await alice.say("*", "broadcast", id="m-1")
    await alice.say("bob", "forged key", id="m-1|bob")
    assert [frame["delivery_key"] for frame in await bob.deliveries(2)] == ["m-1|bob"] * 2
    await bob.ack("m-1|bob")
    await hub.leave(bob)
    again = await hub.peer("bob")
    assert await again.texts(1) == ["forged key"]


# Order


async def test_per_sender_fifo(anyhow: Bus) -> None:
    alice, bob, carol = await anyhow.several("alice", "bob", "carol")
    for number in range(100):
        await alice.say("carol" if number % 3 else "*", f"alice {number}")
        await bob.say("carol", f"bob {number}")
    heard = await carol.texts(200)
    for name in ("alice", "bob"):
        assert [one for one in heard if one.startswith(name)] == [f"{name} {number}" for number in range(100)]


async def test_what_waited_comes_sender_by_sender(anyhow: Bus) -> None:
    await anyhow.leave(await anyhow.peer("carol"))
    bob, alice = await anyhow.several("bob", "alice")
    for number in range(3):
        await bob.say("carol", f"bob {number}")
        await bob.settled()
        await alice.say("carol", f"alice {number}")
        await alice.settled()
    carol = await anyhow.peer("carol")
    expected = [f"{name} {number}" for name in ("alice", "bob") for number in range(3)]
    assert await carol.texts(6) == expected


async def test_the_peers_frame_comes_before_what_waits(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await anyhow.leave(bob)
    for number in range(600):
        await alice.say("bob", number)
    await alice.settled()
    bob = await anyhow.peer("bob")
    assert await bob.texts(600) == list(range(600))


# Takeover


async def test_nothing_is_lost_in_the_takeover_window(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    heard: list[Any] = []

    async def talk() -> None:
        for number in range(300):
            await alice.say("bob", number)
            if number % 10 == 0:
                await asyncio.sleep(0)
        await alice.settled()

    talking = asyncio.create_task(talk())
    for _ in range(10):
        heard += await bob.texts(5, ack=True)
        bob = await anyhow.peer("bob")
    await talking
    heard += [text(frame) for frame in await bob.settled()]
    assert sorted(set(heard)) == list(range(300))


async def test_every_carrier_is_the_same_bus(hub: Bus) -> None:
    alice = await hub.peer("alice", door=PORT)
    bob = await hub.peer("bob", door=HTTP)
    carol = await hub.peer("carol", door=LINES)
    made = await alice.say("*", "all")
    for peer in (bob, carol):
        assert spliced(await peer.receive_raw()) == made
    for door in (LINES, PORT, HTTP):
        newer = await hub.peer("bob", door=door)
        assert (await bob.closed())[0] == 1006
        bob = newer
        assert await bob.texts(1) == ["all"]


# Who is there


async def test_peers_lists_who_is_connected_sorted_with_oneself(anyhow: Bus) -> None:
    _, alice, bob = await anyhow.several("zoe", "alice", "bob")
    await anyhow.leave(bob)
    await alice.raw(b'{"protocol_version":"v1","type":"peers","names":null}')
    assert await alice.receive() == {"protocol_version": "v1", "type": "peers", "names": ["alice", "zoe"]}


async def test_peers_counts_members_that_are_connected_through_any_protocol(hub: Bus) -> None:
    await hub.add("carol", "dan")
    await hub.join("carol")
    alice = await hub.peer("alice")
    assert await alice.peers() == ["alice", "carol"]


async def test_a_peers_reply_leaves_only_after_every_earlier_envelope_is_committed(folder: Path) -> None:
    async with bus(folder / "h", store="sqlite") as hub:
        alice, bob = await hub.several("alice", "bob")
        await hub.leave(bob)
        for number in range(50):
            await alice.say("bob", number, id=f"m-{number}")
        assert await alice.peers() == ["alice"]
        exchange = hub.hub.exchange
        assert exchange is not None
        history = exchange._broker.store
        assert history._committed_end == history._log_end  # type: ignore[attr-defined]
        desk = await hub.operator()
        assert {one.wire_id for one in await desk.history(limit=100)} == {f"m-{number}" for number in range(50)}


async def test_many_questions_at_once_are_all_answered_in_their_place(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    frames: list[bytes] = []
    for number in range(100):
        frames += [envelope("alice", "alice", number), codec.encode_peers()]
    await alice.raw(*frames)
    found = [await alice.receive() for _ in range(200)]
    said = [text(frame) for frame in found if frame["type"] == "deliver"]
    assert said == list(range(100))
    for number, frame in enumerate(frame for frame in found if frame["type"] == "peers"):
        assert frame["names"] == ["alice"], number


# Manners


async def test_messages_of_a_connection_that_ends_at_once_are_kept(hub: Bus) -> None:
    bob = await hub.peer("bob")
    for door in (PORT, LINES):
        alice = await hub.peer("alice", door=door)
        await alice.raw(*(envelope("alice", "bob", number) for number in range(20)))
        await alice.close()
        assert await bob.texts(20, ack=True) == list(range(20))


async def test_the_protocol_can_be_turned_off(folder: Path) -> None:
    async with bus(folder / "h", peerbus=False) as hub:
        assert hub.running.peerbus is None
        assert hub.running.peerbus_socket is None
        with pytest.raises(InvalidStatus):
            await hub.dial(HTTP)


async def test_a_hub_without_tokens_serves_members_alone(folder: Path) -> None:
    async with bus(folder / "h", config="[peerbus]\n") as hub:
        await hub.add("carol")
        await hub.peer("carol", hub.tokens["carol"])
        peer = await hub.dial()
        await peer.raw(register("alice"))
        assert await peer.closed() == (1008, "invalid bearer token")


async def test_sharing_a_token_is_sharing_identity_and_another_token_is_another(hub: Bus) -> None:
    alice = await hub.peer("alice")
    zoe = await hub.peer("zoe", OTHER_TOKEN)
    await zoe.say("alice", "across tokens", id=new_id())
    assert await alice.texts(1) == ["across tokens"]

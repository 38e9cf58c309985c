"""Tests of messages between peers and members of other protocols: content, signatures and limits."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.protocols.agent_channels.sockets import Peer as ChannelsPeer
from tests.protocols.agent_relay.wire import Wire
from tests.protocols.agent_relay.wire import said as relay_said
from tests.protocols.backchannel.relays import Agent
from tests.protocols.peerbus.peers import PORT, SECRET, TOKEN, Bus, bus, envelope
from tests.server.hubs import MIXED, bodies, silent, take
from tieline.client import HubRefused
from tieline.contract.message import Level
from tieline.contract.refusal import Code
from tieline.protocols.peerbus import codec

UNSIGNED = f'[peerbus]\ntokens = ["{TOKEN}"]\n'


@pytest.fixture
async def hub(folder: Path) -> AsyncIterator[Bus]:
    """Fixture: a hub that speaks every protocol."""
    async with bus(folder / "h", PORT, **MIXED) as made:
        yield made


@pytest.fixture
async def unsigned(folder: Path) -> AsyncIterator[Bus]:
    """Fixture: a hub without a secret, so it cannot sign messages."""
    async with bus(folder / "h", config=UNSIGNED, **MIXED) as hub:
        yield hub


async def verified(frame: bytes) -> codec.Deliver:
    push = codec.decode_push(frame)
    assert isinstance(push, codec.Deliver)
    assert push.envelope.verify(SECRET.encode())
    return push


# From peers


async def test_nobody_speaks_for_a_peer_at_the_relay_without_hello(hub: Bus) -> None:
    alice, bob = await hub.several("alice", "bob")
    socket = hub.running.places["relay_socket"]
    assert socket is not None
    for present in (True, False):
        wire = await Wire.dial(socket)
        refused = await wire.ask("SEND", {"body": "it is me"}, to="bob", sender="alice")
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "UNAUTHORIZED")
        refused = await wire.ask("INBOX", {"agent": "alice"})
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "UNAUTHORIZED")
        await wire.close()
        if present:
            await alice.close()
    carol = await hub.peer("carol")
    await carol.say("bob", "the end")
    assert await bob.texts(1) == ["the end"]


async def test_a_peer_reaches_a_member_of_another_protocol(hub: Bus) -> None:
    await hub.add("carol")
    carol = await hub.join("carol", receive=True)
    alice = await hub.peer("alice")
    await alice.say("carol", "hello", id="m-1")
    (delivery,) = await take(carol, 1, ack=True)
    message = delivery.message
    assert (message.sender, message.body, message.protocol, message.wire_id) == ("alice", "hello", "peerbus", "m-1")
    assert message.signature == "verified"


async def test_a_broadcast_of_a_peer_reaches_everybody(hub: Bus) -> None:
    await hub.add("carol", "offline")
    carol = await hub.join("carol", receive=True)
    alice, bob = await hub.several("alice", "bob")
    await alice.say("*", "all")
    assert bodies(await take(carol, 1)) == ["all"]
    assert await bob.texts(1) == ["all"]
    assert [item.message.body for item in (await (await hub.join("offline")).inbox()).items] == ["all"]


async def test_from_is_always_the_name_that_the_hub_knows(hub: Bus) -> None:
    alice = await hub.peer("alice")
    await hub.add("carol")
    await alice.raw(envelope("bob", "carol", "I am bob"))
    await alice.settled()
    (message,) = await (await hub.operator()).history()
    assert message.sender == "alice"


@pytest.mark.parametrize(
    ("made", "signature"),
    [
        (envelope("alice", "*", "x", id="m").replace(b'"x"', b'"y"'), "failed"),
        (envelope("alice", "*", "x", id="m", secret="another secret of more than 32 bytes"), "failed"),
        (envelope("alice", "*", "x", id="m").replace(b'"hmac":"', b'"hmac":"00'), "failed"),
        (envelope("bob", "*", "x", id="m").replace(b'"x"', b'"y"'), "failed"),
        (envelope("bob", "*", "x", id="m"), "misnamed"),
        (envelope("alice", "*", "x", id="m"), "verified"),
    ],
    ids=["a changed body", "another secret", "a broken hmac", "changed and misnamed", "misnamed", "verified"],
)
async def test_each_message_is_marked_and_what_fails_goes_to_peers_alone(hub: Bus, made: bytes, signature: str) -> None:
    await hub.add("carol", "dan")
    carol = await hub.join("carol", receive=True)
    relay = await relay_agent(hub, "relay")
    assert hub.running.places["channels_dir"] is not None
    socket = str(Path(hub.running.places["channels_dir"]) / "general.sock")
    reader, writer = await asyncio.open_unix_connection(socket)
    alice, bob = await hub.several("alice", "bob")
    await alice.raw(made)
    assert made in await bob.receive_raw(), "peers get it verbatim, and decide"
    await alice.settled()
    (message,) = await (await hub.operator()).history()
    assert message.signature == signature
    evidence = {one.steps[0].evidence for one in await (await hub.operator()).receipts(message.id)}
    assert evidence == {f"signature {signature}"}
    if signature == "verified":
        assert len(await take(carol, 1)) == 1
        assert (await relay.expect("DELIVER"))["from"] == "alice"
    else:
        await silent(carol)
        await relay.silent()
        assert (await (await hub.join("dan")).inbox()).items == ()
        dan = await hub.peer("dan", hub.tokens["dan"])
        assert made in await dan.receive_raw(), "it waited for a session of its own protocol"
    await relay.close()
    await (await hub.join("carol")).send("#general", "the last")
    heard = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert (b"the last" in heard) is (signature != "verified"), "a channel's socket hears nothing of it"
    writer.close()


async def relay_agent(hub: Bus, name: str) -> Wire:
    assert hub.running.places["relay_socket"] is not None
    wire = await Wire.dial(hub.running.places["relay_socket"])
    await wire.hello(name)
    return wire


@pytest.mark.parametrize("how", ["failed", "misnamed"])
@pytest.mark.parametrize("to", ["carol", "*"])
async def test_what_is_badly_signed_shows_in_no_other_protocol_live_or_later(hub: Bus, how: str, to: str) -> None:
    await hub.add("carol")
    token = hub.tokens["carol"]
    backchannel, ac7 = Agent(hub.running.http, token, "carol"), Agent(hub.running.http, token, "carol")
    inbox, alice = await ChannelsPeer.unix(place(hub, "inbox-carol")), await hub.peer("alice")
    bad = envelope("alice", to, "evil")
    bad = bad.replace(b'"evil"', b'"EVIL"') if how == "failed" else envelope("mallory", to, "evil")
    async with backchannel.watch() as events:
        await alice.raw(bad, envelope("alice", to, "good"))
        await alice.settled()
        assert await events.bodies(1) == ["good"], "a stream that is open"
    assert [one.msg for one in [await inbox.receive()]] == ["good"]
    assert await backchannel.bodies() == ["good"]
    history = await ac7.get("/history")
    assert [one["body"] for one in history["messages"]] == ["good"]
    assert [one.body for one in await (await hub.join("carol")).history()] == ["good"]
    carol = await hub.peer("carol", token)
    assert bad in await carol.receive_raw(), "a session of this protocol gets it, and decides"
    inbox.close()


def place(hub: Bus, name: str) -> Path:
    assert hub.running.places["channels_dir"] is not None
    return Path(hub.running.places["channels_dir"]) / f"{name}.sock"


async def test_what_came_badly_signed_does_not_hold_up_what_comes_after(hub: Bus) -> None:
    await hub.add("carol")
    carol = await hub.join("carol", receive=True)
    alice = await hub.peer("alice")
    for number in range(20):
        made = envelope("alice", "carol", f"n {number}")
        await alice.raw(made.replace(b'"n ', b'"x ') if number % 2 else made)
    assert bodies(await take(carol, 10, ack=True)) == [f"n {number}" for number in range(0, 20, 2)]
    await silent(carol)


async def test_without_a_secret_messages_are_unverified_and_cross_as_they_are(unsigned: Bus) -> None:
    await unsigned.add("carol")
    carol = await unsigned.join("carol", receive=True)
    alice = await unsigned.peer("alice")
    await alice.raw(envelope("alice", "carol", "x", secret="whatever the peers agreed on, 32 bytes"))
    (delivery,) = await take(carol, 1)
    assert delivery.message.signature == "unverified"


# To peers


async def test_a_member_reaches_a_peer_and_the_hub_signs_and_says_so(hub: Bus) -> None:
    await hub.add("carol")
    carol = await hub.join("carol")
    bob = await hub.peer("bob")
    accepted = await carol.send("@bob", "hello <bob> & é", title="t", data={"n": 1}, level=Level.WARNING)
    push = await verified(await bob.receive_raw())
    envelope_ = push.envelope
    assert (envelope_.sender, envelope_.to, envelope_.kind, envelope_.source) == ("carol", "bob", "msg", "tieline")
    assert push.key == envelope_.id == accepted.id
    body = json.loads(envelope_.body)
    assert body == {"text": "hello <bob> & é", "title": "t", "data": {"n": 1}, "level": "warning"}
    await bob.ack(push.key)
    await bob.settled()
    assert {one.state for one in await carol.receipts(accepted.id)} == {"acked"}


async def test_a_broadcast_of_a_member_reaches_every_connected_peer(hub: Bus) -> None:
    await hub.add("carol")
    carol = await hub.join("carol")
    bob, dan = await hub.several("bob", "dan")
    accepted = await carol.send("*", "all")
    for peer in (bob, dan):
        push = await verified(await peer.receive_raw())
        assert (push.key, push.envelope.to) == (f"{accepted.id}|{peer.name}", "*")
        await peer.ack(push.key)
        await peer.settled()
    assert {one.state for one in await carol.receipts(accepted.id)} == {"acked"}


async def test_a_late_ack_of_a_translated_message_counts(hub: Bus) -> None:
    await hub.add("carol")
    carol = await hub.join("carol")
    bob = await hub.peer("bob")
    accepted = [await carol.send("@bob", "direct"), await carol.send("*", "broadcast")]
    keys = [frame["delivery_key"] for frame in await bob.deliveries(2)]
    await hub.leave(bob)
    again = await hub.dial()
    await again.raw(codec.encode_register("bob", TOKEN), *map(codec.encode_ack, keys))
    await again.expect("peers")
    await again.settled()
    for one in accepted:
        assert {receipt.state for receipt in await carol.receipts(one.id)} == {"acked"}


async def test_a_message_to_a_channel_reaches_a_peer_as_a_direct_one(hub: Bus) -> None:
    await hub.add("carol", "bob")
    carol, bob_elsewhere = await hub.join("carol"), await hub.join("bob")
    await bob_elsewhere.subscribe("dev")
    bob = await hub.peer("bob", hub.tokens["bob"])
    await carol.send("#dev", "hello")
    push = await verified(await bob.receive_raw())
    assert (push.envelope.to, push.envelope.kind) == ("bob", "msg")
    assert json.loads(push.envelope.body) == {"text": "hello", "channel": "#dev"}


async def test_a_relay_agent_and_a_peer_talk(hub: Bus) -> None:
    relay, bob = await relay_agent(hub, "relay"), await hub.peer("bob")
    await relay.send(relay_said("from the relay", "bob"))
    push = await verified(await bob.receive_raw())
    assert (push.envelope.sender, json.loads(push.envelope.body)["text"]) == ("relay", "from the relay")
    await bob.say("relay", "from the bus")
    assert (await relay.expect("DELIVER"))["payload"]["body"] == "from the bus"
    await relay.close()


async def test_a_backchannel_agent_and_a_peer_talk(hub: Bus) -> None:
    await hub.add("carol")
    carol, bob = Agent(hub.running.http, hub.tokens["carol"], "carol"), await hub.peer("bob")
    await carol.send("@bob", "from the relay")
    push = await verified(await bob.receive_raw())
    assert (push.envelope.sender, json.loads(push.envelope.body)) == ("carol", {"text": "from the relay"})
    await bob.say("carol", "from the bus")
    await bob.settled()
    (unread,) = await carol.inbox()
    assert (unread["from"], unread["body"]) == ("bob", "from the bus")


async def test_a_member_of_an_ac7_team_and_a_peer_talk(hub: Bus) -> None:
    await hub.add("carol")
    carol, bob = Agent(hub.running.http, hub.tokens["carol"], "carol"), await hub.peer("bob")
    await carol.post("/push", to="bob", body="from the team", title="t")
    push = await verified(await bob.receive_raw())
    assert push.envelope.sender == "carol"
    assert json.loads(push.envelope.body) == {"text": "from the team", "title": "t"}
    await bob.raw(envelope("bob", "carol", raw='{"message":"from the bus","n":1}'))
    await bob.settled()
    newest = (await carol.get("/history"))["messages"][0]
    assert (newest["from"], newest["body"], newest["data"]["n"]) == ("bob", "from the bus", 1)


async def test_somebody_at_a_channels_socket_and_a_peer_talk(hub: Bus) -> None:
    await hub.add("carol")
    bob = await hub.peer("bob")
    at_bobs, at_carols = [await ChannelsPeer.unix(place(hub, f"inbox-{name}")) for name in ("bob", "carol")]
    await at_bobs.send({"msg": "from the socket", "data": {"n": 1}})
    push = await verified(await bob.receive_raw())
    assert "@" in push.envelope.sender, "no member's name"
    body = json.loads(push.envelope.body)
    assert (body["text"], body["data"], body["verified"]) == ("from the socket", {"n": 1}, False)
    await bob.say("carol", "from the bus")
    heard = await at_carols.receive()
    assert heard.msg == "from the bus"
    for one in (at_bobs, at_carols):
        one.close()


async def test_the_first_acknowledgement_of_any_session_ends_a_delivery(hub: Bus) -> None:
    await hub.add("carol")
    carol_here = await hub.join("carol", receive=True)
    carol_there = await hub.peer("carol", hub.tokens["carol"])
    alice = await hub.peer("alice")
    await alice.say("carol", "twice offered")
    await take(carol_here, 1, ack=True)
    await carol_here.members()
    await carol_there.deliveries(1)
    await hub.leave(carol_there)
    await (await hub.peer("carol", hub.tokens["carol"])).silent()


async def test_without_a_secret_a_send_to_a_peer_is_refused_not_faked(unsigned: Bus) -> None:
    await unsigned.add("carol", "dan")
    carol = await unsigned.join("carol")
    bob = await unsigned.peer("bob")
    with pytest.raises(HubRefused) as refused:
        await carol.send("@bob", "hello")
    assert refused.value.code is Code.CANNOT_SIGN
    accepted = await carol.send("*", "all")
    await bob.silent()
    found = {one.member: (one.state, one.steps[-1].evidence) for one in await carol.receipts(accepted.id)}
    assert found == {"bob": ("dead", "cannot_sign"), "dan": ("pending", "")}


async def test_without_a_secret_a_member_with_a_token_keeps_what_it_cannot_be_given_as_a_peer(unsigned: Bus) -> None:
    await unsigned.add("carol", "dan")
    carol = await unsigned.join("carol")
    dan = await unsigned.peer("dan", unsigned.tokens["dan"])
    await carol.send("@dan", "not for this wire")
    await dan.silent()
    assert bodies(await take(await unsigned.join("dan", receive=True), 1)) == ["not for this wire"]


async def test_a_message_too_large_for_a_frame_is_dead_and_its_sender_can_see_it(hub: Bus) -> None:
    await hub.add("carol")
    carol = await hub.join("carol")
    bob = await hub.peer("bob")
    accepted = await carol.send("@bob", "x" * 1024 * 1024)
    await carol.send("@bob", "small")
    assert await bob.texts(1) == ["small"]
    await bob.settled()
    (receipt,) = await carol.receipts(accepted.id)
    assert (receipt.state, receipt.steps[-1].evidence) == ("dead", "too_large")

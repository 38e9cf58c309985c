"""The relay's socket on a real hub: each rule of the protocol as a sentence, shown by raw frames."""

import asyncio
import json
import shutil
import stat
import tempfile
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_relay.wire import Frame, Wire, frame, framed, greeting, resumption, said
from tests.server.hubs import WAIT_SECONDS, House, bodies, house, take
from tieline.contract.identifiers import MessageId
from tieline.protocols.agent_relay import codec

MIB = 1024 * 1024


class Relay(House):
    """A running hub, and the raw agents at its relay socket."""

    wires: list[Wire]

    @property
    def path(self) -> str:
        assert self.running.relay_socket is not None
        return self.running.relay_socket

    async def dial(self) -> Wire:
        """Connect, and say nothing."""
        wire = await Wire.dial(self.path)
        self.wires.append(wire)
        return wire

    async def agent(self, name: str, **payload: Any) -> Wire:
        """Connect and say HELLO."""
        wire = await self.dial()
        await wire.hello(name, **payload)
        return wire

    async def agents(self, *names: str) -> list[Wire]:
        """Connect several."""
        return [await self.agent(name) for name in names]

    async def leave(self, wire: Wire) -> None:
        """Hang up without a word, and wait until the hub has seen it."""
        await wire.close()
        desk = await self.operator()
        async with asyncio.timeout(WAIT_SECONDS):
            while any(member.name == wire.name and member.sessions for member in await desk.members()):
                pass


def relay_of(built: House) -> Relay:
    made = Relay(built.home, built.hub, built.running)
    made._clients = built._clients
    made.wires = []
    return made


@pytest.fixture
def folder() -> Iterator[Path]:
    """Give a folder with a short path: pytest's own are often longer than a Unix address."""
    path = Path(tempfile.mkdtemp(prefix="tieline-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
async def relay(folder: Path) -> AsyncIterator[Relay]:
    async with house(folder / "h", store="sqlite:unsafe") as built:
        made = relay_of(built)
        yield made
        for wire in made.wires:
            await wire.close()


@pytest.fixture
async def brisk(folder: Path) -> AsyncIterator[Relay]:
    """A hub whose heart beats fast."""
    home = folder / "h"
    home.mkdir(mode=0o700)
    (home / "tieline.toml").write_text("[agent_relay]\nheartbeat_ms = 100\n")
    async with house(home, store="sqlite:unsafe") as built:
        made = relay_of(built)
        yield made
        for wire in made.wires:
            await wire.close()


def numbers(deliveries: list[Frame]) -> list[tuple[str, str | None, int]]:
    return [(one["from"], one.get("topic"), one["delivery"]["seq"]) for one in deliveries]


def texts(frames: list[Frame]) -> list[str]:
    return [one["payload"]["body"] for one in frames if one["type"] == "DELIVER"]


def accepting() -> dict[str, Any]:
    return {"capabilities": {"ack": True, "accept": True}}


async def closes_alone(relay: Relay, data: bytes, code: str) -> str:
    """See that bytes end the connection that sent them, and no other; returns what the hub said."""
    bystander, broken = await relay.agents("bystander", "broken")
    await broken.raw(data)
    error = await broken.failed()
    assert error["code"] == code
    await bystander.silent()
    message: str = error["message"]
    return message


# 1, 2: transport and framing


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


# 3: the envelope


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


# 4: the handshake


async def test_hello_is_answered_by_welcome(relay: Relay) -> None:
    alice = await relay.dial()
    await alice.send(greeting("alice"))
    welcome = await alice.receive()
    assert (welcome["v"], welcome["type"]) == (1, "WELCOME")
    assert isinstance(welcome["id"], str)
    assert isinstance(welcome["ts"], int)
    payload = welcome["payload"]
    assert payload.keys() == {"session_id", "resume_token", "server"}
    assert payload["session_id"]
    assert payload["resume_token"]
    assert payload["server"] == {"max_frame_bytes": 1048576, "heartbeat_ms": 5000}


async def test_frames_sent_right_behind_hello_are_heard(relay: Relay) -> None:
    bob = await relay.agent("bob")
    alice = await relay.dial()
    await alice.send(greeting("alice"), said("one", "bob"), said("two", "bob"))
    await alice.expect("WELCOME")
    assert await bob.bodies(2) == ["one", "two"]


async def test_send_before_hello_is_refused_and_the_connection_stays(relay: Relay) -> None:
    alice = await relay.dial()
    await alice.send(said("too early", "alice"))
    error = await alice.expect("ERROR")
    assert error["payload"] == {"code": "BAD_REQUEST", "message": "Not in ACTIVE state", "fatal": False}
    await alice.hello("alice")
    await alice.silent()


async def test_a_second_hello_is_refused_and_the_session_goes_on(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(greeting("mallory"))
    error = await alice.expect("ERROR")
    assert error["payload"] == {"code": "BAD_REQUEST", "message": "Unexpected HELLO", "fatal": False}
    await alice.send(said("to myself", "alice"))
    (delivery,) = await alice.deliveries(1)
    assert delivery["from"] == "alice"


@pytest.mark.parametrize("name", ["", "two words", "a/b", "*", None, 7])
async def test_a_bad_name_is_refused(relay: Relay, name: Any) -> None:
    wire = await relay.dial()
    await wire.send(greeting(name))
    assert (await wire.failed())["code"] == "BAD_REQUEST"


async def test_the_newest_connection_of_a_name_wins(relay: Relay) -> None:
    old = await relay.agent("alice")
    new = await relay.agent("alice")
    assert (await old.failed())["code"] == "DUPLICATE_CONNECTION"
    bob = await relay.agent("bob")
    await bob.send(said("hi", "alice"))
    assert await new.bodies(1) == ["hi"]


async def test_a_user_may_hold_several_connections(relay: Relay) -> None:
    windows = [await relay.agent("ursula", entityType="user") for _ in range(2)]
    bob = await relay.agent("bob")
    await bob.send(said("hi", "ursula"))
    assert [await window.bodies(1) for window in windows] == [["hi"], ["hi"]]


async def test_a_name_owned_by_a_token_is_refused_without_it(relay: Relay) -> None:
    await relay.add("carol")
    for wrong in ({}, {"token": "x" * 32}):
        thief = await relay.dial()
        await thief.send(greeting("carol", **wrong))
        assert (await thief.failed())["code"] == "UNAUTHORIZED"


async def test_a_name_owned_by_a_token_is_given_to_whoever_shows_it(relay: Relay) -> None:
    await relay.add("carol", "dave")
    carol = await relay.agent("carol", token=relay.tokens["carol"])
    await carol.silent()
    other = await relay.dial()
    await other.send(greeting("dave", token=relay.tokens["carol"]))
    assert (await other.failed())["code"] == "UNAUTHORIZED"


async def test_bye_is_answered_by_bye_and_the_end(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(frame("BYE", {"reason": "done"}))
    await alice.expect("BYE")
    await alice.ended()


async def test_a_hub_that_stops_says_so_and_goodbye(folder: Path) -> None:
    async with house(folder / "h", store="sqlite:unsafe") as built:
        alice = await relay_of(built).agent("alice")
    assert (await alice.failed())["code"] == "SHUTTING_DOWN"
    await alice.close()


# 5: sending and delivery


async def test_send_becomes_deliver(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    payload = {"kind": "action", "body": "Your turn", "data": {"move": [1, 2]}, "thread": "t-1", "extra": {"x": None}}
    meta = {"requires_ack": True, "ttl_ms": 60000, "importance": 7}
    await alice.send(frame("SEND", payload, to="bob", topic="chat", payload_meta=meta))
    delivery = await bob.expect("DELIVER")
    assert delivery.keys() == {"v", "type", "id", "ts", "from", "to", "topic", "payload", "payload_meta", "delivery"}
    assert (delivery["v"], delivery["from"], delivery["to"], delivery["topic"]) == (1, "alice", "bob", "chat")
    assert (delivery["payload"], delivery["payload_meta"]) == (payload, meta)
    assert delivery["delivery"] == {"seq": 1, "session_id": bob.welcome["session_id"]}
    await alice.silent()


async def test_from_is_stamped_by_the_hub(relay: Relay) -> None:
    mallory, bob = await relay.agents("mallory", "bob")
    await mallory.send(said("trust me", "bob", sender="alice"))
    assert (await bob.expect("DELIVER"))["from"] == "mallory"


@pytest.mark.parametrize(
    "wrong",
    [
        frame("SEND", {"body": "x"}),
        frame("SEND", {}, to="alice"),
        frame("SEND", {"body": 7}, to="alice"),
        frame("SEND", {"body": "x", "data": []}, to="alice"),
        frame("SEND", {"body": "x", "kind": 1}, to="alice"),
        frame("SEND", {"body": "x", "thread": 1}, to="alice"),
        frame("SEND", {"body": "x"}, to="alice", payload_meta={"ttl_ms": "soon"}),
        frame("SEND", {"body": "x"}, to="alice", payload_meta={"ttl_ms": -1}),
        frame("SEND", {"body": "x"}, to="two words"),
        frame("SEND", {"body": "x"}, to="*", topic="two words"),
        frame("CHANNEL_MESSAGE", {"body": "x"}),
        frame("SUBSCRIBE"),
        frame("CHANNEL_JOIN", {"channel": "two words"}),
    ],
)
async def test_what_makes_no_sense_is_refused_under_its_id_and_the_connection_stays(relay: Relay, wrong: Frame) -> None:
    alice = await relay.agent("alice")
    await alice.send(wrong)
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (wrong["id"], "BAD_REQUEST", False)
    await alice.silent()


async def test_an_unknown_target_is_an_error_under_the_sends_id(relay: Relay) -> None:
    alice = await relay.agent("alice")
    lost = await alice.send(said("anybody?", "nobody"))
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (lost["id"], "NOT_FOUND", False)
    await alice.silent()


async def test_messages_to_a_known_member_wait_while_it_is_away(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    await alice.send(said("one", "bob"), said("two", "bob"))
    await alice.silent()
    assert await (await relay.agent("bob")).bodies(2) == ["one", "two"]


async def test_an_ack_settles_a_delivery(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"), said("two", "bob"))
    first, second = await bob.deliveries(2)
    await bob.ack(first)
    await bob.silent()
    again = await relay.agent("bob")
    (left,) = await again.settled()
    assert (left["id"], left["delivery"]["seq"]) == (second["id"], second["delivery"]["seq"])


async def test_what_was_not_acked_comes_again_with_its_id_and_number(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number), "bob") for number in range(3)))
    first = await bob.deliveries(3)
    await relay.leave(bob)
    again = await (await relay.agent("bob")).deliveries(3)
    assert [one["id"] for one in again] == [one["id"] for one in first]
    assert numbers(again) == numbers(first) == [("alice", None, 1), ("alice", None, 2), ("alice", None, 3)]


async def test_a_nack_leaves_the_delivery_for_the_next_session(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("not now", "bob"))
    (delivery,) = await bob.deliveries(1)
    await bob.send(frame("NACK", {"ack_id": delivery["id"], "code": "BUSY"}))
    await bob.silent()
    assert await (await relay.agent("bob")).bodies(1) == ["not now"]


async def test_an_ack_of_nothing_is_ignored(relay: Relay) -> None:
    alice = await relay.agent("alice")
    for ack_id in ("d-1-x", "d-999999999999999999-x", "d--1", "x", None, 7, "d-9999999999999999999999"):
        await alice.send(frame("ACK", {"ack_id": ack_id}))
    await alice.silent()


async def test_numbers_count_per_topic_sender_and_recipient(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    for topic in ("chat", "work", "chat"):
        await alice.send(said("x", "carol", topic=topic), said("x", "bob", topic=topic))
        await alice.silent()
    await bob.send(said("x", "carol", topic="chat"), said("x", "carol"))
    assert sorted(numbers(await carol.deliveries(5)), key=str) == [
        ("alice", "chat", 1),
        ("alice", "chat", 2),
        ("alice", "work", 1),
        ("bob", "chat", 1),
        ("bob", None, 1),
    ]
    assert numbers(await bob.deliveries(3)) == [("alice", "chat", 1), ("alice", "work", 1), ("alice", "chat", 2)]


async def test_deliveries_of_a_stream_come_in_order(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number), "bob", topic="chat") for number in range(600)))
    for number in range(600):
        delivery = await bob.expect("DELIVER")
        assert (delivery["payload"]["body"], delivery["delivery"]["seq"]) == (str(number), number + 1)
        await bob.ack(delivery)


async def test_a_broadcast_without_topic_reaches_all_who_are_connected_but_the_sender(relay: Relay) -> None:
    alice, bob, carol, away = await relay.agents("alice", "bob", "carol", "away")
    await relay.leave(away)
    await alice.send(said("hello all", "*"))
    for wire in (bob, carol):
        delivery = await wire.expect("DELIVER")
        assert (delivery["to"], delivery["payload"]["body"]) == (wire.name, "hello all")
        assert delivery["delivery"]["originalTo"] == "*"
    await alice.silent()
    await (await relay.agent("away")).silent()


async def test_a_broadcast_with_a_topic_reaches_its_subscribers_alone(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await bob.send(frame("SUBSCRIBE", topic="builds"))
    await bob.silent()
    await alice.send(said("green", "*", topic="builds"))
    delivery = await bob.expect("DELIVER")
    assert (delivery["topic"], delivery["to"], delivery["delivery"]["originalTo"]) == ("builds", "bob", "*")
    await alice.silent()
    await carol.silent()


async def test_a_broadcast_to_a_topic_without_subscribers_reaches_nobody_and_is_no_error(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("anybody?", "*", topic="empty"))
    await alice.silent()
    await bob.silent()


async def test_whoever_unsubscribed_hears_the_topic_no_more(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await bob.send(frame("SUBSCRIBE", topic="builds"))
    await bob.silent()
    await bob.send(frame("UNSUBSCRIBE", topic="builds"))
    await bob.silent()
    await alice.send(said("green", "*", topic="builds"))
    await alice.silent()
    await bob.silent()


async def test_a_subscription_lasts_beyond_the_connection(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await bob.send(frame("SUBSCRIBE", topic="builds"))
    await bob.silent()
    await relay.leave(bob)
    await alice.send(said("green", "*", topic="builds"))
    await alice.silent()
    assert await (await relay.agent("bob")).bodies(1) == ["green"]


async def test_broadcasts_of_one_sender_come_in_its_order_to_every_recipient(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await alice.send(*(said(str(number), "*") for number in range(100)))
    expected = list(map(str, range(100)))
    assert await bob.bodies(100) == expected
    assert await carol.bodies(100) == expected


async def test_a_client_that_does_not_ack_is_given_each_delivery_once(relay: Relay) -> None:
    alice = await relay.agent("alice")
    quiet = {"capabilities": {"ack": False}}
    bob = await relay.agent("bob", **quiet)
    await alice.send(*(said(str(number), "bob") for number in range(300)))
    assert await bob.bodies(300) == list(map(str, range(300)))
    await bob.silent()
    await relay.leave(bob)
    await (await relay.agent("bob", **quiet)).silent()


async def test_at_most_max_inflight_deliveries_are_on_the_way(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob", capabilities={"ack": True, "max_inflight": 3})
    await alice.send(*(said(str(number), "bob") for number in range(7)))
    await alice.silent()
    given = await bob.settled()
    assert texts(given) == ["0", "1", "2"]
    await bob.ack(given[0])
    await bob.ack(given[1])
    assert await bob.bodies(2) == ["3", "4"]
    await bob.silent()


async def test_acknowledging_twice_makes_room_for_one_delivery_more_and_not_for_two(relay: Relay) -> None:
    alice = await relay.agent("alice")
    bob = await relay.agent("bob", capabilities={"ack": True, "max_inflight": 2})
    await alice.send(*(said(str(number), "bob") for number in range(6)))
    await alice.silent()
    given = await bob.settled()
    for _ in range(3):
        await bob.ack(given[0])
    await bob.send(frame("ACK", {"ack_id": "d-999-nothing", "seq": 1}))
    assert await bob.bodies(1) == ["2"]
    await bob.silent()


async def test_a_resumed_connection_has_the_capabilities_that_its_resume_says(relay: Relay) -> None:
    alice, bob = await relay.agent("alice"), await relay.agent("bob")
    await relay.leave(bob)
    again = await relay.dial()
    await again.send(resumption(bob, capabilities={"ack": True, "max_inflight": 1, "accept": True}))
    await again.expect("SYNC")
    await alice.send(*(said(str(number), "bob") for number in range(3)))
    await alice.silent()
    assert texts(await again.settled()) == ["0"]
    sent = await again.send(said("hello", "alice"))
    assert (await again.expect("ACK"))["payload"]["ack_id"] == sent["id"]


async def test_frames_sent_along_with_hello_do_not_void_the_token_before(relay: Relay) -> None:
    first = await relay.dial()
    token = (await first.hello("alice"))["resume_token"]
    await relay.leave(first)
    second = await relay.dial()
    # The answer with the new token may be lost with the connection, whatever was sent in the meantime.
    await second.send(greeting("alice", resume_token=token), frame("STATUS"))
    await second.expect("WELCOME")
    await second.expect("STATUS_RESPONSE")
    await relay.leave(second)
    third = await relay.dial()
    await third.send(greeting("alice", resume_token=token))
    assert (await third.receive())["type"] == "WELCOME"


# Who wants to hear that its words are taken


async def test_who_asked_for_it_gets_an_ack_of_each_send(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    await relay.agent("bob")
    sent = await alice.send(said("hi", "bob"))
    ack = await alice.expect("ACK")
    assert ack["payload"]["ack_id"] == sent["id"]
    assert ack["payload"]["message_id"]


async def test_who_asked_for_it_gets_a_nack_of_each_refused_send(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    sent = await alice.send(said("hi", "nobody"))
    nack = await alice.expect("NACK")
    assert (nack["payload"]["ack_id"], nack["payload"]["code"]) == (sent["id"], "NOT_FOUND")


async def test_a_send_repeated_under_its_id_is_delivered_once_and_accepted_again(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    bob = await relay.agent("bob")
    sent = said("once", "bob")
    await alice.send(sent, sent)
    first, second = await alice.expect("ACK"), await alice.expect("ACK")
    assert first["payload"] == second["payload"]
    again = await relay.agent("alice", **accepting())
    await again.send(sent)
    assert (await again.expect("ACK"))["payload"] == first["payload"]
    assert texts(await bob.settled()) == ["once"]


async def test_another_send_under_a_used_id_is_a_conflict(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    sent = await alice.send(said("one", "bob"))
    await alice.send(sent | {"payload": {"body": "two"}})
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"], error["payload"]["fatal"]) == (sent["id"], "CONFLICT", False)
    assert await bob.bodies(1) == ["one"]
    await alice.silent()
    await bob.silent()


async def test_two_senders_may_use_the_same_id(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await alice.send(said("from alice", "carol", id="m-001"))
    await alice.silent()
    await bob.send(said("from bob", "carol", id="m-001"))
    assert await carol.bodies(2) == ["from alice", "from bob"]


# Synchronous sends


def asking(body: str, to: str, correlation: str | None, timeout_ms: int = 5000, *, blocking: bool = True) -> Frame:
    sync: Frame = {"timeoutMs": timeout_ms, "blocking": blocking}
    if correlation is not None:
        sync["correlationId"] = correlation
    return said(body, to, payload_meta={"sync": sync})


async def test_an_ack_with_the_correlation_id_goes_back_to_the_sender(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    assert delivery["payload_meta"]["sync"]["correlationId"] == "c-1"
    await bob.ack(delivery, correlationId="c-1", response=True, responseData={"status": "ok"})
    ack = await alice.expect("ACK")
    assert (ack["from"], ack["to"]) == ("bob", "alice")
    assert ack["payload"] == {
        "ack_id": delivery["id"],
        "seq": 1,
        "correlationId": "c-1",
        "response": True,
        "responseData": {"status": "ok"},
    }


async def test_an_ack_without_the_correlation_id_completes_nothing(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    await bob.ack(delivery)
    await bob.silent()
    await alice.silent()
    await bob.ack(delivery, correlationId="c-1", response=False)
    assert (await alice.expect("ACK"))["payload"]["response"] is False


async def test_another_agents_ack_with_the_correlation_id_completes_nothing(relay: Relay) -> None:
    alice, bob, mallory = await relay.agents("alice", "bob", "mallory")
    await alice.send(asking("ready?", "bob", "c-1"))
    (delivery,) = await bob.deliveries(1)
    await mallory.send(frame("ACK", {"ack_id": delivery["id"], "correlationId": "c-1", "response": "forged"}))
    await mallory.silent()
    await alice.silent()
    await bob.ack(delivery, correlationId="c-1", response="real")
    assert (await alice.expect("ACK"))["payload"]["response"] == "real"


async def test_no_answer_in_time_is_an_error(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("ready?", "bob", "c-1", 30))
    error = await alice.expect("ERROR")
    assert error["payload"] == {
        "code": "TIMEOUT",
        "message": "ACK timeout after 30ms",
        "fatal": False,
        "correlationId": "c-1",
    }
    (delivery,) = await bob.deliveries(1)
    await bob.ack(delivery, correlationId="c-1", response="late")
    await bob.silent()
    await alice.silent()


async def test_a_correlation_id_in_use_is_refused(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("one", "bob", "c-1"))
    twice = await alice.send(asking("two", "bob", "c-1"))
    error = await alice.expect("ERROR")
    assert (error["id"], error["payload"]["code"]) == (twice["id"], "CONFLICT")
    assert error["payload"]["message"] == "Duplicate correlationId: c-1"
    assert await bob.bodies(1) == ["one"]
    await alice.silent()
    await bob.silent()


async def test_a_blocking_send_needs_a_correlation_id_and_one_recipient(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(asking("one", "bob", None))
    error = (await alice.expect("ERROR"))["payload"]
    assert (error["code"], error["message"]) == ("BAD_REQUEST", "Missing sync correlationId for blocking SEND")
    for wrong in (asking("x", "*", "c-1"), asking("x", "#dev", "c-2"), asking("x", "bob", "c-3", 0)):
        await alice.send(wrong)
        assert (await alice.expect("ERROR"))["payload"]["code"] == "BAD_REQUEST"
    await bob.silent()


async def test_a_refused_synchronous_send_waits_for_nothing(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(asking("x", "nobody", "c-1", 20))
    assert (await alice.expect("ERROR"))["payload"]["code"] == "NOT_FOUND"
    await alice.send(asking("x", "alice", "c-1"))
    assert await alice.bodies(1) == ["x"]


async def test_a_repeated_synchronous_send_after_a_reconnect_still_times_out(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    sent = await alice.send(asking("ready?", "bob", "c-1", 50))
    (delivery,) = await bob.deliveries(1)
    again = await relay.agent("alice")
    await again.send(sent)
    assert (await again.expect("ERROR"))["payload"]["code"] == "TIMEOUT"
    await again.silent()
    assert delivery["payload"]["body"] == "ready?"
    await bob.silent()


async def test_ttl_ms_expires_a_delivery(relay: Relay) -> None:
    alice = await relay.agent("alice", **accepting())
    bob = await relay.agent("bob")
    await relay.leave(bob)
    await alice.send(said("milk", "bob", payload_meta={"ttl_ms": 1}))
    accepted = await alice.expect("ACK")
    desk = await relay.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        while [one.state for one in await desk.receipts(MessageId(accepted["payload"]["message_id"]))] != ["expired"]:
            pass
    await (await relay.agent("bob")).silent()


# 6: backpressure


async def test_who_writes_to_an_agent_far_behind_is_told_that_it_is_busy(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    await alice.send(*(said(str(number), "bob") for number in range(1100)))
    busy = await alice.expect("BUSY")
    assert busy["payload"]["retry_after_ms"] > 0
    assert busy["payload"]["queue_depth"] > 1000
    again = await relay.agent("bob")
    for number in range(1100):
        delivery = await again.expect("DELIVER")
        assert delivery["payload"]["body"] == str(number)
        await again.ack(delivery)


# 7: heartbeats


async def test_a_ping_is_answered_by_a_pong_with_its_nonce(relay: Relay) -> None:
    alice = await relay.agent("alice")
    await alice.send(frame("PING", {"nonce": "n-1"}))
    assert (await alice.expect("PONG"))["payload"] == {"nonce": "n-1"}


async def test_an_idle_client_is_pinged_and_one_that_answers_stays(brisk: Relay) -> None:
    alice = await brisk.agent("alice")
    assert alice.welcome["server"]["heartbeat_ms"] == 100
    nonces = set()
    for _ in range(4):
        ping = await alice.expect("PING")
        nonces.add(ping["payload"]["nonce"])
        await alice.send(frame("PONG", ping["payload"]))
    assert len(nonces) == 4


async def test_any_frame_counts_as_life(brisk: Relay) -> None:
    alice = await brisk.agent("alice")
    for _ in range(4):
        await alice.expect("PING")
        await alice.send(frame("NEVER_HEARD_OF"))
    await alice.silent()


async def test_a_client_that_never_answers_is_dropped_after_two_heartbeats(brisk: Relay) -> None:
    alice, mute = await brisk.agent("alice"), await brisk.dial()
    started = asyncio.get_running_loop().time()
    await alice.expect("PING")
    await alice.ended()
    assert asyncio.get_running_loop().time() - started >= 0.1
    await mute.ended()


# 8: resume


async def test_hello_with_the_resume_token_keeps_the_session_and_rotates_the_token(relay: Relay) -> None:
    bob = await relay.agent("bob")
    await relay.leave(bob)
    again = await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    assert again.welcome["session_id"] == bob.welcome["session_id"]
    assert again.welcome["resume_token"] != bob.welcome["resume_token"]


async def resume_is_too_old(wire: Wire, name: str, token: str) -> Frame:
    await wire.send(greeting(name, resume_token=token))
    error = await wire.expect("ERROR")
    assert (error["payload"]["code"], error["payload"]["fatal"]) == ("RESUME_TOO_OLD", False)
    welcome: Frame = (await wire.expect("WELCOME"))["payload"]
    return welcome


async def test_a_replayed_resume_token_gives_a_new_session(relay: Relay) -> None:
    bob = await relay.agent("bob")
    old = bob.welcome["resume_token"]
    again = await relay.agent("bob", resume_token=old)
    await again.silent()
    thief = await relay.dial()
    welcome = await resume_is_too_old(thief, "bob", old)
    assert welcome["session_id"] != bob.welcome["session_id"]


async def test_a_resume_token_is_good_again_if_its_successor_was_never_used(relay: Relay) -> None:
    bob = await relay.agent("bob")
    await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    again = await relay.agent("bob", resume_token=bob.welcome["resume_token"])
    assert again.welcome["session_id"] == bob.welcome["session_id"]


async def test_a_resume_token_is_bound_to_its_member(relay: Relay) -> None:
    bob = await relay.agent("bob")
    mallory = await relay.dial()
    welcome = await resume_is_too_old(mallory, "mallory", bob.welcome["resume_token"])
    assert welcome["session_id"] != bob.welcome["session_id"]
    await bob.silent()


async def test_a_resume_token_that_never_was_gives_a_new_session(relay: Relay) -> None:
    await resume_is_too_old(await relay.dial(), "bob", "made up")


async def chatted(relay: Relay, *senders: str, count: int = 5, ack: bool = True) -> tuple[Wire, list[Frame]]:
    """Let senders chat with bob, who then loses its connection."""
    bob = await relay.agent("bob")
    for name in senders:
        sender = await relay.agent(name)
        await sender.send(*(said(f"{name} {number + 1}", "bob", topic="chat") for number in range(count)))
    deliveries = await bob.deliveries(count * len(senders))
    for delivery in deliveries if ack else ():
        await bob.ack(delivery)
    await bob.silent()
    await relay.leave(bob)
    return bob, deliveries


async def test_resume_is_answered_by_sync_and_a_replay_from_last_seq_on(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice")
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}))
    sync = (await again.expect("SYNC"))["payload"]
    assert sync["session_id"] == bob.welcome["session_id"]
    assert sync["resume_token"] != bob.welcome["resume_token"]
    assert sync["streams"] == [{"topic": "chat", "peer": "alice", "last_seq": 2, "server_last_seq": 5}]
    assert sorted(sync) == ["resume_token", "session_id", "streams"]
    replayed = await again.deliveries(3)
    assert replayed == deliveries[2:]
    await again.silent()


async def test_a_resumed_session_goes_on_with_the_next_numbers(relay: Relay) -> None:
    bob, _ = await chatted(relay, "alice", count=2)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}), said("from me", "alice"))
    await again.expect("SYNC")
    alice = await relay.agent("alice")
    assert await alice.bodies(1) == ["from me"]
    await alice.send(said("next", "bob", topic="chat"))
    (delivery,) = await again.deliveries(1)
    assert delivery["delivery"] == {"seq": 3, "session_id": bob.welcome["session_id"]}


async def test_one_last_seq_counts_for_each_peer_of_its_topic(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice", "carol", count=3)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 2}}))
    streams = (await again.expect("SYNC"))["payload"]["streams"]
    assert [(one["peer"], one["last_seq"], one["server_last_seq"]) for one in streams] == [
        ("alice", 2, 3),
        ("carol", 2, 3),
    ]
    assert await again.settled() == [one for one in deliveries if one["delivery"]["seq"] == 3]


async def test_peers_say_exactly_how_far_each_stream_got(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice", "carol", count=3)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"peers": {"alice": 3, "carol": 1}}}))
    streams = (await again.expect("SYNC"))["payload"]["streams"]
    assert [(one["peer"], one["last_seq"]) for one in streams] == [("alice", 3), ("carol", 1)]
    assert await again.settled() == [one for one in deliveries if one["from"] == "carol"][1:]


async def test_what_was_never_acked_comes_again_whatever_resume_says(relay: Relay) -> None:
    bob, deliveries = await chatted(relay, "alice", ack=False)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 4}}))
    await again.expect("SYNC")
    assert await again.settled() == deliveries


async def test_messages_without_a_topic_resume_under_default(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"), said("two", "bob"))
    for delivery in await bob.deliveries(2):
        await bob.ack(delivery)
    await bob.silent()
    again = await relay.dial()
    await again.send(resumption(bob, {"default": {"last_seq": 1}}))
    streams = (await again.expect("SYNC"))["payload"]["streams"]
    assert streams == [{"topic": "default", "peer": "alice", "last_seq": 1, "server_last_seq": 2}]
    assert await again.bodies(1) == ["two"]
    assert (await bob.failed())["code"] == "DUPLICATE_CONNECTION"


@pytest.mark.parametrize("streams", [None, {}, {"chat": 7}, {"chat": {"last_seq": "x", "peers": []}}, [1]])
async def test_a_stream_without_a_position_goes_on_behind_its_last_ack(relay: Relay, streams: Any) -> None:
    bob, _ = await chatted(relay, "alice")
    again = await relay.dial()
    resume = resumption(bob)
    resume["payload"]["streams"] = streams
    await again.send(resume)
    assert (await again.expect("SYNC"))["payload"]["streams"][0]["last_seq"] == 5
    await again.silent()


async def test_resume_of_an_unknown_session_is_stale_and_hello_works_on_the_same_connection(relay: Relay) -> None:
    bob = await relay.agent("bob")
    wire = await relay.dial()
    for name, session_id in (("bob", "s-made-up"), ("mallory", bob.welcome["session_id"])):
        await wire.send(frame("RESUME", {"session_id": session_id, "agent": name, "streams": {}}))
        assert (await wire.expect("NACK"))["payload"]["code"] == "STALE"
    await bob.silent()
    await wire.hello("carol")
    await wire.send(said("hi", "bob"))
    assert (await bob.expect("DELIVER"))["from"] == "carol"


async def test_a_long_replay_comes_whole_and_in_order(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number), "bob", topic="chat") for number in range(600)))
    first = []
    for _ in range(600):
        first.append(await bob.expect("DELIVER"))
        if len(first) <= 400:
            await bob.ack(first[-1])
    await bob.silent()
    await relay.leave(bob)
    again = await relay.dial()
    await again.send(resumption(bob, {"chat": {"last_seq": 100}}))
    await again.expect("SYNC")
    for expected in first[100:]:
        delivery = await again.expect("DELIVER")
        assert delivery == expected
        await again.ack(delivery)
    await again.silent()


async def test_a_hub_may_want_the_token_in_a_resume(folder: Path) -> None:
    home = folder / "h"
    home.mkdir(mode=0o700)
    (home / "tieline.toml").write_text("[agent_relay]\nrequire_resume_token = true\n")
    async with house(home, store="sqlite:unsafe") as built:
        relay = relay_of(built)
        bob, again = await relay.agent("bob"), await relay.dial()
        for wrong in (resumption(bob), resumption(bob, resume_token="made up")):
            await again.send(wrong)
            assert (await again.expect("NACK"))["payload"]["code"] == "STALE"
        await again.send(resumption(bob, resume_token=bob.welcome["resume_token"]))
        assert (await again.expect("SYNC"))["payload"]["session_id"] == bob.welcome["session_id"]
        for wire in relay.wires:
            await wire.close()


async def test_a_session_is_resumed_after_a_restart_of_the_hub(folder: Path) -> None:
    async with house(folder / "h") as built:
        relay = relay_of(built)
        bob, deliveries = await chatted(relay, "alice", count=3)
        for wire in relay.wires:
            await wire.close()
    async with house(folder / "h") as built:
        relay = relay_of(built)
        again = await relay.dial()
        await again.send(resumption(bob, {"chat": {"last_seq": 1}}))
        sync = (await again.expect("SYNC"))["payload"]
        assert sync["session_id"] == bob.welcome["session_id"]
        assert await again.settled() == deliveries[1:]
        by_token = await relay.agent("bob", resume_token=sync["resume_token"])
        assert by_token.welcome["session_id"] == bob.welcome["session_id"]
        for wire in relay.wires:
            await wire.close()


# Questions


async def test_status_health_and_metrics_are_answered_under_the_same_id(relay: Relay) -> None:
    alice, _ = await relay.agents("alice", "bob")
    status = await alice.ask("STATUS")
    assert (status["type"], status["payload"]["agentCount"]) == ("STATUS_RESPONSE", 2)
    assert status["payload"].keys() == {"version", "uptime", "cloudConnected", "agentCount"}
    health = await alice.ask("HEALTH")
    assert (health["type"], health["payload"]["status"]) == ("HEALTH_RESPONSE", "healthy")
    metrics = await alice.ask("METRICS")
    assert metrics["type"] == "METRICS_RESPONSE"
    assert [one["name"] for one in metrics["payload"]["agents"]] == ["alice", "bob"]


async def test_agents_are_listed_and_those_connected_too(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await relay.leave(bob)
    everybody = await alice.ask("LIST_AGENTS", {"includeIdle": True})
    assert everybody["type"] == "LIST_AGENTS_RESPONSE"
    assert everybody["payload"]["agents"] == [{"name": "alice", "idle": False}, {"name": "bob", "idle": True}]
    connected = await alice.ask("LIST_CONNECTED_AGENTS")
    assert connected["type"] == "LIST_CONNECTED_AGENTS_RESPONSE"
    assert [one["name"] for one in connected["payload"]["agents"]] == ["alice"]


async def test_an_inbox_is_read_by_its_owner_alone(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(said("one", "bob"))
    await bob.deliveries(1)
    inbox = await bob.ask("INBOX", {"agent": "bob", "limit": 10})
    assert inbox["type"] == "INBOX_RESPONSE"
    assert [(one["from"], one["body"]) for one in inbox["payload"]["messages"]] == [("alice", "one")]
    assert (await bob.ask("INBOX", {"from": "carol"}))["payload"]["messages"] == []
    refused = await alice.ask("INBOX", {"agent": "bob"})
    assert (refused["type"], refused["payload"]["code"], refused["payload"]["fatal"]) == ("ERROR", "FORBIDDEN", False)


async def test_past_messages_are_queried_newest_first(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    await alice.send(said("one", "bob"), said("two", "bob"))
    await bob.deliveries(2)
    found = await bob.ask("MESSAGES_QUERY", {"limit": 10})
    assert found["type"] == "MESSAGES_RESPONSE"
    assert [one["body"] for one in found["payload"]["messages"]] == ["two", "one"]
    found = await bob.ask("MESSAGES_QUERY", {"from": "alice", "order": "asc"})
    assert [one["body"] for one in found["payload"]["messages"]] == ["one", "two"]
    assert (await carol.ask("MESSAGES_QUERY"))["payload"]["messages"] == []


async def test_what_the_hub_does_not_offer_is_refused_by_name(relay: Relay) -> None:
    alice = await relay.agent("alice")
    for kind in ("SHADOW_BIND", "SHADOW_UNBIND", "SPAWN", "RELEASE"):
        refused = await alice.ask(kind, {"primaryAgent": "bob"})
        assert (refused["type"], refused["payload"]["code"]) == ("ERROR", "FORBIDDEN")
    assert (await alice.ask("REMOVE_AGENT", {"name": "alice"}))["payload"]["code"] == "FORBIDDEN"


async def test_an_answer_is_never_larger_than_a_frame_may_be(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await alice.send(*(said(str(number) + "x" * (MIB // 3), "bob") for number in range(5)))
    await bob.deliveries(5)
    for kind, first in (("INBOX", "01"), ("MESSAGES_QUERY", "43")):
        found = await bob.ask(kind, {"limit": 10})
        assert [one["body"][0] for one in found["payload"]["messages"]] == list(first)
        assert len(json.dumps(found)) <= MIB


# Channels


async def test_a_channel_message_reaches_the_other_members_and_is_not_given_again(relay: Relay) -> None:
    alice, bob, carol = await relay.agents("alice", "bob", "carol")
    for wire in (alice, bob):
        await wire.send(frame("CHANNEL_JOIN", {"channel": "#dev"}))
        await wire.silent()
    said_here = {"channel": "#dev", "body": "standup", "thread": "t-1", "mentions": ["bob"], "data": {"n": 1}}
    await alice.send(frame("CHANNEL_MESSAGE", said_here))
    heard = await bob.expect("CHANNEL_MESSAGE")
    assert (heard["from"], heard["payload"]) == ("alice", said_here)
    await alice.silent()
    await carol.silent()
    await relay.leave(bob)
    await (await relay.agent("bob")).silent()


async def test_whoever_left_a_channel_hears_it_no_more(relay: Relay) -> None:
    alice, bob = await relay.agents("alice", "bob")
    await bob.send(frame("CHANNEL_JOIN", {"channel": "dev"}), frame("CHANNEL_LEAVE", {"channel": "#dev"}))
    await bob.silent()
    await alice.send(frame("CHANNEL_MESSAGE", {"channel": "#dev", "body": "x"}))
    await alice.silent()
    await bob.silent()


# Other protocols


async def test_a_member_of_another_protocol_and_an_agent_reach_each_other(relay: Relay) -> None:
    await relay.add("nina")
    nina = await relay.join("nina", receive=True)
    alice = await relay.agent("alice")
    await alice.send(frame("SEND", {"kind": "message", "body": "there", "data": {"n": 1}}, to="nina", topic="chat"))
    (delivery,) = await take(nina, 1, ack=True)
    message = delivery.message
    assert (message.sender, message.body, message.data, message.topic) == ("alice", "there", {"n": 1}, "chat")
    assert message.protocol == codec.PROTOCOL
    await nina.send("@alice", "and back", data={"n": 2}, topic="chat")
    answer = await alice.expect("DELIVER")
    assert (answer["from"], answer["topic"]) == ("nina", "chat")
    assert answer["payload"] == {"kind": "message", "body": "and back", "data": {"n": 2}}


async def test_a_topic_is_a_channel_of_the_hub(relay: Relay) -> None:
    await relay.add("nina")
    nina = await relay.join("nina", receive=True)
    await nina.subscribe("builds")
    alice = await relay.agent("alice")
    await alice.send(frame("SUBSCRIBE", topic="builds"), said("green", "*", topic="builds"))
    assert bodies(await take(nina, 1, ack=True)) == ["green"]
    await nina.send("#builds", "red")
    assert (await alice.expect("DELIVER"))["delivery"]["originalTo"] == "*"

"""Tests of the register handshake: accepted frames, and the close codes and reasons for all others."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from msgspec import structs
from structlog.testing import capture_logs
from websockets.exceptions import InvalidStatus

from tests.protocols.peerbus.peers import (
    CONFIG,
    HTTP,
    OTHER_TOKEN,
    PORT,
    TOKEN,
    WEBSOCKETS,
    Bus,
    Closed,
    Peer,
    WebSocketPeer,
    bus,
    envelope,
    register,
    text,
)
from tests.server.hubs import WAIT_SECONDS, until
from tieline.client import Client
from tieline.contract.refusal import Code
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.connection import CLOSINGS
from tieline.wire import session_pump

MIB = 1024 * 1024


@pytest.fixture(params=WEBSOCKETS)
async def web(request: pytest.FixtureRequest, folder: Path) -> AsyncIterator[Bus]:
    """Fixture: a hub for peers. Tests with it run once for each kind of WebSocket."""
    async with bus(folder / "h", request.param) as built:
        yield built


async def rejected(web: Bus, *frames: bytes) -> tuple[int, str]:
    """Send frames on a new connection that the hub must close. Return the close code and reason.

    Also check that another connection stays open.
    """
    bystander = await web.peer("bystander")
    peer = await web.dial()
    await peer.raw(*frames)
    closing = await peer.closed()
    assert "bystander" in await bystander.peers()
    return closing


def greeting(**fields: object) -> bytes:
    return json.dumps({"protocol_version": "v1", "type": "register", "token": TOKEN, "name": "alice"} | fields).encode()


# Every close code and reason


async def test_no_frame_closes_with_1002(folder: Path) -> None:
    for door in WEBSOCKETS:
        async with bus(folder / door.replace(" ", ""), door, CONFIG + "\n[limits]\nhello_ms = 100\n") as web:
            peer = await web.dial()
            assert await peer.closed() == (1002, "no handshake frame")


async def test_a_binary_first_frame_closes_with_1003(web: Bus) -> None:
    peer = await web.dial()
    assert isinstance(peer, WebSocketPeer)
    await peer.websocket.send(register("alice"), text=False)
    assert await peer.closed() == (1003, "handshake must be text")


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"hello",
        b"[]",
        b'"register"',
        b"{",
        b'{"type":"register"} {}',
        b'{"type":"register","name":NaN}',
        greeting(name=5),
        greeting(token=["x"]),
        greeting(protocol_version=1),
        greeting(type=True),
        greeting(name={"x": 1}),
    ],
)
async def test_what_is_not_json_or_of_wrong_types_closes_with_1007(hub: Bus, frame: bytes) -> None:
    assert await rejected(hub, frame) == (1007, "malformed handshake")


async def test_malformed_closes_with_1007_through_every_door(web: Bus) -> None:
    assert await rejected(web, b"{") == (1007, "malformed handshake")


@pytest.mark.parametrize(
    "frame",
    [
        b"null",
        b"{}",
        greeting(type="peers"),
        greeting(type=""),
        greeting(type=None),
        greeting(type="Register"),
        envelope("alice", "bob", "hello", id="m"),
        codec.encode_ack("x"),
    ],
)
async def test_anything_but_register_closes_with_1008(hub: Bus, frame: bytes) -> None:
    assert await rejected(hub, frame) == (1008, "first frame must be register")


async def test_the_first_frame_must_be_register_through_every_door(web: Bus) -> None:
    assert await rejected(web, codec.encode_peers()) == (1008, "first frame must be register")


@pytest.mark.parametrize("version", ["v2", "", "V1", "v1 ", None])
async def test_another_protocol_version_closes_with_1008(hub: Bus, version: str | None) -> None:
    assert await rejected(hub, greeting(protocol_version=version)) == (1008, "unsupported protocol version")


async def test_an_empty_name_closes_with_1008(web: Bus) -> None:
    assert await rejected(web, greeting(name="")) == (1008, "empty peer name")


@pytest.mark.parametrize("token", ["", "wrong", None, f"{TOKEN} ", TOKEN.upper()])
async def test_an_invalid_token_closes_with_1008(hub: Bus, token: str | None) -> None:
    assert await rejected(hub, greeting(token=token)) == (1008, "invalid bearer token")


async def test_an_invalid_token_closes_with_1008_through_every_door(web: Bus) -> None:
    assert await rejected(web, greeting(token="wrong")) == (1008, "invalid bearer token")


async def test_a_name_of_another_token_closes_with_1008_and_exactly_this_reason(web: Bus) -> None:
    alice = await web.peer("alice")
    closing = await rejected(web, register("alice", OTHER_TOKEN))
    assert closing == (1008, "name claimed under a different token")
    assert "alice" in await alice.peers()


async def test_a_name_stays_claimed_while_it_is_away(hub: Bus) -> None:
    await hub.leave(await hub.peer("alice"))
    assert await rejected(hub, register("alice", OTHER_TOKEN)) == (1008, "name claimed under a different token")
    await hub.peer("alice")


async def test_a_name_stays_claimed_across_a_restart(folder: Path) -> None:
    async with bus(folder / "h") as first:
        await first.peer("alice")
    async with bus(folder / "h") as second:
        assert await rejected(second, register("alice", OTHER_TOKEN)) == (1008, "name claimed under a different token")


@pytest.mark.parametrize("name", ["a b", "*", "-x", "x" * 129, "hub", "é", "_x", "a|b"])
async def test_a_name_outside_the_rule_closes_with_1008(hub: Bus, name: str) -> None:
    assert await rejected(hub, greeting(name=name)) == (1008, "invalid peer name")


async def test_a_name_that_differs_only_in_case_from_one_of_this_token_closes_with_1008(web: Bus) -> None:
    await web.add("carol")
    alice = await web.peer("alice")
    for name, token in (("Alice", TOKEN), ("ALICE", TOKEN), ("Carol", web.tokens["carol"])):
        assert await rejected(web, register(name, token)) == (1008, "invalid peer name")
    assert await alice.peers() == ["alice", "bystander"]


async def test_a_name_that_differs_only_in_case_from_one_of_another_token_is_claimed(hub: Bus) -> None:
    await hub.add("carol")
    await hub.peer("alice")
    for name, token in (("Alice", OTHER_TOKEN), ("Carol", TOKEN)):
        assert await rejected(hub, register(name, token)) == (1008, "name claimed under a different token")


async def test_a_members_token_is_invalid_for_every_other_name(hub: Bus) -> None:
    await hub.add("carol")
    await hub.peer("alice")
    for name in ("alice", "nobody"):
        assert await rejected(hub, register(name, hub.tokens["carol"])) == (1008, "invalid bearer token")


async def test_checks_run_in_the_documented_order(hub: Bus) -> None:
    everything_wrong: dict[str, object] = {"type": "x", "protocol_version": "v0", "name": "", "token": "wrong"}
    await hub.peer("alice")
    mended: dict[str, object] = {}
    for field, value, reason in (
        ("name", 5, "malformed handshake"),
        ("name", "", "first frame must be register"),
        ("type", "register", "unsupported protocol version"),
        ("protocol_version", "v1", "empty peer name"),
        ("name", "alice", "invalid bearer token"),
        ("token", OTHER_TOKEN, "name claimed under a different token"),
    ):
        mended[field] = value
        assert (await rejected(hub, greeting(**everything_wrong | mended)))[1] == reason


async def test_a_takeover_drops_the_old_connection_without_a_close_frame(web: Bus) -> None:
    old = await web.peer("alice")
    new = await web.peer("alice")
    assert await old.closed() == (1006, "")
    assert await new.peers() == ["alice"]


@pytest.mark.slow
async def test_a_takeover_lets_go_of_an_old_connection_that_does_not_read(folder: Path) -> None:
    def writers() -> int:
        return sum("_AsgiCarrier._write" in repr(task) for task in asyncio.all_tasks())

    async with bus(folder / "h", HTTP) as web:
        old, alice = await web.peer("bob"), await web.peer("alice")
        assert isinstance(old, WebSocketPeer)
        old.websocket.transport.pause_reading()
        for _ in range(20):
            await alice.say("bob", "x" * (MIB // 2))
        await alice.silent()
        assert writers() == 2
        new = await web.peer("bob")
        await until(lambda: writers() == 2)
        assert len(await new.deliveries(20)) == 20
        old.websocket.transport.abort()


async def test_a_frame_of_1_mib_is_taken_and_one_byte_more_closes_with_1009(web: Bus) -> None:
    alice = await web.peer("alice")
    padded = greeting(type="deliver", x="")
    padded = padded.replace(b'"x": ""', b'"x": "' + b"x" * (MIB - len(padded)) + b'"')
    assert len(padded) == MIB
    await alice.raw(padded)
    assert await alice.peers() == ["alice"]
    await alice.raw(padded + b" ")
    assert (await alice.closed())[0] == 1009


async def test_a_first_frame_beyond_1_mib_closes_with_1009(web: Bus) -> None:
    peer = await web.dial()
    await peer.raw(b" " * (MIB + 1))
    assert (await peer.closed())[0] == 1009


async def test_a_store_that_fails_ends_no_peer_and_loses_nothing_it_said(
    web: Bus, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session_pump, "RETRY_SECONDS", 0.05)
    alice, bob = await web.peer("alice"), await web.peer("bob")
    local_hub = web.hub.local_hub
    assert local_hub is not None
    with capture_logs(), monkeypatch.context() as patch:
        patch.setattr(local_hub._broker.store, "commit", _fail)
        for number in range(5):
            await alice.say("bob", number)
        newcomer = await web.dial()
        await newcomer.raw(register("newcomer"))
        assert await newcomer.closed() == (1011, "peer persistence failed")
    # Its answer means that everything before it is durable.
    assert "bob" in await alice.peers()
    assert [text(frame) for frame in await bob.deliveries(5)] == [*range(5)]
    await bob.silent()


def _fail() -> None:
    raise OSError("the disk is gone")


async def test_a_hub_that_stops_closes_with_1001(folder: Path) -> None:
    for door in WEBSOCKETS:
        async with bus(folder / door.replace(" ", ""), door) as web:
            peers = await web.several("alice", "bob")
            waiting = [asyncio.create_task(peer.closed()) for peer in peers]
            await web.hub.stop()
            assert await asyncio.gather(*waiting) == [(1001, "server shutting down")] * 2


async def test_a_removed_member_is_closed_with_1008(web: Bus) -> None:
    alice = await web.peer("alice")
    await (await web.operator()).remove_member("alice")
    assert await alice.closed() == (1008, "invalid bearer token")


def test_every_refusal_that_can_end_a_connection_has_its_close_code() -> None:
    fatal = {Code.UNAUTHORIZED, Code.NAME_TAKEN, Code.INVALID_NAME, Code.RESERVED_NAME, Code.SHUTTING_DOWN}
    assert fatal == set(CLOSINGS)
    assert all(len(reason.encode()) <= 123 for _, reason in CLOSINGS.values())


# Accepted handshakes


async def test_the_peers_frame_is_the_handshake_ack_and_lists_the_peer_itself(anyhow: Bus) -> None:
    peer = await anyhow.dial()
    await peer.raw(register("alice"))
    assert await peer.receive() == {"protocol_version": "v1", "type": "peers", "names": ["alice"]}


async def test_keys_match_in_any_case_and_unknown_ones_are_ignored(anyhow: Bus) -> None:
    peer = await anyhow.dial()
    frame = {"Protocol_Version": "v1", "TYPE": "register", "Token": TOKEN, "NaMe": "alice", "x": [1]}
    await peer.raw(json.dumps(frame).encode())
    assert (await peer.expect("peers"))["names"] == ["alice"]


@pytest.mark.parametrize(
    "extra",
    [
        {"names": 5},
        {"names": ["a", 1, None]},
        {"id": 5, "delivery_key": [1], "envelope": "x"},
        {"from": {}, "to": [], "ts": 1, "source": False, "kind": 2, "hmac": 3, "body": "x"},
        {"x": {"type": "peers", "name": 5}},
    ],
)
async def test_fields_of_other_frames_mean_nothing_in_register_whatever_their_type(
    hub: Bus, extra: dict[str, object]
) -> None:
    peer = await hub.dial()
    await peer.raw(greeting(**extra))
    assert (await peer.expect("peers"))["names"] == ["alice"]


async def test_a_member_registers_with_its_own_token(anyhow: Bus) -> None:
    await anyhow.add("carol", "dan")
    carol = await anyhow.peer("carol", anyhow.tokens["carol"])
    assert await carol.peers() == ["carol"]
    peer = await anyhow.dial()
    await peer.raw(register("dan", anyhow.tokens["carol"]))
    with pytest.raises(Closed):
        await peer.receive()


async def test_a_members_name_is_not_for_a_static_token(hub: Bus) -> None:
    await hub.add("carol")
    assert await rejected(hub, register("carol")) == (1008, "name claimed under a different token")


async def test_a_re_sent_register_is_ignored(anyhow: Bus) -> None:
    alice = await anyhow.peer("alice")
    await alice.raw(register("alice"), register("somebody-else"), register("alice", "wrong"))
    assert await alice.peers() == ["alice"]


async def test_a_client_may_open_a_probe_and_close_it_and_connect_again(anyhow: Bus) -> None:
    probe = await anyhow.peer("alice")
    await probe.close()
    alice = await anyhow.peer("alice")
    await alice.say("alice", "still here")
    assert await alice.texts(1) == ["still here"]


async def test_frames_right_behind_register_wait_for_it(anyhow: Bus) -> None:
    bob = await anyhow.peer("bob")
    alice = await anyhow.dial()
    await alice.raw(register("alice"), *(envelope("alice", "bob", number) for number in range(50)))
    await alice.expect("peers")
    assert await bob.texts(50) == list(range(50))


async def test_any_path_is_accepted_on_the_port_of_its_own(hub: Bus) -> None:
    places = {**hub.running.places, "peerbus": f"{hub.running.places['peerbus']}/any/path?x=1"}
    hub.running = structs.replace(hub.running, places=places)
    await (await hub.dial(PORT)).register("alice")


@pytest.mark.parametrize("origin", ["http://elsewhere.example", "null", "https://127.0.0.1"])
async def test_a_foreign_origin_is_refused_with_403(web: Bus, origin: str) -> None:
    with pytest.raises(InvalidStatus) as refused:
        await web.dial(additional_headers={"Origin": origin})
    assert refused.value.response.status_code == 403


async def test_its_own_origin_is_accepted(web: Bus) -> None:
    host = web.url(web.door).split("/")[2]
    peer = await web.dial(additional_headers={"Origin": f"http://{host}"})
    await peer.register("alice")


async def test_there_is_no_subprotocol_and_no_compression(web: Bus) -> None:
    peer = await web.dial(subprotocols=["x"])
    assert isinstance(peer, WebSocketPeer)
    assert peer.websocket.subprotocol is None
    assert peer.websocket.protocol.extensions == []


async def test_a_peer_that_hangs_up_is_no_longer_listed(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    assert await bob.peers() == ["alice", "bob"]
    await anyhow.leave(alice)
    assert await bob.peers() == ["bob"]


async def test_rejections_are_in_the_audit_chain(hub: Bus) -> None:
    await hub.peer("alice")
    await rejected(hub, register("alice", OTHER_TOKEN))
    await rejected(hub, register("bob", "wrong"))
    expected = {("name_taken", "alice", "peerbus"), ("unauthorized", "bob", "peerbus")}
    operator = await hub.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        # Nobody waits for such rows, so they may come a little later.
        while await refusals(operator) != expected:
            pass


async def refusals(operator: Client) -> set[tuple[str, str, str]]:
    rows = [json.loads(row.event) for row in (await operator.read_log("main", 0, 1000)).rows]
    return {
        (row["code"], name, row["protocol"])
        for row in rows
        if row["event"] == "refuse"
        # A caller that nobody knows has no name but the one it claims.
        for name in (row["claimed"] if not row["speaker"] else [row["speaker"]])
    }


async def test_connections_that_end_leave_nothing_behind(web: Bus) -> None:
    peers: list[Peer] = await web.several("a", "b", "c")
    for peer in peers:
        await peer.close()
    operator = await web.operator()
    async with asyncio.timeout(WAIT_SECONDS):
        while any(member.sessions for member in await operator.members()):
            pass

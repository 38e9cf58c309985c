"""Tests of the client adapter of peerbus with real hubs, and with a broker that misbehaves."""

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed

from tests.protocols.peerbus.peers import OTHER_TOKEN, SECRET, TOKEN, WEBSOCKETS, Bus, bus, envelope
from tests.server.hubs import WAIT_SECONDS, until
from tieline.protocols.peerbus import codec
from tieline.protocols.peerbus.client import Adapter, Delivery, Rejected


def make(url: str, name: str, **options: Any) -> Adapter:
    settings = {"token": TOKEN, "secret": SECRET} | options
    return Adapter(url, name=name, **settings)


async def take(peer: Adapter, count: int, *, ack: bool = True) -> list[Delivery]:
    found: list[Delivery] = []
    async with asyncio.timeout(WAIT_SECONDS):
        async for delivery in peer:
            found.append(delivery)
            if ack:
                await peer.ack(delivery)
            if len(found) == count:
                break
    return found


def said(deliveries: list[Delivery]) -> list[Any]:
    return [delivery.json() for delivery in deliveries]


@contextlib.asynccontextmanager
async def pair(hub: Bus) -> AsyncIterator[tuple[Adapter, Adapter]]:
    async with make(hub.url(hub.door), "alice") as alice, make(hub.url(hub.door), "bob") as bob:
        yield alice, bob


# With the hub


@pytest.mark.parametrize("door", WEBSOCKETS)
async def test_two_adapters_talk(folder: Path, door: str) -> None:
    async with bus(folder / "h", door) as hub, pair(hub) as (alice, bob):
        assert await alice.peers() == ["alice", "bob"]
        ident = await alice.send("bob", {"text": "<hello> & é\u2028"})
        await bob.broadcast("to all")
        (heard,) = await take(bob, 1)
        assert (heard.json(), heard.sender, heard.envelope.id) == ({"text": "<hello> & é\u2028"}, "alice", ident)
        assert (heard.envelope.source, heard.envelope.kind) == ("peer-bus", "msg")
        (heard,) = await take(alice, 1)
        assert (heard.json(), heard.envelope.to, heard.key) == ("to all", "*", f"{heard.envelope.id}|alice")
        operator = await hub.operator()
        assert {one.signature for one in await operator.history()} == {"verified"}


async def test_confirm_returns_when_everything_is_durable(hub: Bus) -> None:
    async with pair(hub) as (alice, _):
        ids = [await alice.send("bob", number) for number in range(20)]
        await alice.confirm()
        operator = await hub.operator()
        assert {one.wire_id for one in await operator.history(limit=100)} == set(ids)
        assert not alice._unconfirmed


async def test_what_the_host_did_not_consume_comes_again_to_the_next_adapter(hub: Bus) -> None:
    async with pair(hub) as (alice, bob):
        for number in range(3):
            await alice.send("bob", number)
        consumed, *_ = await take(bob, 3, ack=False)
        await bob.ack(consumed)
        await bob.peers()
    async with make(hub.url(hub.door), "bob") as again:
        assert said(await take(again, 2)) == [1, 2]


async def test_the_host_sees_each_id_once_though_the_connection_breaks(hub: Bus) -> None:
    async with pair(hub) as (alice, bob):
        for number in range(4):
            await alice.send("bob", number)
        first = await take(bob, 4, ack=False)
        for delivery in first[:2]:
            await bob.ack(delivery)
        await bob.peers()
        # Acknowledged while there is no connection: the hub hears of it when it gives it again.
        assert bob._link is not None
        bob._link.websocket.transport.abort()
        await until(lambda: bob._link is None)
        await bob.ack(first[2])
        await until(lambda: bob.tally.connections == 2)
        await bob.ack(first[3])
        await alice.send("bob", "after")
        assert said(await take(bob, 1)) == ["after"]
        assert bob.tally.repeated == 2
        await bob.peers()
    async with make(hub.url(hub.door), "bob") as again:
        await alice_says(hub, "nothing before this")
        assert said(await take(again, 1)) == ["nothing before this"]


async def alice_says(hub: Bus, body: str) -> None:
    async with make(hub.url(hub.door), "alice") as alice:
        await alice.send("bob", body)
        await alice.confirm()


async def test_what_was_sent_into_a_broken_connection_is_sent_again_once(hub: Bus) -> None:
    async with pair(hub) as (alice, bob):
        for number in range(50):
            await alice.send("bob", number)
            if number in (10, 30):
                (await alice._connected()).websocket.transport.abort()
                await asyncio.sleep(0)
        await alice.confirm()
        assert said(await take(bob, 50)) == list(range(50))
        assert alice.tally.connections >= 2
        await bob.peers()
        assert bob._inbound.empty()


async def test_a_restarted_hub_is_found_again_and_nothing_is_missing(folder: Path) -> None:
    async with bus(folder / "h", peerbus_listen="127.0.0.1:0") as hub:
        address = hub.running.places["peerbus"]
        assert address is not None
        bob = make(address, "bob")
        await bob.__aenter__()
        await bob.peers()
    try:
        async with bus(folder / "h", peerbus_listen=address.removeprefix("ws://")) as again:
            await until(lambda: bob.tally.connections == 2)
            await alice_says(again, "after the restart")
            assert said(await take(bob, 1)) == ["after the restart"]
    finally:
        await bob.close()


@pytest.mark.parametrize(
    ("options", "reason"),
    [({"token": "wrong"}, "invalid bearer token"), ({"token": OTHER_TOKEN}, "name claimed under a different token")],
)
async def test_a_rejection_is_final_and_says_why(hub: Bus, options: dict[str, str], reason: str) -> None:
    await hub.peer("alice")
    with pytest.raises(Rejected) as rejected:
        async with make(hub.url(hub.door), "alice", **options):
            pass
    assert (rejected.value.code, rejected.value.reason) == (1008, reason)


async def test_a_name_that_is_lost_to_another_token_later_ends_the_iteration(hub: Bus) -> None:
    async with make(hub.url(hub.door), "alice") as alice:
        await (await hub.operator()).remove_member("alice")
        await hub.peer("alice", OTHER_TOKEN)
        with pytest.raises(Rejected, match="different token"):
            await take(alice, 1)
        with pytest.raises(Rejected):
            await alice.send("bob", "x")
        with pytest.raises(Rejected):
            await alice.peers()


def test_a_short_secret_is_refused() -> None:
    with pytest.raises(ValueError, match="32 bytes"):
        make("ws://127.0.0.1:1", "alice", secret="short")


async def test_what_json_cannot_say_and_what_is_too_large_is_an_error_of_the_host(hub: Bus) -> None:
    async with make(hub.url(hub.door), "alice") as alice:
        for body in (object(), "\ud800", "x" * 1024 * 1024, nested(512), nested(5000)):
            with pytest.raises(ValueError, match=r"JSON|bytes"):
                await alice.send("bob", body)


def nested(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels - 1):
        found = [found]
    return found


async def test_whatever_json_a_body_is_the_host_is_given_it_and_what_follows(hub: Bus) -> None:
    bodies = [
        "1e400",
        "9" * 5000,
        rb'"\ud83d"'.decode(),
        r'{"\udc00":[-1e999]}',
        json.dumps(nested(511)),
        "null",
        '"end"',
    ]
    async with make(hub.url(hub.door), "bob") as bob:
        alice = await hub.peer("alice")
        for raw in bodies:
            await alice.say("bob", raw=raw)
        heard = said(await take(bob, len(bodies)))
        assert heard == [math.inf, math.inf, "\ufffd", {"\ufffd": [-math.inf]}, nested(511), None, "end"]
        assert (bob.tally.malformed, bob.tally.forged) == (0, 0)
        await bob.peers()
    async with make(hub.url(hub.door), "bob") as again:
        await alice_says(hub, "nothing before this")
        assert said(await take(again, 1)) == ["nothing before this"]


async def test_a_host_with_full_hands_is_given_no_more_until_it_consumes(hub: Bus) -> None:
    async with make(hub.url(hub.door), "alice") as alice, make(hub.url(hub.door), "bob", seen_max=10) as bob:
        for number in range(40):
            await alice.send("bob", number)
        await alice.confirm()
        await until(lambda: len(bob._open) == 10)
        # That nothing comes can only be seen when its time is over.
        await asyncio.sleep(0.05)
        assert len(bob._open) == 10
        assert said(await take(bob, 40)) == list(range(40))
        assert len(bob._seen) == 10


async def test_a_host_with_full_hands_can_confirm_before_it_acknowledges_and_misses_nothing(hub: Bus) -> None:
    async with make(hub.url(hub.door), "alice") as alice, make(hub.url(hub.door), "bob", seen_max=10) as bob:
        for number in range(40):
            await alice.send("bob", number)
        await alice.confirm()
        await until(lambda: len(bob._open) == 10)
        heard = []
        async with asyncio.timeout(WAIT_SECONDS):
            async for delivery in bob:
                await bob.send("alice", delivery.json())
                await bob.confirm()
                await bob.ack(delivery)
                heard.append(delivery.json())
                assert len(bob._open) <= 10
                if len(heard) == 40:
                    break
        assert heard == list(range(40))
        assert said(await take(alice, 40)) == heard


# With a broker that misbehaves

Handler = Callable[[ServerConnection], Awaitable[None]]


@contextlib.asynccontextmanager
async def broker(handler: Handler) -> AsyncIterator[str]:
    """Start a fake broker that registers all peers and then calls `handler`. Yield its address."""

    async def handle(websocket: ServerConnection) -> None:
        await websocket.recv()
        await websocket.send(codec.encode_peers(["bob"]), text=True)
        with contextlib.suppress(ConnectionClosed):
            await handler(websocket)

    server: Server = await serve(handle, "127.0.0.1", 0, compression=None)
    async with server:
        yield f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"


def deliver(body: str, *, key: str | None = None, secret: str = SECRET, **fields: str) -> bytes:
    made = envelope("alice", "bob", body, secret=secret, **fields)
    ident: str = json.loads(made)["id"]
    return codec.encode_deliver(ident if key is None else key, made)


async def test_a_delivery_without_a_key_or_with_a_bad_signature_is_dropped_unacknowledged_and_counted() -> None:
    acks: list[str] = []

    async def misbehave(websocket: ServerConnection) -> None:
        forged = deliver("forged").replace(b"forged", b"f0rged")
        for frame in (
            deliver("keyless", key=""),
            deliver("absent key").replace(b'"delivery_key"', b'"x"', 1),
            deliver("another secret", secret="x" * 32),
            forged,
            deliver("unsigned").replace(b'"hmac":"', b'"hmac":"00'),
            b"nonsense",
            b'{"type":"deliver"}',
            b'{"type":"news"}',
            deliver("good", key="the key"),
        ):
            await websocket.send(frame, text=True)
        acks.append(json.loads(await websocket.recv())["id"])
        await websocket.wait_closed()

    async with broker(misbehave) as url, make(url, "bob") as bob:
        assert said(await take(bob, 1)) == [{"text": "good"}]
        await until(lambda: len(acks) == 1)
        assert acks == ["the key"]
        tally = bob.tally
        assert (tally.keyless, tally.forged, tally.malformed, tally.repeated) == (2, 3, 2, 0)


async def test_a_repeated_id_is_acknowledged_again_and_not_surfaced_again() -> None:
    acks: list[str] = []

    async def repeat(websocket: ServerConnection) -> None:
        frame = deliver("once", id="m-1", key="k-1")
        await websocket.send(frame, text=True)
        acks.append(json.loads(await websocket.recv())["id"])
        # The same message under another key, as after a reconnect of a broadcast.
        await websocket.send(deliver("once", id="m-1", key="k-2"), text=True)
        acks.append(json.loads(await websocket.recv())["id"])
        await websocket.send(deliver("next"), text=True)
        await websocket.wait_closed()

    async with broker(repeat) as url, make(url, "bob") as bob:
        assert said(await take(bob, 2)) == [{"text": "once"}, {"text": "next"}]
        assert acks == ["k-1", "k-2"]
        assert bob.tally.repeated == 1


async def test_a_message_that_the_host_still_holds_is_not_surfaced_again_and_acknowledged_by_its_newest_key() -> None:
    acks: list[str] = []

    async def repeat(websocket: ServerConnection) -> None:
        for key in ("k-1", "k-2"):
            await websocket.send(deliver("once", id="m-1", key=key), text=True)
        acks.append(json.loads(await websocket.recv())["id"])
        await websocket.wait_closed()

    async with broker(repeat) as url, make(url, "bob") as bob:
        (held,) = await take(bob, 1, ack=False)
        await until(lambda: bob.tally.repeated == 1)
        await bob.ack(held)
        await until(lambda: acks == ["k-2"])


async def test_the_memory_of_ids_is_bounded() -> None:
    async def flood(websocket: ServerConnection) -> None:
        for number in range(100):
            await websocket.send(deliver(str(number)), text=True)
        async for _ack in websocket:
            pass

    async with broker(flood) as url, make(url, "bob", seen_max=16) as bob:
        assert len(await take(bob, 100)) == 100
        assert len(bob._seen) == 16


async def test_redialling_starts_at_100_ms_doubles_up_to_5_s_and_adds_up_to_half(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    slept: list[float] = []
    real = asyncio.sleep

    async def sleep(seconds: float) -> None:
        slept.append(seconds)
        await real(0)
        if len(slept) == 9:
            raise Rejected(1008, "enough")

    monkeypatch.setattr("tieline.protocols.peerbus.client.asyncio.sleep", sleep)
    for chance, factor in ((0.0, 1.0), (1.0, 1.5)):
        slept.clear()
        with pytest.raises(Rejected):
            async with make("ws://127.0.0.1:1", "bob", chance=lambda chance=chance: chance):
                pass
        expected = [0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 5.0, 5.0, 5.0]
        assert slept == pytest.approx([factor * seconds for seconds in expected])


async def test_a_broker_that_does_not_answer_the_handshake_is_tried_again() -> None:
    tries = 0

    async def handle(websocket: ServerConnection) -> None:
        nonlocal tries
        tries += 1
        await websocket.recv()
        if tries == 1:
            await websocket.send("nonsense")
        elif tries == 2:
            await websocket.close(1011, "not now")
        else:
            await websocket.send(codec.encode_peers(["bob"]), text=True)
            await websocket.wait_closed()

    server = await serve(handle, "127.0.0.1", 0)
    async with server, asyncio.timeout(WAIT_SECONDS):
        url = f"ws://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        async with make(url, "bob", chance=lambda: 0.0) as bob:
            assert bob.tally.connections == 1
            assert tries == 3

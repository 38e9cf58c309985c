"""Tests of many connections with one name, and of broken connections: only one has the name, and no message is lost."""

import asyncio
import socket
from typing import Any

import pytest

from tests.protocols.peerbus.peers import PORT, Bus, Closed, LinePeer, Peer, WebSocketPeer, listener, register
from tests.server.hubs import WAIT_SECONDS, until

RACERS = 20
WORDS = 200


class Racer:
    """Test client: one of several connections that register the same name. It acknowledges its deliveries."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.heard: list[Any] = []
        # Close code of the connection.
        self.closed: int | None = None

    async def run(self) -> None:
        """Register as bob, then receive and acknowledge until the connection ends. Note the close code."""
        try:
            await self.peer.raw(register("bob"))
            while True:
                frame = await self.peer.receive()
                if frame["type"] == "deliver":
                    self.heard.append(frame["envelope"]["body"]["text"])
                    await self.peer.ack(frame["delivery_key"])
        except Closed as end:
            self.closed = end.code


async def test_of_twenty_connections_that_race_for_a_name_one_survives_and_nothing_is_lost(anyhow: Bus) -> None:
    alice, _ = await anyhow.several("alice", "bob")
    racers = [Racer(await anyhow.dial()) for _ in range(RACERS)]

    async def talk() -> None:
        for number in range(WORDS):
            await alice.say("bob", number)
            if number % 10 == 0:
                await asyncio.sleep(0)
        await alice.settled()

    tasks = [asyncio.create_task(racer.run()) for racer in racers]
    await talk()

    def everything() -> set[Any]:
        return {word for racer in racers for word in racer.heard}

    await until(lambda: [one.closed for one in racers].count(None) == 1 and len(everything()) == WORDS, seconds=30)
    (survivor,) = [racer for racer in racers if racer.closed is None]
    assert {racer.closed for racer in racers} == {None, 1006}, "a takeover drops the old connection without a word"
    assert await alice.peers() == ["alice", "bob"]
    for racer in racers:
        assert racer.heard == sorted(set(racer.heard)), "each connection is given each message once, in order"
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    survivor.peer.name = "bob"
    await anyhow.leave(survivor.peer)
    await (await anyhow.peer("bob")).silent()


def vanish(peer: Peer) -> None:
    """Abort a peer's connection without a close frame, like a crash."""
    if isinstance(peer, WebSocketPeer):
        peer.websocket.transport.abort()
    else:
        assert isinstance(peer, LinePeer)
        peer.writer.transport.abort()


async def test_a_peer_that_vanishes_is_no_longer_listed_and_loses_nothing(anyhow: Bus) -> None:
    alice, bob = await anyhow.several("alice", "bob")
    await alice.say("bob", "given and not consumed")
    await bob.texts(1)
    vanish(bob)
    async with asyncio.timeout(WAIT_SECONDS):
        while await alice.peers() != ["alice"]:
            pass
    await alice.say("bob", "while it was gone")
    await alice.settled()
    assert await (await anyhow.peer("bob")).texts(2) == ["given and not consumed", "while it was gone"]


@pytest.mark.slow
async def test_a_half_open_connection_does_not_keep_the_name_from_the_next_one(anyhow: Bus) -> None:
    """The client's machine is gone, and the hub does not notice.

    The test pauses reading, so the connection is silent but open.
    """
    alice, gone = await anyhow.several("alice", "bob")
    transport = gone.websocket.transport if isinstance(gone, WebSocketPeer) else _writer(gone).transport
    transport.pause_reading()  # type: ignore[attr-defined]
    for number in range(20):
        await alice.say("bob", f"{number} " + "x" * 200_000)
    await alice.settled()
    bob = await anyhow.peer("bob")
    heard = await bob.texts(20, ack=True)
    assert [int(word.split()[0]) for word in heard] == list(range(20))
    assert await alice.peers() == ["alice", "bob"]
    transport.abort()


def _writer(peer: Peer) -> asyncio.StreamWriter:
    assert isinstance(peer, LinePeer)
    return peer.writer


async def test_the_system_asks_after_a_peer_that_is_silent_for_long(hub: Bus) -> None:
    async with listener(hub) as server:
        await (await hub.dial(PORT)).register("alice")
        (carrier,) = server._carriers
        assert carrier._transport is not None
        sock = carrier._transport.get_extra_info("socket")
        assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)
        assert sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE) == 60

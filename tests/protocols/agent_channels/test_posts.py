"""Tests of posts with many different values: the messages that recipients get, and their sender names."""

import contextlib
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_channels.scene import Scene
from tests.protocols.agent_channels.sockets import Peer
from tests.server.hubs import take, until
from tieline.protocols.agent_channels import Channel, encode
from tieline.protocols.agent_channels.large import LARGE_BYTES, VALUES_MAX

MANY = {"n": [0] * (VALUES_MAX + 1), "text": "x" * LARGE_BYTES}


async def said(scene: Scene, message: dict[str, Any]) -> tuple[Any, Any]:
    """Post a message to a channel.

    Return the message that a client of the socket gets, and the one that a subscriber gets.
    """
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    writer, reader = await scene.dial("dev"), await scene.dial("dev")
    place = scene.server._places["dev"]
    await until(lambda: place.channel.client_count == 2)
    await writer.send(message)
    heard = (await reader.receive()).to_dict()
    (delivery,) = await take(alice, 1, ack=True)
    return heard, delivery.message


async def test_many_values_reach_the_other_clients_as_they_came_and_others_with_a_note(scene: Scene) -> None:
    message = {"msg": "see data", "data": {"title": "the list", "from": "client", **MANY}, "id": "x1"}
    heard, got = await said(scene, message)
    assert heard == message
    assert (got.body, got.title, got.data) == ("see data", "the list", None)
    assert got.notes == ("for agent-channels alone: data, id",)


@pytest.mark.parametrize("stamp", [{"id": "forged"}, {"id": "x" * 100_000}])
async def test_a_name_and_a_stamp_in_many_values_are_not_believed(scene: Scene, stamp: dict[str, str]) -> None:
    data = {"from": "bob", "tieline": stamp, **MANY}
    heard, got = await said(scene, {"msg": "trust me", "data": data, "id": "x1"})
    assert heard == {"msg": "trust me", "data": {"from": "client-0@dev", **MANY}, "id": "x1"}
    assert got.notes == ("claimed to be bob", "for agent-channels alone: data, id")


async def test_a_long_text_with_many_commas_is_a_text_for_everybody(scene: Scene) -> None:
    text = "one, two, " * (VALUES_MAX + 1)
    heard, got = await said(scene, {"msg": text + "x" * LARGE_BYTES})
    assert heard == {"msg": text + "x" * LARGE_BYTES}
    assert (got.body, got.notes) == (text + "x" * LARGE_BYTES, ())


async def test_the_listener_of_an_inbox_gets_many_values_too(scene: Scene) -> None:
    listener = await scene.listener("bob")
    writer = await scene.dial("inbox-bob")
    message = {"msg": "see data", "data": MANY}
    await writer.send(message)
    assert (await listener.receive()).to_dict() == message
    assert json.loads(json.dumps(message)) == message


@contextlib.asynccontextmanager
async def channel_at(place: str, scene: Scene, folder: Path) -> AsyncIterator[Channel]:
    """Yield a channel that the hub serves if `place` is `hub`, otherwise one of the library alone."""
    if place == "hub":
        yield scene.server._places["general"].channel
        return
    channel = Channel(folder / "large.sock")
    await channel.start()
    try:
        yield channel
    finally:
        await channel.stop()


@pytest.mark.slow
@pytest.mark.parametrize("place", ["library", "hub"])
async def test_a_small_message_does_not_wait_for_the_large_frame_of_another_client(
    scene: Scene, folder: Path, place: str
) -> None:
    async with channel_at(place, scene, folder) as channel:
        large, small, reader = peers = [await Peer.unix(channel.path) for _ in range(3)]
        scene.peers += peers
        await until(lambda: channel.client_count == 3)
        (sender, *_) = channel._clients.values()
        await large.send({"msg": "large", "data": {"n": [{"a": 1}] * 100_000}})
        # The frame has come whole, and its check has begun.
        await until(lambda: sender._check is not None)
        small.writer.write(encode({"msg": "small"}))
        assert await reader.texts(2) == ["small", "large"]

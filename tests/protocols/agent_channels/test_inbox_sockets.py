"""Tests of inbox sockets: their other names, and clients that are silent for a while before they write."""

import asyncio
from pathlib import Path

import pytest

from tests.protocols.agent_channels.scene import Scene, open_scene
from tests.protocols.agent_channels.sockets import WAIT_SECONDS
from tests.server.hubs import bodies, running_hub, take, until
from tieline.protocols.agent_channels import server

# Another name of an inbox.


async def test_a_mesh_client_writes_to_and_reads_from_a_member_by_its_dm_socket(scene: Scene) -> None:
    bob = await scene.join("bob", receive=True)
    writer = await scene.dial("dm-bob")
    await writer.send({"msg": "through the other name", "data": {"from": "mesh"}})
    assert bodies(await take(bob, 1, ack=True)) == ["through the other name"]
    reader = await scene.dial("dm-alice")
    await bob.send("@alice", "for the reader")
    assert await reader.texts(1) == ["for the reader"]


async def test_dm_sockets_come_and_go_with_their_members_and_are_not_in_the_group(scene: Scene) -> None:
    await scene.add("carol")
    await until((scene.sockets / "dm-carol.sock").exists)
    assert [name for name in scene.group() if name.startswith("dm-")] == []
    await scene.operator_client.remove_member("carol")
    await until(lambda: not (scene.sockets / "dm-carol.sock").is_symlink())


async def test_a_channel_cannot_take_the_dm_socket_of_a_member(scene: Scene) -> None:
    alice, bob = await scene.join("alice", receive=True), await scene.join("bob", receive=True)
    await until((scene.sockets / "dm-alice.sock").exists)
    for name in ("dm-alice", "dm-later", "other"):
        await bob.subscribe(name)
    # The socket of the last channel says that the first two were dealt with.
    await until(lambda: "other" in scene.group())
    await scene.add("later")
    await until((scene.sockets / "dm-later.sock").is_symlink)
    client = await scene.dial("dm-alice")
    await client.send({"msg": "for alice", "data": {}})
    assert bodies(await take(alice, 1, ack=True)) == ["for alice"]
    client.close()


async def test_a_mesh_client_finds_the_dm_socket_of_a_member_after_a_restart(folder: Path) -> None:
    async with running_hub(folder / "h") as built:
        await built.add("alice")
    async with running_hub(folder / "h") as built:
        scene = await open_scene(built)
        writer = await scene.dial("dm-alice")
        await writer.send({"msg": "welcome back", "data": {}})
        operator = scene.operator_client
        async with asyncio.timeout(WAIT_SECONDS):
            while [one.backlog for one in await operator.members()] != [1]:
                pass
        writer.close()


async def test_dm_sockets_that_a_killed_hub_left_behind_are_replaced(folder: Path) -> None:
    sockets = folder / "h" / "channels" / "main"
    sockets.mkdir(parents=True)
    for name in ("nobody", "alice"):
        (sockets / f"dm-{name}.sock").symlink_to(f"inbox-{name}.sock")
    async with running_hub(folder / "h", store="memory") as built:
        scene = await open_scene(built)
        await scene.add("alice")
        await scene.dial("dm-alice")
        assert not (sockets / "dm-nobody.sock").is_symlink()
        for peer in scene.peers:
            peer.close()
    assert not list(sockets.glob("*.sock"))


# A writer that was silent at first.


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fixture: make a silent client of an inbox count as a listener after 10 ms."""
    monkeypatch.setattr(server, "LISTEN_SECONDS", 0.01)


@pytest.mark.usefixtures("quick")
async def test_mail_that_a_silent_writer_received_comes_back_to_the_owner_when_it_writes(scene: Scene) -> None:
    alice = await scene.join("alice")
    await alice.send("@bob", "before the writer came")
    writer = await scene.listening("bob")
    assert await writer.texts(1) == ["before the writer came"]
    await alice.send("@bob", "while it was silent")
    assert await writer.texts(1) == ["while it was silent"]
    await writer.send({"msg": "now it writes", "data": {}})
    owner = await scene.listening("bob")
    assert await owner.texts(3) == ["before the writer came", "while it was silent", "now it writes"]


@pytest.mark.usefixtures("quick")
async def test_mail_comes_back_to_an_owner_who_listens_already_and_only_what_it_lacks(scene: Scene) -> None:
    alice = await scene.join("alice")
    await alice.send("@bob", "before both")
    writer = await scene.listening("bob")
    assert await writer.texts(1) == ["before both"]
    owner = await scene.listening("bob")
    await alice.send("@bob", "for both")
    assert await owner.texts(1) == ["for both"]
    assert await writer.texts(1) == ["for both"]
    await writer.send({"msg": "now it writes", "data": {}})
    assert await owner.texts(2) == ["before both", "now it writes"]


@pytest.mark.usefixtures("quick")
async def test_a_writer_hears_only_what_is_new_after_it_wrote_and_uses_up_nothing(scene: Scene) -> None:
    alice = await scene.join("alice")
    writer = await scene.listening("bob")
    await writer.send({"msg": "now it writes", "data": {}})
    async with asyncio.timeout(WAIT_SECONDS):
        while [one.backlog for one in await alice.members() if one.name == "bob"] == [0]:
            pass
    await alice.send("@bob", "after it wrote")
    assert await writer.texts(1) == ["after it wrote"]
    owner = await scene.listening("bob")
    assert await owner.texts(2) == ["now it writes", "after it wrote"]


@pytest.mark.usefixtures("quick")
async def test_what_a_listener_took_away_with_it_does_not_come_back_from_a_writer(scene: Scene) -> None:
    alice = await scene.join("alice")
    writer, owner = await scene.listening("bob"), await scene.listening("bob")
    await alice.send("@bob", "for both")
    assert [await owner.texts(1), await writer.texts(1)] == [["for both"], ["for both"]]
    owner.close()
    async with asyncio.timeout(WAIT_SECONDS):
        while await scene.listeners("bob") != 1:
            pass
    await alice.send("@bob", "for the writer alone")
    assert await writer.texts(1) == ["for the writer alone"]
    await writer.send({"msg": "now it writes", "data": {}})
    again = await scene.listening("bob")
    assert await again.texts(2) == ["for the writer alone", "now it writes"]


@pytest.mark.usefixtures("quick")
async def test_what_the_owner_settled_elsewhere_does_not_come_back(scene: Scene) -> None:
    alice = await scene.join("alice")
    writer = await scene.listening("bob")
    await alice.send("@bob", "settled")
    await alice.send("@bob", "waiting")
    assert await writer.texts(2) == ["settled", "waiting"]
    bob = await scene.join("bob", receive=True)
    bob.ack((await take(bob, 2))[0])
    await bob.members()
    await bob.close()
    await writer.send({"msg": "now it writes", "data": {}})
    owner = await scene.listening("bob")
    assert await owner.texts(2) == ["waiting", "now it writes"]

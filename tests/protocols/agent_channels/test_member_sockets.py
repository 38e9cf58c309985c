"""Tests that the sockets of members and channels come and go with them, and are for their owner alone."""

import asyncio
import contextlib
import os
import resource
import stat
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from tests.protocols.agent_channels.scene import Scene, open_scene
from tests.server.hubs import bodies, running_hub, silent, take, until
from tieline.contract.channel import Archive, Rename
from tieline.protocols.agent_channels import server
from tieline.protocols.agent_channels.group import ChannelGroup
from tieline.wire.unix import PATH_BYTES_MAX


async def test_members_and_channels_get_sockets_as_they_appear_and_lose_them_as_they_go(scene: Scene) -> None:
    await until(lambda: scene.group() == ["general", "inbox-alice", "inbox-bob"])
    await scene.add("carol")
    carol = await scene.join("carol")
    await carol.subscribe("dev")
    await until(lambda: scene.group() == ["general", "inbox-alice", "inbox-bob", "inbox-carol", "dev"])
    listener = await scene.listener("carol")
    await scene.operator_client.remove_member("carol")
    await until(lambda: scene.group() == ["general", "inbox-alice", "inbox-bob"])
    assert await listener.closed() == b""
    assert {path.name for path in scene.sockets.glob("*.sock")} == {
        "general.sock",
        "inbox-alice.sock",
        "inbox-bob.sock",
        "dm-alice.sock",
        "dm-bob.sock",
    }
    await scene.add("carol")
    await scene.listener("carol")


async def test_a_channel_whose_last_subscriber_leaves_loses_its_socket_and_general_never_does(scene: Scene) -> None:
    alice = await scene.join("alice")
    await alice.subscribe("dev")
    await until((scene.sockets / "dev.sock").exists)
    await alice.unsubscribe("dev")
    await until(lambda: not (scene.sockets / "dev.sock").exists())
    assert (scene.sockets / "general.sock").exists()


async def test_clients_who_talk_on_a_channel_are_not_hung_up_on_when_its_last_subscriber_leaves(scene: Scene) -> None:
    alice = await scene.join("alice")
    await alice.subscribe("dev")
    one, other = await scene.dial("dev"), await scene.dial("dev")
    await alice.unsubscribe("dev")
    # Sockets change in the order of the changes, so the channel has been dealt with when the next one is there.
    await alice.subscribe("later")
    await until((scene.sockets / "later.sock").exists)
    await one.send({"msg": "still here?", "data": {}})
    assert await other.texts(1) == ["still here?"]
    one.close()
    await other.send({"msg": "alone now", "data": {}})
    other.close()
    await until(lambda: not (scene.sockets / "dev.sock").exists())
    assert scene.group() == ["general", "inbox-alice", "inbox-bob", "later"]


async def test_a_channel_that_is_subscribed_to_again_keeps_its_socket_and_its_clients(scene: Scene) -> None:
    alice = await scene.join("alice", receive=True)
    await alice.subscribe("dev")
    client = await scene.dial("dev")
    await alice.unsubscribe("dev")
    await alice.subscribe("dev")
    await alice.subscribe("later")
    await until((scene.sockets / "later.sock").exists)
    await client.send({"msg": "and again", "data": {}})
    assert bodies(await take(alice, 1)) == ["and again"]
    client.close()
    await alice.unsubscribe("later")
    await until(lambda: not (scene.sockets / "later.sock").exists())
    assert (scene.sockets / "dev.sock").exists()


async def test_the_clients_of_a_channel_that_gets_another_name_or_is_archived_are_hung_up_on(scene: Scene) -> None:
    alice = await scene.join("alice")
    await alice.subscribe("dev")
    client = await scene.dial("dev")
    await alice.change_channel("dev", Rename("ops"))
    assert await client.closed() == b""
    client = await scene.dial("ops")
    await alice.change_channel("ops", Archive())
    assert await client.closed() == b""


async def test_after_a_restart_the_sockets_are_back_and_what_waits_in_an_inbox_is_replayed(folder: Path) -> None:
    async with running_hub(folder / "h") as built:
        await built.add("alice", "bob")
        alice = await built.join("alice")
        await alice.subscribe("dev")
        await alice.send("@bob", "before")
    async with running_hub(folder / "h") as built:
        scene = await open_scene(built)
        assert sorted(scene.group()) == ["dev", "general", "inbox-alice", "inbox-bob"]
        listener = await scene.listener("bob")
        assert (await listener.receive()).msg == "before"
        listener.close()


async def test_inbox_sockets_can_be_turned_off(folder: Path) -> None:
    (folder / "h").mkdir()
    (folder / "h" / "tieline.toml").write_text("[agent_channels]\ninboxes = false\n")
    async with running_hub(folder / "h", store="memory") as built:
        scene = await open_scene(built)
        await scene.add("alice")
        alice = await scene.join("alice")
        await alice.subscribe("dev")
        await until(lambda: scene.group() == ["general", "dev"])


async def test_sockets_are_for_their_owner_alone(scene: Scene) -> None:
    alice = await scene.join("alice")
    await alice.subscribe("dev")
    await until((scene.sockets / "dev.sock").exists)
    assert stat.S_IMODE(scene.sockets.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in scene.sockets.glob("*.sock")} == {0o600}


async def test_a_client_of_another_user_is_disconnected_unheard(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    alice = await scene.join("alice", receive=True)
    monkeypatch.setattr("tieline.wire.unix.socket_uid", lambda _: os.geteuid() + 1)
    with capture_logs() as logs:
        for name in ("general", "inbox-alice"):
            stranger = await scene.dial(name)
            with contextlib.suppress(ConnectionError):
                await stranger.send({"msg": "let me in", "data": {}})
            assert await stranger.closed() == b""
    await silent(alice)
    assert len([entry for entry in logs if "for the user who runs the hub" in entry.get("reason", "")]) == 2


async def test_sockets_whose_path_is_too_long_are_left_out_and_listed(folder: Path) -> None:
    home = folder / ("h" * (PATH_BYTES_MAX - len(os.fsencode(folder)) - len("/channels/main/inbox-bob.sock") - 1))
    async with running_hub(home, store="memory") as built:
        scene = await open_scene(built)
        await scene.add("bob", "barbara")
        bob = await scene.join("bob")
        await bob.subscribe("a-rather-long-channel-name")
        await until(lambda: scene.group() == ["general", "inbox-bob"])
        channels = scene.server
        await until(lambda: channels.left_out == {"inbox-barbara", "a-rather-long-channel-name"})
        listener = await scene.listener("bob")
        barbara = await scene.join("barbara")
        await barbara.send("@bob", "the rest works")
        assert (await listener.receive()).msg == "the rest works"
        listener.close()


@pytest.mark.slow
async def test_members_added_in_bulk_cost_few_writes_of_group_json_and_a_socket_each(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    writes = []
    write = ChannelGroup._write

    def counted(group: ChannelGroup) -> None:
        writes.append(len(group.list()))
        write(group)

    monkeypatch.setattr(ChannelGroup, "_write", counted)
    names = [f"bulk-{number}" for number in range(1000)]
    await asyncio.gather(*(scene.operator_client.add_member(name) for name in names))
    await until(lambda: len(scene.group()) == 3 + len(names))
    assert len(writes) <= 100, "it is written for many at once"
    assert all((scene.sockets / f"inbox-{name}.sock").is_socket() for name in names)
    before = len(writes)
    await asyncio.gather(*(scene.operator_client.remove_member(name) for name in names))
    await until(lambda: scene.group() == ["general", "inbox-alice", "inbox-bob"])
    assert len(writes) - before <= 100, "it was one for each of a thousand"


async def test_stopping_in_the_middle_of_a_change_leaves_no_socket_open(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = asyncio.Event()
    open_some = ChannelGroup._open

    async def slowly(group: ChannelGroup, names: list[str]) -> Any:
        made = await open_some(group, names)
        opened.set()
        # Turns of the loop in which the hub may stop, while the new socket is in no list yet.
        for _ in range(20):
            await asyncio.sleep(0)
        return made

    async with running_hub(folder / "h", store="sqlite:unsafe") as built:
        scene = await open_scene(built)
        monkeypatch.setattr(ChannelGroup, "_open", slowly)
        await scene.operator_client.add_member("late")
        await opened.wait()
        sockets = scene.sockets
    assert list(sockets.glob("*.sock")) == []


async def test_a_name_that_goes_and_comes_back_at_once_has_its_socket(scene: Scene) -> None:
    for _ in range(20):
        removed = scene.operator_client.remove_member("bob")
        added = scene.operator_client.add_member("bob")
        await asyncio.gather(removed, added)
    await scene.add("carol")
    await until(lambda: scene.group() == ["general", "inbox-alice", "inbox-bob", "inbox-carol"])
    listener = await scene.listener("bob")
    alice = await scene.join("alice")
    await alice.send("@bob", "hello")
    assert (await listener.receive()).msg == "hello"


async def test_sockets_past_the_limit_of_open_files_are_left_out_and_the_hub_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "_SOCKETS_SHARE", 4 / resource.getrlimit(resource.RLIMIT_NOFILE)[1])
    async with running_hub(folder / "h", store="sqlite:unsafe") as built:
        scene = await open_scene(built)
        await scene.add("a", "b", "c", "d", "e")
        channels = scene.server
        await until(lambda: channels.left_out == {"inbox-d", "inbox-e"})
        await until(lambda: scene.group() == ["general", "inbox-a", "inbox-b", "inbox-c"])
    async with running_hub(folder / "h", store="sqlite:unsafe") as built:
        scene = await open_scene(built)
        assert len(scene.group()) == 4
        assert scene.server.left_out == {"inbox-d", "inbox-e"}

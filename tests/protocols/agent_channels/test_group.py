"""Tests of a group of channels: `group.json` is correct, names stay in the folder, a failed start stops everything."""

import asyncio
import json
import os
import re
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.protocols.agent_channels.sockets import Peer
from tieline.protocols.agent_channels.channel import Channel
from tieline.protocols.agent_channels.group import ChannelGroup
from tieline.wire.unix import SocketInUse

NAMES = ["general", "topic-research", "inbox-a1"]


def group_json(folder: Path) -> Any:
    """Return the content of `group.json`."""
    return json.loads((folder / "group.json").read_text())


class Clock:
    """Test double: a clock that the test sets."""

    def __init__(self) -> None:
        self.time = datetime(2026, 2, 7, 18, 0, tzinfo=UTC)

    def __call__(self) -> datetime:
        return self.time


async def test_start_makes_the_folder_starts_all_channels_and_writes_group_json(folder: Path) -> None:
    group = ChannelGroup(folder / "a" / "group", [{"name": "general"}, "topic-research", {"name": "inbox-a1"}])
    assert not group.started
    await group.start()
    assert group.started
    assert group.list() == NAMES
    for name in NAMES:
        channel = group.channel(name)
        assert channel.started
        assert channel.path == folder / "a" / "group" / f"{name}.sock"
        assert channel.path.is_socket()
    found = group_json(group.path)
    assert found["channels"] == [{"name": name} for name in NAMES]
    assert found["pid"] == os.getpid()
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", found["created"])
    await group.stop()


async def test_group_json_is_json_of_two_spaces_and_a_newline(folder: Path) -> None:
    group = ChannelGroup(folder, ["general"], now=Clock(), pid=12345)
    await group.start()
    assert (folder / "group.json").read_text() == (
        "{\n"
        '  "created": "2026-02-07T18:00:00.000Z",\n'
        '  "pid": 12345,\n'
        '  "channels": [\n'
        "    {\n"
        '      "name": "general"\n'
        "    }\n"
        "  ]\n"
        "}\n"
    )
    await group.stop()


async def test_created_is_in_utc_whatever_the_clock_says(folder: Path) -> None:
    moscow = timezone(timedelta(hours=3))
    group = ChannelGroup(folder, [], now=lambda: datetime(2026, 2, 7, 21, 0, 0, 1500, tzinfo=moscow))
    await group.start()
    assert group_json(folder) == {"created": "2026-02-07T18:00:00.001Z", "pid": os.getpid(), "channels": []}
    await group.stop()


async def test_group_json_is_written_only_after_all_channels_listen(folder: Path) -> None:
    let_go = asyncio.Event()
    others_listen = asyncio.Event()

    class Late(Channel):
        async def start(self) -> None:
            others_listen.set()
            await let_go.wait()
            await super().start()

    group = ChannelGroup(
        folder, ["quick", "late"], channel_factory=lambda name, path: (Late if name == "late" else Channel)(path)
    )
    starting = asyncio.create_task(group.start())
    await others_listen.wait()
    assert not (folder / "group.json").exists()
    assert not group.started
    let_go.set()
    await starting
    for entry in group_json(folder)["channels"]:
        peer = await Peer.unix(folder / f"{entry['name']}.sock")
        peer.close()
    await group.stop()


async def test_when_one_channel_fails_to_start_the_others_are_stopped_and_the_error_raised(folder: Path) -> None:
    taken = Channel(folder / "taken.sock")
    await taken.start()
    group = ChannelGroup(folder, ["a", "taken", "b"])
    with pytest.raises(SocketInUse):
        await group.start()
    assert not group.started
    assert group.list() == []
    assert [entry.name for entry in folder.iterdir()] == ["taken.sock"]
    await taken.stop()
    await group.start()
    assert group.list() == ["a", "taken", "b"]
    await group.stop()


async def test_starting_twice_is_an_error(folder: Path) -> None:
    group = ChannelGroup(folder, ["general"])
    await group.start()
    with pytest.raises(RuntimeError, match=r"^ChannelGroup already started$"):
        await group.start()
    await group.stop()


async def test_channels_can_be_added_and_removed_at_runtime_and_created_is_rewritten_each_time(folder: Path) -> None:
    clock = Clock()
    group = ChannelGroup(folder, ["general"], now=clock)
    await group.start()
    clock.time += timedelta(seconds=1)
    channel = await group.add_channel({"name": "topic-new"})
    assert channel is group.channel("topic-new")
    assert channel.started
    found = group_json(folder)
    assert found["channels"] == [{"name": "general"}, {"name": "topic-new"}]
    assert found["created"] == "2026-02-07T18:00:01.000Z"
    clock.time += timedelta(seconds=1)
    await group.remove_channel("general")
    found = group_json(folder)
    assert found["channels"] == [{"name": "topic-new"}]
    assert found["created"] == "2026-02-07T18:00:02.000Z"
    assert group.list() == ["topic-new"]
    assert not (folder / "general.sock").exists()
    await group.stop()


async def test_a_removed_channel_leaves_group_json_before_it_stops(folder: Path) -> None:
    group = ChannelGroup(folder, ["general", "old"])
    await group.start()
    listed: list[str] = []
    peer = await Peer.unix(folder / "old.sock")
    connected = asyncio.Event()
    old = group.channel("old")
    if not old.client_count:
        old.on("connect", lambda _: connected.set())
        await connected.wait()
    old.on("disconnect", lambda _: listed.extend(entry["name"] for entry in group_json(folder)["channels"]))
    await group.remove_channel("old")
    assert listed == ["general"]
    peer.close()
    await group.stop()


async def test_adding_and_removing_need_a_started_group(folder: Path) -> None:
    group = ChannelGroup(folder, ["general"])
    text = r"^ChannelGroup not started — call start\(\) first$"
    with pytest.raises(RuntimeError, match=text):
        await group.add_channel("x")
    with pytest.raises(RuntimeError, match=text):
        await group.remove_channel("general")


async def test_a_name_is_added_once_even_by_two_at_the_same_time(folder: Path) -> None:
    group = ChannelGroup(folder, ["general"])
    await group.start()
    outcomes = await asyncio.gather(*(group.add_channel("x") for _ in range(2)), return_exceptions=True)
    assert [str(outcome) for outcome in outcomes if isinstance(outcome, ValueError)] == [
        'Channel "x" already exists in group'
    ]
    with pytest.raises(ValueError, match=r'^Channel "general" already exists in group$'):
        await group.add_channel("general")
    assert group_json(folder)["channels"] == [{"name": "general"}, {"name": "x"}]
    await group.stop()


async def test_a_name_that_is_not_there_is_an_error(folder: Path) -> None:
    group = ChannelGroup(folder, ["general"])
    await group.start()
    with pytest.raises(KeyError) as caught:
        group.channel("x")
    assert str(caught.value) == 'Channel "x" not found in group'
    with pytest.raises(KeyError) as caught:
        await group.remove_channel("x")
    assert str(caught.value) == 'Channel "x" not found in group'
    await group.stop()


async def test_a_channel_that_cannot_be_added_leaves_the_group_as_it_was(folder: Path) -> None:
    taken = Channel(folder / "taken.sock")
    await taken.start()
    group = ChannelGroup(folder, ["general"])
    await group.start()
    before = group_json(folder)
    with pytest.raises(SocketInUse):
        await group.add_channel("taken")
    assert group.list() == ["general"]
    assert group_json(folder) == before
    await taken.stop()
    await group.add_channel("taken")
    await group.stop()


async def test_a_channel_that_cannot_be_announced_does_not_stay(folder: Path) -> None:
    clock = Clock()
    group = ChannelGroup(folder, ["general"], now=clock)
    await group.start()
    before = group_json(folder)
    (folder / ".group.json").mkdir()
    with pytest.raises(IsADirectoryError):
        await group.add_channel("x")
    (folder / ".group.json").rmdir()
    assert group.list() == ["general"]
    assert not (folder / "x.sock").exists()
    assert group_json(folder) == before
    await group.stop()


@pytest.mark.parametrize("name", ["", ".", "..", "/etc/passwd", "../up", "a/b", "nul\0"])
async def test_a_name_that_would_leave_the_folder_is_refused(folder: Path, name: str) -> None:
    with pytest.raises(ValueError, match="cannot be a file name"):
        ChannelGroup(folder, [name])
    group = ChannelGroup(folder)
    await group.start()
    with pytest.raises(ValueError, match="cannot be a file name"):
        await group.add_channel({"name": name})
    await group.stop()


async def test_a_name_given_twice_is_refused(folder: Path) -> None:
    with pytest.raises(ValueError, match=r'^Channel "a" already exists in group$'):
        ChannelGroup(folder, ["a", {"name": "a"}])


async def test_stop_removes_sockets_and_group_json_but_not_the_folder(folder: Path) -> None:
    group = ChannelGroup(folder / "group", NAMES)
    await group.start()
    await group.stop()
    await group.stop()
    assert not group.started
    assert group.list() == []
    assert list((folder / "group").iterdir()) == []


async def test_stop_with_remove_dir_removes_the_folder_too(folder: Path) -> None:
    group = ChannelGroup(folder / "group", NAMES)
    await group.start()
    await group.stop(remove_dir=True)
    assert not (folder / "group").exists()


async def test_remove_dir_leaves_files_that_are_not_the_group_s(folder: Path) -> None:
    group = ChannelGroup(folder / "group", NAMES)
    await group.start()
    (folder / "group" / "notes.txt").write_text("precious")
    await group.stop(remove_dir=True)
    assert [entry.name for entry in (folder / "group").iterdir()] == ["notes.txt"]


async def test_a_stopped_group_starts_again_with_the_channels_it_had(folder: Path) -> None:
    group = ChannelGroup(folder, ["a"])
    await group.start()
    await group.add_channel("b")
    await group.stop()
    await group.start()
    assert group.list() == ["a", "b"]
    await group.stop()


async def test_the_owner_of_a_group_makes_its_channels(folder: Path) -> None:
    posted: asyncio.Queue[tuple[str, str]] = asyncio.Queue()

    def make(name: str, path: Path) -> Channel:
        return Channel(path, mode=0o600, post=lambda _, message: posted.put_nowait((name, message.msg)))

    group = ChannelGroup(folder, ["general"], channel_factory=make)
    await group.start()
    peer = await Peer.unix(folder / "general.sock")
    await peer.send({"msg": "hello"})
    assert await posted.get() == ("general", "hello")
    peer.close()
    await group.stop()


async def test_clients_of_different_channels_do_not_hear_each_other(folder: Path) -> None:
    group = ChannelGroup(folder, ["a", "b"])
    await group.start()
    peers = {name: [await Peer.unix(folder / f"{name}.sock") for _ in range(2)] for name in ("a", "b")}
    for name, (first, _) in peers.items():
        await first.send({"msg": f"in {name}"})
    for name, (_, second) in peers.items():
        assert await second.texts(1) == [f"in {name}"]
    await group.stop()
    for first, second in peers.values():
        assert await first.closed() == await second.closed() == b""
        first.close()
        second.close()

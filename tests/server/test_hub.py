"""Tests of the whole hub: its parts start in order and stop in reverse order, and nothing is left behind."""

import asyncio
import contextlib
import os
import resource
import signal
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from tests.server.hubs import ALONE, bodies, running_hub, take
from tests.stores.postgres_server import on_postgres
from tieline import __version__
from tieline.client import HubUnreachable, connect
from tieline.server.config import ConfigError
from tieline.server.home import HomeBusy
from tieline.server.hub import Options, RunningHub
from tieline.server.runtime import raise_file_limit, stop_signals
from tieline.wire.home import RUN_FILE, read_running
from tieline.wire.unix import SocketPathTooLong

DATABASES = {"activity.db", "tieline.db"}
KEPT = DATABASES | {"search.db", "files", "files.db", "key", "lock", "tieline.toml", "channels", "spool-home"}


def options(home: Path, **values: str) -> Options:
    return Options(home=home, http=values.get("http", "127.0.0.1:0"), store=values.get("store"))


def sockets(home: Path) -> list[Path]:
    return [path for path in home.rglob("*") if path.is_socket()]


def dead_socket(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(os.fspath(path))


def broker_threads() -> list[threading.Thread]:
    return [thread for thread in threading.enumerate() if thread.name == "broker"]


@pytest.mark.skipif(on_postgres(), reason="it is about the files of a home that has the whole store")
async def test_a_hub_says_where_it_is_once_everything_listens(folder: Path) -> None:
    async with running_hub(folder) as there:
        running = read_running(folder)
        assert running == there.running
        assert running.pid == os.getpid()
        assert running.version == __version__
        assert running.hub_socket == str(folder / "hub.sock")
        assert running.places["channels_dir"] == str(folder / "channels" / "main")
        assert running.store == "sqlite"
        assert running.http.startswith("http://127.0.0.1:")
        assert not running.http.endswith(":0")
        assert {path.name for path in sockets(folder)} == {
            "hub.sock",
            "general.sock",
            "agent-relay.sock",
            "peerbus.sock",
        }


@pytest.mark.skipif(on_postgres(), reason="it is about the files of a home that has the whole store")
async def test_stopping_removes_the_sockets_and_the_announcement(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("alice")
        # The inbox of alice on agent-channels has two names.
        assert len(sockets(folder)) == 6
    assert sockets(folder) == []
    assert {path.name for path in folder.iterdir()} == KEPT
    assert list((folder / "channels" / "main").iterdir()) == []
    assert broker_threads() == []


async def test_the_first_start_is_the_first_that_succeeds(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(OSError, match="in use"):
        async with running_hub(folder, http=f"127.0.0.1:{taken.getsockname()[1]}", **ALONE):
            pass
    async with running_hub(folder, **ALONE) as there:
        assert there.hub.first_start
        await there.add("alice")


async def test_a_home_is_started_again_with_everything_in_it(folder: Path) -> None:
    async with running_hub(folder) as there:
        assert there.hub.first_start
        await there.add("alice", "bob")
        alice = await there.join("alice")
        await alice.send("@bob", "before")
        tokens = there.tokens
    async with running_hub(folder) as there:
        assert not there.hub.first_start
        there.tokens = tokens
        alice, bob = await there.join("alice"), await there.join("bob", receive=True)
        await alice.send("@bob", "after")
        assert bodies(await take(bob, 2)) == ["before", "after"]


async def test_two_hubs_cannot_share_a_home_and_the_first_goes_on(folder: Path) -> None:
    async with running_hub(folder) as there:
        with pytest.raises(HomeBusy):
            await RunningHub(options(folder)).start()
        assert read_running(folder) == there.running
        async with await connect(home=folder) as operator:
            assert await operator.members() == ()


async def test_stopping_twice_is_stopping_once(folder: Path) -> None:
    hub = RunningHub(options(folder))
    await hub.start()
    await hub.stop()
    await hub.stop()
    again = RunningHub(options(folder))
    await again.start()
    await again.stop()


async def test_what_a_killed_hub_left_is_replaced(folder: Path) -> None:
    async with running_hub(folder) as there:
        await there.add("alice")
    for name in ("hub.sock", "channels/main/general.sock", "channels/main/inbox-alice.sock"):
        dead_socket(folder / name)
    (folder / "channels/main/group.json").write_text("{}")
    (folder / RUN_FILE).write_text("{}")
    async with running_hub(folder):
        async with await connect(home=folder) as operator:
            assert [member.name for member in await operator.members()] == ["alice"]
        for name in ("general", "inbox-alice"):
            _, writer = await asyncio.open_unix_connection(folder / f"channels/main/{name}.sock")
            writer.close()


async def test_nobody_else_can_read_anything_under_the_home(folder: Path) -> None:
    before = os.umask(0)
    try:
        home = folder / "home"
        async with running_hub(home) as there:
            await there.add("alice", "bob")
            alice = await there.join("alice")
            await alice.send("@bob", "a secret")
            await alice.record_activity({"kind": "llm"})
            await alice.subscribe("dev")
            modes = {path.relative_to(home): stat.S_IMODE(path.stat().st_mode) for path in home.rglob("*")}
            folders = {path for path in modes if (home / path).is_dir()}
            # `group.json` holds no secret, and the folder around it keeps others out.
            public = {Path("channels/main/group.json")}
            assert {path: mode for path, mode in modes.items() if path in folders and mode != 0o700} == {}
            assert {path: mode for path, mode in modes.items() if path not in folders | public and mode != 0o600} == {}
            assert stat.S_IMODE(home.stat().st_mode) == 0o700
    finally:
        os.umask(before)


async def test_a_port_that_is_taken_stops_what_was_started(folder: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        hub = RunningHub(options(folder, http=f"127.0.0.1:{taken.getsockname()[1]}"))
        with pytest.raises(OSError, match="in use"):
            await hub.start()
    assert sockets(folder) == []
    assert not (folder / RUN_FILE).exists()
    assert broker_threads() == []
    async with running_hub(folder):
        pass


async def test_a_home_whose_path_is_too_long_for_a_socket_is_refused_and_let_go(folder: Path) -> None:
    home = folder / ("x" * 100)
    for _ in range(2):
        with pytest.raises(SocketPathTooLong):
            await RunningHub(options(home)).start()
    assert broker_threads() == []


@pytest.mark.parametrize("mistake", ["store", "http"])
async def test_a_mistake_in_the_options_is_refused_and_the_home_let_go(folder: Path, mistake: str) -> None:
    for _ in range(2):
        with pytest.raises(ConfigError, match="nonsense"):
            await RunningHub(options(folder, **{mistake: "nonsense"})).start()
    assert broker_threads() == []
    assert sockets(folder) == []


async def test_a_hub_in_memory_forgets_everything(folder: Path) -> None:
    async with running_hub(folder, store="memory") as there:
        await there.add("alice")
        assert there.running.store == "memory"
    assert not DATABASES & {path.name for path in folder.iterdir()}
    async with running_hub(folder, store="memory"), await connect(home=folder) as operator:
        assert await operator.members() == ()


async def test_a_hub_in_memory_removes_its_files_and_those_that_a_killed_one_left(folder: Path) -> None:
    left = folder / "forgotten" / "left"
    left.mkdir(parents=True)
    async with running_hub(folder, store="memory"):
        assert not left.exists()
        assert {path.name for path in (folder / "forgotten").iterdir()} >= DATABASES
    assert not (folder / "forgotten").exists()


async def test_agent_channels_can_be_left_out(folder: Path) -> None:
    async with running_hub(folder, agent_channels=False) as there:
        assert there.running.places["channels_dir"] is None
        assert {path.name for path in sockets(folder)} == {"hub.sock", "agent-relay.sock", "peerbus.sock"}


async def test_the_channels_can_be_elsewhere(folder: Path) -> None:
    async with running_hub(folder / "home", channels_dir=folder / "c") as there:
        assert there.running.places["channels_dir"] == str(folder / "c")
        assert (folder / "c" / "general.sock").is_socket()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_a_signal_ends_the_wait_with_success(folder: Path, number: signal.Signals) -> None:
    async with running_hub(folder) as there:
        waiting = asyncio.create_task(there.hub.wait(stop_signals()))
        await asyncio.sleep(0)
        os.kill(os.getpid(), number)
        async with asyncio.timeout(10):
            assert await waiting == 0
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)


async def test_a_store_that_is_lost_ends_the_wait_with_failure(folder: Path) -> None:
    async with running_hub(folder) as there:
        waiting = asyncio.create_task(there.hub.wait(stop_signals()))
        await asyncio.sleep(0)
        assert there.hub.local_hub is not None
        there.hub.local_hub.failure.set_result(OSError("gone"))
        async with asyncio.timeout(10):
            assert await waiting == 1
        for each in (signal.SIGTERM, signal.SIGINT):
            asyncio.get_running_loop().remove_signal_handler(each)


async def test_clients_of_a_stopped_hub_are_told_that_none_is_there(folder: Path) -> None:
    async with running_hub(folder) as there:
        url = there.running.http
    with pytest.raises(HubUnreachable, match="no hub is running"):
        await connect(home=folder)
    with contextlib.suppress(OSError), pytest.raises(HubUnreachable, match="no hub answers"):
        await connect(url=url, token="x")


async def test_agent_relay_can_be_left_out_and_put_elsewhere(folder: Path) -> None:
    async with running_hub(folder, agent_relay=False) as there:
        assert there.running.places["relay_socket"] is None
        assert {path.name for path in sockets(folder)} == {"hub.sock", "general.sock", "peerbus.sock"}
    async with running_hub(folder, relay_socket=folder / "other.sock") as there:
        assert there.running.places["relay_socket"] == str(folder / "other.sock")
        assert "other.sock" in {path.name for path in sockets(folder)}


class _Twice(contextlib.AsyncExitStack):
    """Test double: an exit stack that runs each exit callback twice."""

    def push_async_callback(self, callback: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        super().push_async_callback(callback, *args, **kwargs)
        return super().push_async_callback(callback, *args, **kwargs)

    def callback(self, callback: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Any:
        super().callback(callback, *args, **kwargs)
        return super().callback(callback, *args, **kwargs)


async def test_every_part_of_a_hub_may_be_stopped_twice(folder: Path) -> None:
    hub = RunningHub(options(folder))
    hub._closing = _Twice()
    await hub.start()
    async with await connect(home=folder) as operator:
        await operator.add_member("alice")
    await hub.stop()
    await hub.stop()
    assert not sockets(folder)
    async with running_hub(folder):
        pass


def test_a_system_without_a_limit_of_open_files_gets_the_number_that_macos_allows(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[tuple[int, int]] = []

    def set_limit(_: int, limits: tuple[int, int]) -> None:
        asked.append(limits)
        if limits[0] > 10_240:
            raise ValueError("current limit exceeds maximum limit")

    monkeypatch.setattr(resource, "getrlimit", lambda _: (256, 2**63 - 1))
    monkeypatch.setattr(resource, "setrlimit", set_limit)
    raise_file_limit()
    assert asked == [(2**63 - 1, 2**63 - 1), (10_240, 2**63 - 1)]

"""Tests of a hub with workers: its doors work, connections are spread, and workers that die come back."""

import asyncio
import contextlib
import itertools
import os
import signal
import socket
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families
from structlog.testing import capture_logs

from tests.faults.processes import SOAK, HubProcess, has_ended, worker_pids
from tests.server.hubs import ALONE, UNIX, WEBSOCKET, HubHarness, bodies, running_hub, take, until
from tieline.client import HubError, connect
from tieline.contract.command import ListMembers
from tieline.contract.identifiers import MemberName
from tieline.contract.reply import Roster
from tieline.protocols.peerbus.client import Adapter
from tieline.protocols.peerbus.settings import PeerbusSettings
from tieline.server.config import ConfigError, load_config
from tieline.wire.hub_link.server import GRACE_SECONDS

WORKERS = {"workers": {"count": 2}}

IN_SOAK = pytest.mark.skipif(not SOAK, reason="each start of workers takes seconds; make soak runs it")


@pytest.fixture
async def there(folder: Path) -> AsyncIterator[HubHarness]:
    async with running_hub(folder, **ALONE, store="sqlite:unsafe", flags=WORKERS) as built:
        await built.add("alice", "bob")
        yield built


async def becomes(condition: Callable[[], Awaitable[bool]], seconds: float = 10) -> None:
    """Wait until a condition is true that takes time to find out."""
    async with asyncio.timeout(seconds):
        for _ in itertools.count():
            if await condition():
                return
            await asyncio.sleep(0.01)


async def metrics(there: HubHarness) -> dict[str, float]:
    def read() -> str:
        with urllib.request.urlopen(f"{there.running.http}/metrics", timeout=10) as response:
            return str(response.read(), "utf-8")

    families = text_string_to_metric_families(await asyncio.to_thread(read))
    return {
        sample.name + "".join(f"/{value}" for value in sample.labels.values()): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.mark.slow
async def test_clients_on_different_workers_reach_each_other(there: HubHarness) -> None:
    clients = [await there.join("bob", receive=True, carrier=each) for each in (UNIX, WEBSOCKET) * 4]
    alice = await there.join("alice")
    await alice.send("@bob", "hello")
    for client in clients:
        assert bodies(await take(client, 1)) == ["hello"]
    loads = [value for name, value in (await metrics(there)).items() if name.startswith("tieline_worker_connections")]
    assert len(loads) == 2
    assert min(loads) >= 4, "a connection goes to the worker with the fewest"


@pytest.mark.slow
@IN_SOAK
async def test_closed_connections_do_not_count(there: HubHarness) -> None:
    for _ in range(3):
        await (await there.join("bob", carrier=WEBSOCKET)).close()
        await (await there.join("bob")).close()

    async def is_low() -> bool:
        found = await metrics(there)
        # The request for the metrics is a connection itself.
        return sum(value for name, value in found.items() if name.startswith("tieline_worker_connections")) <= 1

    await becomes(is_low)


@pytest.mark.slow
async def test_all_doors_of_the_hub_are_open_with_tls_and_without(folder: Path) -> None:
    flags = {**WORKERS, "http": {"tls": True}}
    async with running_hub(folder, peerbus_listen="127.0.0.1:0", flags=flags) as there:
        await there.add("alice", "bob")
        secret = load_config(there.home).of(PeerbusSettings).hmac_secret
        url = there.running.places["peerbus"]
        assert url is not None
        assert url.startswith("wss://")
        bob = await there.join("bob", receive=True)
        for address in (url, there.running.http.replace("https", "wss")):
            pinned = f"{address}#sha256={there.running.fingerprint}"
            async with Adapter(pinned, name="alice", token=there.tokens["alice"], secret=secret) as alice:
                await alice.send("bob", {"text": "signed"})
                await alice.confirm()
        assert len(await take(bob, 2, ack=True)) == 2
        async with await connect(url=there.running.pinned, token=there.tokens["alice"]) as alice:
            await alice.send("@bob", "hello")
        assert bodies(await take(bob, 1)) == ["hello"]


async def session_count(there: HubHarness, name: str) -> int:
    """Return the number of open sessions of a member, as the hub's process counts them."""
    assert there.hub.services is not None
    listed = await there.hub.services.operator.ask(lambda session: (ListMembers(session, name=MemberName(name)),))
    match listed:
        case (Roster(members=(presence,)),):
            return len(presence.sessions)
        case _:
            raise AssertionError(listed)


@pytest.mark.slow
async def test_a_worker_that_is_killed_comes_back_and_its_sessions_end_at_once(there: HubHarness) -> None:
    clients = [await there.join("bob", receive=True) for _ in range(4)]
    victim, other = sorted(worker_pids(os.getpid()))
    assert await session_count(there, "bob") == 4
    with capture_logs() as logs:
        os.kill(victim, signal.SIGKILL)

        async def are_two() -> bool:
            return await session_count(there, "bob") == 2

        await becomes(are_two, seconds=GRACE_SECONDS / 2)
        await until(lambda: len(worker_pids(os.getpid()) - {victim}) == 2)
    assert other in worker_pids(os.getpid())
    (ended,) = [line for line in logs if line["event"] == "a worker ended"]
    assert (ended["worker"], ended["code"]) in {(1, -9), (2, -9)}
    alice = await there.join("alice")
    await alice.send("@bob", "still here")
    heard = []
    for client in clients:
        with contextlib.suppress(HubError):
            heard += bodies(await take(client, 1))
    assert heard == ["still here"] * 2, "the other clients noticed nothing"


@pytest.mark.slow
@IN_SOAK
async def test_a_connection_that_comes_while_no_worker_is_there_waits_for_one(there: HubHarness) -> None:
    victims = worker_pids(os.getpid())
    for victim in victims:
        os.kill(victim, signal.SIGKILL)
    await until(lambda: all(has_ended(victim) for victim in victims))
    alice = await there.join("alice")
    await alice.send("@bob", "hello")


@pytest.mark.slow
@IN_SOAK
async def test_the_lines_of_a_worker_are_in_the_log_of_the_hub(there: HubHarness) -> None:
    with capture_logs() as logs:
        for pid in worker_pids(os.getpid()):
            os.kill(pid, signal.SIGSTOP)
        stuck = asyncio.create_task(there.hub.stop())
        await until(lambda: any(line["event"] == "a worker does not stop" for line in logs), seconds=20)
        await stuck
    assert {line["worker"] for line in logs if "worker" in line} == {1, 2}


@pytest.mark.slow
@IN_SOAK
async def test_a_door_that_cannot_be_opened_is_an_error_of_the_start(folder: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(OSError, match="in use"):
            async with running_hub(folder / "one", **ALONE, http=address, flags=WORKERS):
                pass
        options: dict[str, Any] = {**ALONE, "peerbus": True, "peerbus_listen": address}
        with pytest.raises(ConfigError, match=r"cannot listen on .* for peerbus"):
            async with running_hub(folder / "two", **options, flags=WORKERS):
                pass
    assert not worker_pids(os.getpid())


async def test_the_number_of_workers_has_a_limit(folder: Path) -> None:
    with pytest.raises(ConfigError, match="from 0 to 64"):
        async with running_hub(folder, **ALONE, flags={"workers": {"count": 65}}):
            pass


@pytest.mark.slow
@IN_SOAK
async def test_workers_end_with_their_hub_however_it_ends(folder: Path) -> None:
    hub = HubProcess(folder / "home", arguments=("--workers", "2"))
    try:
        running = await hub.start()
        first = worker_pids(running.pid)
        assert len(first) == 2
        hub.kill()
        await until(lambda: all(has_ended(pid) for pid in first))
        running = await hub.start()
        second = worker_pids(running.pid)
        assert len(second) == 2
        assert await hub.stop() == 0
        await until(lambda: all(has_ended(pid) for pid in second))
    finally:
        hub.kill()

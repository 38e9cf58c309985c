"""Tests with kill -9 of workers and of the process that decides, while four protocols exchange messages.

The clients and the checks are those of `test_doors`. Each round kills one process: a worker, another worker, or the
process that decides.
"""

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.faults.processes import SOAK, HubProcess, has_ended, seed_of_the_day, worker_pids
from tests.faults.test_doors import SECRET, Place, accepted_since, conclude, counts, open_doors
from tests.faults.test_kill import audit
from tests.faults.test_peerbus import free_port
from tests.server.hubs import until
from tieline.wire.home import read_running

ROUNDS = 100
WORKERS = 2

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(3600),
    pytest.mark.skipif(not SOAK, reason="tests/server/workers kills a worker; make soak kills all of them"),
]


@pytest.fixture
def place(folder: Path) -> Iterator[Place]:
    home = folder / "home"
    home.mkdir(mode=0o700)
    listen = f"127.0.0.1:{free_port()}"
    (home / "tieline.toml").write_text(f'[peerbus]\nhmac_secret = "{SECRET}"\nlisten = "{listen}"\n')
    hub = HubProcess(home, http=f"127.0.0.1:{free_port()}", arguments=("--workers", str(WORKERS)))
    yield Place(hub, f"ws://{listen}")
    hub.kill()


def all_workers(place: Place) -> list[int]:
    """Return the process ids of the workers, oldest first."""
    running = read_running(place.hub.home)
    assert running is not None, "the hub runs"
    return sorted(worker_pids(running.pid))


async def kill_worker(place: Place, index: int) -> None:
    """Kill a worker, and wait until another one has its place."""
    await until(lambda: len(all_workers(place)) == WORKERS, seconds=60)
    victim = all_workers(place)[index]
    os.kill(victim, signal.SIGKILL)
    await until(lambda: len(set(all_workers(place)) - {victim}) == WORKERS, seconds=60)


async def kill_decider(place: Place, rows: int) -> int:
    """Kill the process that decides, check the log, and start the hub again. Return the number of rows of the log."""
    workers = all_workers(place)
    place.hub.kill()
    # One that has just been started first loads its modules.
    await until(lambda: all(has_ended(pid) for pid in workers), seconds=60)
    report = audit(place.hub.home)
    assert report.intact, report.findings
    assert report.rows >= rows, "the log never gets shorter"
    await place.hub.start()
    return report.rows


async def test_workers_and_the_decider_killed_in_turn_lose_and_repeat_nothing_at_four_doors(place: Place) -> None:
    chance = random.Random(seed_of_the_day())
    doors = await open_doors(place, chance)
    listening = [asyncio.create_task(door.listen()) for door in doors]
    talking = [asyncio.create_task(door.talk()) for door in doors]
    rows, before = 0, counts(doors)
    for number in range(ROUNDS):
        await until(partial(accepted_since, doors, before), seconds=60)
        # A random time, so that the kill comes at any moment of the work.
        await asyncio.sleep(chance.uniform(0.05, 0.5))
        before = counts(doors)
        if number % 3 == 2:
            rows = await kill_decider(place, rows)
        else:
            await kill_worker(place, number % 3)
        for task in (*listening, *talking):
            assert not task.done(), task.exception()
    await until(partial(accepted_since, doors, before), seconds=60)
    await conclude(place, doors, listening, talking, ROUNDS)

"""Tests of the pipeline beside a working hub: its driver is killed at any moment, and the hub is not disturbed.

The driver is the Spark process that reads the hub's logs.
"""

import asyncio
import contextlib
import os
import random
import re
import signal
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import pytest

from tests.faults.processes import ROOT, SOAK, HubProcess, seed_of_the_day
from tests.pipeline.oracle import stored
from tests.pipeline.plain_oracle import PlainOracle
from tieline.client import connect
from tieline.pipeline.catalogue import GOLD, SCHEMAS
from tieline.pipeline.checks import check_tables
from tieline.pipeline.lake import Lake
from tieline.pipeline.report import make_report
from tieline.pipeline.run import run

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(7200 if SOAK else 900)]

KILLS = 20 if SOAK else 1
STAGES_MAX = 40
"""Upper limit of the random number of stages before a kill. A batch has about twenty stages, so kills fall into the
first batches of a driver, or between them."""
MESSAGES_MAX = 12_000 if SOAK else 1500
"""After so many messages the team sends slowly, so that a slow machine does not get more and more messages to read."""
WAL_BYTES_MAX = 64 * 2**20
_BUSY = re.compile(rb"BusyError|SQLITE_BUSY|database is locked|Traceback")


class Wal(NamedTuple):
    """Record: the state of the hub's write-ahead log (SQLite's file of new changes) at one moment."""

    bytes: int
    restarts: int
    """Number of times that SQLite began to write at the start of the file again. SQLite does so when all changes were
    moved into the database and no process reads the old ones."""

    def __str__(self) -> str:
        return f"{self.bytes / 2**20:.1f} MiB, begun anew {self.restarts} times"


def _wal(home: Path) -> Wal:
    with (home / "tieline.db-wal").open("rb") as file:
        header = file.read(32)
        return Wal(os.fstat(file.fileno()).st_size, int.from_bytes(header[12:16], "big"))


class Team:
    """Test helper: two members that send all the time, and measurements of their hub."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self.accepted = 0
        self.acked = 0
        self.wals: list[Wal] = []

    async def talk(self) -> None:
        """Let alice send to bob, and bob acknowledge, until cancelled."""
        async with (
            await connect(home=self._home, member="alice") as alice,
            await connect(home=self._home, member="bob", receive=True) as bob,
        ):
            deliveries = bob.deliveries()
            while True:
                sent = [alice.send("@bob", "word " * 400, thread=f"t{number}") for number in range(20)]
                self.accepted += len(await asyncio.gather(*sent))
                for _ in sent:
                    bob.ack(await anext(deliveries))
                    self.acked += 1
                self.wals.append(_wal(self._home))
                await asyncio.sleep(0.3 if self.accepted < MESSAGES_MAX else 3)


@contextlib.asynccontextmanager
async def team(home: Path) -> AsyncIterator[Team]:
    """Start a hub process and two members that send messages, and yield the team.

    Fail the test if the hub logs a traceback or a busy database.
    """
    hub = HubProcess(home)
    await hub.start()
    async with await connect(home=home) as operator:
        for name in ("alice", "bob"):
            await operator.add_member(name)
    there = Team(home)
    talking = asyncio.create_task(there.talk())
    try:
        yield there
        assert not talking.done(), "the hub took everything"
    finally:
        talking.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await talking
        assert await hub.stop() == 0
    complaints = [line for line in hub.log.read_bytes().splitlines() if _BUSY.search(line)]
    assert complaints == []


@contextlib.asynccontextmanager
async def _driver(*arguments: object) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process with a Spark driver and yield it. Kill this process and its Java process at the end."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "tests.faults.piper", *(str(one) for one in arguments),
        cwd=ROOT, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()


async def _stage_after(process: asyncio.subprocess.Process, stages: int, seconds: float) -> str:
    """Wait until a driver has printed `stages` stages, then `seconds` more. Return its current stage."""
    assert process.stdout is not None
    last = b""
    for _ in range(stages):
        line = await process.stdout.readline()
        if not line:
            break
        last = line
    # The kill comes at another moment of that stage each time.
    await asyncio.sleep(seconds)
    return last.decode().strip() or "the end"


def _say(text: str) -> None:
    sys.stdout.write(f"{text}\n")


async def test_kills_of_the_driver_beside_a_hub_at_work_lose_nothing_and_count_nothing_twice(
    folder: Path,
    spark: "SparkSession",
) -> None:
    chance = random.Random(seed_of_the_day())
    home, killed = folder / "h", Lake(folder / "killed")
    async with team(home) as there:
        for _ in range(KILLS):
            async with _driver(home, folder / "scratch", killed.path) as driver:
                stage = await _stage_after(driver, chance.randrange(1, STAGES_MAX), chance.random())
            wal = there.wals[-1]
            _say(f"killed at {stage}; commit {killed.head().number}, {there.accepted} messages, log ahead {wal}")
    largest = max(wal.bytes for wal in there.wals)
    _say(f"log ahead: at most {largest / 2**20:.1f} MiB; at last {there.wals[-1]}")
    assert largest < WAL_BYTES_MAX
    if SOAK:
        assert there.wals[-1].restarts > there.wals[0].restarts, "checkpoints went on"
    run(spark, killed, {"home": str(home)})
    expected = PlainOracle(home)
    for table in GOLD:
        assert stored(killed.files(table), SCHEMAS[table].fieldNames()) == expected.rows(table), table
    assert check_tables(killed, everything=True).failed == [], "no fact is there twice"
    totals = make_report(killed).totals
    assert totals.messages == there.accepted > 0
    assert there.acked - 20 <= totals.acked <= totals.deliveries

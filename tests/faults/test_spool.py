"""Tests of a spool with kill -9 and with many readers: no message is lost, handled twice, or incomplete."""

import asyncio
import contextlib
import json
import os
import random
import signal
import sys
import time
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.faults.processes import ROOT, SOAK, seed_of_the_day
from tieline.protocols.backchannel.spool import Spool, SpoolDraft
from tieline.protocols.backchannel.upkeep import SpoolFault, check, repair

PROCESSES = 20
MESSAGES = 5000
ROUNDS = 60 if SOAK else 12

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1200 if SOAK else 240)]


@pytest.fixture
def spool(folder: Path) -> Spool:
    made = Spool(folder / "home")
    for name in ("alice", "bob", "carol"):
        made.register(name)
    return made


@contextlib.asynccontextmanager
async def started(*args: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Start a process of `tests.faults.spooler` and yield it. Kill it at the end if it still runs."""
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.faults.spooler", *args)
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=1 << 22)
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()


async def line_of(process: asyncio.subprocess.Process) -> str:
    assert process.stdout is not None
    async with asyncio.timeout(100):
        return (await process.stdout.readline()).decode().strip()


async def rest_of(process: asyncio.subprocess.Process) -> list[str]:
    """Return the remaining complete lines of a killed process."""
    assert process.stdout is not None
    said = (await process.stdout.read()).decode()
    return said.split("\n")[:-1]


async def test_twenty_processes_drain_five_thousand_messages_and_each_is_handled_exactly_once(spool: Spool) -> None:
    bodies = [str(number) for number in range(MESSAGES)]
    await asyncio.to_thread(spool.send_many, [SpoolDraft(sender="alice", to="@bob", body=body) for body in bodies])
    async with contextlib.AsyncExitStack() as stack:
        drainers = [await stack.enter_async_context(started("drain", str(spool.root))) for _ in range(PROCESSES)]
        for drainer in drainers:
            assert await line_of(drainer) == "ready"
        for drainer in drainers:
            assert drainer.stdin is not None
            drainer.stdin.write(b"go\n")
        taken = [json.loads(await line_of(drainer)) for drainer in drainers]
    assert Counter(body for mine in taken for body in mine) == Counter(bodies)
    assert sum(bool(mine) for mine in taken) > 1, "there was a race"
    assert all([int(body) for body in mine] == sorted(int(body) for body in mine) for mine in taken), "in order"
    assert spool.inbox("bob") == []
    assert check(spool).findings == ()
    assert list((spool.folder("bob") / "cur").iterdir()) == []


@pytest.mark.parametrize("step", ["half-written", "written", "synced"])
async def test_a_writer_killed_before_its_rename_leaves_nothing_that_anybody_sees(spool: Spool, step: str) -> None:
    async with started("stop", str(spool.root), step) as writer:
        assert await line_of(writer) == "here"
    assert spool.inbox("bob") == []
    assert len(list((spool.folder("bob") / "tmp").iterdir())) == 1
    assert check(spool).findings == (), "it may still be writing, for all we know"
    report = check(spool, now=lambda: time.time() + 120)
    assert [finding.fault for finding in report.findings] == [SpoolFault.UNFINISHED_WRITE]
    assert repair(spool, report) == list(report.findings)
    assert list((spool.folder("bob") / "tmp").iterdir()) == []
    assert spool.inbox("bob") == []


async def test_a_taker_killed_after_its_rename_loses_nothing(spool: Spool) -> None:
    sent = spool.send(SpoolDraft(sender="alice", to="@bob", body="precious"))
    async with started("stop", str(spool.root), "claimed") as taker:
        assert await line_of(taker) == "here"
        assert spool.inbox("bob") == []
        assert check(spool).findings == (), "the taker lives"
    report = check(spool)
    assert [finding.fault for finding in report.findings] == [SpoolFault.UNFINISHED_CLAIM]
    assert repair(spool, report) == list(report.findings)
    assert spool.inbox("bob") == [sent.message]
    assert check(spool).findings == ()


async def test_writers_and_readers_killed_at_any_instant_lose_nothing_and_show_nothing_half(spool: Spool) -> None:
    chance = random.Random(seed_of_the_day())
    spool.subscribe("carol", "#all")
    spool.subscribe("bob", "#all")
    accepted: dict[str, set[str]] = {"bob": set(), "carol": set()}
    handled: dict[str, Counter[str]] = {"bob": Counter(), "carol": Counter()}
    unsure: Counter[str] = Counter()
    for turn in range(ROUNDS):
        async with contextlib.AsyncExitStack() as stack:
            writers = {
                name: await stack.enter_async_context(started("write", str(spool.root), name))
                for name in (f"w{turn}a", f"w{turn}b")
            }
            readers = {
                agent: await stack.enter_async_context(started("read", str(spool.root), agent))
                for agent in ("bob", "carol")
            }
            first = {name: await line_of(writer) for name, writer in writers.items()}
            await asyncio.sleep(chance.random() * 0.4)
            victims = [*writers.values(), *readers.values()]
            chance.shuffle(victims)
            for victim in victims:
                os.kill(victim.pid, signal.SIGKILL)
                await asyncio.sleep(chance.random() * 0.02)
            for name, writer in writers.items():
                for said in [first[name], *await rest_of(writer)]:
                    number, target = said.split()
                    accepted["bob"].add(f"{name}/{number}")
                    if target == "#all":
                        accepted["carol"].add(f"{name}/{number}")
            for agent, reader in readers.items():
                handled[agent].update(await rest_of(reader))
        for agent in ("bob", "carol"):
            # A reader killed between its last word and its finish is found here, once.
            unsure[agent] += spool.recover(agent)
    for agent in ("bob", "carol"):
        left = spool.inbox(agent)
        assert all(message.body.strip("x") == f"{message.sender}/{_number(message.body)}" for message in left)
        handled[agent].update(message.body.rstrip("x") for message in left)
        missing = accepted[agent] - set(handled[agent])
        assert not missing, f"accepted and lost: {sorted(missing)[:5]}"
        twice = sum(count - 1 for count in handled[agent].values())
        assert twice <= unsure[agent], "only what a killed reader had not finished comes again"
    assert sum(len(names) for names in accepted.values()) > ROUNDS, "something was sent"
    later = check(spool, now=lambda: time.time() + 120)
    repair(spool, later)
    assert check(spool, now=lambda: time.time() + 120).findings == ()


def _number(body: str) -> str:
    return body.partition("/")[2].rstrip("x")

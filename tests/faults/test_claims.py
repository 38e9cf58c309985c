"""Tests that many processes claim the deliveries of one member at once, and exactly one process gets each delivery."""

import asyncio
import contextlib
import json
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.faults.processes import ROOT, HubProcess
from tests.faults.test_kill import audit
from tieline.client import connect

PROCESSES = 20
DELIVERIES = 1000

pytestmark = [pytest.mark.slow, pytest.mark.timeout(120)]


@pytest.fixture
def hub(folder: Path) -> Iterator[HubProcess]:
    process = HubProcess(folder / "home")
    yield process
    process.kill()


async def start_claimer(seed: int, home: Path, url: str, token: str) -> asyncio.subprocess.Process:
    command = (sys.executable, "-m", "tests.faults.claimer", str(seed), str(home), url)
    pipe = asyncio.subprocess.PIPE
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=1 << 20)
    assert process.stdin is not None
    process.stdin.write(f"{token}\n".encode())
    return process


async def test_twenty_processes_race_for_a_thousand_deliveries_and_each_is_won_once(hub: HubProcess) -> None:
    running = await hub.start()
    async with await connect(home=hub.home) as operator:
        await operator.add_member("sender")
        token = (await operator.add_member("worker")).token
    async with await connect(home=hub.home, member="sender") as sender:
        sent = await asyncio.gather(*(sender.send("@worker", str(number)) for number in range(DELIVERIES)))
    claimers = [
        await start_claimer(seed, hub.home, running.http if seed % 2 else "", token) for seed in range(PROCESSES)
    ]
    try:
        async with asyncio.timeout(100):
            for claimer in claimers:
                assert claimer.stdout is not None
                assert await claimer.stdout.readline() == b"ready\n"
            for claimer in claimers:
                assert claimer.stdin is not None
                claimer.stdin.write(b"go\n")
            won = []
            for claimer in claimers:
                out, _ = await claimer.communicate()
                won.append(json.loads(out))
                assert claimer.returncode == 0
    finally:
        for claimer in claimers:
            if claimer.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    claimer.kill()
                await claimer.wait()
    wins = Counter(each for ids in won for each in ids)
    assert set(wins) == {accepted.id for accepted in sent}, "all of them were won"
    assert set(wins.values()) == {1}, "and none twice"
    assert sum(bool(ids) for ids in won) > 1, "there was a race"
    async with await connect(home=hub.home, member="worker") as worker:
        assert (await worker.inbox()).items == ()
        (receipt,) = await worker.receipts(sent[0].id)
        assert receipt.state == "acked"
        assert receipt.steps[-1].evidence == "claim"
    assert await hub.stop() == 0
    assert audit(hub.home).intact

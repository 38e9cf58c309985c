"""Tests that many processes drain one agent's inbox over the relay, and exactly one of them gets each message."""

import asyncio
import json
import sys
from collections import Counter
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess
from tests.protocols.backchannel.relays import Agent
from tieline.client import connect
from tieline.protocols.backchannel.settings import BackchannelSettings
from tieline.server.config import load_config
from tieline.wire.prefix_ids import to_prefix_id

ROOT = Path(__file__).parents[3]
PROCESSES = 20
MESSAGES = 5000
SECONDS_MAX = 200


async def start_drainer(seed: int, agent: Agent) -> asyncio.subprocess.Process:
    pipe = asyncio.subprocess.PIPE
    command = (sys.executable, "-m", "tests.protocols.backchannel.drainer", str(seed))
    process = await asyncio.create_subprocess_exec(*command, cwd=ROOT, stdin=pipe, stdout=pipe, limit=1 << 20)
    assert process.stdin is not None
    process.stdin.write(f"{agent.url.removeprefix('http://')}\n{agent.name}\n{agent.token}\n".encode())
    return process


async def race(drainers: list[asyncio.subprocess.Process]) -> list[tuple[list[str], int]]:
    """Let all drainer processes start at the same time.

    Return for each process the ids that it took, and the number of takes at which another was first.
    """
    results: list[tuple[list[str], int]] = []
    for drainer in drainers:
        assert drainer.stdout is not None
        assert await drainer.stdout.readline() == b"ready\n"
    for drainer in drainers:
        assert drainer.stdin is not None
        drainer.stdin.write(b"go\n")
    for drainer in drainers:
        output, _ = await drainer.communicate()
        assert drainer.returncode == 0
        results.append(json.loads(output))
    return results


@pytest.mark.slow
@pytest.mark.timeout(SECONDS_MAX + 30)
async def test_twenty_processes_drain_five_thousand_messages_and_each_is_taken_once() -> None:
    with HubProcess() as hub:
        lobby = Agent(hub.running.http, load_config(hub.home).of(BackchannelSettings).room_token)
        worker = Agent(lobby.url, (await lobby.register("worker"))["token"], "worker")
        sender = (await lobby.register("sender"))["token"]
        async with await connect(token=sender, home=hub.home) as client:
            sent = await asyncio.gather(*(client.send("@worker", str(number)) for number in range(MESSAGES)))
        drainers = [await start_drainer(seed, worker) for seed in range(PROCESSES)]
        try:
            async with asyncio.timeout(SECONDS_MAX):
                results = await race(drainers)
        finally:
            for drainer in drainers:
                if drainer.returncode is None:
                    drainer.kill()
                    await drainer.wait()
        wins = Counter(message_id for won, _ in results for message_id in won)
        assert set(wins) == {to_prefix_id(accepted.id) for accepted in sent}, "all of them were taken"
        assert set(wins.values()) == {1}, "and none twice"
        assert sum(lost for _, lost in results) > 0, "there was a race"
        assert await worker.inbox() == []
        assert hub.stop() == 0
        assert hub.stderr == ""

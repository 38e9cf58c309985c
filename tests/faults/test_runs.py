"""Tests of `tieline run` ended by any signal at any moment: no process, socket or file of the run remains."""

import random
import signal
import subprocess
import time
from pathlib import Path

import pytest

from tests.agents.runs import PATH, STANDINS, StandIn, is_alive
from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment, wait_until
from tests.faults.processes import SOAK, seed_of_the_day

pytestmark = pytest.mark.slow

ROUNDS = 20 if SOAK else 4
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)


@pytest.mark.timeout(600)
def test_a_run_that_is_ended_at_any_moment_leaves_nothing(folder: Path) -> None:
    chance = random.Random(seed_of_the_day())
    with HubProcess("--store", "memory") as hub:
        hub.add_members("alice", "bob")
        pids: list[int] = []
        for number in range(ROUNDS):
            hub.send("alice", "@bob", "TOOL HOLD" if number % 3 == 0 else "work")
            log = folder / f"log-{number}"
            variables = {"STANDIN_LOG": str(log), "CODEX_PATH": str(STANDINS / "codex"), "PATH": PATH}
            with subprocess.Popen(
                [str(TIELINE), "run", "--as", "bob", "codex"],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment(hub.home, variables),
                text=True,
            ) as process:
                # Before it is there at all, while it starts, and in the middle of its work.
                time.sleep(chance.uniform(0.1, 2.0))
                process.send_signal(chance.choice(SIGNALS))
                process.wait(DEADLINE_SECONDS)
            pids += StandIn(hub, process, log).pids()
        wait_until(lambda: not any(map(is_alive, pids)), "the end of every process")
        # A runner that was killed before it had a guard is tidied up after by the next.
        assert hub.cli("run", "--as", "bob", "codex", env={"CODEX_PATH": "/nonexistent"}).returncode == 127
        wait_until(lambda: not list((hub.home / "run").iterdir()), "an empty folder of runs")

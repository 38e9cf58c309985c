"""Tests of the pipeline as the hub's child: it is restarted, its output is marked, and it ends with the hub.

A small program takes the place of the pipeline.
"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import structlog
from prometheus_client import CollectorRegistry, generate_latest

from tests.cli.hub_process import wait_until
from tests.server.hubs import until
from tieline.server import pipeline_process
from tieline.server.config import ConfigError, load_config
from tieline.server.hub import Options, RunningHub
from tieline.server.pipeline_process import PipelineProcess, make_pipeline
from tieline.wire.backoff import Backoff

WORKER = """
import os, subprocess, sys, time
from pathlib import Path
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print("it runs", flush=True)
print("x" * 200_000, flush=True)
with Path(sys.argv[1]).open("a") as pids:
    print(os.getpid(), child.pid, file=pids)
time.sleep(600)
"""
HUB = """
import asyncio, sys
from tieline.server.pipeline_process import PipelineProcess
async def main():
    PipelineProcess(sys.argv[1:]).start()
    await asyncio.sleep(600)
asyncio.run(main())
"""


def command(folder: Path) -> list[str]:
    return [sys.executable, "-c", WORKER, str(folder / "pids")]


def pids(folder: Path) -> list[int]:
    """Return the process ids of all workers so far, each followed by its child's."""
    path = folder / "pids"
    text = path.read_text() if path.exists() else ""
    return [int(word) for word in text.split()] if text.endswith("\n") else []


def alive(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


async def test_a_process_that_dies_is_started_again_and_its_output_is_marked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pipeline_process, "_BACKOFF", Backoff(initial_ms=10, attempts_max=None))
    process = PipelineProcess(command(tmp_path))
    registry = CollectorRegistry()
    registry.register(process)
    with structlog.testing.capture_logs() as lines:
        process.start()
        await until(lambda: len(pids(tmp_path)) == 2)
        os.kill(pids(tmp_path)[0], signal.SIGKILL)
        await until(lambda: len(pids(tmp_path)) == 4)
        shown = generate_latest(registry).decode()
        await process.stop()
    first, firsts_child, second, seconds_child = pids(tmp_path)
    assert not any(map(alive, (first, firsts_child, second, seconds_child))), "nothing of it stays"
    said = [(line["log_level"], line["event"]) for line in lines]
    assert said.count(("info", "it runs")) == 2
    assert ("warning", "the pipeline's process ended") in said
    assert {line["part"] for line in lines} == {"pipeline"}
    assert "tieline_pipeline_running 1.0" in shown
    assert "tieline_pipeline_starts_total 2.0" in shown


async def test_the_reason_for_which_the_command_fails_is_a_warning(folder: Path) -> None:
    # The home has no log, so the command itself says why it ends.
    command = (sys.executable, "-P", "-m", "tieline.cli.main", "pipeline", "run", "--home", str(folder))
    process = PipelineProcess(command)
    with structlog.testing.capture_logs() as lines:
        process.start()
        await until(lambda: any("the pipeline's process ended" in line["event"] for line in lines))
        await process.stop()
    (told,) = [line for line in lines if "there is no log in" in line["event"]]
    assert told["log_level"] == "warning"


@pytest.mark.slow
def test_it_ends_with_a_hub_that_is_killed(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", HUB, *command(tmp_path)]) as hub:
        wait_until(lambda: len(pids(tmp_path)) == 2, "the worker")
        hub.kill()
    wait_until(lambda: not any(map(alive, pids(tmp_path))), "the end of the worker and of its child")


@pytest.mark.parametrize("every", ["5", "m", "0s", "8d", "-5m", "5 m"])
def test_an_interval_that_is_none_is_refused_before_the_hub_starts(folder: Path, every: str) -> None:
    with pytest.raises(ConfigError, match="the interval of the pipeline takes a number and s, m, h or d"):
        asyncio.run(RunningHub(Options(home=folder, http="127.0.0.1:0", pipeline=every)).start())


def test_a_hub_that_keeps_nothing_has_no_log_for_the_pipeline(folder: Path) -> None:
    with pytest.raises(ConfigError, match="it needs the store 'sqlite'"):
        asyncio.run(RunningHub(Options(home=folder, http="127.0.0.1:0", store="memory", pipeline="5m")).start())


def test_the_configuration_names_the_interval_and_more_options(folder: Path) -> None:
    config = load_config(folder)
    assert make_pipeline(folder, config) is None
    text = (folder / "tieline.toml").read_text()
    text = text.replace('every = ""', 'every = "5m"').replace("arguments = []", 'arguments = ["--alerts", "#ops"]')
    (folder / "tieline.toml").write_text(text)
    config = load_config(folder)
    made = make_pipeline(folder, config)
    assert made is not None
    options = ["--home", str(folder), "--follow", "--every", "5m", "--alerts", "#ops"]
    assert list(made.command)[-len(options) :] == options
    assert make_pipeline(folder, config.in_room()) is None

"""Tests of `tieline pipeline run --every`: the runs of a service, and its end. Every run is a process of its own."""

import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from tests.cli.hub_process import environment, run_cli, wait_until


@pytest.mark.slow
def test_a_run_that_fails_does_not_end_the_service_and_a_signal_does(folder: Path) -> None:
    command = [sys.executable, "-m", "tieline.cli.main", "pipeline", "run", "--every", "1s", "--home", str(folder)]
    said: list[str] = []
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment(folder)) as service:
        assert service.stderr is not None, "it is a pipe"
        reading = threading.Thread(target=lambda: said.extend(service.stderr or ()))
        reading.start()
        wait_until(lambda: sum("this run failed" in line for line in said) >= 2, "two runs")
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0
        reading.join()
    assert any(f"there is no log in {folder}" in line for line in said)


def test_an_interval_that_is_none_is_wrong_use(folder: Path) -> None:
    refused = run_cli(folder, "pipeline", "run", "--every", "8d")
    assert (refused.returncode, "--every takes a number and s, m, h or d" in refused.stderr) == (2, True)


def test_a_single_run_ignores_the_interval(folder: Path) -> None:
    assert "there is no log" in run_cli(folder, "pipeline", "run", "--every", "5m", "--once").stderr

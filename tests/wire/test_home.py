"""Tests of the home as local clients use it to find the hub. `tests/server/test_home.py` tests the hub's side."""

import os
from pathlib import Path

import pytest

from tieline.wire.home import RUN_FILE, Running, default_home, find_home, read_running


def announce(home: Path) -> Running:
    """Write `run.json` like a running hub. Return its content."""
    running = Running(os.getpid(), "0", "http://127.0.0.1:1", "hub.sock", "sqlite")
    (home / RUN_FILE).write_bytes(running.encode())
    return running


def test_without_a_name_and_a_variable_the_home_is_the_platforms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TIELINE_HOME", raising=False)
    assert find_home() == default_home()
    assert default_home().name == "tieline"


@pytest.mark.parametrize(("error", "runs"), [(None, True), (ProcessLookupError, False), (PermissionError, True)])
def test_a_hub_runs_as_long_as_its_process_even_under_another_user(
    folder: Path, monkeypatch: pytest.MonkeyPatch, error: type[OSError] | None, *, runs: bool
) -> None:
    def kill(_pid: int, _signal: int) -> None:
        if error is not None:
            raise error

    running = announce(folder)
    monkeypatch.setattr(os, "kill", kill)
    assert read_running(folder) == (running if runs else None)


@pytest.mark.parametrize("text", [b"", b"{", b"[]", b'{"pid":"x"}', b"\xff"])
def test_a_file_that_is_not_of_a_hub_is_none(folder: Path, text: bytes) -> None:
    assert read_running(folder) is None
    (folder / RUN_FILE).write_bytes(text)
    assert read_running(folder) is None

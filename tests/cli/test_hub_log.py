"""Tests of the hub's own log: the file in the home, and `tieline logs`, which shows it."""

import json
import re
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, environment, run_cli
from tieline.cli import hub_log
from tieline.cli.hub_log import LOG_FILE, LogFile, Reading


@pytest.fixture
def file(tmp_path: Path) -> LogFile:
    return LogFile(tmp_path)


def events(lines: Iterator[bytes]) -> list[str]:
    return [json.loads(line)["event"] for line in lines]


def test_only_the_owner_can_read_the_log(file: LogFile, tmp_path: Path) -> None:
    file.note("started")
    assert stat.S_IMODE((tmp_path / LOG_FILE).stat().st_mode) == 0o600


def test_a_log_that_cannot_be_written_does_not_stop_the_hub(tmp_path: Path) -> None:
    LogFile(tmp_path / "missing").note("started")
    assert not (tmp_path / "missing").exists()


def test_the_log_keeps_one_older_file_and_a_follower_misses_nothing(
    file: LogFile, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hub_log, "_FILE_BYTES_MAX", 1000)
    reading = Reading(tmp_path / LOG_FILE)
    seen = events(reading.all_lines())
    for number in range(60):
        file.note(str(number))
        if number % 5 == 0:
            seen += events(reading.new_lines())
    seen += events(reading.new_lines())
    assert seen == [str(number) for number in range(60)]
    assert {path.name for path in tmp_path.iterdir()} == {LOG_FILE, f"{LOG_FILE}.1"}
    assert all(path.stat().st_size <= 1000 for path in tmp_path.iterdir())


def test_half_a_line_is_read_when_it_is_whole(file: LogFile, tmp_path: Path) -> None:
    reading = Reading(tmp_path / LOG_FILE)
    (tmp_path / LOG_FILE).write_text('{"event": "a"}\n{"eve')
    assert events(reading.new_lines()) == ["a"]
    file.write('nt": "b"}')
    assert events(reading.new_lines()) == ["b"]


@pytest.mark.slow
def test_logs_shows_the_newest_lines_of_a_level_for_people(file: LogFile, tmp_path: Path) -> None:
    file.note("started", pid=7)
    for number in range(3):
        file.write(json.dumps({"event": f"trouble {number}", "level": "error", "exception": "A\nB"}))
    done = run_cli(tmp_path, "logs", "--level", "error", "-n", "2")
    assert " ".join(done.stdout.split()) == "error trouble 1 A B error trouble 2 A B"
    assert re.search(r"\d\d:\d\d:\d\d  info     started  pid=7", run_cli(tmp_path, "logs").stdout)


@pytest.mark.slow
def test_logs_follows_a_log_that_does_not_exist_yet(file: LogFile, tmp_path: Path) -> None:
    import subprocess

    command = [str(TIELINE), "logs", "--follow", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment(tmp_path)) as process:
        try:
            file.note("started")
            assert process.stdout is not None
            assert json.loads(process.stdout.readline())["event"] == "started"
        finally:
            process.kill()


@pytest.mark.slow
def test_a_home_without_a_log_is_told(tmp_path: Path) -> None:
    done = run_cli(tmp_path, "logs")
    assert (done.returncode, str(tmp_path / LOG_FILE) in done.stderr) == (1, True)

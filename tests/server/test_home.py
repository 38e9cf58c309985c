"""Tests of the home: one process at a time, secrets only for its owner, and `run.json` that is never incomplete."""

import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from tieline.server.home import Home, HomeBusy
from tieline.wire.home import KEY_FILE, LOCK_FILE, RUN_FILE, Running, find_home, read_key, read_running, write_private


def running(pid: int) -> Running:
    return Running(pid, "0", "http://127.0.0.1:1", "hub.sock", "sqlite")


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_a_home_is_made_for_its_owner_alone(folder: Path) -> None:
    home = Home(folder / "a" / "home")
    home.key()
    home.announce(running(os.getpid()))
    assert mode(home.path) == 0o700
    assert {path.name: mode(path) for path in home.path.iterdir()} == dict.fromkeys(
        (KEY_FILE, LOCK_FILE, RUN_FILE), 0o600
    )
    home.release()


def test_only_one_holds_a_home_and_the_second_is_told_which_one_is_held(folder: Path) -> None:
    first = Home(folder)
    with pytest.raises(HomeBusy, match=str(folder)):
        Home(folder)
    first.release()
    second = Home(folder)
    second.release()


def test_another_process_cannot_hold_a_home_that_is_held_and_can_when_it_is_released(folder: Path) -> None:
    program = f"from pathlib import Path; from tieline.server.home import Home; Home(Path({str(folder)!r}))"
    home = Home(folder)
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert "HomeBusy" in result.stderr
    home.release()
    subprocess.run([sys.executable, "-c", program], check=True)


def test_the_second_does_not_remove_what_the_first_announced(folder: Path) -> None:
    home = Home(folder)
    home.announce(running(os.getpid()))
    with pytest.raises(HomeBusy):
        Home(folder)
    assert read_running(folder) == running(os.getpid())
    home.release()


def test_the_key_is_made_once_and_stays(folder: Path) -> None:
    home = Home(folder)
    key = home.key()
    assert home.key() == key == read_key(folder)
    assert len(key) >= 32
    home.release()
    again = Home(folder)
    assert again.key() == key
    again.release()


def test_what_runs_is_announced_in_one_step_and_withdrawn_on_release(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    home = Home(folder)
    steps: list[tuple[bool, bytes]] = []
    replace = Path.replace

    def watch(self: Path, target: Path) -> Path:
        steps.append((target.exists(), self.read_bytes()))
        return replace(self, target)

    monkeypatch.setattr(Path, "replace", watch)
    home.announce(running(os.getpid()))
    assert [there for there, _ in steps] == [False], "it was complete before it had its name"
    assert (folder / RUN_FILE).read_bytes() == steps[0][1]
    assert read_running(folder) == running(os.getpid())
    home.release()
    assert sorted(path.name for path in folder.iterdir()) == [LOCK_FILE]


def test_a_hub_that_died_does_not_count_as_running(folder: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", ""]) as process:
        process.wait()
    write_private(folder / RUN_FILE, b"{}")
    assert read_running(folder) is None
    home = Home(folder)
    home.announce(running(process.pid))
    assert read_running(folder) is None
    home.release()
    assert read_running(folder) is None


def test_a_hub_of_another_user_counts_as_running(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home = Home(folder)
    home.announce(running(os.getpid()))

    def forbid(pid: int, signal: int) -> None:
        raise PermissionError(pid, signal)

    monkeypatch.setattr("tieline.wire.home.os.kill", forbid)
    assert read_running(folder) == running(os.getpid())
    home.release()


def test_a_home_is_named_by_argument_then_by_environment_then_by_the_platform(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TIELINE_HOME", str(folder / "environment"))
    assert find_home(folder / "argument") == folder / "argument"
    assert find_home() == folder / "environment"
    monkeypatch.delenv("TIELINE_HOME")
    assert find_home().name == "tieline"


def test_a_home_without_a_key_has_none_to_read(folder: Path) -> None:
    assert read_key(folder) is None


def test_releasing_twice_lets_go_of_nothing_that_is_not_its_own(folder: Path) -> None:
    first = Home(folder)
    first.release()
    second = Home(folder)
    second.announce(running(os.getpid()))
    first.release()
    assert (folder / RUN_FILE).exists()
    with pytest.raises(HomeBusy):
        Home(folder)
    second.release()

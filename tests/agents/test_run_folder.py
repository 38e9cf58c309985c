"""Tests of the folder of a `tieline run`. Only its user can open it. It is removed after the run, even after a kill."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.agents.runs import is_alive
from tests.cli.hub_process import wait_until
from tieline.agents import guard
from tieline.agents.run_folder import RUNS, run_folder
from tieline.wire.unix import check_path


def test_it_is_for_its_user_alone_and_gone_afterwards(folder: Path) -> None:
    with run_folder(folder / "home") as mine:
        written = mine.write("mcp.json", b"{}")
        assert written.stat().st_mode & 0o777 == 0o600
        for path in (mine.path, mine.path.parent, folder / "home"):
            assert path.stat().st_mode & 0o777 == 0o700
    assert list((folder / "home" / RUNS).iterdir()) == []


def test_what_a_killed_run_left_behind_is_removed_by_the_next_and_what_is_used_is_not(folder: Path) -> None:
    left = folder / RUNS / "deadbeef"
    left.mkdir(parents=True)
    (left / "s").touch()
    other = folder / RUNS / "notes"
    other.mkdir()
    with run_folder(folder) as first, run_folder(folder) as second:
        assert not left.exists()
        assert other.exists()
        assert first.path.exists()
        assert second.path.exists()


def test_a_home_with_too_long_a_path_has_its_runs_elsewhere(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    with run_folder(folder / ("x" * 120)) as mine:
        check_path(mine.socket)
        assert mine.path.is_relative_to(folder)


def test_a_folder_of_somebody_else_is_not_used(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    mine = folder / "precious" / "deadbeef"
    mine.mkdir(parents=True)
    (folder / "home").mkdir()
    (folder / "home" / RUNS).symlink_to(mine.parent)
    with pytest.raises(PermissionError), run_folder(folder / "home"):
        pass
    assert mine.exists()
    uid = os.getuid()
    monkeypatch.setattr(os, "getuid", lambda: uid + 1)
    with pytest.raises(PermissionError), run_folder(folder):
        pass


# The guard, by itself

PARENT = """
import os, subprocess, sys, time
alive, ours = os.pipe()
guard, folder, group, *command = sys.argv[1:]
subprocess.Popen([sys.executable, "-I", "-S", guard, str(alive), folder, group, *command], pass_fds=(alive,))
os.close(alive)
time.sleep(60)
"""


@pytest.mark.slow
@pytest.mark.parametrize("group", [guard.OWN_GROUP, guard.RUNNERS_GROUP])
def test_the_guard_ends_its_program_and_removes_the_folder_when_the_runner_is_gone(folder: Path, group: str) -> None:
    run = folder / "run"
    run.mkdir()
    script = f"echo $$ > {folder}/pid; sleep 300 & echo $! > {folder}/child; wait"
    command = [sys.executable, "-c", PARENT, guard.__file__, str(run), group, "/bin/sh", "-c", script]
    with subprocess.Popen(command) as parent:
        wait_until(lambda: (folder / "child").exists() and (folder / "child").read_text(), "the program")
        parent.kill()
    wait_until(lambda: not run.exists(), "the end of the folder")
    assert not is_alive(int((folder / "pid").read_text()))
    child = int((folder / "child").read_text())
    if group == guard.OWN_GROUP:
        wait_until(lambda: not is_alive(child), "the end of what the program started")
    else:
        os.kill(child, signal.SIGKILL)


@pytest.mark.slow
@pytest.mark.skipif("sys.platform != 'linux'", reason="only Linux ends a process with its parent")
@pytest.mark.parametrize("group", [guard.OWN_GROUP, guard.RUNNERS_GROUP])
def test_a_program_ends_when_its_guard_is_killed(folder: Path, group: str) -> None:
    script = f"echo $PPID $$ > {folder}/pids; exec sleep 300"
    with subprocess.Popen([sys.executable, "-c", PARENT, guard.__file__, "", group, "/bin/sh", "-c", script]) as parent:
        wait_until(lambda: (folder / "pids").exists() and (folder / "pids").read_text(), "the program")
        guarding, program = map(int, (folder / "pids").read_text().split())
        os.kill(guarding, signal.SIGKILL)
        wait_until(lambda: not is_alive(program), "the end of the program")
        parent.kill()


@pytest.mark.slow
def test_a_program_that_leaves_others_in_its_group_takes_them_with_it(folder: Path) -> None:
    alive, ours = os.pipe()
    script = f"sleep 300 & echo $! > {folder}/child; exit 5"
    command = [sys.executable, "-I", guard.__file__, str(alive), str(folder), guard.OWN_GROUP, "/bin/sh", "-c", script]
    began = time.monotonic()
    done = subprocess.run(command, check=False, pass_fds=(alive,))
    for descriptor in (alive, ours):
        os.close(descriptor)
    assert done.returncode == 5
    assert time.monotonic() - began < guard.GRACE_SECONDS
    assert not is_alive(int((folder / "child").read_text()))
    assert folder.exists()


@pytest.mark.slow
def test_a_signal_that_comes_while_the_program_starts_is_passed_on(folder: Path) -> None:
    alive, ours = os.pipe()
    # The runner's terminal hangs up at the first moment of the program. It once ended the guard alone, in one of three.
    script = "kill -HUP $PPID; exec sleep 300"
    command = [sys.executable, "-I", guard.__file__, str(alive), str(folder), guard.OWN_GROUP, "/bin/sh", "-c", script]
    codes = {subprocess.run(command, check=False, pass_fds=(alive,)).returncode for _ in range(20)}
    for descriptor in (alive, ours):
        os.close(descriptor)
    assert codes == {128 + signal.SIGHUP}


@pytest.mark.slow
@pytest.mark.parametrize(("program", "code"), [("/nonexistent", 127), (os.devnull, 126)])
def test_a_program_that_cannot_be_started_is_a_shells_exit_code(folder: Path, program: str, code: int) -> None:
    alive, ours = os.pipe()
    command = [sys.executable, "-I", guard.__file__, str(alive), str(folder), guard.OWN_GROUP, program]
    assert subprocess.run(command, check=False, pass_fds=(alive,)).returncode == code
    for descriptor in (alive, ours):
        os.close(descriptor)


@pytest.mark.parametrize(("script", "code"), [("exit 5", 5), ("kill -9 $$", 137), ("kill -STOP $$; exit 4", 4)])
def test_a_system_without_waitid_waits_for_the_program_too(
    monkeypatch: pytest.MonkeyPatch, script: str, code: int
) -> None:
    monkeypatch.delattr(os, "waitid")
    with subprocess.Popen(["/bin/sh", "-c", script], start_new_session=True) as process:
        waiting = guard.Guard(process, own_group=True)
        # The program stops itself; as a shell would, continue it.
        monkeypatch.setattr(waiting, "_stop_with_the_program", lambda: waiting.signal(signal.SIGCONT))
        assert waiting.wait() == code

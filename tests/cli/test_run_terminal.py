"""Tests that a program under `tieline run` has the same terminal as without it: size, signals, keys and exit code."""

import contextlib
import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, wait_until
from tests.cli.program_talk import bash, bodies, evidence, fence
from tests.cli.terminal import at_terminal

pytestmark = pytest.mark.slow


def test_size_interrupt_and_exit_code_are_the_programs_and_the_terminal_is_put_back(
    hub: HubProcess, alice: str
) -> None:
    # A read whose time ends while it reads keeps what it has read, and the line is not given again.
    script = (
        "trap 'stty size' WINCH; trap 'echo interrupted' INT; stty size; "
        'until IFS= read -r -t 0.05 line || [ -n "$line" ]; do :; done; exit 37'
    )
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        before = person.attributes()
        person.sees("30 100")
        assert person.is_raw
        person.resize(44, 132)
        person.sees("44 132")
        person.type("\x03")
        person.sees("interrupted")
        person.type("x\r")
        assert person.leaves() == 37
        assert person.attributes() == before


def test_a_program_ended_by_a_signal_gives_the_shells_exit_code(hub: HubProcess, alice: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash("echo up; exec sleep 1000")) as person:
        person.sees("up")
        person.type("\x03")
        assert person.leaves() == 128 + signal.SIGINT


def test_options_behind_the_programs_name_are_the_programs(hub: HubProcess, alice: str) -> None:
    done = hub.cli("run", "--as", alice, "bash", "-c", "echo $0 $1", "--help", "--", "-x")
    assert (done.returncode, done.stdout) == (0, "--help --\n")


def test_it_works_without_a_terminal(hub: HubProcess, alice: str, bob: str) -> None:
    (sent,) = hub.send(bob, f"@{alice}", "to nobody's screen")
    script = f"read -r line; echo got:$line; {fence(bob, 'piped')}; {fence('nobody-here', 'x')}; sleep 1; exit 5"
    done = hub.cli("run", "--as", alice, *bash(script), stdin="in\n")
    assert (done.returncode, done.stdout) == (5, "got:in\n")
    assert "tieline: not sent to @nobody-here" in done.stderr
    assert "to nobody's screen" in done.stderr
    assert bodies(hub, bob) == ["piped"]
    assert evidence(hub, bob, sent) == [], "a pipe is nobody who sees"


# In tmux


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """Fixture: a tmux server for one test. Returns a function that runs a tmux command and returns its output."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")

    def command(*arguments: str) -> str:
        words = ["tmux", "-L", "tieline", "-f", os.devnull, *arguments]
        own = {**os.environ, "TMUX_TMPDIR": str(tmp_path), "SHELL": "/bin/sh", "LC_ALL": "C.UTF-8"}
        return subprocess.run(words, env=own, check=True, capture_output=True, text=True, timeout=20).stdout

    yield command
    with contextlib.suppress(subprocess.CalledProcessError):
        command("kill-server")


SIZED = "until [ \"$(stty size)\" = '15 70' ]; do sleep 0.02; done"


def test_it_works_in_a_pane_of_tmux(hub: HubProcess, alice: str, bob: str, tmux: Callable[..., str]) -> None:
    program = f"stty size; read -r line; {fence(bob, 'from tmux')}; echo after; {SIZED}; stty size; exit 5"
    words = [str(TIELINE), "run", "--home", str(hub.home), "--as", alice, *bash(program)]
    tmux("new-session", "-d", "-x", "90", "-y", "20", f"{shlex.join(words)}; echo code:$?; cat")

    def visible() -> str:
        return tmux("capture-pane", "-p")

    wait_until(lambda: "20 90" in visible(), "the program")
    tmux("send-keys", "Enter")
    wait_until(lambda: bodies(hub, bob) == ["from tmux"] and "after" in visible(), "the message")
    assert "->relay:" not in visible()
    hub.send(bob, f"@{alice}", "to tmux")
    wait_until(lambda: "\n  to tmux\n" in visible(), "the answer")
    tmux("resize-window", "-x", "70", "-y", "15")
    wait_until(lambda: "code:5" in visible(), "the end")
    assert "15 70" in visible()

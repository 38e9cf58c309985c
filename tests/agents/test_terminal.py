"""Tests of a program under a terminal: its output, its start and end, keys, window sizes and signals."""

import asyncio
import contextlib
import errno
import hashlib
import os
import select
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.terminals import (
    DEADLINE_SECONDS,
    HELLO,
    WRAPPER,
    Screen,
    bash,
    printing,
    run_piped,
    send_nothing,
    start,
    until,
)
from tieline.agents import terminal
from tieline.agents.terminal import NotStarted, run_in_terminal
from tieline.wire.extractor import Instruction

# Output on the screen, and sent messages


@pytest.mark.parametrize(
    ("script", "output", "sent"),
    [
        pytest.param(r"echo a; printf '%s\n' '->relay:bob <<<' 'hello>>>'; echo b", b"a\nb\n", [HELLO], id="fenced"),
        pytest.param(
            """echo a; echo '[[RELAY]]{"to":"bob","type":"message","body":"hello"}[[/RELAY]]'; echo b""",
            b"a\nb\n",
            [HELLO],
            id="block",
        ),
        pytest.param(r"printf '%s\n' '\->relay:bob <<<' 'hello>>>'", b"->relay:bob <<<\nhello>>>\n", [], id="escaped"),
        pytest.param(
            r"printf '%s\n' '```' '->relay:bob <<<' 'hello>>>' '```'",
            b"```\n->relay:bob <<<\nhello>>>\n```\n",
            [],
            id="in a code fence",
        ),
        pytest.param(
            r"printf '%s\n' '> ->relay:bob <<<' 'hello>>>'", b"> ->relay:bob <<<\nhello>>>\n", [], id="quoted"
        ),
        pytest.param(r"printf '%s\n' '->relay:bob <<<' 'hello'", b"->relay:bob <<<\nhello\n", [], id="never ended"),
        pytest.param(r"printf '%s\n%s' '->relay:bob <<<' 'hello>>>'", b"", [HELLO], id="ended by the end"),
    ],
)
async def test_a_program_is_heard_by_the_grammar(script: str, output: bytes, sent: list[Instruction]) -> None:
    outcome = await run_piped(bash(script))
    assert (outcome.output, outcome.sent, outcome.code) == (output, sent, 0)


async def test_everything_else_reaches_the_screen_byte_for_byte(tmp_path: Path) -> None:
    every = bytes(range(256)) * 64 + b"\n\x1b[31mred\x1b[0m\r\n\xe2\x97" + "⏺ é\n".encode() * 5000 + b"no line end"
    assert (await run_piped(printing(tmp_path / "output", every))).output == every


async def test_what_goes_to_the_standard_error_reaches_the_screen_too() -> None:
    assert (await run_piped(bash("echo out; echo err >&2"))).output == b"out\nerr\n"


async def test_on_a_terminal_the_screen_shows_what_it_would_without_us(screen: Screen) -> None:
    sent: list[Instruction] = []
    command = bash(r"printf 'a\n->relay:bob <<<\nhello>>>\nb\n'")
    assert await start(screen, command, sent.append) == 0
    await screen.shows(b"b\r\n")
    assert bytes(screen.seen) == b"a\r\nb\r\n"
    assert sent == [HELLO]


async def test_a_prompt_that_may_become_an_instruction_is_shown_when_the_program_waits(screen: Screen) -> None:
    command = bash(r"printf '%s' '->relay:'; read -r answer; printf '%s\n' ' done'")
    running = start(screen, command)
    await screen.shows(b"->relay:")
    screen.type(b"x\r")
    assert await running == 0


async def test_what_a_program_draws_again_is_sent_once() -> None:
    fence = r"->relay:bob <<<\nhello>>>\n"
    outcome = await run_piped(bash(rf"printf -- '{fence}\033[2A\033[G{fence}'"))
    assert outcome.sent == [HELLO]


async def test_what_is_not_offered_is_told() -> None:
    declined: list[str] = []
    outcome = await run_piped(bash("echo '->relay:spawn bob claude'"), on_declined=declined.append)
    assert (outcome.output, declined) == (b"->relay:spawn bob claude\n", ["->relay:spawn"])


async def test_an_exception_from_the_callback_hangs_the_program_up_and_is_raised(
    screen: Screen, tmp_path: Path
) -> None:
    def refuse(_: Instruction) -> None:
        raise LookupError("nobody")

    pid = tmp_path / "pid"
    command = bash(rf"echo $$ >{pid}; printf '%s\n' '->relay:bob <<<' 'hello>>>'; exec sleep 1000")
    with pytest.raises(LookupError, match="nobody"):
        await start(screen, command, refuse)
    assert screen.is_as_before
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


# Start and end of the program


@pytest.mark.parametrize(
    ("script", "code"), [("exit 0", 0), ("exit 37", 37), ("kill -TERM $$", 143), ("kill -KILL $$", 137)]
)
async def test_the_exit_code_is_the_programs(script: str, code: int) -> None:
    assert (await run_piped(bash(script))).code == code


@pytest.mark.parametrize("name", ["no-such-program", ""])
async def test_a_command_that_cannot_be_started_says_why_and_the_terminal_is_untouched(
    screen: Screen, name: str
) -> None:
    with pytest.raises(NotStarted, match=f"'{name}'") as caught:
        await start(screen, [name])
    assert caught.value.errno == errno.ENOENT
    assert screen.is_as_before


async def test_the_program_has_a_controlling_terminal_of_its_own(screen: Screen) -> None:
    command = bash("test -t 0 && test -t 1 && test -t 2 && echo yes >/dev/tty; echo $(tty).")
    assert await start(screen, command) == 0
    await screen.shows(b"yes\r\n/dev/")
    assert f"{os.ttyname(screen.fd)}.".encode() not in screen.seen


async def test_a_program_may_close_its_terminal_and_open_it_again() -> None:
    script = "exec </dev/null >/dev/null 2>&1; sleep 0.1; exec >/dev/tty; echo back"
    assert (await run_piped(bash(script))).output == b"back\n"


async def test_a_job_left_behind_does_not_keep_the_terminal() -> None:
    assert (await run_piped(bash("trap '' HUP; sleep 20 & echo done"))).output == b"done\n"


async def test_a_screen_that_is_gone_hangs_the_program_up() -> None:
    read_out, write_out = os.pipe()
    os.close(read_out)
    try:
        with open(os.devnull) as nothing:  # noqa: ASYNC230, PTH123 - opens at once
            code = await run_in_terminal(["yes"], on_instruction=send_nothing, stdin=nothing.fileno(), stdout=write_out)
    finally:
        os.close(write_out)
    assert code == 128 + signal.SIGHUP


async def test_cancelling_ends_the_program_and_puts_the_terminal_back(screen: Screen) -> None:
    running = start(screen, bash("echo up; exec sleep 1000"))
    await screen.shows(b"up")
    assert screen.is_raw
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running
    assert screen.is_as_before


async def test_a_program_that_ignores_hang_ups_is_killed(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "HANG_UP_SECONDS", 0.05)
    command = bash("trap '' HUP; echo up; while :; do sleep 1; done")
    running = start(screen, command)
    await screen.shows(b"up")
    running.cancel()
    with pytest.raises(asyncio.CancelledError):
        await running


# Keys, sizes, signals


async def test_keys_reach_the_program_and_the_terminal_is_raw_meanwhile(screen: Screen) -> None:
    command = bash("stty -echo; echo ready; read -r line; echo got:$line; stty raw; echo raw; head -c 2 | od -An -tx1")
    running = start(screen, command)
    await screen.shows(b"ready")
    assert screen.is_raw
    screen.type(b"h\x7fhello\r")
    await screen.shows(b"got:hello")
    # Before that, the interrupt key would end the program.
    await screen.shows(b"raw")
    screen.type(b"\x03\x1a")
    await screen.shows(b"03 1a")
    assert await running == 0
    assert screen.is_as_before


async def test_the_interrupt_key_interrupts_the_program_and_not_us(screen: Screen) -> None:
    running = start(screen, bash("echo ready; exec sleep 1000"))
    await screen.shows(b"ready")
    screen.type(b"\x03")
    assert await running == 128 + signal.SIGINT


async def test_a_large_paste_reaches_a_slow_program_whole(screen: Screen) -> None:
    command = bash("stty raw -echo; echo ready; sleep 0.2; head -c 300000 | md5sum")
    running = start(screen, command)
    await screen.shows(b"ready")
    paste = b"0123456789" * 30_000
    await asyncio.to_thread(type_all, screen, paste)
    await screen.shows(hashlib.md5(paste).hexdigest().encode())
    assert await running == 0


def type_all(screen: Screen, keys: bytes) -> None:
    keyboard = screen._keyboard
    while keys:
        select.select([], [keyboard], [])
        with contextlib.suppress(BlockingIOError):
            keys = keys[os.write(keyboard, keys) :]


async def test_the_window_size_is_the_terminals_and_follows_it(screen: Screen) -> None:
    # A read whose time ends while it reads keeps what it has read, and the line is not given again.
    ends = 'until read -r -t 0.05 line || [ -n "$line" ]; do :; done'
    command = bash(f"trap 'stty size' WINCH; stty size; {ends}")
    running = start(screen, command)
    await screen.shows(b"30 100")
    screen.resize(44, 132)
    os.kill(os.getpid(), signal.SIGWINCH)
    await screen.shows(b"44 132")
    screen.type(b"x\r")
    await running


async def test_without_a_terminal_the_window_has_the_usual_size() -> None:
    assert (await run_piped(bash("stty size </dev/tty"))).output == b"24 80\n"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGINT])
async def test_signals_are_passed_on_and_handlers_are_put_back(screen: Screen, number: signal.Signals) -> None:
    before = signal.getsignal(number)
    command = bash(f"trap 'echo heard; exit 7' {number.name[3:]}; echo ready; while :; do sleep 0.01; done")
    running = start(screen, command)
    await screen.shows(b"ready")
    os.kill(os.getpid(), number)
    assert await running == 7
    await screen.shows(b"heard")
    assert signal.getsignal(number) is before


@contextlib.contextmanager
def wrapper(screen: Screen, *command: str) -> Iterator[subprocess.Popen[bytes]]:
    """Run a command in a separate process under `run_in_terminal`, as `tieline run` does, on this screen."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRAPPER, *command], stdin=screen.fd, stdout=screen.fd, stderr=subprocess.PIPE
    )
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


async def test_a_wrapper_that_is_terminated_puts_the_terminal_back(screen: Screen) -> None:
    with wrapper(screen, *bash("echo ready; exec sleep 1000")) as process:
        await screen.shows(b"ready")
        assert screen.is_raw
        process.terminate()
        assert await asyncio.to_thread(process.wait, DEADLINE_SECONDS) == 128 + signal.SIGTERM
    assert screen.is_as_before


@pytest.mark.slow
async def test_an_interactive_shell_that_is_terminated_ends_with_all_that_it_runs(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "TERMINATE_SECONDS", 0.1)
    running = start(screen, ["bash", "--norc", "-i"])
    one, two, three = NAPS
    screen.type(f"trap '' HUP; nohup sleep {one} >/dev/null & sleep {two} & sleep {three}; echo over\r".encode())
    await until(lambda: len(sleepers()) == 3)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(running, DEADLINE_SECONDS) == 128 + signal.SIGKILL
    assert sleepers() == []
    assert screen.is_as_before


async def test_what_a_program_leaves_behind_ends_with_it_when_it_is_terminated(screen: Screen) -> None:
    running = start(screen, bash("".join(f"sleep {nap} & " for nap in NAPS) + "echo ready; wait"))
    await screen.shows(b"ready")
    await until(lambda: len(sleepers()) == 3)
    os.kill(os.getpid(), signal.SIGTERM)
    assert await asyncio.wait_for(running, DEADLINE_SECONDS) == 128 + signal.SIGTERM
    assert sleepers() == []


NAPS = tuple(f"{number}{os.getpid():08}" for number in (1, 2, 3))
"""Durations for the `sleep` programs that these tests start. They contain the process id, so no other test has them."""


def sleepers() -> list[str]:
    """Return the durations in `NAPS` for which a `sleep` program still runs, whoever started it."""
    found = []
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            program, *words = entry.read_text().split("\0")
            found += [words[0]] if program == "sleep" and words[0] in NAPS else []
    return found


async def test_the_terminal_is_left_blocking_for_whoever_comes_next(screen: Screen) -> None:
    with wrapper(screen, *bash("echo ready; read -r line")) as process:
        await screen.shows(b"ready")
        assert os.get_blocking(screen.fd)
        screen.type(b"\r")
        assert await asyncio.to_thread(process.wait, DEADLINE_SECONDS) == 0
    assert os.get_blocking(screen.fd)


async def test_a_wrapper_that_is_stopped_puts_the_terminal_back_until_it_goes_on(screen: Screen) -> None:
    with wrapper(screen, *bash("echo ready; read -r line; echo got:$line")) as process:
        await screen.shows(b"ready")
        process.send_signal(signal.SIGTSTP)
        # As a shell does it: nobody goes on before it has stopped.
        await until(lambda: Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] == "T")
        assert screen.is_as_before
        process.send_signal(signal.SIGCONT)
        await until(lambda: screen.is_raw)
        screen.type(b"on\r")
        await screen.shows(b"got:on")
        assert await asyncio.to_thread(process.wait, DEADLINE_SECONDS) == 0
    assert screen.is_as_before


# Without a terminal


async def test_a_standard_input_that_is_no_terminal_is_the_programs_own() -> None:
    long = b"x" * 20_000 + b"\n"
    outcome = await run_piped(bash("test -t 0 && echo tty; wc -c"), given=long)
    assert outcome.output.split() == [b"20001"]


async def test_an_ignored_hang_up_stays_ignored() -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        assert (await run_piped(bash("kill -HUP $$; echo alive"))).output == b"alive\n"
    finally:
        signal.signal(signal.SIGHUP, before)


async def test_a_broken_pipe_ends_programs_in_the_program() -> None:
    assert (await run_piped(bash("yes | head -n 1; echo ${PIPESTATUS[0]}"))).output == b"y\n141\n"


# In tmux


@pytest.mark.skipif(shutil.which("tmux") is None, reason="tmux is not installed")
async def test_it_works_in_a_pane_of_tmux(tmp_path: Path) -> None:
    script = tmp_path / "wrapper.py"
    script.write_text(WRAPPER)
    said = tmp_path / "said"
    program = (
        "stty size; read -r line; printf '%s\\n' '->relay:bob <<<' \"$line>>>\" after; read -r size; stty size; exit 5"
    )
    pane = f"{sys.executable} {script} bash --norc -c {shlex.quote(program)} 2>{said}; echo code:$?; cat"

    def tmux(*arguments: str) -> str:
        command = ["tmux", "-L", "tieline", "-f", os.devnull, *arguments]
        environment = {**os.environ, "TMUX_TMPDIR": str(tmp_path), "SHELL": "/bin/sh"}
        return subprocess.run(command, env=environment, check=True, capture_output=True, text=True, timeout=10).stdout

    def visible() -> str:
        return tmux("capture-pane", "-p")

    tmux("new-session", "-d", "-x", "90", "-y", "20", pane)
    try:
        await until(lambda: "20 90" in visible())
        tmux("send-keys", "hello", "Enter")
        await until(lambda: said.read_text() == "hello\n" and "after" in visible())
        assert "->relay:" not in visible()
        tmux("resize-window", "-x", "70", "-y", "15")
        tmux("send-keys", "Enter")
        await until(lambda: "code:5" in visible())
        assert "15 70" in visible()
    finally:
        tmux("kill-server")

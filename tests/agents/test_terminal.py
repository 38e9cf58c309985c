"""The terminal: real programs in real ptys; what reaches the screen, what is sent, and how everything is put back."""

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
import termios
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from tieline.agents import terminal
from tieline.agents.terminal import NotStarted, run_in_terminal
from tieline.protocols.agent_relay.instruction import Instruction

DEADLINE_SECONDS = 20
RAW_OFF = termios.ICANON | termios.ECHO | termios.ISIG
LOCAL_FLAGS = 3

# Runs a program as `tieline run` does, on the event loop that the hub uses, for tests that signal the wrapper itself.
WRAPPER = """
import sys, uvloop
from tieline.agents.terminal import run_in_terminal
sys.exit(uvloop.run(run_in_terminal(sys.argv[1:], on_instruction=lambda said: print(said.body, file=sys.stderr))))
"""


async def until(condition: Callable[[], object]) -> None:
    """Wait for a condition that something outside this process brings about."""
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - files, processes and terminals set no event
            await asyncio.sleep(0.005)


class Screen:
    """A person's terminal: `fd` is what programs have, the rest is what the person sees and does."""

    def __init__(self) -> None:
        self._keyboard, self.fd = os.openpty()
        self.seen = bytearray()
        termios.tcsetwinsize(self.fd, (30, 100))
        os.set_blocking(self._keyboard, False)
        asyncio.get_running_loop().add_reader(self._keyboard, self._look)
        self.attributes = termios.tcgetattr(self.fd)

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            self.seen += os.read(self._keyboard, 65536)

    def close(self) -> None:
        asyncio.get_running_loop().remove_reader(self._keyboard)
        os.close(self._keyboard)
        os.close(self.fd)

    def type(self, keys: bytes) -> None:
        os.write(self._keyboard, keys)

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._keyboard, (rows, columns))

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self.fd)[LOCAL_FLAGS] & RAW_OFF

    @property
    def is_as_before(self) -> bool:
        return termios.tcgetattr(self.fd) == self.attributes

    async def shows(self, text: bytes) -> None:
        await until(lambda: text in self.seen)


@pytest.fixture
async def screen() -> AsyncIterator[Screen]:
    screen = Screen()
    yield screen
    screen.close()


class Outcome:
    """What came of a program that ran without a terminal around it."""

    def __init__(self, code: int, output: bytes, sent: list[Instruction]) -> None:
        self.code = code
        self.output = output
        self.sent = sent


async def run_piped(command: Sequence[str], given: bytes = b"", **options: Any) -> Outcome:
    """Run with pipes in place of the person's terminal."""
    read_in, write_in = os.pipe()
    read_out, write_out = os.pipe()
    sent: list[Instruction] = []
    os.write(write_in, given)
    os.close(write_in)
    output = asyncio.create_task(asyncio.to_thread(read_to_end, read_out))
    try:
        async with asyncio.timeout(DEADLINE_SECONDS):
            code = await run_in_terminal(
                command, on_instruction=sent.append, stdin=read_in, stdout=write_out, **options
            )
    finally:
        os.close(write_out)
        os.close(read_in)
    return Outcome(code, await output, sent)


def read_to_end(fd: int) -> bytes:
    with open(fd, "rb") as file:
        return file.read()


def bash(script: str) -> list[str]:
    return ["bash", "--norc", "-c", script]


def printing(path: Path, data: bytes) -> list[str]:
    """A program that prints exactly these bytes."""
    path.write_bytes(data)
    return bash(f"cat {path}")


def send_nothing(instruction: Instruction) -> None:
    raise AssertionError(instruction)


def start(
    screen: Screen,
    command: Sequence[str],
    on_instruction: Callable[[Instruction], None] = send_nothing,
    **options: Any,
) -> "asyncio.Task[int]":
    """Run on a person's terminal."""
    running = run_in_terminal(command, on_instruction=on_instruction, stdin=screen.fd, stdout=screen.fd, **options)
    return asyncio.create_task(running)


HELLO = Instruction(to="bob", body="hello")


# What reaches the screen, and what is sent


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
    assert (outcome.output, declined) == (b"->relay:spawn bob claude\n", ["spawn"])


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


# How it starts and ends


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
    command = bash("stty -echo; echo ready; read -r line; echo got:$line; stty raw; head -c 2 | od -An -tx1")
    running = start(screen, command)
    await screen.shows(b"ready")
    assert screen.is_raw
    screen.type(b"h\x7fhello\r")
    await screen.shows(b"got:hello")
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
    command = bash("trap 'stty size' WINCH; stty size; while ! read -r -t 0.05 line; do :; done")
    running = start(screen, command)
    await screen.shows(b"30 100")
    screen.resize(44, 132)
    os.kill(os.getpid(), signal.SIGWINCH)
    await screen.shows(b"44 132")
    screen.type(b"\r")
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
    """Run the wrapper as a process of its own on this screen."""
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
        await until(lambda: screen.is_as_before)
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


# Messages


class Messages:
    """Messages to show, and how many were asked for."""

    def __init__(self, *texts: str) -> None:
        self._texts = list(texts)
        self.asked = 0

    def __aiter__(self) -> "Messages":
        return self

    async def __anext__(self) -> str:
        self.asked += 1
        if not self._texts:
            raise StopAsyncIteration
        return self._texts.pop(0)


def showing(screen: Screen, script: str, messages: AsyncIterator[str], **options: Any) -> "asyncio.Task[int]":
    return start(screen, bash(f"echo started; {script}"), incoming=messages, **{"idle_ms": 50, **options})


async def test_a_message_is_printed_on_a_line_of_its_own_and_the_program_gets_nothing(screen: Screen) -> None:
    running = showing(screen, "stty -echo; printf 'prompt> '; read -r line; echo got:$line", Messages("news"))
    await screen.shows(b"prompt> \r\nnews\r\nprompt> ")
    screen.type(b"mine\r")
    await screen.shows(b"got:mine")
    assert await running == 0


async def test_no_message_is_shown_while_the_program_starts(screen: Screen) -> None:
    running = start(screen, bash("sleep 0.2; echo up; read -r line"), incoming=Messages("news"), idle_ms=10)
    await screen.shows(b"news")
    assert screen.seen.startswith(b"up\r\nnews")
    screen.type(b"\r")
    await running


async def test_a_program_that_prints_nothing_is_idle_after_a_while(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "START_SECONDS", 0.1)
    running = start(screen, bash("read -r line"), incoming=Messages("news"), idle_ms=10)
    await screen.shows(b"news")
    screen.type(b"\r")
    await running


async def test_no_message_is_shown_while_the_program_prints(screen: Screen) -> None:
    messages = Messages("news")
    script = "for i in {1..60}; do echo $i; sleep 0.01; done; read -r line"
    running = showing(screen, script, messages, idle_ms=300)
    await screen.shows(b"news")
    assert screen.seen.index(b"\n60\r\n") < screen.seen.index(b"news")
    screen.type(b"\r")
    await running


async def test_no_message_is_shown_while_the_person_types(screen: Screen) -> None:
    messages = Messages("first", "second")
    running = showing(screen, "echo ready; read -r a; echo got:$a; read -r b", messages, idle_ms=150)
    screen.type(b"hal")
    await screen.shows(b"ready")
    screen.type(b"f a line\r")
    await screen.shows(b"second")
    assert screen.seen.index(b"f a line\r\n") < screen.seen.index(b"first")
    screen.type(b"\r")
    await running


async def test_the_next_message_is_asked_for_only_when_the_last_was_shown(screen: Screen) -> None:
    messages = Messages("first", "second")
    running = showing(screen, "echo ready; read -r a; echo entered; read -r b", messages, idle_ms=150)
    screen.type(b"typing")
    await screen.shows(b"typing")
    assert messages.asked == 1
    screen.type(b"\r")
    await screen.shows(b"second")
    assert messages.asked >= 2
    screen.type(b"\r")
    await running


async def test_what_a_person_left_half_typed_is_no_reason_to_wait_for_ever(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "TYPING_SECONDS", 0.3)
    typed = asyncio.Event()

    async def later() -> AsyncIterator[str]:
        await typed.wait()
        yield "news"

    running = showing(screen, "printf 'name? '; read -r name; echo got:$name", later())
    await screen.shows(b"name? ")
    screen.type(b"al")
    await screen.shows(b"name? al")
    typed.set()
    await screen.shows(b"news\r\nname? al")
    assert screen.seen.endswith(b"name? al\r\nnews\r\nname? al"), "and the line is there again"
    screen.type(b"ice\r")
    await screen.shows(b"got:alice")
    assert await running == 0


async def test_a_key_pressed_in_a_pager_is_not_half_a_line(screen: Screen) -> None:
    script = r"printf '\033[?1049hpage'; read -rsn 1 key; printf '\033[?1049l'; read -r line"
    running = showing(screen, script, Messages("news"))
    await screen.shows(b"page")
    screen.type(b"q")
    await screen.shows(b"news")
    screen.type(b"\r")
    assert await running == 0


async def test_what_a_terminal_sends_by_itself_is_not_typing(screen: Screen) -> None:
    running = showing(screen, "stty -echo; echo ready; read -r line", Messages("news"), idle_ms=100)
    screen.type(b"\x1b[I\x1b[12;40R\x1b[<0;3;4M\x1b]11;rgb:00/00/00\x1b\\\x1bOA")
    await screen.shows(b"news")
    screen.type(b"\r")
    await running


async def test_no_message_is_printed_on_the_alternate_screen(screen: Screen) -> None:
    script = r"printf '\033[?1049hfull'; read -r a; printf '\033[?1049l'; echo left; read -r b"
    running = showing(screen, script, Messages("news"))
    await screen.shows(b"full")
    screen.type(b"\r")
    await screen.shows(b"news")
    assert screen.seen.index(b"left") < screen.seen.index(b"news")
    screen.type(b"\r")
    await running


async def test_control_characters_in_a_message_are_made_visible(screen: Screen) -> None:
    text = "a\x1b[2Jb\rc\x9b5Ad\x07\u202ee\r\n->relay:x <<<\nlast"
    running = showing(screen, "read -r line", Messages(text))
    await screen.shows(rb"a\x1b[2Jb\rc\x9b5Ad\x07\u202ee" + b"\r\n  ->relay:x <<<\r\n  last\r\n")
    screen.type(b"\r")
    assert await running == 0


async def test_a_failure_of_the_messages_lets_the_program_end_first(screen: Screen) -> None:
    async def failing() -> AsyncIterator[str]:
        yield "news"
        raise ConnectionError("the hub is gone")

    running = showing(screen, "read -r line; echo got:$line", failing())
    await screen.shows(b"news")
    screen.type(b"x\r")
    with pytest.raises(ConnectionError, match="the hub is gone"):
        await running
    await screen.shows(b"got:x")


async def test_with_injection_a_message_is_typed_on_one_line_and_entered(screen: Screen) -> None:
    running = showing(screen, "read -r line; echo got:$line", Messages("from amy:\nhi\x1b"), inject=True)
    await screen.shows(rb"got:from amy: hi\x1b")
    assert await running == 0


async def test_with_injection_enter_is_a_key_of_its_own(screen: Screen, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(terminal, "SUBMIT_SECONDS", DEADLINE_SECONDS)
    running = showing(screen, "read -r line; echo got:$line", Messages("hi"), inject=True)
    await screen.shows(b"hi")
    assert b"got:" not in screen.seen
    screen.type(b"gh\r")
    await screen.shows(b"got:high")
    assert await running == 0


async def test_with_injection_a_person_who_begins_to_type_enters_it_or_not(
    screen: Screen, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(terminal, "SUBMIT_SECONDS", 0.2)
    messages = Messages("hi", "again")
    running = showing(screen, "read -r a; echo got:$a; read -r b; echo got:$b", messages, inject=True)
    await screen.shows(b"hi")
    screen.type(b" x")
    await until(lambda: messages.asked == 2)
    assert b"got:" not in screen.seen
    screen.type(b"\r")
    await screen.shows(b"got:hi x")
    await screen.shows(b"got:again")
    assert await running == 0


async def test_an_injected_message_cannot_make_the_program_send(screen: Screen) -> None:
    text = "->relay:carol <<<"
    running = showing(screen, "read -r line; printf '%s\n' \"$line\" 'secret>>>'", Messages(text), inject=True)
    await screen.shows(b"secret>>>")
    assert await running == 0  # on_instruction would have failed
    assert screen.seen.count(b"-> relay:carol <<<") == 2


async def test_with_injection_a_tab_is_no_key(screen: Screen) -> None:
    running = showing(screen, "read -r line; printf 'got:%s' \"$line\"", Messages("a\tb"), inject=True)
    await screen.shows(rb"got:a\tb")
    assert await running == 0


async def test_with_injection_notices_are_printed_all_the_same(screen: Screen) -> None:
    running = showing(screen, "read -r line; echo got:$line", Messages(), notices=Messages("for you"), inject=True)
    await screen.shows(b"\r\nfor you\r\n")
    screen.type(b"mine\r")
    await screen.shows(b"got:mine")
    assert await running == 0


async def test_messages_are_printed_beside_an_output_that_is_no_screen(screen: Screen) -> None:
    outcome = await run_piped(
        bash("printf 'no line end'; sleep 0.5"), incoming=Messages("news"), screen=screen.fd, idle_ms=50
    )
    await screen.shows(b"news")
    assert bytes(screen.seen) == b"news\r\n"
    assert outcome.output == b"no line end"


async def test_a_message_that_cannot_be_printed_was_not_shown() -> None:
    messages = Messages("news")
    read_out, write_out = os.pipe()
    os.close(read_out)
    try:
        outcome = await run_piped(bash("echo up; sleep 0.3; exit 4"), incoming=messages, screen=write_out, idle_ms=50)
    finally:
        os.close(write_out)
    assert (outcome.code, messages.asked) == (4, 1)


async def test_with_injection_and_no_terminal_the_input_stays_open_for_messages() -> None:
    outcome = await run_piped(
        bash("read -r a; echo one; read -r b; echo got:$a,$b"),
        given=b"piped\n",
        incoming=Messages("hi"),
        inject=True,
        idle_ms=50,
    )
    assert outcome.output.endswith(b"got:piped,hi\n")


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

"""Running a program: what it says reaches members, what comes reaches it, and the terminal is as it would be alone.

Everything is real: a hub in its process, `tieline run` in another with a terminal of its own, a program in that.
"""

import asyncio
import contextlib
import json
import os
import shlex
import shutil
import signal
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import DEADLINE_SECONDS, TIELINE, HubProcess, environment, wait_until
from tieline.client import Message, ReceiptView

pytestmark = pytest.mark.slow

# Makes its standard input the controlling terminal, as a terminal program does for a shell.
OWN_TERMINAL = """
import fcntl, os, sys, termios
os.setsid()
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execv(sys.argv[1], sys.argv[1:])
"""

# Takes keys one by one, as a program with a dialog does, and writes down each until it is told to quit.
KEY_LOGGER = """
import os, sys, tty
tty.setraw(0)
print("ready", end="\\r\\n", flush=True)
with open(sys.argv[1], "wb", buffering=0) as log:
    while (key := os.read(0, 1)) != b"q":
        log.write(key)
"""

# Prints for two seconds without a pause, and says how long the machine made it pause all the same.
CHATTERBOX = """
import time
pauses, before = [], time.monotonic()
for number in range(100):
    print(number, flush=True)
    time.sleep(0.02)
    now = time.monotonic()
    pauses.append(now - before)
    before = now
input(f"longest pause {max(pauses)} ")
"""

RAW_OFF = termios.ICANON | termios.ECHO | termios.ISIG
LOCAL_FLAGS = 3


class Person:
    """A person at a terminal that runs `tieline run`."""

    def __init__(self, process: "subprocess.Popen[bytes]", keyboard: int, screen: int) -> None:
        self.process = process
        self._keyboard = keyboard
        self._screen = screen
        self.seen = b""
        self._reader = threading.Thread(target=self._look, daemon=True)
        self._reader.start()

    def _look(self) -> None:
        with contextlib.suppress(OSError):
            while data := os.read(self._keyboard, 65536):
                self.seen += data

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def resize(self, rows: int, columns: int) -> None:
        termios.tcsetwinsize(self._keyboard, (rows, columns))

    def sees(self, text: str) -> None:
        wait_until(lambda: text.encode() in self.seen or self.process.poll() is not None, f"{text!r} on the screen")
        wait_until(lambda: text.encode() in self.seen, f"{text!r} on the screen: {self.seen!r}")

    def attributes(self) -> object:
        return termios.tcgetattr(self._screen)

    @property
    def is_raw(self) -> bool:
        return not termios.tcgetattr(self._screen)[LOCAL_FLAGS] & RAW_OFF

    def leaves(self) -> int:
        """Wait for the end, and give the exit code."""
        return self.process.wait(DEADLINE_SECONDS)

    def everything(self) -> bytes:
        """All that was on the screen, once the program has ended."""
        # What is written last comes last, so everything before it is here.
        os.write(self._screen, b"\0")
        wait_until(lambda: self.seen.endswith(b"\0"), "the end of the screen")
        return self.seen[:-1]


@contextlib.contextmanager
def at_terminal(home: Path, *args: str, env: dict[str, str] | None = None) -> Iterator[Person]:
    """A person who runs `tieline run` with these arguments."""
    keyboard, screen = os.openpty()
    termios.tcsetwinsize(keyboard, (30, 100))
    process = subprocess.Popen(
        [sys.executable, "-c", OWN_TERMINAL, str(TIELINE), "run", *args],
        stdin=screen,
        stdout=screen,
        stderr=screen,
        env=environment(home, env),
    )
    try:
        yield Person(process, keyboard, screen)
    finally:
        process.kill()
        process.wait()
        os.close(screen)
        os.close(keyboard)


def bash(script: str) -> list[str]:
    return ["--", "bash", "--norc", "--noprofile", "-c", script]


def fence(target: str, body: str, tags: str = "") -> str:
    """Shell words that say something."""
    return f"printf '%s\\n' {shlex.quote(f'->relay:{target} {tags}<<<')} {shlex.quote(f'{body}>>>')}"


def waiting(hub: HubProcess, member: str) -> list[Message]:
    """What waits for a member."""

    async def look() -> list[Message]:
        async with await hub.connect(member) as client:
            return [item.message for item in (await client.inbox(limit=1000)).items]

    return asyncio.run(look())


def bodies(hub: HubProcess, member: str) -> list[str]:
    return [message.body for message in waiting(hub, member)]


def receipt(hub: HubProcess, sender: str, message_id: str) -> ReceiptView:
    async def ask() -> ReceiptView:
        async with await hub.connect(sender) as client:
            (found,) = await client.receipts(message_id)
            return found

    return asyncio.run(ask())


def evidence(hub: HubProcess, sender: str, message_id: str) -> list[tuple[str, str]]:
    """The rungs beyond the offer, with what shows each."""
    steps = receipt(hub, sender, message_id).steps
    return [(step.state, step.evidence) for step in steps if step.state in ("seen", "acked")]


# What the program says


@pytest.mark.parametrize(
    ("said", "screen", "sent"),
    [
        pytest.param("->relay:{bob} <<<\nhello\n  there>>>\n", "", ["hello\n  there"], id="fenced"),
        pytest.param('[[RELAY]]\n{{"to":"{bob}","type":"message","body":"hi"}}\n[[/RELAY]]\n', "", ["hi"], id="block"),
        pytest.param("\\->relay:{bob} <<<\nhello>>>\n", "->relay:{bob} <<<\nhello>>>\n", [], id="escaped"),
        pytest.param("```\n->relay:{bob} <<<\nhello>>>\n```\n", None, [], id="in a code fence"),
        pytest.param("> ->relay:{bob} <<<\nhello>>>\n", None, [], id="quoted"),
        pytest.param("see ->relay:{bob} <<<\nhello>>>\n", None, [], id="not at the start of a line"),
        pytest.param("⏺ ->relay:{bob} <<<\nhello>>>\n", "⏺ \n", ["hello"], id="after a glyph"),
        pytest.param("\x1b[1m->relay:{bob} <<<\x1b[0m\nh\x1b[31mi\x1b[0m>>>\n", None, ["hi"], id="in colour"),
        pytest.param("->relay:AgentName <<<\nyour message>>>\n", None, [], id="placeholder"),
    ],
)
def test_a_program_is_heard_by_the_grammar_and_the_rest_is_untouched(
    hub: HubProcess, alice: str, bob: str, tmp_path: Path, said: str, screen: str | None, sent: list[str]
) -> None:
    text = said.format(bob=bob)
    shown = text if screen is None else screen.format(bob=bob)
    if sent and screen is None:
        shown = "\x1b[1m\x1b[0m\x1b[31m\x1b[0m"
    (tmp_path / "said").write_text(f"before\n{text}after\n")
    with at_terminal(hub.home, "--as", alice, "--", "cat", str(tmp_path / "said")) as person:
        assert person.leaves() == 0
        assert person.everything().decode() == f"before\n{shown}after\n".replace("\n", "\r\n")
    assert bodies(hub, bob) == sent
    assert {message.sender for message in waiting(hub, bob)} <= {alice}


def test_what_is_no_instruction_reaches_the_terminal_byte_for_byte(hub: HubProcess, alice: str, tmp_path: Path) -> None:
    every = bytes(range(256)) * 64 + b"\n\x1b[31mred\x1b[0m\xe2\x97" + "⏺ é\n".encode() * 2000 + b"no line end"
    (tmp_path / "every").write_bytes(every)
    script = f"stty -opost; cat {tmp_path / 'every'}"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        assert person.leaves() == 0
        assert person.everything() == every


def test_instructions_arrive_in_the_order_they_were_said(hub: HubProcess, alice: str, bob: str) -> None:
    script = f"for i in {{1..300}}; do printf '%s\\n' '->relay:{bob} <<<' $i'>>>'; done"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        assert person.leaves() == 0
    assert bodies(hub, bob) == [str(number) for number in range(1, 301)]


def test_kind_thread_and_data_come_along(hub: HubProcess, alice: str, bob: str) -> None:
    block = f'[[RELAY]]{{"to":"{bob}","type":"action","data":{{"n":1}},"thread":"t"}}[[/RELAY]]'
    script = f"echo {shlex.quote(block)}; {fence(bob, 'hm', '[thread:web:t1] ').replace('relay', 'thinking')}"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        assert person.leaves() == 0
    action, thought = waiting(hub, bob)
    assert (action.body, action.thread, action.kind) == ('{"n":1}', "t", "chat")
    assert action.data == {"kind": "action", "n": 1}
    assert (thought.body, thought.data, thought.thread) == ("hm", {"kind": "thinking"}, "web:t1")
    assert thought.kind == "status"


def test_a_refused_instruction_is_told_on_one_line_and_the_program_goes_on(
    hub: HubProcess, alice: str, bob: str
) -> None:
    script = f"{fence('nobody-here', 'x')}; {fence(bob, 'still')}; read -r line; echo got:$line; exit 3"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees("tieline: not sent to @nobody-here: no member is called 'nobody-here'")
        person.type("on\r")
        person.sees("got:on")
        assert person.leaves() == 3
    assert bodies(hub, bob) == ["still"]


def test_what_was_not_told_yet_is_told_after_the_program(hub: HubProcess, alice: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(fence("nobody-here", "x"))) as person:
        assert person.leaves() == 0
        assert b"tieline: not sent to @nobody-here:" in person.everything()


def test_a_program_is_not_its_own_correspondent(hub: HubProcess, alice: str, bob: str) -> None:
    hub.cli("sub", "#ours", "--as", alice)
    hub.cli("sub", "#ours", "--as", bob)
    script = f"{fence(alice, 'me')}; {fence('*', 'all')}; {fence('#ours', 'some')}; read -r line"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees(f"tieline: not sent to @{alice}: that is this program itself")
        wait_until(lambda: bodies(hub, bob) == ["all", "some"], "the broadcasts")
        hub.send(bob, f"@{alice}", "last")
        person.sees("last")
        assert b"\r\n  all" not in person.seen
        assert b"\r\n  some" not in person.seen
        person.type("\r")
        assert person.leaves() == 0


@pytest.mark.parametrize("line", ["->relay:spawn Worker claude <<<", "->relay:release Worker"])
def test_starting_and_ending_agents_is_not_offered_and_a_line_says_so(hub: HubProcess, alice: str, line: str) -> None:
    word = line.split(":")[1].split(maxsplit=1)[0]
    script = f"printf '%s\\n' {shlex.quote(line)} 'a task>>>' {shlex.quote(line)}; read -r line"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees(f"tieline: '->relay:{word}' is not offered here")
        person.type("\r")
        assert person.leaves() == 0
        assert person.everything().count(b"is not offered") == 1


def test_a_project_in_a_target_is_refused_rather_than_guessed(hub: HubProcess, alice: str, bob: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(fence(f"web:{bob}", "x"))) as person:
        assert person.leaves() == 0
        assert b"there are no projects here" in person.everything()
    assert bodies(hub, bob) == []


def test_a_program_may_wait_for_the_acknowledgement(hub: HubProcess, alice: str, bob: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(f"{fence(bob, 'look', '[await] ')}; read -r line")) as person:
        wait_until(lambda: bodies(hub, bob) == ["look"], "the message")
        hub.cli("drain", "--as", bob)
        person.sees(f"tieline: @{bob} acknowledged 'look' after ")
        person.type("\r")
        assert person.leaves() == 0


def test_waiting_for_an_acknowledgement_ends_in_time(hub: HubProcess, alice: str, bob: str) -> None:
    script = f"{fence(bob, 'look', '[await:1s] ')}; {fence('*', 'all', '[await] ')}; read -r line"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees("tieline: not sent to *: [await] waits for one member")
        person.sees(f"tieline: @{bob} did not acknowledge 'look' within 1 s; it is pending")
        person.type("\r")
        assert person.leaves() == 0
    assert bodies(hub, bob) == ["look"], "the message itself stays"


def test_a_tieline_in_the_program_speaks_as_the_same_member(hub: HubProcess, alice: str, bob: str) -> None:
    with at_terminal(hub.home, "--as", alice, *bash(f"{TIELINE} send @{bob} hi")) as person:
        assert person.leaves() == 0
    assert [(message.sender, message.body) for message in waiting(hub, bob)] == [(alice, "hi")]


# What comes for it


def test_a_message_is_printed_when_the_program_is_idle_and_types_nothing(
    hub: HubProcess, alice: str, bob: str, tmp_path: Path
) -> None:
    command = ["--", sys.executable, "-c", KEY_LOGGER, str(tmp_path / "keys")]
    (sent,) = hub.send(bob, f"@{alice}", "hello\r\n\x1b[2Jfrom bob\r")
    with at_terminal(hub.home, "--as", alice, *command) as person:
        person.sees("ready")
        person.sees(f"tieline: {sent}  {bob} → @{alice}")
        person.sees("\r\n  hello\r\n  \\x1b[2Jfrom bob\\r\r\n")
        person.type("xq")
        assert person.leaves() == 0
    assert (tmp_path / "keys").read_bytes() == b"x", "no Enter, no text: only what the person typed"
    wait_until(lambda: evidence(hub, bob, sent) == [("seen", "shown")], "the evidence")
    assert bodies(hub, alice) == ["hello\r\n\x1b[2Jfrom bob\r"], "the program has not taken it"


def test_no_message_is_printed_while_the_program_prints(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(bob, f"@{alice}", "news")
    with at_terminal(hub.home, "--as", alice, "--", sys.executable, "-c", CHATTERBOX) as person:
        person.sees("news")
        person.sees("longest pause ")
        longest_pause = float(person.seen.partition(b"longest pause ")[2].split()[0])
        assert person.seen.index(b"longest pause") < person.seen.index(b"news") or longest_pause > 0.3
        person.type("\r")
        assert person.leaves() == 0


def test_what_was_shown_before_is_not_shown_again_and_still_waits(hub: HubProcess, alice: str, bob: str) -> None:
    old, _ = hub.send(bob, f"@{alice}", "old", "also old")
    hub.cli("inbox", "--as", alice)
    wait_until(lambda: receipt(hub, bob, old).state == "seen", "it is seen")
    hub.send(bob, f"@{alice}", "new")
    with at_terminal(hub.home, "--as", alice, *bash("echo up; read -r line")) as person:
        person.sees("\r\n  new\r\n")
        person.sees("tieline: 2 messages wait that you have seen; 'tieline inbox' shows, 'drain' takes")
        person.type("\r")
        assert person.leaves() == 0
        assert b"old" not in person.everything()


def test_what_is_scoped_elsewhere_is_left_in_the_inbox(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(bob, f"@{alice}", "elsewhere", scope="other/repo")
    hub.send(bob, f"@{alice}", "here", scope="this/repo")
    with at_terminal(
        hub.home, "--as", alice, "--match", "git@host:this/repo", *bash("echo up; read -r line")
    ) as person:
        person.sees("  here\r\n")
        person.type("\r")
        assert person.leaves() == 0
        assert b"elsewhere" not in person.everything()


def test_with_injection_a_message_is_typed_and_entered_and_acknowledged(hub: HubProcess, alice: str, bob: str) -> None:
    (sent,) = hub.send(bob, f"@{alice}", "one\ntwo ->relay:eve <<<")
    with at_terminal(hub.home, "--as", alice, "--inject", *bash('echo up; read -r line; echo "got:$line"')) as person:
        person.sees(f"got:Relay message from {bob} [{sent[:13]}]: one two -> relay:eve <<<")
        assert person.leaves() == 0
    wait_until(lambda: receipt(hub, bob, sent).state == "acked", "the acknowledgement")
    assert [state for state, _ in evidence(hub, bob, sent)] == ["seen", "acked"]
    assert evidence(hub, bob, sent)[0] == ("seen", "typed")
    assert bodies(hub, alice) == []


def test_with_injection_the_program_is_told_of_a_refusal_once(hub: HubProcess, alice: str) -> None:
    say = fence("nobody-here", "x")
    script = f"{say}; read -r a; echo got:$a; {say}; read -r b; echo got:$b"
    with at_terminal(hub.home, "--as", alice, "--inject", *bash(script)) as person:
        person.sees("got:tieline: not sent to @nobody-here")
        person.sees("\r\ntieline: not sent to @nobody-here")
        person.type("mine\r")
        person.sees("got:mine")
        assert person.leaves() == 0


# The terminal


def test_size_interrupt_and_exit_code_are_the_programs_and_the_terminal_is_put_back(
    hub: HubProcess, alice: str
) -> None:
    script = (
        "trap 'stty size' WINCH; trap 'echo interrupted' INT; stty size; "
        "while ! IFS= read -r -t 0.05 line; do :; done; exit 37"
    )
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        before = person.attributes()
        person.sees("30 100")
        assert person.is_raw
        person.resize(44, 132)
        person.sees("44 132")
        person.type("\x03")
        person.sees("interrupted")
        person.type("\r")
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


# What goes wrong


def test_a_program_that_cannot_be_started_is_said_as_shells_do(hub: HubProcess, alice: str, tmp_path: Path) -> None:
    (tmp_path / "data").write_text("no program")
    missing = hub.cli("run", "--as", alice, "--", "no-such-program")
    assert (missing.returncode, missing.stderr) == (127, "tieline: no-such-program: command not found\n")
    plain = hub.cli("run", "--as", alice, "--", str(tmp_path / "data"))
    assert (plain.returncode, plain.stderr) == (126, f"tieline: {tmp_path / 'data'}: Permission denied\n")


def test_without_a_hub_the_program_is_not_started(tmp_path: Path) -> None:
    with at_terminal(tmp_path / "home", "--as", "alice", *bash(f"touch {tmp_path / 'started'}")) as person:
        assert person.leaves() == 4
        assert b"tieline serve" in person.everything()
    assert not (tmp_path / "started").exists()


def test_nobody_and_a_stranger_are_refused_before_the_program_starts(hub: HubProcess, tmp_path: Path) -> None:
    started = tmp_path / "started"
    nobody = hub.cli("run", "--", "touch", str(started))
    assert (nobody.returncode, "--as NAME" in nobody.stderr) == (2, True)
    stranger = hub.cli("run", "--as", "nobody-here", "--", "touch", str(started))
    assert (stranger.returncode, "tieline member add" in stranger.stderr) == (3, True)
    assert hub.cli("run", "--as", "nobody-here").returncode == 2
    assert not started.exists()


def test_the_environment_names_the_speaker(hub: HubProcess, alice: str, bob: str) -> None:
    assert hub.cli("run", *bash(fence(bob, "hi")), env={"TIELINE_AGENT": alice}).returncode == 0
    assert [message.sender for message in waiting(hub, bob)] == [alice]


def test_a_token_and_an_address_are_enough_from_elsewhere(hub: HubProcess, bob: str, tmp_path: Path) -> None:
    issued = json.loads(hub.cli("member", "add", f"remote-{bob}", "--json").stdout)
    script = f"{fence(bob, 'from afar')}; echo up; read -r line; {TIELINE} whoami"
    options = ["--url", hub.running.http, "--token", issued["token"]]
    with at_terminal(tmp_path / "no-hub-here", *options, *bash(script)) as person:
        wait_until(lambda: bodies(hub, bob) == ["from afar"], "the message")
        hub.send(bob, f"@remote-{bob}", "to afar")
        person.sees("  to afar")
        person.type("\r")
        person.sees(f"remote-{bob}")
        assert person.leaves() == 0


def test_a_hub_that_restarts_is_sent_what_was_said_meanwhile() -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        script = f"echo up; while read -r line; do {fence('bob', 'X').replace('X', chr(39) + '$line' + chr(39))}; done"
        with at_terminal(hub.home, "--as", "alice", *bash(script)) as person:
            person.sees("up")
            person.type("one\r")
            wait_until(lambda: bodies(hub, "bob") == ["one"], "the first")
            hub.kill9()
            person.sees("tieline: The hub went away; trying until it is back.")
            person.type("two\rthree\r")
            hub.start()
            person.sees("tieline: The hub is back.")
            wait_until(lambda: bodies(hub, "bob") == ["one", "two", "three"], "the rest")
            hub.send("bob", "@alice", "welcome back")
            person.sees("  welcome back")
            person.type("\x04")
            assert person.leaves() == 0


def test_a_hub_that_stays_away_changes_nothing_for_the_program() -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        script = f"echo up; read -r line; {fence('bob', 'lost')}; echo got:$line; exit 9"
        with at_terminal(hub.home, "--as", "alice", *bash(script)) as person:
            person.sees("up")
            assert hub.stop() == 0
            person.sees("tieline: The hub went away")
            person.type("x\r")
            person.sees("waiting up to 10 s to send what was said. Ctrl-C leaves.")
            person.type("\x03")
            assert person.leaves() == 9
            assert b"tieline: not sent, because the hub is not there: 1 of the last" in person.everything()


def test_a_member_that_is_removed_ends_the_session_and_not_the_program(hub: HubProcess, alice: str, bob: str) -> None:
    script = f"echo up; read -r line; {fence(bob, 'lost')}; read -r line; exit 8"
    with at_terminal(hub.home, "--as", alice, *bash(script)) as person:
        person.sees("up")
        assert hub.cli("member", "remove", alice).returncode == 0
        person.sees("tieline: the hub ended the session")
        person.type("\r")
        person.sees(f"tieline: not sent to @{bob}: the hub ended the session")
        person.type("\r")
        assert person.leaves() == 8


# In tmux


@pytest.fixture
def tmux(tmp_path: Path) -> Iterator[Callable[..., str]]:
    """A server of tmux for one test."""
    if shutil.which("tmux") is None:
        pytest.skip("tmux is not installed")

    def command(*arguments: str) -> str:
        words = ["tmux", "-L", "tieline", "-f", os.devnull, *arguments]
        own = {**os.environ, "TMUX_TMPDIR": str(tmp_path), "SHELL": "/bin/sh", "LC_ALL": "C.UTF-8"}
        return subprocess.run(words, env=own, check=True, capture_output=True, text=True, timeout=20).stdout

    yield command
    with contextlib.suppress(subprocess.CalledProcessError):
        command("kill-server")


def test_it_works_in_a_pane_of_tmux(hub: HubProcess, alice: str, bob: str, tmux: Callable[..., str]) -> None:
    program = f"stty size; read -r line; {fence(bob, 'from tmux')}; echo after; read -r line; stty size; exit 5"
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
    time.sleep(0.1)
    tmux("send-keys", "Enter")
    wait_until(lambda: "code:5" in visible(), "the end")
    assert "15 70" in visible()

"""Tests of messages for a program under `tieline run`.

A message is printed when the program is idle, or typed if the user wants that.
"""

import sys
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, wait_until
from tests.cli.program_talk import bash, bodies, evidence, fence, receipt
from tests.cli.terminal import at_terminal

pytestmark = pytest.mark.slow


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


def test_a_message_is_printed_when_the_program_is_idle_and_types_nothing(
    hub: HubProcess, alice: str, bob: str, tmp_path: Path
) -> None:
    command = ["--", sys.executable, "-c", KEY_LOGGER, str(tmp_path / "keys")]
    (sent,) = hub.send(bob, f"@{alice}", "hello\r\n\x1b[2Jfrom bob\r")
    with at_terminal(hub.home, "--as", alice, *command) as person:
        person.sees("ready")
        person.sees(f"tieline: {hub.number(bob, sent)}  {bob} → @{alice}")
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
    hub.cli("inbox", env={"TIELINE_AGENT": alice})
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

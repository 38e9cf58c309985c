"""Tests of failures in `tieline run`: the program, the hub or the member's name is missing, or is lost later."""

import json
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, wait_until
from tests.cli.program_talk import bash, bodies, fence, waiting
from tests.cli.terminal import at_terminal

pytestmark = pytest.mark.slow


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
    stranger = hub.cli("run", "--as", "operator", "--", "touch", str(started))
    assert (stranger.returncode, "kept for the hub" in stranger.stderr) == (3, True)
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
            person.sees("waiting up to 10 s to send the rest. Ctrl-C stops it.")
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

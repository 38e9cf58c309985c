"""Tests of the commands that set the ways to reach a member, and of the information that senders get about them."""

import json
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, wait_until

pytestmark = pytest.mark.slow


def test_ways_are_given_shown_and_taken_away(hub: HubProcess, alice: str, bob: str) -> None:
    assert "no ways" in hub.cli("member", "reach", bob).stdout
    given = hub.cli("member", "reach", bob, "--way", "push=5", "--way", "notify", "--urgent", "1", "--notify", alice)
    assert given.returncode == 0
    assert "push" in given.stdout
    kept = json.loads(hub.cli("member", "reach", bob, "--json", "--as", bob).stdout)
    assert kept == {
        "legs": [{"way": "push", "wait_ms": 5000}, {"way": "notify", "wait_ms": 60_000}],
        "urgent_ms": 1000,
        "notify": alice,
    }
    assert "no ways" in hub.cli("member", "reach", bob, "--clear").stdout


@pytest.mark.parametrize(
    ("options", "code"),
    [
        (("--way", "pigeon"), 2),
        (("--way", "push=soon"), 2),
        (("--way", "push=nan"), 2),
        (("--urgent", "1"), 2),
        (("--clear", "--way", "push"), 2),
        (("--way", "push", "--way", "push"), 3),
        (("--way", "push=-1"), 3),
        (("--way", "notify"), 3),
        (("--way", "notify", "--notify", "nobody-there"), 3),
    ],
)
def test_ways_that_make_no_sense_are_refused(hub: HubProcess, bob: str, options: tuple[str, ...], code: int) -> None:
    done = hub.cli("member", "reach", bob, *options)
    assert (done.returncode, done.stdout) == (code, "")
    assert done.stderr


def test_a_sender_who_waits_sees_at_which_way_it_stands(hub: HubProcess, alice: str, bob: str) -> None:
    hub.cli("member", "reach", bob, "--way", "push=0.2", "--way", "hook=60")
    waiting = hub.cli("send", f"@{bob}", "hello", "--as", alice, "--wait-for", "seen", "--timeout", "3")
    assert waiting.returncode == 5
    assert f"{bob}  pending, by hook now" in waiting.stdout
    assert "by hook" in waiting.stderr
    message_id = waiting.stdout.split()[0]
    assert "no evidence by push; by hook now" in hub.cli("receipts", message_id, "--as", alice).stdout
    (receipt,) = json.loads(hub.cli("receipts", message_id, "--as", alice, "--json").stdout)
    assert (receipt["state"], receipt["way"]) == ("pending", "hook")


@pytest.mark.timeout(90)
def test_a_human_is_told_by_the_configured_command(tmp_path: Path) -> None:
    told = tmp_path / "told"
    script = tmp_path / "tell.sh"
    script.write_text(f'#!/bin/sh\nprintf "%s from %s: " "$TIELINE_TO" "$TIELINE_FROM" >> {told}\ncat >> {told}\n')
    script.chmod(0o700)
    with HubProcess() as hub:
        hub.stop()
        config = hub.home / "tieline.toml"
        config.write_text(config.read_text().replace("command = []", f'command = ["{script}"]'))
        hub.start()
        hub.add_members("alice", "bob")
        assert hub.cli("member", "reach", "bob", "--way", "push=0.1", "--way", "notify").returncode == 0
        body = "$(touch owned) `touch owned`; touch owned"
        (message_id,) = hub.send("alice", "@bob", body)
        wait_until(lambda: told.exists() and body in told.read_text(), "the command to be run")
        assert told.read_text() == f"bob from alice: {body}"
        assert not (Path.cwd() / "owned").exists()
        # That a human was told is no evidence that bob saw it.
        assert hub.states("alice", message_id) == {"bob": "pending"}

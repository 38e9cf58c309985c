"""Tests of the commands that pause and resume a conversation, and of the deliveries that are held during a pause."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess

pytestmark = pytest.mark.slow


def test_what_is_said_in_a_paused_conversation_is_kept_and_shown_as_held_and_comes_when_it_goes_on(
    hub: HubProcess, alice: str, bob: str
) -> None:
    name = f"@{alice}+@{bob}"
    paused = hub.cli("pause", f"@{bob}+@{alice}").stdout
    assert re.fullmatch(
        rf"{re.escape(name)} is paused until [-\d: ]+\. To end the pause: tieline resume {re.escape(name)}\n", paused
    )
    sent = hub.cli("send", f"@{bob}", "hello", "--as", alice)
    assert sent.returncode == 0
    accepted, held = sent.stdout.splitlines()
    assert "accepted for 1 recipient" in accepted
    assert held == f"  held: operator paused {name}; this delivers it: tieline resume {name}"
    waits = hub.cli("send", f"@{bob}", "and more", "--as", alice, "--wait-for", "acked", "--json")
    assert waits.returncode == 3
    error = json.loads(waits.stderr)["error"]
    assert (error["code"], error["message"][:21]) == ("held", "held: operator paused")
    document = json.loads(waits.stdout)
    assert [(receipt["state"], receipt["held"][:6]) for receipt in document["receipts"]] == [("pending", "held: ")]
    assert "held: operator paused" in hub.cli("receipts", document["id"], "--as", alice).stdout
    line = f"2 messages are held ({name}). `tieline receipts ID` says why; `tieline resume {name}` delivers them.\n"
    for command in (("inbox",), ("inbox", "--digest"), ("drain",)):
        assert hub.cli(*command, "--as", bob).stdout == line
    for command in (("inbox",), ("drain",)):
        result = hub.cli(*command, "--as", bob, "--json")
        assert (result.stdout, result.stderr) == ("[]\n", line)
    assert json.loads(hub.cli("inbox", "--digest", "--json", "--as", bob).stdout)["held"] == 2
    assert "2 (2 held)" in hub.cli("members").stdout
    assert hub.cli("take", document["id"], "--as", bob).returncode == 3
    assert hub.cli("resume", name).stdout == f"{name} continues. 2 held messages are delivered.\n"
    assert hub.cli("resume", name).stdout == f"{name} was not paused.\n"
    taken = json.loads(hub.cli("drain", "--as", bob, "--json").stdout)
    assert [item["message"]["body"] for item in taken] == ["hello", "and more"]
    assert hub.cli("pause", alice).returncode == 3


def test_pauses_are_listed_with_their_end_by_whom_and_how_much_is_held(hub: HubProcess, alice: str, bob: str) -> None:
    name = f"@{alice}+@{bob}"
    paused = json.loads(hub.cli("pause", name, "--json").stdout)
    assert (paused["thread"], paused["by"], paused["held"]) == (name, "operator", 0)
    hub.cli("send", f"@{bob}", "hello", "--as", alice)
    allowed = json.loads(hub.cli("allow", f"thread:{alice}", "--json").stdout)
    assert (allowed["thread"], allowed["released"]) == (f"thread:{alice}", 0)
    listed = {pause["thread"]: pause for pause in json.loads(hub.cli("pause", "--json").stdout)}
    assert (listed[name]["held"], listed[name]["until_ms"]) == (1, paused["until_ms"])
    assert listed[f"thread:{alice}"]["allowed"]
    lines = hub.cli("pause").stdout.splitlines()
    assert lines[0].split() == ["CONVERSATION", "STATE", "UNTIL", "BY", "HELD", "REASON"]
    (row,) = [line for line in lines if line.startswith(name)]
    assert row.split()[1] == "paused"
    assert "operator" in row
    resumed = json.loads(hub.cli("resume", name, "--json").stdout)
    assert resumed == {"thread": name, "paused": True, "released": 1}


@pytest.mark.parametrize(
    ("conversation", "warning"),
    [
        ("@ghost+@phantom", "No member is called 'ghost'.\nNo member is called 'phantom'.\n"),
        ("#nowhere", "There is no channel #nowhere.\n"),
        ("obj:none", "There is no objective 'none'.\n"),
        ("*", ""),
    ],
)
def test_a_conversation_of_nobody_is_warned_of(hub: HubProcess, conversation: str, warning: str) -> None:
    for command in ("pause", "allow", "resume"):
        result = hub.cli(command, conversation)
        assert (result.returncode, result.stderr) == (0, "" if command == "resume" else warning)
    assert hub.cli("resume", conversation).stderr == warning


def test_limits_are_lifted_for_a_while_and_what_is_held_is_delivered(hub: HubProcess, alice: str, bob: str) -> None:
    hub.cli("pause", f"@{bob}+@{alice}")
    hub.cli("send", f"@{bob}", "hello", "--as", alice)
    allowed = hub.cli("allow", f"@{alice}+@{bob}", "--for", "90m")
    assert allowed.stdout.startswith(f"@{alice}+@{bob} has no limits for 90m, until ")
    assert allowed.stdout.endswith(". 1 held message is delivered.\n")
    assert "hello" in hub.cli("drain", "--as", bob).stdout
    for wrong in ("", "2", "2w", "-1h", "0s", "999d"):
        refused = hub.cli("allow", f"@{alice}+@{bob}", f"--for={wrong}")
        assert refused.returncode == 2
        assert "--for takes a number and s, m, h or d, at most 366d" in refused.stderr


def test_a_member_is_declared_to_be_a_program(hub: HubProcess, alice: str) -> None:
    assert hub.cli("member", "kind", alice, "script").stdout == f"{alice} is a script now.\n"
    (row,) = [line for line in hub.cli("members").stdout.splitlines() if line.startswith(alice)]
    assert row.split()[1] == "script"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[HubProcess]:
    """Fixture: a hub that only one test uses, so that the test may kill it."""
    with HubProcess(home=tmp_path / "home") as running:
        yield running


def test_what_is_held_is_neither_lost_nor_released_by_a_kill(own: HubProcess) -> None:
    own.add_members("ada", "bob")
    own.cli("pause", "@ada+@bob")
    own.send("ada", "@bob", *(f"{number}" for number in range(5)))
    own.kill9()
    own.start()
    assert json.loads(own.cli("inbox", "--as", "bob", "--json").stdout) == []
    own.send("ada", "@bob", "5")
    own.kill9()
    own.start()
    own.cli("resume", "@ada+@bob")
    own.kill9()
    own.start()
    taken = json.loads(own.cli("drain", "--as", "bob", "--json").stdout)
    assert [item["message"]["body"] for item in taken] == [f"{number}" for number in range(6)]
    assert own.cli("audit", "verify").returncode == 0

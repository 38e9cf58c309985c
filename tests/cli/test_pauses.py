"""Pausing a conversation from the command line, letting it go on, and what is held meanwhile."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess

pytestmark = pytest.mark.slow


def test_what_is_said_in_a_paused_conversation_is_kept_and_shown_as_held_and_comes_when_it_goes_on(
    hub: HubProcess, alice: str, bob: str
) -> None:
    name = f"@{alice}+@{bob}"
    assert hub.cli("pause", f"@{bob}+@{alice}").stdout == f"@{bob}+@{alice} is paused.\n"
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
    inbox = hub.cli("inbox", "--as", bob).stdout
    assert inbox.startswith("Nothing waits.\n2 messages are held:")
    assert "2 (2 held)" in hub.cli("members").stdout
    assert hub.cli("take", document["id"], "--as", bob).returncode == 3
    assert hub.cli("resume", name).returncode == 0
    taken = json.loads(hub.cli("drain", "--as", bob, "--json").stdout)
    assert [item["message"]["body"] for item in taken] == ["hello", "and more"]
    assert hub.cli("pause", alice).returncode != 0


def test_limits_are_lifted_for_a_while_and_what_is_held_is_delivered(hub: HubProcess, alice: str, bob: str) -> None:
    hub.cli("pause", f"@{bob}+@{alice}")
    hub.cli("send", f"@{bob}", "hello", "--as", alice)
    allowed = hub.cli("allow", f"@{alice}+@{bob}", "--for", "90m")
    assert allowed.stdout == f"@{alice}+@{bob} has no limits for 90m.\n"
    assert "hello" in hub.cli("drain", "--as", bob).stdout
    for wrong in ("", "2", "2w", "-1h", "0s", "999d"):
        assert hub.cli("allow", f"@{alice}+@{bob}", f"--for={wrong}").returncode == 2


def test_a_member_is_declared_to_be_a_program(hub: HubProcess, alice: str) -> None:
    assert hub.cli("member", "kind", alice, "script").stdout == f"{alice} is a script now.\n"
    (row,) = [line for line in hub.cli("members").stdout.splitlines() if line.startswith(alice)]
    assert row.split()[1] == "script"


@pytest.fixture
def own(tmp_path: Path) -> Iterator[HubProcess]:
    """Give a hub that the test may kill."""
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

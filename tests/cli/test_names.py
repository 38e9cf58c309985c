"""Tests of unknown names: a command that finds nothing says that a name does not exist, and which names are near."""

import json

import pytest

from tests.cli.hub_process import HubProcess

pytestmark = pytest.mark.slow


def test_a_wrong_name_is_refused_with_the_nearest_names(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", "one")
    hub.cli("sub", f"#of-{alice}", "--as", bob)
    hub.cli("member", "alias", bob, f"robert-{bob}")
    wrong = {
        f"{bob}x": bob,
        f"@{bob.upper()}": bob,
        f"robert-{bob}": bob,
        f"of-{alice}": f"#of-{alice}",
        f"#off-{alice}": f"#of-{alice}",
    }
    for name, near in wrong.items():
        done = hub.cli("history", name, "--as", alice)
        assert (done.returncode, done.stdout) == (3, ""), name
        assert f"; did you mean {near}" in done.stderr
    refused = hub.cli("history", "zzzzzz", "--as", alice, "--json")
    assert json.loads(refused.stderr)["error"]["code"] == "unknown_member"
    assert "no objective 'zzz'" in hub.cli("history", "obj:zzz", "--as", alice).stderr
    quiet = hub.cli("history", f"#of-{alice}", "--as", alice)
    assert (quiet.returncode, quiet.stdout) == (0, "No messages yet.\n"), "it exists, and is empty"


def test_a_search_says_which_name_is_wrong(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", "one")
    for option, name, meant in (
        ("--from", f"{alice}x", alice),
        ("--in", f"@{alice}x", alice),
        ("--in", alice, f"@{alice}"),
    ):
        done = hub.cli("search", "one", option, name, "--as", bob)
        assert (done.returncode, done.stdout) == (3, ""), name
        assert f"did you mean {meant}" in done.stderr
    assert hub.cli("search", "one", "--in", "a-thread", "--as", bob).returncode == 0, "a thread need not exist"


def test_the_messages_of_a_removed_member_are_still_found(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", "one")
    hub.cli("member", "remove", alice)
    assert "one" in hub.cli("history", alice, "--as", bob).stdout


def test_leaving_a_channel_that_does_not_exist_is_warned_of(hub: HubProcess, bob: str) -> None:
    hub.cli("sub", f"of-{bob}", "--as", bob)
    done = hub.cli("unsub", f"off-{bob}", "--as", bob)
    assert (done.returncode, done.stderr) == (0, f"There is no channel #off-{bob}; did you mean #of-{bob}?\n")


def test_the_aliases_of_nobody_are_refused(hub: HubProcess, bob: str) -> None:
    done = hub.cli("member", "alias", f"{bob}y")
    assert (done.returncode, done.stdout) == (3, "")
    assert f"did you mean {bob}" in done.stderr

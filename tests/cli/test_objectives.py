"""Tests of the commands for objectives, with output for people and as JSON."""

import json
from collections.abc import Callable
from typing import Any

import pytest

from tests.cli.hub_process import HubProcess
from tieline.cli.short_ids import short_objective

pytestmark = pytest.mark.slow


@pytest.fixture
def make(hub: HubProcess, alice: str, bob: str) -> Callable[..., dict[str, Any]]:
    """Fixture: a function that makes an objective from alice for bob. The function returns the objective as JSON."""

    def made(*options: str) -> dict[str, Any]:
        told = ["--outcome", "users have it", "--assignee", bob, *options]
        done = hub.cli("objectives", "create", "ship", "it", *told, "--as", alice, "--json")
        assert done.returncode == 0, done.stderr
        found: dict[str, Any] = json.loads(done.stdout)
        return found

    return made


def test_an_objective_is_made_listed_and_viewed(
    hub: HubProcess, alice: str, bob: str, make: Callable[..., dict[str, Any]]
) -> None:
    made = make("--body", "all of it")
    assert set(made) == {
        "id",
        "title",
        "outcome",
        "body",
        "status",
        "assignee",
        "originator",
        "watchers",
        "created_at_ms",
        "updated_at_ms",
        "completed_at_ms",
        "result",
        "block_reason",
        "attachments",
        "may",
    }
    assert (made["title"], made["status"], made["originator"]) == ("ship it", "active", alice)
    listed = hub.cli("objectives", "list", "--assignee", bob, "--as", alice)
    header, row = listed.stdout.splitlines()
    assert header.split() == ["ID", "STATUS", "ASSIGNEE", "FROM", "CHANGED", "TITLE"]
    assert row.split()[:4] == [short_objective(made["id"]), "active", bob, alice]
    viewed = hub.cli("objectives", "view", made["id"], "--as", bob).stdout
    assert viewed.startswith(f"{short_objective(made['id'])}  ship it  [active]\n  outcome:    users have it\n")
    assert "assigned  assignee: " in viewed


def test_an_objective_goes_through_its_life(
    hub: HubProcess, alice: str, bob: str, make: Callable[..., dict[str, Any]]
) -> None:
    objective = make()["id"]
    steps: list[tuple[str, tuple[str, ...], str]] = [
        (bob, ("block", objective, "waiting", "for", "review"), "blocked"),
        (bob, ("unblock", objective), "active"),
        (alice, ("watch", objective, alice), "watched by nobody"),
        (alice, ("reassign", objective, alice, "--note", "mine"), f"assigned to {alice}"),
        (alice, ("reassign", objective, bob), f"assigned to {bob}"),
        (bob, ("complete", objective, "it works"), "done"),
    ]
    for by, words, said in steps:
        done = hub.cli("objectives", *words, "--as", by)
        assert (done.returncode, done.stdout) == (0, f"{short_objective(objective)}  {said}\n"), done.stderr
    story = json.loads(hub.cli("objectives", "view", objective, "--as", bob, "--json").stdout)
    kinds = [event["what"]["kind"] for event in story["events"]]
    assert kinds == ["assigned", "blocked", "unblocked", "reassigned", "reassigned", "completed"]
    assert story["objective"]["result"] == "it works"
    refused = hub.cli("objectives", "cancel", objective, "--as", alice)
    assert refused.returncode == 3
    assert "changes no more" in refused.stderr


def test_lists_show_what_is_open_unless_asked_otherwise(
    hub: HubProcess, alice: str, bob: str, make: Callable[..., dict[str, Any]]
) -> None:
    ended, open_one = make()["id"], make()["id"]
    assert hub.cli("objectives", "cancel", ended, "--reason", "no", "--as", alice).returncode == 0

    def listed(*options: str) -> list[str]:
        done = hub.cli("objectives", "list", "--assignee", bob, *options, "--as", alice, "--json")
        return [one["id"] for one in json.loads(done.stdout)]

    assert listed() == [open_one]
    assert listed("--all") == [open_one, ended]
    assert listed("--status", "cancelled") == [ended]
    assert (
        "No objectives here" in hub.cli("objectives", "list", "--assignee", bob, "--status", "done", "--as", bob).stdout
    )


def test_everybody_in_it_hears_of_it(
    hub: HubProcess, alice: str, bob: str, make: Callable[..., dict[str, Any]]
) -> None:
    objective = make("--watcher", alice)["id"]
    assert hub.cli("objectives", "discuss", objective, "how", "is", "it?", "--as", alice).returncode == 0
    told = hub.cli("drain", "--as", bob).stdout
    assert f"[objective assigned] {objective}" in told
    assert "how is it?" in told
    assert f"→ obj:{short_objective(objective)}" in told


def test_a_member_without_a_part_in_it_learns_nothing(
    hub: HubProcess, alice: str, make: Callable[..., dict[str, Any]]
) -> None:
    objective = make()["id"]
    token = json.loads(hub.cli("member", "add", f"{alice}-stranger", "--json").stdout)["token"]
    for known in (objective, "obj-never"):
        done = hub.cli("objectives", "view", known, "--url", hub.running.http, env={"TIELINE_TOKEN": token})
        assert done.returncode == 3
        assert f"there is no objective '{known}'" in done.stderr
        assert "tieline objectives list" in done.stderr


def test_what_is_missing_is_said(hub: HubProcess, alice: str) -> None:
    assert hub.cli("objectives", "create", "x", "--as", alice).returncode == 2
    done = hub.cli("objectives", "create", "x", "--outcome", "o", "--assignee", "nobody-here", "--as", alice)
    assert done.returncode == 3
    assert hub.cli("objectives", "unblock", "x").returncode == 2


def test_a_text_is_read_from_stdin(hub: HubProcess, bob: str, make: Callable[..., dict[str, Any]]) -> None:
    objective = make()["id"]
    done = hub.cli("objectives", "complete", objective, "-", "--as", bob, "--json", stdin="first\nsecond\n")
    assert json.loads(done.stdout)["result"] == "first\nsecond"
    assert "  result:     first\n              second\n" in hub.cli("objectives", "view", objective, "--as", bob).stdout

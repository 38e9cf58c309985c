"""Tests of `tieline digest` and `tieline discard`, which sort waiting messages into current and obsolete ones."""

import asyncio
import json

import pytest

from tests.cli.hub_process import HubProcess

pytestmark = pytest.mark.slow


def say(hub: HubProcess, sender: str, target: str, body: str, **parts: str | int) -> str:
    async def send() -> str:
        async with await hub.connect(sender) as client:
            return (await client.send(target, body, **parts)).id  # type: ignore[arg-type]  # parts by name

    return asyncio.run(send())


def test_a_digest_separates_current_from_obsolete(hub: HubProcess, alice: str, bob: str) -> None:
    old = say(hub, alice, f"@{bob}", "the plan", thread="plan")
    new = say(hub, alice, f"@{bob}", "the plan changed", thread="plan")
    first = say(hub, alice, f"@{bob}", "deploy one")
    second = say(hub, alice, f"@{bob}", "deploy two", supersedes=first)
    short = say(hub, alice, f"@{bob}", "only now", ttl_ms=1)
    found = json.loads(hub.cli("inbox", "--digest", "--older", "0", "--as", bob, "--json").stdout)
    assert [item["message"]["id"] for item in found["current"]] == [new, second]
    assert [each["item"]["message"]["id"] for each in found["obsolete"]] == [old]
    assert {each["message"]["id"]: each["why"] for each in found["over"]} == {
        first: f"superseded by {second}",
        short: "time to live passed",
    }
    text = hub.cli("inbox", "--digest", "--as", bob).stdout
    assert "3 current:" in text
    assert "2 over" in text
    # The digest shows only the beginning of a message, so the message stays pending.
    assert hub.states(alice, new) == {bob: "pending"}


def test_discarding_is_explicit_and_its_sender_learns_of_it(hub: HubProcess, alice: str, bob: str) -> None:
    old = say(hub, alice, f"@{bob}", "the plan", thread="plan")
    new = say(hub, alice, f"@{bob}", "the plan changed", thread="plan")
    other = say(hub, alice, f"@{bob}", "by the way")
    assert hub.cli("discard", "--obsolete", "--as", bob).stdout == "Nothing is obsolete.\n"
    done = hub.cli("discard", "--obsolete", "--older", "0", "--as", bob)
    assert (done.returncode, [line.split()[0] for line in done.stdout.splitlines()]) == (0, [hub.number(alice, old)])
    assert hub.states(alice, old) == {bob: "expired"}
    assert f"discarded by {bob}: " in hub.cli("receipts", old, "--as", alice).stdout
    named = hub.cli("discard", other, "--because", "done by hand", "--as", bob)
    assert named.returncode == 0
    assert f"discarded by {bob}: done by hand" in hub.cli("receipts", other, "--as", alice).stdout
    assert [item["message"]["id"] for item in json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)] == [new]
    again = hub.cli("discard", other, "--as", bob)
    assert (again.returncode, again.stdout) == (3, "")


def test_discarding_needs_to_know_what(hub: HubProcess, bob: str) -> None:
    assert hub.cli("discard", "--as", bob).returncode == 2
    assert hub.cli("discard", "x", "--obsolete", "--as", bob).returncode == 2


def test_nothing_to_sort(hub: HubProcess, bob: str) -> None:
    assert hub.cli("inbox", "--digest", "--as", bob).stdout == "Nothing waits.\n"


def test_send_takes_the_place_of_an_earlier_message(hub: HubProcess, alice: str, bob: str) -> None:
    first = json.loads(hub.cli("send", f"@{bob}", "one", "--as", alice, "--json").stdout)["id"]
    done = hub.cli("send", f"@{bob}", "two", "--supersedes", first, "--as", alice)
    assert done.returncode == 0
    assert hub.states(alice, first) == {bob: "expired"}
    refused = hub.cli("send", f"@{alice}", "three", "--supersedes", first, "--as", bob)
    assert refused.returncode == 3

"""Tests of short ids: every command takes the ids that other commands print."""

import asyncio
import json
import os
from types import SimpleNamespace
from typing import cast

import pytest

from tests.cli.hub_process import HubProcess
from tests.cli.program_talk import evidence
from tieline.cli import short_ids
from tieline.cli.failure import Failure
from tieline.cli.short_ids import short_id, short_objective, short_target
from tieline.client import Client
from tieline.wire.prefix_ids import from_prefix_id, to_prefix_id


def test_an_objective_is_named_by_the_end_of_its_id() -> None:
    assert short_objective("obj-m9x2k1aa-1z") == "1z"
    assert short_objective("release-4") == "release-4", "another program made this id"
    assert short_target("obj:obj-m9x2k1aa-3") == "obj:3"
    assert short_target("#obj") == "#obj"


def test_an_id_without_a_number_is_named_by_its_random_part() -> None:
    whole = "01a1edd5-5cf8-7000-af12-1b1d99ad3625"
    assert short_id(whole) == to_prefix_id(whole)[:8] == "99ad3625"
    for name in ("release", "release-2026-11-18-planning-of-teamx", whole.replace("-", "0")):
        assert short_id(name) == name, "another text of as many characters is no id"


async def test_an_unknown_number_never_names_a_message_whose_id_begins_so_by_chance(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client, message = cast(Client, None), SimpleNamespace(id=from_prefix_id("12345678-1234-8123-8123-123456789012"))

    async def numbered(*_: object) -> list[object]:
        return []

    async def recent(*_: object) -> list[object]:
        return [message]

    monkeypatch.setattr(short_ids, "_numbered", numbered)
    monkeypatch.setattr(short_ids, "_recent", recent)
    for number in ("1", "123", "1234567"):
        with pytest.raises(Failure, match=f"no message '{number}'"):
            await short_ids.find_message(client, number)
    for beginning in ("12345678", "12345678-", "12345678-1234"):
        assert await short_ids.find_message(client, beginning) is cast(object, message)


@pytest.mark.slow
def test_take_and_receipts_accept_exactly_what_inbox_prints(hub: HubProcess, alice: str, bob: str) -> None:
    bodies = ["one", "two", "three"]
    hub.send(alice, f"@{bob}", *bodies)
    own_shell = {"TIELINE_AGENT": bob}
    whole = [line for line in hub.cli("inbox", env=own_shell).stdout.splitlines() if not line.startswith(" ")]
    brief = hub.cli("inbox", "--brief", "--as", bob).stdout.splitlines()
    digest = hub.cli("inbox", "--digest", "--as", bob).stdout.splitlines()[1:]
    printed = [line.split()[0] for line in whole]
    assert printed == [line.split()[0] for line in brief] == [line.split()[0] for line in digest]
    assert len(printed) == len(set(printed)) == len(bodies)
    for name, body in zip(printed, bodies, strict=True):
        assert "seen" in hub.cli("receipts", name, "--as", bob).stdout
        assert hub.cli("take", name, "--as", bob).stdout.splitlines()[1:] == [f"  {body}"]
        assert "acked" in hub.cli("receipts", name, "--as", alice).stdout
    past = hub.cli("history", alice, "--as", bob).stdout
    assert [line.split()[0] for line in past.splitlines() if not line.startswith(" ")] == printed


@pytest.mark.slow
def test_send_prints_what_receipts_reply_and_redact_accept(hub: HubProcess, alice: str, bob: str) -> None:
    sent = hub.cli("send", f"@{bob}", "a question", "--as", alice).stdout.split()[0]
    assert bob in hub.cli("receipts", sent, "--as", alice).stdout
    answer = hub.cli("reply", sent, "an", "answer", "--as", bob).stdout.split()[0]
    (item,) = json.loads(hub.cli("inbox", "--as", alice, "--json").stdout)
    assert (item["message"]["body"], item["message"]["offset"]) == ("an answer", int(answer))
    question = json.loads(hub.cli("history", "--as", alice, "--json").stdout)[-1]
    assert item["message"]["reply_to"] == question["id"]
    for command in (("inbox",), ("history",), ("take", answer)):
        assert f"[reply to {sent}]" in hub.cli(*command, "--as", alice).stdout, command
    done = hub.cli("redact", sent, "--reason", "a slip", "--json")
    assert json.loads(done.stdout)["id"] == question["id"]
    assert "redacted" in hub.cli("history", "--as", bob).stdout


@pytest.mark.slow
def test_a_reply_goes_to_the_conversation_of_the_message(hub: HubProcess, alice: str, bob: str) -> None:
    channel = f"#of-{alice}"
    for name in (alice, bob):
        hub.cli("sub", channel, "--as", name)
    public = hub.cli("send", channel, "to all", "--thread", "t-1", "--as", alice).stdout.split()[0]
    own = hub.cli("send", f"@{bob}", "first", "--as", alice).stdout.split()[0]
    hub.cli("reply", public, "in the channel", "--as", bob)
    hub.cli("reply", own, "one more thing", "--as", alice)
    newest, answer, *_ = json.loads(hub.cli("history", "--as", alice, "--json").stdout)
    assert (newest["target"], newest["body"]) == (f"@{bob}", "one more thing")
    assert (answer["target"], answer["thread"], answer["body"]) == (channel, "t-1", "in the channel")


@pytest.mark.slow
def test_a_reply_acknowledges_the_message_and_no_other(hub: HubProcess, alice: str, bob: str) -> None:
    asked, other = hub.send(alice, f"@{bob}", "a question", "another one")
    assert hub.cli("reply", asked, "an answer", "--as", bob).returncode == 0
    assert [item["message"]["id"] for item in json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)] == [other]
    assert evidence(hub, alice, asked) == [("seen", "reply"), ("acked", "reply")]
    # Its own sender adds to a message, and acknowledges nothing.
    assert hub.cli("reply", other, "one more thing", "--as", alice).returncode == 0
    assert hub.states(alice, other)[bob] == "pending"


@pytest.mark.slow
def test_a_beginning_or_the_whole_id_names_a_message_too(hub: HubProcess, alice: str, bob: str) -> None:
    (whole,) = hub.send(alice, f"@{bob}", "one")
    names = (whole, to_prefix_id(whole), to_prefix_id(whole).upper(), to_prefix_id(whole)[:8], short_id(whole).upper())
    shown = {hub.cli("receipts", name, "--as", bob).stdout for name in names}
    assert len(shown) == 1
    assert "pending" in shown.pop()


@pytest.mark.slow
def test_every_command_takes_the_short_form_of_a_thread(hub: HubProcess, alice: str, bob: str) -> None:
    thread, twin = (f"5eed{number:04x}-{os.urandom(2).hex()}-4000-8000-00000000000a" for number in (1, 2))
    name = f"plan-of-{alice}-2026-11-18-and-later"[:36]
    for one in (thread, twin, name):
        hub.cli("send", f"@{bob}", f"zebra in {one}", "--thread", one, "--as", alice)
    assert f"[thread {thread[:8]}]" in hub.cli("inbox", "--as", bob).stdout
    hub.cli("send", f"@{bob}", "more", "--thread", thread[:8].upper(), "--as", alice)
    (last, *_) = json.loads(hub.cli("history", "--as", alice, "--json").stdout)
    assert (last["body"], last["thread"]) == ("more", thread)
    for typed in (thread[:8], f"thread:{thread[:9]}", thread):
        found = json.loads(hub.cli("search", "zebra", "--in", typed, "--as", bob, "--json").stdout)
        assert [message["body"] for message in found] == [f"zebra in {thread}"]
    paused = hub.cli("pause", f"thread:{thread[:8]}")
    assert (paused.stdout.split()[0], paused.stderr) == (f"thread:{thread}", "")
    assert hub.cli("send", f"@{bob}", "x", "--thread", thread[:8], "--as", alice).stdout.count("held") == 1
    assert "1 held message is delivered" in hub.cli("resume", f"thread:{thread[:8]}").stdout
    assert hub.cli("allow", f"thread:{thread[:8]}").stdout.startswith(f"thread:{thread} ")


@pytest.mark.slow
def test_a_short_form_of_several_threads_is_refused_and_of_none_is_a_name(
    hub: HubProcess, alice: str, bob: str
) -> None:
    one, two = (f"abad1dea-{number:04x}-4000-8000-00000000000a" for number in (1, 2))
    for thread in (one, two, "abad1dec"):
        hub.cli("send", f"@{bob}", "x", "--thread", thread, "--as", alice)
    for command in (("send", f"@{bob}", "x", "--thread"), ("search", "x", "--in")):
        done = hub.cli(*command, "abad1dea", "--as", alice)
        assert (done.returncode, one in done.stderr, two in done.stderr) == (2, True, True)
    hub.cli("send", f"@{bob}", "x", "--thread", "abad1de", "--as", alice)
    threads = [message["thread"] for message in json.loads(hub.cli("history", "--as", alice, "--json").stdout)]
    assert threads == ["abad1de", "abad1dec", two, one]
    assert "No recent message is in a thread 'abad1def'." in hub.cli("pause", "thread:abad1def").stderr


@pytest.mark.slow
def test_a_text_that_fits_several_messages_is_refused_with_their_numbers(hub: HubProcess, alice: str, bob: str) -> None:
    one, _ = hub.send(alice, f"@{bob}", "one", "two")
    waiting = json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)
    numbers = [str(each["message"]["offset"]) for each in waiting[-2:]]
    for command in ("take", "receipts"):
        # With the dash, because decimal digits alone are a number.
        done = hub.cli(command, one[:9], "--as", bob)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"fits 2 messages: {', '.join(numbers)}" in done.stderr
    document = json.loads(hub.cli("take", one[:9], "--as", bob, "--json").stderr)
    assert document["error"]["code"] == "ambiguous_id"


@pytest.mark.slow
def test_a_number_is_found_however_old_and_only_by_those_who_may_see_it(hub: HubProcess, alice: str, bob: str) -> None:
    carol = f"carol-of-{alice}"
    hub.add_members(carol)
    first = hub.cli("send", f"@{bob}", "the first", "--as", alice).stdout.split()[0]
    (whole,) = [message["id"] for message in json.loads(hub.cli("history", "--as", alice, "--json").stdout)]

    async def go_on() -> None:
        async with await hub.connect(alice) as client:
            await asyncio.gather(*(client.send(f"@{carol}", "x") for _ in range(1000)))

    asyncio.run(go_on())
    assert "the first" in hub.cli("take", first, "--as", bob).stdout
    assert "acked" in hub.cli("receipts", first, "--as", alice).stdout
    assert "acked" in hub.cli("receipts", first).stdout, "the operator sees all"
    beginning = hub.cli("receipts", short_id(whole), "--as", alice)
    assert (beginning.returncode, "newest 1,000" in beginning.stderr) == (3, True)
    other = hub.cli("receipts", first, "--as", carol)
    unknown = hub.cli("receipts", "999999999999", "--as", carol)
    assert (other.returncode, unknown.returncode) == (3, 3)
    assert other.stderr.replace(f"'{first}'", "N") == unknown.stderr.replace("'999999999999'", "N")


@pytest.mark.slow
def test_objectives_are_named_by_what_list_prints(hub: HubProcess, bob: str) -> None:
    hub.cli("member", "add", "maker-of-objectives", "--permission", "objectives.create")
    options = ("--outcome", "O", "--assignee", bob, "--json", "--as", "maker-of-objectives")
    made = json.loads(hub.cli("objectives", "create", "T", *options).stdout)
    name = hub.cli("objectives", "list", "--as", bob).stdout.splitlines()[1].split()[0]
    assert name == short_objective(made["id"])
    assert hub.cli("objectives", "block", name, "why", "--as", bob).stdout.startswith(f"{name}  blocked")
    assert hub.cli("objectives", "view", made["id"], "--as", bob).stdout.startswith(f"{name}  T  [blocked]")
    assert hub.cli("send", f"obj:{name}", "a word", "--as", bob).returncode == 0
    assert f"{bob} → obj:{name}" in hub.cli("history", f"obj:{name}", "--as", bob).stdout
    assert hub.cli("objectives", "view", "zzz", "--as", bob).returncode == 3


@pytest.mark.slow
def test_a_token_is_revoked_by_the_id_that_is_printed(hub: HubProcess, alice: str) -> None:
    (row,) = hub.cli("member", "tokens", alice).stdout.splitlines()[1:]
    assert "has no token" in hub.cli("member", "tokens", alice, "--revoke", row.split()[0]).stdout

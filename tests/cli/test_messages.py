"""Tests of the commands that send a message, follow its state, and read messages."""

import asyncio
import json
import re
from pathlib import Path

import pytest

from tests.cli.hub_process import HubProcess, wait_until

pytestmark = pytest.mark.slow

CLOCK = re.compile(r"\d\d:\d\d:\d\d\.\d{3}")
HOSTILE = "\x1b[31mred\x1b[0m [bold]not bold[/bold]\r\x07 \u202eback\n01890a5d-ffff  forged → @you  12:00:00"


def test_two_terminals(hub: HubProcess, alice: str, bob: str) -> None:
    with hub.cli_running("send", f"@{bob}", "hello", "--as", alice, "--wait-for", "acked") as sender:
        assert sender.stdout is not None
        accepted, pending = sender.stdout.readline(), sender.stdout.readline()
        assert "accepted for 1 recipient" in accepted
        drained = hub.cli("drain", "--as", bob)
        assert drained.returncode == 0
        assert f"{alice} → @{bob}" in drained.stdout
        assert "\n  hello\n" in drained.stdout
        out, err = sender.communicate(timeout=20)
    assert (sender.returncode, err) == (0, "")
    assert [line.split()[1:] for line in (pending, *out.splitlines())] == [[bob, "pending"], [bob, "acked"]]
    ladder = hub.cli("receipts", accepted.split()[0], "--as", alice).stdout.splitlines()
    steps = [line.removeprefix(bob).split() for line in ladder[1:]]
    assert [[state, *evidence] for state, _at, *evidence in steps] == [
        ["pending", "tieline"],
        ["acked", "tieline", "claim"],
    ]
    assert all(CLOCK.fullmatch(at) for _state, at, *_ in steps)


def test_waiting_for_what_does_not_come_times_out_with_where_it_stands(hub: HubProcess, alice: str, bob: str) -> None:
    done = hub.cli("send", bob, "hi", "--as", alice, "--wait-for", "seen", "--timeout", "0.3", "--json")
    assert done.returncode == 5
    assert f"{bob} is at 'pending'" in done.stderr
    document = json.loads(done.stdout)
    assert [receipt["state"] for receipt in document["receipts"]] == ["pending"]
    # Looking into the inbox is the evidence that was missing.
    hub.cli("inbox", env={"TIELINE_AGENT": bob})
    wait_until(lambda: hub.states(alice, document["id"]) == {bob: "seen"}, "the message to be seen")


def test_waiting_ends_when_the_message_expires(hub: HubProcess, alice: str, bob: str) -> None:
    done = hub.cli("send", bob, "quick", "--as", alice, "--ttl", "0.1", "--wait-for", "acked")
    assert done.returncode == 1
    assert "expired" in done.stderr


def test_waiting_for_a_wire_that_cannot_acknowledge_is_refused(hub: HubProcess, alice: str, bob: str) -> None:
    async def send_to_a_listener() -> tuple[int | None, str]:
        path = Path(str(hub.running.places["channels_dir"]), f"inbox-{bob}.sock")
        wait_until(path.exists, "the inbox socket")
        _reader, writer = await asyncio.open_unix_connection(path)
        try:
            wait = ("--wait-for", "acked", "--timeout", "10")
            done = await asyncio.to_thread(hub.cli, "send", bob, "hi", "--as", alice, *wait)
        finally:
            writer.close()
            await writer.wait_closed()
        return done.returncode, done.stderr

    code, said = asyncio.run(send_to_a_listener())
    assert code == 3
    assert "no acknowledgement" in said


def test_waiting_goes_on_when_the_hub_restarts() -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        with hub.cli_running("send", "bob", "hi", "--as", "alice", "--wait-for", "acked") as sender:
            assert sender.stdout is not None
            first = sender.stdout.readline()
            sender.stdout.readline()
            hub.kill9()
            hub.start()
            assert hub.cli("drain", "--as", "bob").stdout.startswith(first.split()[0])
            out, _err = sender.communicate(timeout=20)
        assert sender.returncode == 0
        assert out.split()[-1] == "acked"


def test_every_part_of_a_message_arrives(hub: HubProcess, alice: str, bob: str) -> None:
    parts = ["--urgent", "--scope", "github.com/a/b", "--thread", "t1", "--ref", "x", "--ref", "y", "--title", "T"]
    parts += ["--level", "warning", "--data", '{"n": 1}', "--ttl", "600", "--reply-to", "some-id", "--json"]
    sent = hub.cli("send", f"@{bob}", "-", "--as", alice, *parts, stdin="two\nlines\n")
    assert sent.returncode == 0
    accepted = json.loads(sent.stdout)
    assert accepted["recipients"] == 1
    (item,) = json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)
    message = item["message"]
    assert message["id"] == accepted["id"]
    wanted = {
        "from": alice,
        "target": f"@{bob}",
        "body": "two\nlines",
        "priority": "urgent",
        "scope": "github.com/a/b",
        "thread": "t1",
        "refs": ["x", "y"],
        "title": "T",
        "level": "warning",
        "data": {"n": 1},
        "ttl_ms": 600_000,
        "reply_to": "some-id",
    }
    assert {name: message.get(name) for name in wanted} == wanted
    shown = hub.cli("inbox", "--as", bob).stdout
    for part in ("[urgent]", "[warning]", "[scope github.com/a/b]", "  T\n", "  two\n  lines\n", 'data: {"n":1}'):
        assert part in shown


def test_a_hostile_body_is_shown_harmless_and_kept_whole_in_json(hub: HubProcess, alice: str, bob: str) -> None:
    assert hub.cli("send", bob, "-", "--as", alice, stdin=HOSTILE).returncode == 0
    for args in (("inbox",), ("history",), ("drain",)):
        plain = hub.cli(*args, "--as", bob).stdout
        assert "\\x1b[31mred" in plain
        assert "[bold]not bold[/bold]" in plain
        assert not re.search("[\x1b\r\x07\u202e]", plain)
        # Text that looks like another message stays inside this one.
        assert [line for line in plain.splitlines() if line.startswith("0189")] == []
    (message,) = json.loads(hub.cli("history", "--as", bob, "--json").stdout)
    assert message["body"] == HOSTILE


def test_history_is_a_conversation_with_one_peer(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", "one", "two", "three")
    hub.send(bob, f"@{bob}", "to myself")
    found = json.loads(hub.cli("history", f"@{alice}", "--limit", "2", "--as", bob, "--json").stdout)
    assert [message["body"] for message in found] == ["three", "two"]
    shown = hub.cli("history", alice, "--as", bob).stdout
    assert shown.index("one") < shown.index("two") < shown.index("three")
    assert "myself" not in shown


def test_a_stored_name_sees_its_own_messages_and_not_everybodys(hub: HubProcess, alice: str, bob: str) -> None:
    carol = f"carol-of-{alice}"
    hub.add_members(carol)
    own, other = hub.send(alice, f"@{bob}", f"zebra {alice}")[0], hub.send(bob, f"@{carol}", f"zebra {alice}")[0]
    stored = {"BACKCHANNEL_HOME": str(hub.home / f"spool-of-{alice}")}
    assert hub.cli("init", alice, env=stored).returncode == 0
    for command in (("history",), ("search", f'"zebra {alice}"')):
        shown = [message["id"] for message in json.loads(hub.cli(*command, "--json", env=stored).stdout)]
        assert shown == [own], command
    assert other in {message["id"] for message in json.loads(hub.cli("history", "--json").stdout)}
    assert bob in hub.cli("receipts", own, env=stored).stdout
    number = hub.number(carol, other)
    refused = hub.cli("receipts", number, env=stored)
    assert refused.returncode == 3
    assert f"message {number} is between {bob} and @{carol}, and not of {alice}" in refused.stderr
    assert f"hint: add --as {bob}" in refused.stderr
    # In an agent's own shell, nothing is told of what others say.
    agent = hub.cli("receipts", number, env={**stored, "TIELINE_AGENT": alice})
    assert agent.returncode == 3
    assert bob not in agent.stderr


def test_a_stored_name_is_told_how_to_see_all_messages(hub: HubProcess, alice: str, bob: str) -> None:
    (other,) = hub.send(bob, f"@{bob}", f"quagga {alice}")
    stored = {"BACKCHANNEL_HOME": str(hub.home / f"spool-of-{alice}")}
    assert hub.cli("init", alice, env=stored).returncode == 0
    for command in (("history",), ("search", f'"quagga {alice}"')):
        line = f"tieline: only messages of {alice}; 'tieline {command[0]} --all' shows all\n"
        assert hub.cli(*command, env=stored).stderr == line
        assert hub.cli(*command, "--json", env=stored).stderr == ""
        assert hub.cli(*command, "--as", bob, env=stored).stderr == ""
        shown = hub.cli(*command, "--all", "--json", env=stored)
        assert other in {message["id"] for message in json.loads(shown.stdout)}
        assert hub.cli(*command, "--all", "--as", bob).returncode == 2


def test_a_target_that_nobody_has_is_refused_with_the_nearest_name(hub: HubProcess, alice: str, bob: str) -> None:
    done = hub.cli("send", bob[:-1] + "z", "hi", "--as", alice)
    assert (done.returncode, done.stdout) == (3, "")
    assert "did you mean" in done.stderr
    assert hub.cli("receipts", "no-such-id", "--as", alice).returncode == 3


def test_a_command_speaks_for_a_token_from_anywhere(hub: HubProcess, alice: str, bob: str) -> None:
    token = json.loads(hub.cli("member", "rotate", alice, "--json").stdout)["token"]
    elsewhere = {"TIELINE_URL": hub.running.http, "TIELINE_TOKEN": token, "TIELINE_HOME": "/nonexistent"}
    assert hub.cli("send", bob, "from afar", env=elsewhere).returncode == 0
    (item,) = json.loads(hub.cli("drain", "--as", bob, "--json").stdout)
    assert item["message"]["from"] == alice
    refused = hub.cli("send", bob, "as another", "--as", bob, env=elsewhere)
    assert refused.returncode == 3
    assert "TIELINE_TOKEN" in refused.stderr

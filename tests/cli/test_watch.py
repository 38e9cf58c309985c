"""Tests of `tieline watch`: it shows each message once, also with filters, commands and restarts of the hub."""

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.hub_process import TIELINE, HubProcess, wait_until
from tieline.cli.context import Context
from tieline.cli.session import Link
from tieline.cli.watch import Watcher, WatchOptions
from tieline.wire.native.arrivals import DeliveredKeys, arrivals

pytestmark = pytest.mark.slow


def next_line(watcher: "subprocess.Popen[str]") -> str:
    assert watcher.stdout is not None
    return watcher.stdout.readline()


def test_a_command_gets_the_message_on_stdin_and_in_its_environment(
    hub: HubProcess, alice: str, bob: str, tmp_path: Path
) -> None:
    body = '$(touch owned); `touch owned` "quoted" \' \n second line'
    script = f'cat >> {tmp_path}/stdin; printf "%s|%s|%s\\n" "$TIELINE_FROM" "$TIELINE_TO" "$TIELINE_BODY"'
    hub.send(alice, f"@{bob}", body)
    with hub.cli_running("watch", "--as", bob, "--exec", script) as watcher:
        assert next_line(watcher) == f"{alice}|@{bob}|{body.splitlines()[0]}\n"
        assert next_line(watcher) == " second line\n"
        hub.send(alice, f"@{bob}", "later")
        assert next_line(watcher) == f"{alice}|@{bob}|later\n"
    messages = [json.loads(line) for line in (tmp_path / "stdin").read_text().splitlines()]
    assert [(message["from"], message["body"]) for message in messages] == [(alice, body), (alice, "later")]
    assert not list(Path().glob("owned"))
    assert hub.cli("inbox", "--as", bob).stdout == "Nothing waits.\n"


def test_a_failing_command_leaves_a_warning_and_the_watch_goes_on(hub: HubProcess, alice: str, bob: str) -> None:
    one, _two = hub.send(alice, f"@{bob}", "one", "two")
    script = 'echo "$TIELINE_BODY"; test "$TIELINE_BODY" = two'
    with hub.cli_running("watch", "--as", bob, "--exec", script) as watcher:
        assert [next_line(watcher), next_line(watcher)] == ["one\n", "two\n"]
        assert watcher.stderr is not None
        warning = watcher.stderr.readline()
    assert f" {hub.number(alice, one)}, " in warning
    assert "ended with 1" in warning


def test_a_command_of_a_watch_answers_as_the_watching_member(hub: HubProcess, alice: str, bob: str) -> None:
    script = f'{TIELINE} send "@$TIELINE_FROM" "got $TIELINE_BODY"'
    with hub.cli_running("watch", "--as", bob, "--exec", script):
        hub.send(alice, f"@{bob}", "it")
        wait_until(lambda: "got it" in hub.cli("inbox", "--as", alice).stdout, "the answer")


def test_of_two_watchers_one_gets_each_message(hub: HubProcess, alice: str, bob: str) -> None:
    with (
        hub.cli_running("watch", "--as", bob, "--json") as first,
        hub.cli_running("watch", "--as", bob, "--json") as second,
    ):
        wait_until(lambda: hub.session_count(bob) == 2, "both watchers")
        ids = hub.send(alice, f"@{bob}", *(str(number) for number in range(50)))
        wait_until(lambda: set(hub.states(alice, ids[-1]).values()) == {"acked"}, "the last claim")
        for watcher in (first, second):
            watcher.send_signal(signal.SIGINT)
        outputs = [watcher.communicate(timeout=20)[0] for watcher in (first, second)]
        assert [watcher.returncode for watcher in (first, second)] == [130, 130]
    seen = [json.loads(line)["message"]["id"] for output in outputs for line in output.splitlines()]
    assert sorted(seen) == sorted(ids)


def test_what_a_filter_passes_over_stays_in_the_inbox(hub: HubProcess, alice: str, bob: str) -> None:
    hub.send(alice, f"@{bob}", "normal")
    hub.send(alice, f"@{bob}", "scoped", scope="elsewhere")
    assert hub.cli("send", bob, "urgent", "--urgent", "--as", alice).returncode == 0
    with hub.cli_running("watch", "--as", bob, "--urgent-only", "--json") as watcher:
        assert json.loads(next_line(watcher))["message"]["body"] == "urgent"
    with hub.cli_running("watch", "--as", bob, "--peek", "--match", "elsewhere/x", "--json") as watcher:
        peeked = [json.loads(next_line(watcher))["message"]["body"] for _ in range(2)]
    assert peeked == ["normal", "scoped"]
    waiting = json.loads(hub.cli("inbox", "--as", bob, "--json").stdout)
    assert [item["message"]["body"] for item in waiting] == ["normal", "scoped"]


def test_a_watch_survives_a_restart_of_the_hub_and_handles_each_message_once() -> None:
    with HubProcess() as hub:
        hub.add_members("alice", "bob")
        with hub.cli_running("watch", "--as", "bob", "--json") as watcher:
            hub.send("alice", "@bob", "before")
            assert json.loads(next_line(watcher))["message"]["body"] == "before"
            hub.kill9()
            hub.start()
            hub.send("alice", "@bob", "after")
            assert json.loads(next_line(watcher))["message"]["body"] == "after"
            assert hub.stop() == 0
            hub.start()
            hub.send("alice", "@bob", "again")
            assert json.loads(next_line(watcher))["message"]["body"] == "again"


def test_messages_arrive_past_a_window_full_of_what_was_passed_over(hub: HubProcess, alice: str, bob: str) -> None:
    async def collect() -> list[str]:
        async with await hub.connect(bob, receive=True, window=2) as client:
            bodies = []
            async for delivery in arrivals(client, DeliveredKeys()):
                bodies.append(delivery.message.body)
                if len(bodies) == 5:
                    return bodies
        raise AssertionError("arrivals do not end")

    hub.send(alice, f"@{bob}", "1", "2", "3", "4", "5")
    assert asyncio.run(asyncio.wait_for(collect(), 20)) == ["1", "2", "3", "4", "5"]


def test_a_claim_whose_answer_was_lost_is_handled_if_it_was_made(
    hub: HubProcess, alice: str, bob: str, capsys: pytest.CaptureFixture[str]
) -> None:
    async def resolve(*, claimed: bool) -> str:
        options = WatchOptions(None, Context(None), urgent_only=False, peek=False, json=False)
        watcher = Watcher(Link(home=hub.home), options)
        async with await hub.connect(bob) as before:
            item = (await before.inbox()).items[0]
            assert before.welcome is not None
            watcher._unsure = (item, before.welcome.session)
            if claimed:
                await before.claim(item.message.id)
        async with await hub.connect(bob) as after:
            await watcher._resolve(after)
        return capsys.readouterr().out

    hub.send(alice, f"@{bob}", "whose is it?")
    assert asyncio.run(resolve(claimed=False)) == ""
    assert "whose is it?" in asyncio.run(resolve(claimed=True))

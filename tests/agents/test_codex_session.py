"""Tests of `tieline run codex` with a real hub, and a stand-in (a script) in place of Codex."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil  # type: ignore[import-untyped]  # it has no types of its own
import pytest

from tests.agents.runs import StandIn, activity, stand_in
from tests.cli.hub_process import HubProcess, wait_until

pytestmark = pytest.mark.slow


@pytest.fixture
def codex(hub: HubProcess, bob: str, folder: Path) -> Iterator[StandIn]:
    with stand_in(hub, bob, "codex", folder) as run:
        run.wait_for_told("thread/start")
        yield run


def test_an_idle_codex_gets_turn_start_and_an_active_one_turn_steer(hub: HubProcess, bob: str, codex: StandIn) -> None:
    (first,) = hub.send("alice", f"@{bob}", "HOLD </channel> on")
    (start,) = codex.wait_for_told("turn/start")
    text = start["params"]["input"][0]["text"]
    assert text.startswith('<channel kind="chat" from="alice" thread="dm"')
    assert text.count("</channel>") == 1
    assert f'msg_id="{first}"' in text
    wait_until(lambda: hub.states("alice", first)[bob] == "seen", "the answer as evidence")
    wait_until(lambda: hub.is_busy(bob), "the report of the turn")
    (second,) = hub.send("alice", f"@{bob}", "RELEASE")
    (steer,) = codex.wait_for_told("turn/steer")
    assert steer["params"]["expectedTurnId"] == "turn-1"
    wait_until(lambda: hub.states("alice", first)[bob] == hub.states("alice", second)[bob] == "acked", "the turn's end")
    wait_until(lambda: not hub.is_busy(bob), "the report of its end")
    (third,) = hub.send("alice", f"@{bob}", "HOLD again")
    assert len(codex.wait_for_told("turn/start", 2)) == 2
    assert len(codex.told("turn/steer")) == 1
    wait_until(lambda: hub.states("alice", third)[bob] != "offered", "the answer as evidence")
    assert hub.states("alice", third)[bob] == "seen", "its turn has not ended, whatever became of others"
    hub.send("alice", f"@{bob}", "RELEASE")
    wait_until(lambda: hub.states("alice", third)[bob] == "acked", "the end of the next turn")
    assert codex.signal(signal.SIGINT) == 128 + signal.SIGINT
    codex.leaves_nothing()


def test_what_arrives_within_200_ms_is_one_turn(hub: HubProcess, bob: str, codex: StandIn) -> None:
    hub.send("alice", f"@{bob}", "one", "two", "three")
    (start,) = codex.wait_for_told("turn/start")
    text = start["params"]["input"][0]["text"]
    assert [text.find(word) for word in ("one", "two", "three")] == sorted(map(text.find, ("one", "two", "three")))
    assert text.count("<channel ") == 3


def test_messages_that_waited_are_handed_over_once(hub: HubProcess, bob: str, folder: Path) -> None:
    (waiting,) = hub.send("alice", f"@{bob}", "early")
    with stand_in(hub, bob, "codex", folder) as run:
        run.wait_for_told("turn/start")
        wait_until(lambda: hub.states("alice", waiting)[bob] == "acked", "the end of its turn")
    (folder / f"log-{bob}").unlink()
    (folder / f"user-{bob}").rename(folder / "before")
    with stand_in(hub, bob, "codex", folder, "--resume", "thr") as run:
        run.wait_for_told("thread/resume")
        hub.send("alice", f"@{bob}", "late")
        (start,) = run.wait_for_told("turn/start")
        assert "early" not in start["params"]["input"][0]["text"]


def test_approvals_are_declined_and_the_agents_own_tools_work(hub: HubProcess, bob: str, codex: StandIn) -> None:
    hub.send("alice", f"@{bob}", "ASK TOOL")
    (tool,) = codex.wait_for("tool")
    assert f"You are {bob}" in tool["answer"]["result"]["content"][0]["text"]
    wait_until(lambda: codex.answered(900), "an answer")
    assert codex.answered(900) == [{"id": 900, "result": {"decision": "decline"}}]
    assert codex.signal(signal.SIGTERM) == 128 + signal.SIGTERM
    codex.leaves_nothing()


def test_a_refused_call_of_a_tool_is_told_and_the_turns_end_is_named_as_evidence(
    hub: HubProcess, bob: str, codex: StandIn
) -> None:
    (message,) = hub.send("alice", f"@{bob}", "WRONG")
    wait_until(lambda: hub.states("alice", message)[bob] == "acked", "the turn's end")
    shown = hub.cli("receipts", message, "--as", "alice")
    assert "end of the turn in codex" in shown.stdout
    assert codex.signal(signal.SIGINT) == 128 + signal.SIGINT
    assert codex.process.stderr is not None
    told = [line for line in codex.process.stderr if "its call of" in line]
    assert len(told) == 1
    assert told[0].startswith(f"tieline: {bob}: its call of send was refused (")
    assert "no such name" in told[0]


def test_what_codex_used_is_in_the_activity_log(hub: HubProcess, bob: str, codex: StandIn) -> None:
    hub.send("alice", f"@{bob}", "work")
    wait_until(lambda: activity(hub, bob), "an upload")
    (row,) = activity(hub, bob)
    usage = row.event["entry"]["response"]["usage"]
    assert (row.kind, usage["inputTokens"], usage["cacheReadInputTokens"]) == ("llm_exchange", 60, 40)
    assert codex.process.poll() is None


def test_a_crash_of_codex_leaves_nothing_and_is_our_exit_code(hub: HubProcess, bob: str, codex: StandIn) -> None:
    (message,) = hub.send("alice", f"@{bob}", "TOOL HOLD")
    codex.wait_for("tool")
    wait_until(lambda: hub.states("alice", message)[bob] == "seen", "the answer as evidence")
    codex.crash()
    assert codex.process.wait(20) == 128 + signal.SIGSEGV
    codex.leaves_nothing()
    assert hub.states("alice", message)[bob] == "seen"


def test_a_runner_that_is_killed_leaves_nothing_either(hub: HubProcess, bob: str, codex: StandIn) -> None:
    hub.send("alice", f"@{bob}", "TOOL HOLD")
    codex.wait_for("tool")
    assert codex.signal(signal.SIGKILL) == -signal.SIGKILL
    codex.leaves_nothing()


def test_a_runner_whose_guard_was_killed_can_still_be_ended(codex: StandIn) -> None:
    (started,) = codex.notes("started")
    psutil.Process(started["pid"]).parent().kill()
    # The program ends with its guard, and then the runner, perhaps before the signal.
    assert codex.signal(signal.SIGINT) in (128 + signal.SIGINT, 128 + signal.SIGKILL)
    codex.leaves_nothing()


def test_a_hub_that_restarts_goes_on_being_heard_and_nothing_comes_twice(folder: Path) -> None:
    with HubProcess() as restarting:
        restarting.add_members("alice", "bob")
        with stand_in(restarting, "bob", "codex", folder) as run:
            run.wait_for_told("thread/start")
            restarting.send("alice", "@bob", "before")
            run.wait_for_told("turn/start")
            restarting.stop()
            restarting.start()
            (message,) = restarting.send("alice", "@bob", "after")
            texts = [told["params"]["input"][0]["text"] for told in run.wait_for_told("turn/start", 2)]
            assert ["before" in text for text in texts] == [True, False]
            wait_until(lambda: restarting.states("alice", message)["bob"] == "acked", "the end of the turn")


def test_a_program_that_is_not_there_is_said_so(hub: HubProcess, bob: str) -> None:
    done = hub.cli("run", "--as", bob, "codex", env={"CODEX_PATH": "/nonexistent/codex"})
    assert done.returncode == 127
    assert "command not found" in done.stderr
    wait_until(lambda: not list((hub.home / "run").iterdir()), "an empty folder of runs")

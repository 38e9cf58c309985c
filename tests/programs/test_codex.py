"""Tests of the real Codex under `tieline run`, with a scripted model.

They check which messages reach the model, when, and how often.
"""

import contextlib
import json
import os
import re
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.runs import activity, is_alive
from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until
from tests.programs.conversation import ANSWER, bodies, command, descendants, evidence, is_answered, shown
from tests.programs.installed import ProgramHome, codex, program_home
from tests.programs.model import Line, ScriptedModel
from tests.programs.table import CODEX
from tieline.agents import guard
from tieline.agents.codex import BUNDLE_SECONDS
from tieline.agents.run_folder import RUNS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

EVIDENCE = "answer of the model in codex"


class Run:
    """A running `tieline run codex` for tests, and its output."""

    def __init__(self, process: "subprocess.Popen[bytes]", output: Path) -> None:
        self.process = process
        self._output = output

    @property
    def printed(self) -> str:
        """Everything that `tieline run codex` printed so far."""
        return self._output.read_text(encoding="utf-8", errors="replace")


@contextlib.contextmanager
def running(
    hub: HubProcess, home: ProgramHome, model: ScriptedModel, *options: str, settings: tuple[str, ...] = ()
) -> Iterator[Run]:
    """Start `tieline run codex` as bob, and wait until Codex has opened its thread (conversation).

    `options` are options of `tieline run`, `settings` are settings of Codex.
    """
    output = home.folder / "output"
    with (
        output.open("wb") as file,
        subprocess.Popen(
            [
                str(TIELINE),
                "run",
                "--as",
                "bob",
                *options,
                "codex",
                *(part for one in settings for part in ("-c", one)),
            ],
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            env=environment(hub.home, codex(home, model)),
            cwd=home.project,
        ) as process,
    ):
        run = Run(process, output)
        try:
            wait_until(lambda: "is ready" in run.printed or process.poll() is not None, "the thread of Codex")
            assert process.poll() is None, run.printed
            yield run
        finally:
            process.kill()


@pytest.mark.first
@pytest.mark.proves(CODEX, idle="begins a turn", answer="yes", seen=EVIDENCE, once="yes")
def test_an_idle_agent_begins_a_turn_and_answers_by_its_tool_without_a_dialog(
    hub: HubProcess, home: ProgramHome
) -> None:
    with ScriptedModel(ANSWER) as model, running(hub, home, model) as run:
        for number in (1, 2):
            (asked,) = hub.send("alice", "@bob", f"QUESTION {number}")
            wait_until(lambda: is_answered(hub, asked, f"ANSWER to QUESTION {number}"), "the answer")  # noqa: B023
            assert evidence(hub, asked) == EVIDENCE
        hub.send("alice", "@bob", "thank you")
        wait_until(lambda: shown(model, "thank you"), "another turn")
        assert [len(shown(model, f"QUESTION {number}")) for number in (1, 2)] == [1, 1]
        assert bodies(hub, "alice") == ["ANSWER to QUESTION 1", "ANSWER to QUESTION 2"]
        assert "asked" not in run.printed.replace("Codex asked mcpServer/elicitation/request", "")
        assert model.unknown == []


@pytest.mark.proves(CODEX, busy="after its tool", seen=EVIDENCE, once="yes")
def test_a_busy_agent_is_shown_a_message_in_the_turn_that_runs(hub: HubProcess, home: ProgramHome) -> None:
    work = Line("work now", call=("exec_command", {"cmd": "while [ ! -e go ]; do sleep 0.05; done"}))
    with ScriptedModel(ANSWER, work) as model, running(hub, home, model):
        hub.send("alice", "@bob", "work now")
        wait_until(lambda: model.told("work now"), "a turn")
        wait_until(lambda: hub.is_busy("bob"), "the report of the turn")
        (asked,) = hub.send("alice", "@bob", "QUESTION")
        wait_until(lambda: hub.states("alice", asked)["bob"] == "offered", "the push")
        # Nobody tells when Codex has taken a message for the running turn.
        time.sleep(5 * BUNDLE_SECONDS)
        assert hub.states("alice", asked)["bob"] == "offered", "the model was not asked yet"
        (home.project / "go").touch()
        wait_until(lambda: is_answered(hub, asked, "ANSWER to QUESTION"), "the answer")
        assert evidence(hub, asked) == EVIDENCE
        (told,) = shown(model, "QUESTION")
        # The same turn: the request ends with the result of the tool and the message.
        assert "work now" in json.dumps(told.body)
        assert "Process exited with code 0" in told.new
        wait_until(lambda: not hub.is_busy("bob"), "the report of its end")


@pytest.mark.proves(CODEX, restart="yes", once="yes")
def test_a_message_reaches_the_agent_after_a_restart_of_the_hub(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model, running(hub, home, model):
        (before,) = hub.send("alice", "@bob", "QUESTION 1")
        wait_until(lambda: is_answered(hub, before, "ANSWER to QUESTION 1"), "an answer before")
        hub.kill9()
        hub.start()
        (after,) = hub.send("alice", "@bob", "QUESTION 2")
        wait_until(lambda: is_answered(hub, after, "ANSWER to QUESTION 2"), "an answer after it")
        assert [len(shown(model, f"QUESTION {number}")) for number in (1, 2)] == [1, 1]


@pytest.mark.proves(CODEX, seen=EVIDENCE)
def test_seen_means_that_the_model_was_asked(hub: HubProcess, home: ProgramHome) -> None:
    with (
        ScriptedModel(Line("HELLO", say="fine"), Line("BROKEN", refuse=True)) as model,
        running(hub, home, model) as run,
    ):
        (lost,) = hub.send("alice", "@bob", "BROKEN")
        wait_until(lambda: "refused by the script" in run.printed, "the failure of the turn")
        assert hub.states("alice", lost)["bob"] == "offered"
        (told,) = hub.send("alice", "@bob", "HELLO")
        wait_until(lambda: hub.states("alice", told)["bob"] == "acked", "the end of the turn")
        assert evidence(hub, told) == EVIDENCE
        # The model reads the history of its thread, with the message of the failed turn in it.
        assert evidence(hub, lost) == EVIDENCE


def test_messages_that_come_together_are_one_turn(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model, running(hub, home, model):
        hub.send("alice", "@bob", "HELLO 1", "HELLO 2", "HELLO 3")
        wait_until(lambda: shown(model, "HELLO 3"), "a turn")
        requests = [shown(model, f"HELLO {number}") for number in (1, 2, 3)]
        assert requests[0] == requests[1] == requests[2]
        assert len(requests[0]) == 1


def test_a_thread_is_continued_by_its_id(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        with running(hub, home, model) as run:
            (told,) = hub.send("alice", "@bob", "HELLO 1")
            wait_until(lambda: hub.states("alice", told)["bob"] == "acked", "the end of the turn")
            (thread,) = re.findall(r"is ready in thread ([\w-]+)", run.printed)
            run.process.terminate()
            run.process.wait(60)
        with running(hub, home, model, "--resume", thread):
            hub.send("alice", "@bob", "HELLO 2")
            wait_until(lambda: shown(model, "HELLO 2"), "a turn")
            (told_again,) = shown(model, "HELLO 2")
            assert "HELLO 1" in json.dumps(told_again.body), "the history of the thread"
            assert len(shown(model, "HELLO 1")) == 1


@pytest.mark.parametrize("approve", [False, True])
def test_the_runner_says_no_to_questions_unless_it_may_approve(
    approve: bool, hub: HubProcess, home: ProgramHome
) -> None:
    # Codex asks before it runs a command outside its sandbox.
    beyond = {"sandbox_permissions": "require_escalated", "justification": "the test"}
    work = Line("work now", call=("exec_command", {"cmd": "touch made", **beyond}))
    options = ("--approve",) if approve else ()
    settings = ('approval_policy="on-request"', 'sandbox_mode="read-only"')
    with ScriptedModel(work) as model, running(hub, home, model, *options, settings=settings):
        (told,) = hub.send("alice", "@bob", "work now")
        wait_until(lambda: hub.states("alice", told)["bob"] == "acked", "the end of the turn")
        assert (home.project / "made").exists() is approve


def test_calls_of_the_model_are_in_the_activity_log(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model, running(hub, home, model):
        hub.send("alice", "@bob", "HELLO")
        wait_until(lambda: [one for one in activity(hub, "bob") if one.kind == "llm_exchange"], "the log")


def test_two_sessions_of_one_member_are_each_shown_a_message_once(hub: HubProcess, home: ProgramHome) -> None:
    with (
        program_home() as other_home,
        ScriptedModel() as model,
        ScriptedModel() as other,
        running(hub, home, model),
        running(hub, other_home, other),
    ):
        (first,) = hub.send("alice", "@bob", "HELLO 1")
        wait_until(lambda: shown(model, "HELLO 1") and shown(other, "HELLO 1"), "both models")
        (second,) = hub.send("alice", "@bob", "HELLO 2")
        wait_until(lambda: shown(model, "HELLO 2") and shown(other, "HELLO 2"), "both models")
        for message in (first, second):
            wait_until(lambda: hub.states("alice", message)["bob"] == "acked", "the receipt")  # noqa: B023
            assert evidence(hub, message) == EVIDENCE
        assert [len(shown(one, f"HELLO {n}")) for one in (model, other) for n in (1, 2)] == [1, 1, 1, 1]


@pytest.mark.parametrize("part", ["program", "runner", "guard"])
def test_a_killed_part_leaves_no_process_and_no_file(part: str, hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model, running(hub, home, model) as run:
        (asked,) = hub.send("alice", "@bob", "QUESTION")
        wait_until(lambda: is_answered(hub, asked, "ANSWER to QUESTION"), "an answer")
        started = descendants(run.process.pid)
        (program,) = [pid for pid in started if command(pid).startswith(codex(home, model)["CODEX_PATH"])]
        (guarding,) = [pid for pid in started if guard.__file__ in command(pid)]
        os.kill({"program": program, "runner": run.process.pid, "guard": guarding}[part], signal.SIGKILL)
        assert run.process.wait(60) == (-signal.SIGKILL if part == "runner" else 128 + signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")
        assert list((hub.home / RUNS).iterdir()) == []

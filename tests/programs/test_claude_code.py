"""Tests of the real Claude Code under `tieline run`, with a scripted model.

They check which messages reach the model, when, and how often.
"""

import contextlib
import json
import os
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tests.agents.runs import activity, is_alive
from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until
from tests.cli.terminal import Person, at_terminal, at_terminal_of
from tests.programs.conversation import (
    ANSWER,
    LATE_SECONDS,
    bodies,
    command,
    descendants,
    evidence,
    is_answered,
    prompt,
    run_once,
    shown,
    with_late_server,
)
from tests.programs.installed import ProgramHome, claude_code
from tests.programs.model import Line, ScriptedModel
from tests.programs.table import CLAUDE_CODE
from tieline.agents import guard
from tieline.agents.hook_record import READY
from tieline.agents.run_folder import RUNS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]


@contextlib.contextmanager
def interactive(hub: HubProcess, home: ProgramHome, model: ScriptedModel, *options: str) -> Iterator[Person]:
    """Start Claude Code by `tieline run` at a terminal. Wait until it has the list of Tieline's tools.

    Yield the person at the terminal.
    """
    variables = claude_code(home, model)
    with at_terminal(hub.home, "--as", "bob", *options, "claude-code", env=variables, cwd=home.project) as person:
        person.sees("shortcuts")
        wait_until(lambda: list((hub.home / RUNS).glob(f"*/{READY}")), "the program to load our tools")
        yield person


@pytest.mark.first
@pytest.mark.proves(CLAUDE_CODE, idle="wakes it", answer="yes", once="yes")
def test_an_idle_agent_is_woken_and_answers_by_its_tool_without_a_dialog(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model, interactive(hub, home, model) as person:
        (first,) = hub.send("alice", "@bob", "QUESTION 1")
        wait_until(lambda: is_answered(hub, first, "ANSWER to QUESTION 1"), "the first answer")
        # The session is idle again, and another hook waits.
        (second,) = hub.send("alice", "@bob", "QUESTION 2")
        wait_until(lambda: is_answered(hub, second, "ANSWER to QUESTION 2"), "the second answer")
        # A turn of the user shows neither of them again.
        prompt(person, model, "thank you")
        assert [len(shown(model, f"QUESTION {n}")) for n in (1, 2)] == [1, 1]
        person.sees("messages come at turn boundaries and wake it when idle; where channels are on")
        person.sees("pushes are off")
        assert model.unknown == []


@pytest.mark.proves(CLAUDE_CODE, busy="after its tool", once="yes")
def test_a_busy_agent_is_shown_a_message_at_the_end_of_its_tool(hub: HubProcess, home: ProgramHome) -> None:
    work = Line("work now", call=("Bash", {"command": "while [ ! -e go ]; do sleep 0.05; done"}))
    home.write("project/.claude/settings.json", {"permissions": {"allow": ["Bash"]}})
    with ScriptedModel(ANSWER, work) as model, interactive(hub, home, model, "--no-push") as person:
        prompt(person, model, "work now")
        (asked,) = hub.send("alice", "@bob", "QUESTION")
        (home.project / "go").touch()
        wait_until(lambda: is_answered(hub, asked, "ANSWER to QUESTION"), "the answer")
        assert len(shown(model, "QUESTION")) == 1
        # The same turn: the user was not asked, and no turn was begun for it.
        assert "work now" in json.dumps(model.told("QUESTION")[0].body)


@pytest.mark.proves(CLAUDE_CODE, restart="yes")
def test_a_message_reaches_the_agent_after_a_restart_of_the_hub(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model, interactive(hub, home, model, "--no-push"):
        (before,) = hub.send("alice", "@bob", "QUESTION 1")
        wait_until(lambda: is_answered(hub, before, "ANSWER to QUESTION 1"), "an answer before")
        hub.kill9()
        hub.start()
        (after,) = hub.send("alice", "@bob", "QUESTION 2")
        wait_until(lambda: is_answered(hub, after, "ANSWER to QUESTION 2"), "an answer after it")
        assert len(shown(model, "QUESTION 2")) == 1


@pytest.mark.proves(CLAUDE_CODE, seen="answer of the model in claude-code")
def test_seen_means_that_the_model_was_asked(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(Line("HELLO", say="fine")) as model, interactive(hub, home, model, "--no-push"):
        (told,) = hub.send("alice", "@bob", "HELLO")
        wait_until(lambda: model.told("HELLO"), "the model to be asked")
        wait_until(lambda: hub.states("alice", told)["bob"] == "seen", "the receipt")
        assert evidence(hub, told) == "answer of the model in claude-code"


def test_an_idle_agent_is_woken_by_a_message_that_is_too_long_to_show(hub: HubProcess, home: ProgramHome) -> None:
    # The text of the hook names no shell command, and only our tools are allowed.
    takes = Line("tool drain takes them", call=("drain", {}))
    with ScriptedModel(ANSWER, takes) as model, interactive(hub, home, model, "--no-push") as person:
        (asked,) = hub.send("alice", "@bob", f"QUESTION {'long ' * 1800}")
        wait_until(lambda: hub.states("alice", asked)["bob"] == "acked", "the agent to take it")
        wait_until(lambda: bodies(hub, "alice"), "the answer")
        assert "tieline inbox" not in model.told("tool drain takes them")[0].new
        prompt(person, model, "thank you")
        assert len(model.told("tool drain takes them")) == 1


def test_one_shot_mode_shows_what_waits_and_may_answer(hub: HubProcess, home: ProgramHome) -> None:
    (asked,) = hub.send("alice", "@bob", "QUESTION")
    with ScriptedModel(ANSWER) as model:
        program = [str(TIELINE), "run", "--as", "bob", "claude-code", "-p", "look around"]
        said = run_once(program, home, environment(hub.home, claude_code(home, model)))
        assert is_answered(hub, asked, "ANSWER to QUESTION")
        assert len(shown(model, "QUESTION")) == 1
        # This mode is never idle.
        assert "woken" not in said


def test_one_shot_mode_waits_for_tools_that_come_late(hub: HubProcess, home: ProgramHome) -> None:
    (asked,) = hub.send("alice", "@bob", "QUESTION")
    with ScriptedModel(ANSWER) as model:
        variables = with_late_server(home, claude_code(home, model), LATE_SECONDS)
        program = [str(TIELINE), "run", "--as", "bob", "claude-code", "-p", "look around"]
        run_once(program, home, environment(hub.home, variables))
        assert is_answered(hub, asked, "ANSWER to QUESTION")


@pytest.mark.parametrize("trace", [False, True])
def test_calls_of_the_model_are_in_the_activity_log(trace: bool, hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        options = ["--trace"] if trace else []
        program = [str(TIELINE), "run", "--as", "bob", *options, "claude-code", "-p", "look around"]
        run_once(program, home, environment(hub.home, claude_code(home, model)))
        exchanges = [one for one in activity(hub, "bob") if one.kind == "llm_exchange"]
        assert exchanges
        # Only a trace has the texts.
        assert ("look around" in str(exchanges)) is trace


def test_a_message_whose_turn_was_killed_is_shown_again_in_the_next_session(hub: HubProcess, home: ProgramHome) -> None:
    answering = threading.Event()

    class Slow(ScriptedModel):
        """Scripted model that answers a message only after the program was killed."""

        def answer(self, *request: Any) -> Any:
            said = super().answer(*request)
            if self.told("HELLO"):
                answering.wait(60)
            return said

    with Slow() as model:
        with interactive(hub, home, model, "--no-push") as person:
            (told,) = hub.send("alice", "@bob", "HELLO")
            wait_until(lambda: shown(model, "HELLO"), "the model to be asked")
            assert hub.states("alice", told)["bob"] != "seen", "the model has not answered"
            os.kill(person.process.pid, signal.SIGKILL)
            person.leaves()
        answering.set()
        words = ("--as", "bob", "--no-push", "claude-code")
        # The message wakes it at once.
        with at_terminal(hub.home, *words, env=claude_code(home, model), cwd=home.project):
            wait_until(lambda: hub.states("alice", told)["bob"] == "seen", "the receipt")
            assert len(shown(model, "HELLO")) == 2


def test_with_ask_the_user_decides_about_our_tools(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model, interactive(hub, home, model, "--no-push", "--ask") as person:
        hub.send("alice", "@bob", "QUESTION")
        person.sees("proceed")
        assert bodies(hub, "alice") == []
        assert model.unknown == []


@pytest.mark.parametrize("part", ["program", "runner"])
def test_a_killed_part_leaves_no_process_and_no_file(part: str, hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model, interactive(hub, home, model, "--no-push") as person:
        (asked,) = hub.send("alice", "@bob", "QUESTION")
        wait_until(lambda: is_answered(hub, asked, "ANSWER to QUESTION"), "an answer")
        wait_until(lambda: any("--wait" in command(pid) for pid in descendants(person.process.pid)), "a waiting hook")
        started = descendants(person.process.pid)
        (program,) = [pid for pid in started if command(pid).startswith(str(claude_code(home, model)["CLAUDE_PATH"]))]
        os.kill(program if part == "program" else person.process.pid, signal.SIGKILL)
        assert person.leaves() == (128 + signal.SIGKILL if part == "program" else -signal.SIGKILL)
        wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")
        assert list((hub.home / RUNS).iterdir()) == []


def test_a_killed_guard_leaves_no_process_and_no_file(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        variables = environment(hub.home, claude_code(home, model))
        # In a shell, as a person has one. Otherwise the terminal would hang up at the end of the runner.
        script = f"{TIELINE} run --as bob --no-push claude-code; sleep 300"
        with at_terminal_of("/bin/sh", "-c", script, env=variables, cwd=home.project) as person:
            person.sees("shortcuts")
            wait_until(lambda: any("--wait" in command(pid) for pid in descendants(person.process.pid)), "its hook")
            started = descendants(person.process.pid)
            (guarding,) = [pid for pid in started if guard.__file__ in command(pid)]
            os.kill(guarding, signal.SIGKILL)
            wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")
            assert list((hub.home / RUNS).iterdir()) == []
            for left in descendants(person.process.pid):
                os.kill(left, signal.SIGKILL)

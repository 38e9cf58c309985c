"""Tests of the real Claude Code with Tieline's hooks in its settings, started without `tieline run`."""

import contextlib
import json
import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.agents.runs import is_alive
from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until
from tests.cli.terminal import Person, at_terminal_of
from tests.programs.conversation import (
    ANSWER,
    Interrupted,
    bodies,
    command,
    descendants,
    evidence,
    prompt,
    run_once,
    shown,
)
from tests.programs.installed import ProgramHome, claude_code, program_home
from tests.programs.model import Line, ScriptedModel
from tests.programs.table import CLAUDE_CODE_HOOKS
from tieline.agents.hook_record import FOLDER
from tieline.agents.run_folder import RUNS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

EVIDENCE = "answer of the model in claude-code"


def installed(hub: HubProcess, home: ProgramHome, model: ScriptedModel) -> dict[str, str]:
    """Install Tieline's hooks for bob in Claude Code's settings. Return the environment variables of Claude Code."""
    variables = claude_code(home, model)
    done = hub.cli("hooks", "install", "claude-code", "--as", "bob", "--apply", env=variables)
    assert done.returncode == 0, done.stderr
    assert "--wait" in (home.folder / ".claude" / "settings.json").read_text(encoding="utf-8")
    return environment(hub.home, variables)


@contextlib.contextmanager
def interactive(variables: dict[str, str], home: ProgramHome) -> Iterator[Person]:
    """Start Claude Code at a terminal. Yield the person at the terminal."""
    with at_terminal_of(variables["CLAUDE_PATH"], env=variables, cwd=home.project) as person:
        person.sees("shortcuts")
        yield person


def waiters(person: Person) -> set[int]:
    """Return the ids of the hook processes of a program that wait for a message."""
    return {pid for pid in descendants(person.process.pid) if "drain --hook claude-code" in command(pid)}


def records(hub: HubProcess) -> list[Path]:
    """Return the record files of agent sessions in which hooks ran."""
    folder = hub.home / RUNS / FOLDER
    return list(folder.iterdir()) if folder.exists() else []


@pytest.mark.proves(CLAUDE_CODE_HOOKS, idle="wakes it", restart="yes", seen=EVIDENCE, once="yes")
def test_an_idle_agent_is_woken_also_after_a_restart_of_the_hub(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        variables = installed(hub, home, model)
        with interactive(variables, home):
            for body in ("HELLO 1", "HELLO 2"):
                hub.kill9()
                hub.start()
                (told,) = hub.send("alice", "@bob", body)
                wait_until(lambda: hub.states("alice", told)["bob"] == "seen", "the receipt")  # noqa: B023
                assert evidence(hub, told) == EVIDENCE
            assert [len(shown(model, body)) for body in ("HELLO 1", "HELLO 2")] == [1, 1]
            # Without our tools the agent is told the commands.
            assert "tieline send @NAME" in shown(model, "HELLO 1")[0].new


@pytest.mark.proves(CLAUDE_CODE_HOOKS, seen=EVIDENCE)
def test_one_shot_mode_shows_what_waits_and_no_hook_outlives_it(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        variables = installed(hub, home, model)
        (told,) = hub.send("alice", "@bob", "HELLO")
        begun = time.monotonic()
        run_once([variables["CLAUDE_PATH"], "-p", "look around"], home, variables)
        ended = time.monotonic()
        assert len(shown(model, "HELLO")) == 1
        assert hub.states("alice", told)["bob"] == "seen"
        assert evidence(hub, told) == EVIDENCE
        # A waiting hook would wait for days, and Claude Code for it.
        assert ended - model.asked[-1].at < max(10, 3 * (model.asked[-1].at - begun))
        wait_until(lambda: not records(hub), "the end of the record")


@pytest.mark.proves(CLAUDE_CODE_HOOKS, busy="after its tool", answer="yes", once="yes")
def test_a_busy_agent_with_our_mcp_server_answers_by_its_tool(hub: HubProcess, home: ProgramHome) -> None:
    work = Line("work now", call=("Bash", {"command": "while [ ! -e go ]; do sleep 0.05; done"}))
    with ScriptedModel(ANSWER, work) as model:
        variables = installed(hub, home, model)
        server = {"type": "stdio", "command": str(TIELINE), "args": ["mcp", "--as", "bob", "--no-push"]}
        own = json.loads((home.folder / ".claude.json").read_text(encoding="utf-8"))
        home.write(".claude.json", own | {"mcpServers": {"tieline": server}})
        home.write("project/.claude/settings.json", {"permissions": {"allow": ["Bash", "mcp__tieline"]}})
        with interactive(variables, home) as person:
            prompt(person, model, "work now")
            wait_until(lambda: hub.session_count("bob") > 1, "our tools, beside the hook that waits")
            wait_until(lambda: hub.is_busy("bob"), "the report of a turn")
            (asked,) = hub.send("alice", "@bob", "QUESTION")
            (home.project / "go").touch()
            wait_until(lambda: bodies(hub, "alice") == ["ANSWER to QUESTION"], "the answer")
            wait_until(lambda: hub.states("alice", asked)["bob"] == "acked", "the receipt")
            assert len(shown(model, "QUESTION")) == 1
            wait_until(lambda: not hub.is_busy("bob"), "the end of the turn")


def test_a_message_at_the_end_of_a_turn_begins_another_one(hub: HubProcess, home: ProgramHome) -> None:
    with Interrupted(lambda: hub.send("alice", "@bob", "HELLO")) as model:
        variables = installed(hub, home, model)
        run_once([variables["CLAUDE_PATH"], "-p", "look around"], home, variables)
        assert len(shown(model, "HELLO")) == 1


def test_two_sessions_of_one_member_are_each_shown_a_message_once(hub: HubProcess, home: ProgramHome) -> None:
    with program_home() as other_home, ScriptedModel() as model, ScriptedModel() as other:
        variables, second = installed(hub, home, model), installed(hub, other_home, other)
        with interactive(variables, home) as person, interactive(second, other_home) as neighbour:
            wait_until(lambda: waiters(person) and waiters(neighbour), "both waiting hooks")
            (told,) = hub.send("alice", "@bob", "HELLO")
            wait_until(lambda: hub.states("alice", told)["bob"] == "seen", "the receipt")
            assert evidence(hub, told) == EVIDENCE
            counts = [len(shown(one, "HELLO")) for one in (model, other)]
            # Who looks after the receipt finds nothing unread.
            assert max(counts) == 1, counts


def test_a_killed_waiting_hook_leaves_nothing_and_loses_no_message(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        variables = installed(hub, home, model)
        with interactive(variables, home) as person:
            wait_until(lambda: hub.session_count("bob") == 1, "the waiting hook")
            (waiter,) = [pid for pid in waiters(person) if "python" in command(pid).split(" ")[0]]
            os.kill(waiter, signal.SIGKILL)
            wait_until(lambda: not is_alive(waiter), "its end")
            (told,) = hub.send("alice", "@bob", "HELLO")
            assert shown(model, "HELLO") == []
            # The next turn shows the message, and begins to wait again.
            prompt(person, model, "look around")
            wait_until(lambda: hub.states("alice", told)["bob"] == "seen", "the receipt")
            hub.send("alice", "@bob", "AGAIN")
            wait_until(lambda: shown(model, "AGAIN"), "another turn")
            assert [len(shown(model, body)) for body in ("HELLO", "AGAIN")] == [1, 1]


def test_a_killed_program_leaves_no_process_and_no_record(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        variables = installed(hub, home, model)
        with interactive(variables, home) as person:
            hub.send("alice", "@bob", "HELLO")
            wait_until(lambda: shown(model, "HELLO"), "a turn")
            wait_until(lambda: waiters(person), "a waiting hook")
            started = descendants(person.process.pid)
            os.kill(person.process.pid, signal.SIGKILL)
            assert person.leaves() == -signal.SIGKILL
            wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")
            wait_until(lambda: not records(hub), "the end of the record")

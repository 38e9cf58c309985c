"""Tests of the real Codex with Tieline's hooks and MCP server in its settings, in its one-shot mode.

Nobody is at a terminal to trust the hooks by `/hooks`, so an option of Codex lets it run them.
"""

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.agents.runs import is_alive
from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until
from tests.programs.conversation import (
    ANSWER,
    Interrupted,
    bodies,
    command,
    descendants,
    evidence,
    is_answered,
    run_once,
    shown,
)
from tests.programs.installed import ProgramHome, codex
from tests.programs.model import Line, ScriptedModel
from tests.programs.table import CODEX_HOOKS
from tieline.agents.hook_record import FOLDER
from tieline.agents.run_folder import RUNS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

EVIDENCE = "answer of the model in codex"
TRUSTED = "--dangerously-bypass-hook-trust"
WORK = Line(
    "work now", call=("exec_command", {"cmd": "while [ ! -e go ]; do sleep 0.05; done", "yield_time_ms": 30000})
)


class Codex:
    """Codex for tests, connected as `codex` by `tieline connect`."""

    def __init__(self, hub: HubProcess, home: ProgramHome, model: ScriptedModel) -> None:
        own = codex(home, model)
        done = hub.cli("connect", "codex", "--as", "bob", "--yes", env=own)
        assert done.returncode == 0, done.stdout + done.stderr
        self._home = home
        self._variables = environment(hub.home, own)
        # Without a terminal, Codex waits only a second for its MCP servers, unless they are required.
        required = ("-c", "mcp_servers.tieline.required=true", "-c", "mcp_servers.tieline.startup_timeout_sec=60")
        self._command = [own["CODEX_PATH"], "exec", "--skip-git-repo-check", *required]

    def ask(self, prompt: str, *options: str) -> None:
        """Run Codex once with a prompt and these options."""
        run_once([*self._command, *options, prompt], self._home, self._variables)

    @contextmanager
    def asked(self, prompt: str) -> Iterator["subprocess.Popen[bytes]"]:
        """Start Codex with a prompt. Kill it at the end if it still runs."""
        with subprocess.Popen(
            [*self._command, TRUSTED, prompt],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=self._variables,
            cwd=self._home.project,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.mark.proves(CODEX_HOOKS, idle="at the next prompt", answer="yes", restart="yes", seen=EVIDENCE, once="yes")
def test_a_waiting_message_is_shown_once_also_after_a_restart_of_the_hub(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER, Line("HELLO", say="fine")) as model:
        program = Codex(hub, home, model)
        (asked,) = hub.send("alice", "@bob", "QUESTION")
        program.ask("look around", TRUSTED)
        assert is_answered(hub, asked, "ANSWER to QUESTION")
        hub.kill9()
        hub.start()
        (told,) = hub.send("alice", "@bob", "HELLO")
        program.ask("look again", TRUSTED)
        assert hub.states("alice", told)["bob"] == "seen"
        assert evidence(hub, told) == EVIDENCE
        assert [len(shown(model, body)) for body in ("QUESTION", "HELLO")] == [1, 1]
        assert model.unknown == []


@pytest.mark.proves(CODEX_HOOKS, busy="after its tool", answer="yes", once="yes")
def test_a_busy_agent_is_shown_a_message_after_its_tool(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER, WORK) as model, Codex(hub, home, model).asked("work now") as process:
        wait_until(lambda: model.told("work now"), "a turn")
        wait_until(lambda: hub.is_busy("bob"), "the report of a turn")
        (asked,) = hub.send("alice", "@bob", "QUESTION")
        (home.project / "go").touch()
        assert process.wait(90) == 0
        assert is_answered(hub, asked, "ANSWER to QUESTION")
        (told,) = shown(model, "QUESTION")
        assert "Process exited with code 0" in told.new
        assert not hub.is_busy("bob")


def test_a_message_at_the_end_of_a_turn_begins_another_one(hub: HubProcess, home: ProgramHome) -> None:
    with Interrupted(lambda: hub.send("alice", "@bob", "HELLO")) as model:
        Codex(hub, home, model).ask("look around", TRUSTED)
        assert len(shown(model, "HELLO")) == 1


def test_without_a_transcript_a_message_is_seen_by_the_answer(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        program = Codex(hub, home, model)
        (told,) = hub.send("alice", "@bob", "HELLO")
        program.ask("look around", TRUSTED, "--ephemeral")
        assert len(shown(model, "HELLO")) == 1
        assert hub.states("alice", told)["bob"] == "seen"
        assert evidence(hub, told) == EVIDENCE


def test_without_trust_in_the_hooks_nothing_is_shown_and_nothing_is_lost(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        program = Codex(hub, home, model)
        (told,) = hub.send("alice", "@bob", "HELLO")
        program.ask("look around")
        assert model.told("look around")
        assert shown(model, "HELLO") == []
        assert hub.states("alice", told)["bob"] in ("pending", "offered")


@pytest.mark.parametrize("part", ["program", "server"])
def test_a_killed_part_leaves_nothing_and_loses_no_message(part: str, hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER, WORK) as model:
        program = Codex(hub, home, model)
        with program.asked("work now") as process:
            # Codex itself may leave processes if it is killed while it starts its sandbox.
            wait_until(lambda: any("-e go" in command(pid) for pid in descendants(process.pid)), "its tool")
            wait_until(lambda: any(command(pid).startswith("sleep") for pid in descendants(process.pid)), "its loop")
            started = descendants(process.pid) | {process.pid}
            (server,) = [pid for pid in started if f"{TIELINE} mcp" in command(pid)]
            (asked,) = hub.send("alice", "@bob", "QUESTION")
            os.kill(server if part == "server" else process.pid, signal.SIGKILL)
            wait_until(lambda: not is_alive(server), "the end of our server")
            (home.project / "go").touch()
            process.wait(90)
            wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")
        # The agent could not answer, or was not shown the question. The next session can.
        program.ask("look around", TRUSTED)
        if part == "program":
            assert bodies(hub, "alice") == ["ANSWER to QUESTION"]
        assert hub.states("alice", asked)["bob"] in ("seen", "acked")
        records = hub.home / RUNS / FOLDER
        assert not records.exists() or not list(records.iterdir())

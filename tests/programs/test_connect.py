"""Tests of the real agent programs after `tieline connect`: they get a message and answer it.

After `tieline disconnect`, nothing of Tieline is left in their homes.
"""

import contextlib
import os
import random
import signal
import subprocess
import time
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from tests.agents.runs import is_alive
from tests.cli.hub_process import TIELINE, HubProcess, environment, wait_until
from tests.cli.terminal import Person, at_terminal_of
from tests.programs.conversation import (
    ANSWER,
    LATE_SECONDS,
    bodies,
    command,
    descendants,
    evidence,
    run_once,
    shown,
    with_late_server,
)
from tests.programs.installed import (
    GEMINI,
    ProgramHome,
    claude_code,
    codex,
    executable,
    gemini,
    processes_in,
    program_home,
)
from tests.programs.model import Line, ScriptedModel
from tests.programs.test_gemini import ANSWER as GEMINI_ANSWER
from tieline.agents.hook_record import FOLDER
from tieline.agents.run_folder import RUNS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(180)]

MEMBERS = {"claude-code": "claude", "codex": "codex", "gemini": "gemini"}


class Connected:
    """An agent program with its home for tests, which can be connected to a hub. `before` has the files of the home."""

    def __init__(self, program: str, hub: HubProcess, home: ProgramHome, model: ScriptedModel) -> None:
        self.program = program
        self.member = MEMBERS[program]
        self.home = home
        self._hub = hub
        match program:
            case "claude-code":
                own = claude_code(home, model)
                self._command = [own["CLAUDE_PATH"], "-p"]
            case "codex":
                own = codex(home, model)
                # A person trusts new hooks by /hooks; without a terminal there is this option.
                options = ["--dangerously-bypass-hook-trust", "--skip-git-repo-check"]
                self._command = [own["CODEX_PATH"], "exec", *options]
            case _:
                words, own = gemini(home, model)
                own |= {"GEMINI_PATH": str(executable(GEMINI))}
                self._command = [*words, "-p"]
        self.variables = environment(hub.home, own)
        self.before = files(home.folder)

    def tieline(self, *words: str) -> subprocess.CompletedProcess[str]:
        """Run `tieline` in the environment of the program's user. Return the exit code and output."""
        return self._hub.cli(*words, env=self.variables)

    def connect(self) -> str:
        """Connect the program to the hub by one command. Return the output of the command."""
        done = self.tieline("connect", self.program, "--yes")
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def ask(self, prompt: str) -> None:
        """Run the program once with a prompt. Wait for Tieline's MCP server before the first turn.

        Without a terminal, Codex waits only a second for its MCP servers. So an option says that the server is
        required.
        """
        required = {"required": "true", "startup_timeout_sec": "60"} if self.program == "codex" else {}
        options = [part for key, value in required.items() for part in ("-c", f"mcp_servers.tieline.{key}={value}")]
        self.ask_alone(prompt, *options)

    def ask_alone(self, prompt: str, *options: str) -> None:
        """Run the program once with a prompt and these options. Do not require Tieline's MCP server."""
        run_once([*self._command, *options, prompt], self.home, self.variables)


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of every file in a folder and its subfolders, by relative path."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def left_by_us(names: Iterable[str]) -> list[str]:
    """Return those of `names` that only Tieline gives to files.

    A name with `tieline` is not enough, because Claude Code itself has a log with such a name.
    """
    return [name for name in names if "before-tieline" in name or "new-by-tieline" in name or "tieline-token" in name]


@contextlib.contextmanager
def interactive(connected: Connected) -> Iterator[Person]:
    """Start Claude Code at a terminal. Yield the person at the terminal."""
    path = connected.variables["CLAUDE_PATH"]
    with at_terminal_of(path, env=connected.variables, cwd=connected.home.project) as person:
        person.sees("shortcuts")
        yield person


@pytest.mark.parametrize("program", [pytest.param("claude-code", marks=pytest.mark.first), "codex", "gemini"])
def test_a_connected_program_is_shown_a_message_and_answers_by_our_tool(
    program: str, hub: HubProcess, home: ProgramHome
) -> None:
    with ScriptedModel(GEMINI_ANSWER if program == "gemini" else ANSWER) as model:
        connected = Connected(program, hub, home, model)
        said = connected.connect()
        assert said.count("  proved: ") == 2
        assert "  not proved: " in said
        assert ("and wake it when idle." in said, "; it cannot be woken" in said) == (
            program == "claude-code",
            program != "claude-code",
        )
        assert connected.tieline("send", f"@{connected.member}", "QUESTION", "--as", "alice").returncode == 0
        connected.ask("look around")
        assert bodies(hub, "alice") == ["ANSWER to QUESTION"]
        (asked,) = [item for item in model.asked if "QUESTION\n" in item.new or "QUESTION</" in item.new]
        assert "Your tieline tools answer" in asked.new
        assert model.unknown == []


def test_one_shot_mode_of_claude_code_waits_for_tools_that_come_late(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model:
        connected = Connected("claude-code", hub, home, model)
        connected.connect()
        connected.variables = with_late_server(home, connected.variables, LATE_SECONDS)
        assert connected.tieline("send", "@claude", "QUESTION", "--as", "alice").returncode == 0
        connected.ask("look around")
        assert bodies(hub, "alice") == ["ANSWER to QUESTION"]


@pytest.mark.parametrize("program", list(MEMBERS))
def test_disconnecting_restores_every_byte(program: str, hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        connected = Connected(program, hub, home, model)
        connected.connect()
        assert files(home.folder) != connected.before
        assert connected.tieline("disconnect", program).returncode == 0
        assert files(home.folder) == connected.before


@pytest.mark.parametrize("program", list(MEMBERS))
def test_after_the_program_ran_disconnecting_removes_our_entries_and_keeps_its_own(
    program: str, hub: HubProcess, home: ProgramHome
) -> None:
    with ScriptedModel() as model:
        connected = Connected(program, hub, home, model)
        connected.connect()
        connected.ask("look around")
        assert connected.tieline("disconnect", program).returncode == 0
        after = files(home.folder)
        settings = [".claude.json", ".claude/settings.json", ".codex/config.toml", ".codex/hooks.json"]
        for name in (*settings, ".gemini/settings.json"):
            assert b"tieline" not in after.get(name, b""), name
        assert not left_by_us(after)
        # The program works without us as before.
        connected.ask_alone("look again")
        assert model.told("look again")


def test_two_programs_talk_after_three_commands(hub: HubProcess, home: ProgramHome) -> None:
    ask_codex = Line("please ask codex", call=("send", {"to": "@codex", "body": "QUESTION of claude"}))
    to_claude = Line(ANSWER.when, call=("send", {"to": "@claude", "body": "ANSWER to {body}", "reply_to": "{id}"}))
    with program_home() as other_home, ScriptedModel(ask_codex) as model, ScriptedModel(to_claude) as other:
        claude, second = Connected("claude-code", hub, home, model), Connected("codex", hub, other_home, other)
        claude.connect()
        second.connect()
        assert claude.tieline("send", "@claude", "please ask codex", "--as", "me").returncode == 0
        claude.ask("look around")
        second.ask("look around")
        claude.ask("look again")
        assert len(model.told("ANSWER to QUESTION of claude")) >= 1


def test_an_idle_claude_code_is_woken_and_answers_without_a_dialog(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model:
        connected = Connected("claude-code", hub, home, model)
        connected.connect()
        with interactive(connected):
            wait_until(lambda: hub.session_count("claude") > 1, "our tools, beside the hook that waits")
            for number in (1, 2):
                (asked,) = hub.send("alice", "@claude", f"QUESTION {number}")
                wait_until(lambda: f"ANSWER to QUESTION {number}" in bodies(hub, "alice"), "the answer")  # noqa: B023
                wait_until(lambda: hub.states("alice", asked)["claude"] == "acked", "the receipt")  # noqa: B023
                assert evidence(hub, asked) in ("named by the agent", "answer of the model in claude-code")
                assert len(shown(model, f"QUESTION {number}")) == 1


@pytest.mark.parametrize("part", ["program", "server"])
def test_a_killed_part_leaves_no_process_and_no_file(part: str, hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel(ANSWER) as model:
        connected = Connected("claude-code", hub, home, model)
        connected.connect()
        with interactive(connected) as person:
            wait_until(lambda: hub.session_count("claude") > 1, "our tools, beside the hook that waits")
            hub.send("alice", "@claude", "QUESTION 1")
            wait_until(lambda: bodies(hub, "alice") == ["ANSWER to QUESTION 1"], "an answer")
            started = descendants(person.process.pid) | {person.process.pid}
            if part == "server":
                (server,) = [pid for pid in started if f"{TIELINE} mcp" in command(pid)]
                os.kill(server, signal.SIGKILL)
                wait_until(lambda: not is_alive(server), "its end")
                # The agent still reads its messages.
                hub.send("alice", "@claude", "HELLO")
                wait_until(lambda: shown(model, "HELLO"), "a turn")
            # Until the next turn's hook waits, nobody would see the end of the program.
            wait_until(
                lambda: any("--wait" in command(pid) for pid in descendants(person.process.pid)), "a waiting hook"
            )
            started |= descendants(person.process.pid)
            os.kill(person.process.pid, signal.SIGKILL)
            person.leaves()
            wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")
        records = hub.home / RUNS / FOLDER
        wait_until(lambda: not records.exists() or not list(records.iterdir()), "the end of the record")
        assert connected.tieline("disconnect", "claude-code").returncode == 0
        assert not left_by_us(files(home.folder))


def test_disconnecting_ends_the_server_that_codex_keeps_in_the_background(hub: HubProcess, home: ProgramHome) -> None:
    with ScriptedModel() as model:
        connected = Connected("codex", hub, home, model)
        connected.connect()
        path = connected.variables["CODEX_PATH"]
        # With hooks, Codex asks a person if it may trust them, and starts our tools after that. With the option that
        # trusts all hooks, it has no server in the background.
        (home.folder / ".codex" / "hooks.json").unlink()
        try:
            with at_terminal_of(path, env=connected.variables, cwd=home.project) as person:
                wait_until(lambda: hub.session_count("codex") == 1, "our tools")
                person.process.kill()
                person.leaves()
            (server,) = [pid for pid in processes_in(home.folder) if f"{TIELINE} mcp" in command(pid)]
            assert connected.tieline("disconnect", "codex").returncode == 0
            wait_until(lambda: not is_alive(server), "its end")
            assert hub.session_count("codex") == 0
            assert any("app-server --listen" in command(pid) for pid in processes_in(home.folder))
            done = subprocess.run([path, "app-server", "daemon", "stop"], env=connected.variables, check=False)
            assert done.returncode == 0
        finally:
            for pid in processes_in(home.folder):
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)


def test_connect_that_is_killed_at_any_moment_leaves_whole_files_and_can_be_undone(
    hub: HubProcess, home: ProgramHome
) -> None:
    with ScriptedModel() as model:
        connected = Connected("codex", hub, home, model)
        begun = time.monotonic()
        connected.connect()
        took, after = time.monotonic() - begun, files(home.folder)
        connected.tieline("disconnect", "codex")
        chance = random.Random(7)
        for _ in range(8):
            with hub.cli_running("connect", "codex", "--yes", env=connected.variables) as process:
                # The moment is arbitrary on purpose.
                time.sleep(chance.uniform(0.2, took))
                started = descendants(process.pid) | {process.pid}
                process.kill()
                process.wait()
            wait_until(lambda: not any(map(is_alive, started)), "the end of all processes")  # noqa: B023
            for name, content in files(home.folder).items():
                if "before-tieline" not in name:
                    assert content in (connected.before.get(name), after.get(name)), name
            assert connected.tieline("disconnect", "codex").returncode == 0
            assert files(home.folder) == connected.before
        # The next canary removes what a killed one left at the hub.
        connected.connect()
        assert "connect-canary" not in connected.tieline("members").stdout

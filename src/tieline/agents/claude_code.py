"""Claude Code under `tieline run`: starts the program on this terminal, with the hub's tools, and leaves no files.

Used by: the command line. Uses: the runner and the program. The runner does not change the program's own files. It
configures the program by command line options, which name files in the folder of the run, and by environment variables.

Hooks of this run show messages at turn boundaries, and a waiting hook wakes an idle agent. Messages are also pushed.
The program shows a pushed message at once, as `<channel …>`, but only if it has loaded Tieline's MCP server as a
channel. These are channels of Claude Code, not of the hub, and in many installations they are switched off. The hooks
show every message that no push has shown. The program does not report if it shows pushes. So neither a push nor a tool
call proves that a message was read. The hooks find the proof in the program's transcript.
"""

import asyncio
import errno
import os
import signal
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from tieline.agents import hooks
from tieline.agents.connection import WAIT_MS, WAIT_VARIABLE
from tieline.agents.hook_record import FOLDER_VARIABLE, PUSHES_VARIABLE, READY
from tieline.agents.loopback import ANTHROPIC, OTLP, Loopback
from tieline.agents.program import NotStarted, start_program, version_of
from tieline.agents.run_folder import RunFolder
from tieline.agents.runner import MCP_ARGUMENTS, Run
from tieline.agents.runner_frames import SOCKET_VARIABLE
from tieline.agents.settings import BadSettings

SERVER_NAME = "tieline"

_ONE_SHOT = frozenset({"-p", "--print"})
_SETTINGS = "--settings"
_BASE_URL = "ANTHROPIC_BASE_URL"
_OWN_TELEMETRY = ("CLAUDE_CODE_ENABLE_TELEMETRY", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
"""Environment variables by which the user sends Claude Code's telemetry elsewhere. If one is set, `tieline run` does
not change where the telemetry goes."""


def upstream(environment: Mapping[str, str]) -> str | None:
    """Return the base URL of the Anthropic API from the environment variables; `None` if they name none."""
    return environment.get(_BASE_URL)


def shows_pushes(arguments: Sequence[str]) -> bool:
    """True if Claude Code, started with these arguments, can show pushed messages.

    Claude Code asks its user for permission to show pushed messages. In one-shot mode nobody can answer this question.
    """
    return _ONE_SHOT.isdisjoint(arguments)


def command_of(program: str, arguments: Sequence[str], *, config: Path, settings: Path, push: bool) -> list[str]:
    """Return the command line that starts Claude Code with Tieline's MCP server and settings, and the user's arguments.

    `program` is the path of Claude Code. `config` and `settings` are the paths of the files that Tieline has written.
    With `push`, Claude Code loads the server as one of its channels, so that it can show pushed messages.

    Each flag is written as `flag=value`. Otherwise some flags would also take the following arguments as values.
    """
    ours = [f"--mcp-config={config}", f"{_SETTINGS}={settings}"]
    if push:
        ours.append(f"--dangerously-load-development-channels=server:{SERVER_NAME}")
    return [program, *ours, *arguments]


def without_settings(arguments: Sequence[str]) -> tuple[list[str], str | None]:
    """Return the user's arguments without `--settings`, and the value of `--settings`: a path or JSON.

    Claude Code accepts only one `--settings` option, and Tieline needs this option for its own file. So the caller adds
    the user's settings to that file.
    """
    rest: list[str] = []
    given: str | None = None
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name == _SETTINGS:
            given = value if equals else next(words, "")
        else:
            rest.append(word)
    return rest, given


def config_of(folder: RunFolder) -> bytes:
    """Return the MCP configuration for Claude Code, as JSON. It contains only Tieline's MCP server.

    Only this server gets the path of the runner's socket, not the other programs that the agent runs. With
    `alwaysLoad`, Claude Code waits for the hub's tools in one-shot mode, and a model need not search for them.
    """
    server = {
        "type": "stdio",
        "command": sys.executable,
        "args": MCP_ARGUMENTS,
        "env": {SOCKET_VARIABLE: str(folder.socket)},
        "alwaysLoad": True,
    }
    return msgspec.json.encode({"mcpServers": {SERVER_NAME: server}})


def settings_of(users: str, *, wake: bool, ask: bool) -> bytes:
    """Return the user's settings (`users`, the text of a settings file) with Tieline's hooks added.

    Raises `BadSettings` if the user's settings are not valid. `wake` adds the hook that wakes an idle agent. With
    `ask`, Claude Code asks its user before it uses the hub's tools. The hooks find the name of their member in the
    environment of the run.
    """
    beside = Path(sys.executable).with_name("tieline")
    command = hooks.command_line(hooks.Program.CLAUDE_CODE, str(beside) if beside.exists() else "tieline")
    text = hooks.with_hooks(users, hooks.Program.CLAUDE_CODE, command, wake=wake)
    return (text if ask else hooks.with_permission(text, f"mcp__{SERVER_NAME}")).encode()


def environment_of(given: Mapping[str, str], loopback: Loopback, *, trace: bool) -> dict[str, str]:
    """Return the environment variables for Claude Code: those in `given`, and some more.

    In one-shot mode, Claude Code waits longer for the hub's tools than by default, unless the user has set a time. With
    `trace`, Claude Code's API calls go through the proxy of `loopback`. Without `trace`, Claude Code sends its
    telemetry to `loopback`, unless the user already sends it elsewhere.
    """
    environment = {WAIT_VARIABLE: WAIT_MS, **given}
    if trace:
        environment[_BASE_URL] = loopback.address(ANTHROPIC)
    elif not any(environment.get(name) for name in _OWN_TELEMETRY):
        environment |= {
            "CLAUDE_CODE_ENABLE_TELEMETRY": "1",
            "OTEL_LOGS_EXPORTER": "otlp",
            "OTEL_EXPORTER_OTLP_LOGS_PROTOCOL": "http/json",
            "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT": f"{loopback.address(OTLP)}/v1/logs",
        }
    return environment


async def run_claude_code(run: Run, arguments: Sequence[str], *, tell: Callable[[str], None], ask: bool = False) -> int:
    """Run Claude Code on this terminal until it ends, and return its exit code.

    Raises `NotStarted` if the program is not found or the user's settings are not valid. With `ask`, Claude Code asks
    its user before it uses the hub's tools. `tell` prints a line for the user before
    the start.
    """
    form = hooks.FORMS[hooks.Program.CLAUDE_CODE]
    named = run.environment.get(form.path_variable) or form.executable
    wake = False
    if shows_pushes(arguments):
        # In one-shot mode the program ends after a turn and is never idle.
        version = await asyncio.to_thread(version_of, named, run.environment)
        wake = hooks.can_wake(hooks.Program.CLAUDE_CODE, version)
        way = hooks.way(hooks.Program.CLAUDE_CODE, wake=wake)
        tell(f"{way}; where channels are on, they come at once" if run.push else way)
    arguments, given = without_settings(arguments)
    try:
        content = settings_of(_read(given), wake=wake, ask=ask)
    except (OSError, UnicodeDecodeError, BadSettings) as error:
        raise NotStarted(errno.EINVAL, f"its settings cannot be used: {error}", named) from error
    environment = environment_of(run.environment, run.loopback, trace=run.trace)
    environment[FOLDER_VARIABLE] = str(run.folder.path)
    environment[PUSHES_VARIABLE] = "1" if run.push else ""
    run.runner.on_listed = (run.folder.path / READY).touch
    program = await start_program(
        command_of(
            named,
            arguments,
            config=run.folder.write("mcp.json", config_of(run.folder)),
            settings=run.folder.write("settings.json", content),
            push=run.push,
        ),
        run.folder,
        environment=environment,
        pipes=False,
    )
    run.runner.join()
    ending: set[asyncio.Task[int]] = set()

    def handle(number: signal.Signals) -> None:
        # The terminal sends these signals to the program too, and the program decides what to do.
        if number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0):
            return
        ending.add(asyncio.create_task(program.end()))

    try:
        with run.signals.handled_by(handle):
            return await program.wait()
    finally:
        await program.end()


def _read(settings: str | None) -> str:
    """Return the text of the settings that the user gave as a path or as JSON; empty if the user gave none."""
    if settings is None or settings.lstrip().startswith("{"):
        return settings or ""
    return Path(settings).read_text("utf-8")

"""Claude Code under a runner: started on this terminal with our tools for this run only, and nothing of it left behind.

Above: the command line. Below: the runner and the program. The program's own files are not touched: what it is to know
of us it is told on its command line (a file with one MCP server, in the folder of the run) and in its environment.

It shows what is pushed as `<channel …>` only for servers that it is told to load as channels, which it asks its user
about. Whether a push was shown is known only when the agent acts on it. Where nothing is pushed, because it would not
be shown or in its one-shot mode, hooks for this run bring messages at the boundaries of turns.
"""

import asyncio
import os
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from tieline.agents import hooks
from tieline.agents.loopback import ANTHROPIC, OTLP, Loopback
from tieline.agents.program import start_program
from tieline.agents.run_folder import RunFolder
from tieline.agents.runner import MCP_ARGUMENTS, Run
from tieline.agents.runner_frames import SOCKET_VARIABLE

PROGRAM_VARIABLE = "CLAUDE_PATH"
PROGRAM = "claude"
SERVER_NAME = "tieline"

_ONE_SHOT = frozenset({"-p", "--print"})
_SETTINGS = "--settings"
_BASE_URL = "ANTHROPIC_BASE_URL"
_OWN_TELEMETRY = ("CLAUDE_CODE_ENABLE_TELEMETRY", "OTEL_EXPORTER_OTLP_ENDPOINT", "OTEL_EXPORTER_OTLP_LOGS_ENDPOINT")
"""Who has set one of these reports to somebody else already, and goes on to."""


def upstream(environment: Mapping[str, str]) -> str | None:
    """Where the program's API calls go, if the environment says so."""
    return environment.get(_BASE_URL)


def shows_pushes(arguments: Sequence[str]) -> bool:
    """Whether the program would ask its user about channels: in its one-shot mode nobody is there to answer."""
    return _ONE_SHOT.isdisjoint(arguments)


def command_of(program: str, arguments: Sequence[str], *, config: Path, settings: Path | None) -> list[str]:
    """The program with our server, and with what its user gave it: with hooks if settings are given, else a channel.

    Some of these flags take any number of values, so each has its one value behind a `=`, and swallows nothing.
    """
    ours = [f"--mcp-config={config}"]
    if settings is None:
        ours.append(f"--dangerously-load-development-channels=server:{SERVER_NAME}")
    elif not any(argument.partition("=")[0] == _SETTINGS for argument in arguments):
        # Of two files it takes the last, and a user's own is more than our hooks.
        ours.append(f"{_SETTINGS}={settings}")
    return [program, *ours, *arguments]


def config_of(folder: RunFolder) -> bytes:
    """The file that names our server. Only that server is told the socket, not everything that the agent runs."""
    server = {
        "type": "stdio",
        "command": sys.executable,
        "args": MCP_ARGUMENTS,
        "env": {SOCKET_VARIABLE: str(folder.socket)},
    }
    return msgspec.json.encode({"mcpServers": {SERVER_NAME: server}})


def settings_of() -> bytes:
    """Settings with our hooks. They speak as the run does, by the environment."""
    beside = Path(sys.executable).with_name("tieline")
    command = hooks.command_line(hooks.Program.CLAUDE_CODE, str(beside) if beside.exists() else "tieline")
    return hooks.with_hooks("", hooks.Program.CLAUDE_CODE, command).encode()


def environment_of(given: Mapping[str, str], loopback: Loopback, *, trace: bool) -> dict[str, str]:
    """The program's environment: with `trace` its API calls pass us, and otherwise it reports them by itself."""
    environment = dict(given)
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


async def run_claude_code(run: Run, arguments: Sequence[str]) -> int:
    """Run the program on this terminal until it ends, and give its exit code. Raises `NotStarted`."""
    config = run.folder.write("mcp.json", config_of(run.folder))
    settings = None if run.push else run.folder.write("settings.json", settings_of())
    named = run.environment.get(PROGRAM_VARIABLE) or PROGRAM
    program = await start_program(
        command_of(named, arguments, config=config, settings=settings),
        run.folder,
        environment=environment_of(run.environment, run.loopback, trace=run.trace),
        pipes=False,
    )
    run.runner.join()
    ending: set[asyncio.Task[int]] = set()

    def handle(number: signal.Signals) -> None:
        # A terminal sends these to both of us, and what they mean is for the program to say.
        if number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0):
            return
        ending.add(asyncio.create_task(program.end()))

    try:
        with run.signals.handled_by(handle):
            return await program.wait()
    finally:
        await program.end()

"""Claude Code under a runner: runs on this terminal with our tools for this run only, and leaves nothing behind.

Above: the command line. Below: the runner and the program. The runner does not touch the program's own files. The
runner configures the program by its command line (a file with one MCP server, in the folder of the run) and by its
environment.

The program shows pushed messages as `<channel …>` only for servers that it loads as channels. The program asks its user
before it loads a channel. Only an action of the agent proves that a push was shown. If pushes would not be shown, for
example in one-shot mode, nothing is pushed. Then hooks for this run bring messages at the boundaries of turns.
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
"""If one of these is set, telemetry already goes elsewhere, and the runner leaves it alone."""


def upstream(environment: Mapping[str, str]) -> str | None:
    """Destination of the program's API calls, if the environment names one."""
    return environment.get(_BASE_URL)


def shows_pushes(arguments: Sequence[str]) -> bool:
    """True if the program can ask its user about channels. In one-shot mode nobody is there to answer."""
    return _ONE_SHOT.isdisjoint(arguments)


def command_of(program: str, arguments: Sequence[str], *, config: Path, settings: Path | None) -> list[str]:
    """The command line of the program: our MCP server, hooks if settings are given (else a channel), user's arguments.

    Some of these flags take any number of values. So each flag has its value after `=`, and takes no further argument.
    """
    ours = [f"--mcp-config={config}"]
    if settings is None:
        ours.append(f"--dangerously-load-development-channels=server:{SERVER_NAME}")
    elif not any(argument.partition("=")[0] == _SETTINGS for argument in arguments):
        # Of two settings files the program uses the last. The user's own file is more important than our hooks.
        ours.append(f"{_SETTINGS}={settings}")
    return [program, *ours, *arguments]


def config_of(folder: RunFolder) -> bytes:
    """The MCP configuration. Only our server gets the socket's path, not the other programs that the agent runs."""
    server = {
        "type": "stdio",
        "command": sys.executable,
        "args": MCP_ARGUMENTS,
        "env": {SOCKET_VARIABLE: str(folder.socket)},
    }
    return msgspec.json.encode({"mcpServers": {SERVER_NAME: server}})


def settings_of() -> bytes:
    """Settings with our hooks. The hooks take their member from the environment of the run."""
    beside = Path(sys.executable).with_name("tieline")
    command = hooks.command_line(hooks.Program.CLAUDE_CODE, str(beside) if beside.exists() else "tieline")
    return hooks.with_hooks("", hooks.Program.CLAUDE_CODE, command).encode()


def environment_of(given: Mapping[str, str], loopback: Loopback, *, trace: bool) -> dict[str, str]:
    """The program's environment. With `trace` API calls go through the proxy; else the program sends telemetry."""
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
    """Run the program on this terminal until the program ends, and return its exit code. Raises `NotStarted`."""
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
        # The terminal sends these signals to the program too, and the program decides what to do.
        if number in (signal.SIGINT, signal.SIGQUIT) and os.isatty(0):
            return
        ending.add(asyncio.create_task(program.end()))

    try:
        with run.signals.handled_by(handle):
            return await program.wait()
    finally:
        await program.end()

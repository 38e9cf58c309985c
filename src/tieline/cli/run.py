"""`tieline run`: runs a program in a terminal, sends its messages to the hub, and brings messages to it.

Used by: a person, or a script that starts an agent. Uses: `agents.terminal`, which runs the program, and
`terminal_session`, which talks to the hub; or `runners`, for programs with a better interface. If no hub is reachable,
the command fails before the program starts. A running program continues even if the hub stops. The exit code is that of
the program.
"""

import errno
import os
import sys
from typing import Annotated

import typer

from tieline.cli.extension import offer
from tieline.cli.failure import Exit, Failure
from tieline.cli.inbox import MatchOption
from tieline.cli.mcp import OWN_TOOLS, TOOL_SETS
from tieline.cli.output import complain, neutral_line, warn
from tieline.cli.session import Link, speaker_of, talks

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""The exit codes that shells use for a command that is not found, and for a command that cannot be executed."""

_STDOUT, _STDERR = 1, 2

RUNNERS = ("claude-code", "codex")
_PANEL = "With claude-code or codex"

TraceOption = Annotated[
    bool,
    typer.Option("--trace", help="Record the agent's calls to its model in the activity log.", rich_help_panel=_PANEL),
]
ToolsOption = Annotated[
    str,
    typer.Option(
        "--tools",
        help="Set of tools: the hub's own, or those of another system under their own names.",
        rich_help_panel=_PANEL,
    ),
]
NoPushOption = Annotated[
    bool,
    typer.Option(
        "--no-push", help="Push nothing to Claude Code: only hooks show messages to it.", rich_help_panel=_PANEL
    ),
]
AskOption = Annotated[
    bool,
    typer.Option(
        "--ask", help="Let Claude Code ask you before it uses one of the hub's tools.", rich_help_panel=_PANEL
    ),
]
ApproveOption = Annotated[
    bool,
    typer.Option(
        "--approve",
        help="Approve everything that Codex asks for. A risk: members who can write to it can make it do anything.",
        rich_help_panel=_PANEL,
    ),
]
ResumeOption = Annotated[
    str | None,
    typer.Option(
        "--resume", metavar="THREAD", help="Continue a thread of Codex.", rich_help_panel=_PANEL, show_default=False
    ),
]


@talks
async def run(  # noqa: PLR0913, PLR0917 - one option each for what a person may want
    link: Link,
    command: Annotated[
        list[str],
        typer.Argument(
            metavar="claude-code|codex|[--] CMD…", help="The program and its arguments.", show_default=False
        ),
    ],
    inject: Annotated[
        bool,
        typer.Option(
            "--inject",
            help="Type messages into the program and press Enter. A risk: Enter may also answer a question.",
        ),
    ] = False,
    match: MatchOption = None,
    trace: TraceOption = False,
    tools: ToolsOption = OWN_TOOLS,
    no_push: NoPushOption = False,
    ask: AskOption = False,
    approve: ApproveOption = False,
    resume: ResumeOption = None,
) -> None:
    """Run a program in this terminal, send its messages to the hub, and show it the messages it gets.

    'claude-code' and 'codex' run with the hub's tools and get messages in their own way; see docs/run.md. Every other
    program, and a program of these names after '--', runs as it is:

    To send, the program prints '->relay:NAME <<<' at the start of a line, then the message on lines of its own, the
    last of which ends with '>>>'. Messages for the program are printed on the screen when the program is idle; nothing
    is typed into it unless --inject is given. A message with a scope is shown only if 'watch' would take it here.

    The exit code is the program's; 126 or 127 if it cannot be started; 4 if no hub is reachable at the start.
    """
    if command[0] not in RUNNERS or _is_dashed(command):
        if trace or approve or resume or no_push or ask or tools != OWN_TOOLS:
            raise Failure(Exit.USAGE, f"these options are only for {' and '.join(RUNNERS)}, not after '--'")
        raise typer.Exit(await _run_in_terminal(link, command, inject=inject, match=match))
    from tieline.cli.runners import run_agent

    if inject:
        raise Failure(Exit.USAGE, f"--inject is not for {command[0]}, which gets messages in its own way")
    if command[0] == "codex" and (no_push or ask):
        raise Failure(Exit.USAGE, "--no-push and --ask are for claude-code")
    if command[0] != "codex" and (approve or resume):
        raise Failure(Exit.USAGE, "--approve and --resume are for codex")
    code = await run_agent(
        link,
        command,
        match=match,
        trace=trace,
        tools=tools,
        push=not no_push,
        ask=ask,
        approve=approve,
        resume=resume,
    )
    raise typer.Exit(code)


offer(run, "tools", TOOL_SETS)


def _is_dashed(command: list[str]) -> bool:
    """True if `--` comes before the program on the command line. Then the program runs without the hub's tools."""
    return sys.argv[-len(command) - 1 : -len(command)] == ["--"]


def not_started(error: OSError, program: str) -> int:
    """Print the reason why a program cannot be started, as a shell does. Return the exit code."""
    found = error.errno != errno.ENOENT
    complain(f"{program}: {error.strerror if found else 'command not found'}")
    return _NOT_EXECUTABLE if found else _NOT_FOUND


async def _run_in_terminal(link: Link, command: list[str], *, inject: bool, match: str | None) -> int:
    import asyncio
    import contextlib

    from tieline.agents.terminal import NotStarted, run_in_terminal
    from tieline.cli.terminal_session import FINISH_SECONDS, WINDOW, TerminalSession

    client = await link.open_member(receive=True, window=WINDOW, make=True)
    speaker = speaker_of(client)
    screen = _STDOUT if os.isatty(_STDOUT) else _STDERR
    session = TerminalSession(link, speaker, inject=inject, match=match, on_screen=os.isatty(screen))
    keeping = asyncio.create_task(session.keep(client))
    try:
        code = await run_in_terminal(
            command,
            on_instruction=session.say,
            on_declined=session.decline,
            incoming=session.incoming(),
            status_lines=session.status_lines.lines(),
            inject=inject,
            environment=link.environment(speaker),
            screen=screen,
        )
        if session.held_up:
            warn(f"tieline: the hub is away; waiting up to {FINISH_SECONDS:g} s to send the rest. Ctrl-C stops it.")
        with contextlib.suppress(asyncio.CancelledError):  # by Ctrl-C, which ends the wait and changes no exit code
            await session.finish()
    except NotStarted as error:
        code = not_started(error, command[0])
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
    for line in session.status_lines.rest():
        warn(neutral_line(line))
    return code

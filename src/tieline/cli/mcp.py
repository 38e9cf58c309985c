"""`tieline mcp`: gives an agent's own program the hub's tools, and pushes messages to it.

Used by: the agent's program, which starts this command and speaks MCP through its stdin and stdout. Uses:
`agents.mcp_server`, with a session of the member, or with the runner that started the program. Stdout carries only MCP.
Other output goes to stderr.
"""

import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Annotated, Any

import typer

from tieline.cli.extension import offer
from tieline.cli.failure import Exit, Failure
from tieline.cli.inbox import MatchOption
from tieline.cli.output import neutral_line, warn
from tieline.cli.session import Link, talks
from tieline.protocols import protocols

OWN_TOOLS = "tieline"
"""Name of the set of tools with the hub's own names. It is a value of the option `--tools`."""
TOOL_SETS = (OWN_TOOLS, *(protocol.name for protocol in protocols() if protocol.tools is not None))

_LOOK_SECONDS = 1.0
"""Time between two looks for the file of `--while`. A person may write to the member soon after `disconnect`."""


@talks
async def mcp(
    link: Link,
    tools: Annotated[
        str,
        typer.Option("--tools", help="Set of tools: the hub's own, or those of another system under their own names."),
    ] = OWN_TOOLS,
    no_push: Annotated[
        bool,
        typer.Option(
            "--no-push", help="Do not push messages, for a program that does not show them: the agent takes them."
        ),
    ] = False,
    record: Annotated[
        Path | None,
        typer.Option(
            "--while",
            metavar="FILE",
            help="End when this file is removed. 'tieline connect' names one that 'disconnect' removes.",
            show_default=False,
        ),
    ] = None,
    match: MatchOption = None,
) -> None:
    """Run an MCP server on stdin and stdout, which gives an agent's program the hub's tools.

    The program starts this command; see docs/mcp.md. Messages are pushed as they come, and count as seen when the agent
    calls a tool after that. It reconnects when the hub restarts, and ends when stdin closes. A message with a scope is
    pushed only if 'watch' would take it here.
    """
    import signal

    from tieline.agents.runner_frames import SOCKET_VARIABLE

    # The hub has all state, so no cleanup is needed. A process that reads stdin cannot be interrupted otherwise.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    variables = (SOCKET_VARIABLE, *(protocol.runner_variable for protocol in protocols()))
    runner = next(filter(None, map(os.environ.get, variables)), None)
    if runner:
        await _serve_runner(runner)
    else:
        serving = _serve_hub(link, tools, match, push=not no_push)
        await (serving if record is None else _serve_while(record, serving))


offer(mcp, "tools", TOOL_SETS)


async def _serve_hub(link: Link, tools: str, match: str | None, *, push: bool) -> None:
    from tieline.agents.mcp_server import HubBackend, McpServer
    from tieline.cli.context import Context
    from tieline.cli.reconnection import is_passing, opener
    from tieline.client import Client, HubError
    from tieline.protocols.mcp.agent_session import AgentSession
    from tieline.protocols.mcp.forwarder import WINDOW

    open_session = opener(link.with_speaker(), window=WINDOW, make=True)
    first: Client | None = None
    try:
        first = await open_session()
    except HubError as error:
        # The agent's program may start before the hub.
        if not is_passing(error):
            raise
        _tell(str(error))
    server = McpServer()
    takes = Context(match).takes
    agent_session = AgentSession(open_session, server.notify, tools=tools, push=push, takes=takes, tell=_tell)
    await server.serve(HubBackend(agent_session), lambda: agent_session.keep(first))


async def _serve_while(record: Path, serving: Coroutine[Any, Any, None]) -> None:
    """Serve until the file `record` is removed.

    This is needed for Codex: a background process of Codex keeps the MCP servers of its threads running after Codex
    itself has ended.
    """
    import asyncio

    tasks = [asyncio.ensure_future(serving), asyncio.ensure_future(_removed(record))]
    try:
        done, _ = await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
    for task in done:
        task.result()


async def _removed(record: Path) -> None:
    """Wait until the file `record` is removed. If it does not exist yet, first wait until it exists."""
    import asyncio

    existed = False
    while (exists := record.exists()) or not existed:  # noqa: ASYNC240 - a quick look at a local file
        existed = existed or exists
        await asyncio.sleep(_LOOK_SECONDS)
    _tell(f"ended, because {record} was removed: 'tieline disconnect' ended the connection")


async def _serve_runner(path: str) -> None:
    from tieline.agents.mcp_server import McpServer, RunnerBackend
    from tieline.agents.runner_client import RunnerClient, RunnerGone

    server = McpServer()
    try:
        runner = await RunnerClient.connect(Path(path), server.notify)
    except RunnerGone as error:
        raise Failure(Exit.UNREACHABLE, str(error)) from error
    try:
        await server.serve(RunnerBackend(runner), runner.keep)
    finally:
        runner.close("the agent's program closed it")


def _tell(text: str) -> None:
    warn(neutral_line(f"tieline mcp: {text}"))

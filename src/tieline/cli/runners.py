"""The runners: `tieline run claude-code` and `tieline run codex`.

Used by: `run`. Uses: `agents.claude_code` and `agents.codex_session`, in a run that `agents.runner` prepares. This
module adds only the parts that come from the command line: the hub, the member, and the place to print.
"""

import os
from collections.abc import Callable

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, warn
from tieline.cli.run import not_started
from tieline.cli.session import Link, speaker_of

_PROXY_VARIABLES = ("HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy")


async def run_agent(  # noqa: PLR0913 - one for each option of the command
    link: Link,
    command: list[str],
    *,
    match: str | None,
    trace: bool,
    tools: str,
    push: bool,
    ask: bool,
    approve: bool,
    resume: str | None,
) -> int:
    """Run Claude Code or Codex with the hub's tools, until it ends. Return its exit code.

    `command` is the program's name and its arguments. The other parameters are the options of `tieline run`.
    """
    from tieline.agents import claude_code, codex_session
    from tieline.agents.loopback import ANTHROPIC, OPENAI, UPSTREAMS
    from tieline.agents.program import NotStarted
    from tieline.agents.runner import prepared_run
    from tieline.cli.context import Context
    from tieline.cli.reconnection import opener
    from tieline.protocols.mcp.forwarder import WINDOW

    name, *arguments = command
    if trace and (proxy := next((one for one in _PROXY_VARIABLES if os.environ.get(one)), None)):
        raise Failure(Exit.USAGE, f"--trace connects to the API directly, but {proxy} is set")
    speaking = link.with_speaker()
    open_session = opener(speaking, window=WINDOW, make=True)
    client = await open_session()
    environment = speaking.environment(speaker_of(client))
    named = {ANTHROPIC: claude_code.upstream(environment), OPENAI: codex_session.upstream(environment)}
    upstreams = {provider: named[provider] or base for provider, base in UPSTREAMS.items()}
    # Lines are held, because they would overwrite a program that uses the whole screen.
    status_lines = _StatusLines(held=name == "claude-code" and os.isatty(1))
    try:
        async with prepared_run(
            link.folder,
            open_session,
            client,
            environment=environment,
            upstreams=upstreams if trace else None,
            tools=tools,
            push=push and (name == "codex" or claude_code.shows_pushes(arguments)),
            hooked=name == "claude-code",
            takes=Context(match).takes,
            tell=status_lines.add,
        ) as run:
            try:
                if name == "codex":
                    return await codex_session.run_codex(run, arguments, say=_say, approve=approve, resume=resume)
                return await claude_code.run_claude_code(run, arguments, tell=_warn, ask=ask)
            except NotStarted as error:
                return not_started(error, str(error.filename))
    finally:
        status_lines.release()


class _StatusLines:
    """Status lines for the user: printed at once, or stored until the agent's program has left the screen."""

    def __init__(self, *, held: bool) -> None:
        self._write: Callable[[str], None] | None = None if held else _warn
        self._held: list[str] = []

    def add(self, text: str) -> None:
        """Print a status line, or store it while the agent's program uses the screen."""
        if self._write is not None:
            self._write(text)
        elif len(self._held) < _LINES_MAX:
            self._held.append(text)

    def release(self) -> None:
        """Print the stored lines."""
        for line in self._held:
            _warn(line)
        self._held.clear()


_LINES_MAX = 50
"""Maximum number of status lines that are stored. Later lines are dropped, because the first ones are the most
useful."""


def _warn(text: str) -> None:
    warn(neutral_line(f"tieline: {text}"))


def _say(text: str) -> None:
    from tieline.contract.text import neutral

    print(neutral(text), flush=True)

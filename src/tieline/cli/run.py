"""`tieline run`: a program in a terminal, whose words go to the hub and to which messages are brought.

Above: a person, or whoever starts an agent. Below: `agents.terminal`, which has the program, and `correspondence`,
which has the hub. A hub that is not there is said before the program starts; from then on the program goes on whatever
the hub does, and its exit code is ours.
"""

import errno
import os
from typing import Annotated

import typer

from tieline.cli.inbox import MatchOption
from tieline.cli.output import complain, neutral_line, warn
from tieline.cli.session import Link, speaker_of, talks

_NOT_FOUND, _NOT_EXECUTABLE = 127, 126
"""The exit codes of shells for a command that cannot be started."""

_STDOUT, _STDERR = 1, 2


@talks
async def run(
    link: Link,
    command: Annotated[
        list[str], typer.Argument(metavar="[--] CMD…", help="The program and its arguments.", show_default=False)
    ],
    inject: Annotated[
        bool,
        typer.Option(
            "--inject",
            help="Type messages into the program and press Enter. A risk: Enter may also approve what it asks.",
        ),
    ] = False,
    match: MatchOption = None,
) -> None:
    """Run a program in this terminal; send what it says, and show what comes for it.

    A program sends by printing, at the start of a line, '->relay:NAME <<<', then the message on lines of its own, the
    last of which ends with '>>>'. Messages that come are printed on the screen when the program is idle; its input
    gets nothing unless --inject is given. Those with a scope are shown where 'watch' would take them.

    The exit code is the program's; 126 or 127 if it cannot be started, 4 if no hub is reachable before.
    """
    import asyncio
    import contextlib

    from tieline.agents.terminal import NotStarted, run_in_terminal
    from tieline.cli.correspondence import FINISH_SECONDS, WINDOW, Correspondence

    client = await link.open_member(receive=True, window=WINDOW)
    speaker = speaker_of(client)
    screen = _STDOUT if os.isatty(_STDOUT) else _STDERR
    talk = Correspondence(link, speaker, inject=inject, match=match, on_screen=os.isatty(screen))
    keeping = asyncio.create_task(talk.keep(client))
    try:
        code = await run_in_terminal(
            command,
            on_instruction=talk.say,
            on_declined=talk.decline,
            incoming=talk.incoming(),
            notices=talk.notices.lines(),
            inject=inject,
            environment=link.environment(speaker),
            screen=screen,
        )
        if talk.held_up:
            warn(f"tieline: the hub is away; waiting up to {FINISH_SECONDS:g} s to send what was said. Ctrl-C leaves.")
        with contextlib.suppress(asyncio.CancelledError):  # by Ctrl-C, which ends the wait and changes no exit code
            await talk.finish()
    except NotStarted as error:
        found = error.errno != errno.ENOENT
        complain(f"{command[0]}: {error.strerror if found else 'command not found'}")
        code = _NOT_EXECUTABLE if found else _NOT_FOUND
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping
    for line in talk.notices.rest():
        warn(neutral_line(line))
    raise typer.Exit(code)

"""`tieline stop`: ends the running hub of a home cleanly, and waits until its home is free.

Used by: a person or a script. Uses: the hub's `run.json`, and SIGTERM.
"""

import contextlib
import os
import signal
import socket
import time
from pathlib import Path
from typing import Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.output import neutral_line, say
from tieline.cli.session import HomeOption, ended_by

_POLL_SECONDS = 0.05  # most hubs stop within two of these
_ANSWER_SECONDS = 2.0  # a hub that works answers in milliseconds


def stop(
    home: HomeOption = None,
    timeout: Annotated[float, typer.Option(metavar="SECONDS", min=0, help="Longest time to wait for the end.")] = 60.0,
) -> None:
    """Stop the hub of this machine. Everything it accepted is kept. Exit code 0 also if no hub runs."""
    from tieline.wire.home import find_home

    ended_by(lambda: _stop(find_home(home), timeout))


def _stop(home: Path, timeout: float) -> None:
    from tieline.server.home import is_free
    from tieline.wire.home import read_running

    running = read_running(home)
    # After a crash, another program may have the process id of the hub. Only the hub answers at its socket.
    # One of several hubs has no socket while nobody leads.
    answers = running is not None and (_answers(running.hub_socket) or (running.role and not is_free(home)))
    if running is None or not answers:
        say(neutral_line(f"No hub is running in {home}."))
        return
    try:
        os.kill(running.pid, signal.SIGTERM)
    except PermissionError as error:
        hint = "stop it as the user that started it"
        raise Failure(Exit.FAILED, f"process {running.pid} belongs to another user", hint) from error
    deadline = time.monotonic() + timeout
    while not is_free(home):
        if time.monotonic() >= deadline:
            hint = f"'tieline logs' may say why; 'kill -9 {running.pid}' ends it, and loses nothing that it accepted"
            raise Failure(Exit.TIMED_OUT, f"the hub still runs as process {running.pid}", hint)
        time.sleep(_POLL_SECONDS)
    say("The hub has stopped; everything it accepted is kept.")


def _answers(path: str) -> bool:
    with contextlib.closing(socket.socket(socket.AF_UNIX)) as connection:
        connection.settimeout(_ANSWER_SECONDS)
        try:
            connection.connect(path)
        except TimeoutError:
            # Something listens there, and is too busy to answer.
            return True
        except OSError:
            return False
    return True

"""`tieline peerbus stdio`: the peerbus protocol over standard input and output, for programs that use a pipe.

Used by: such a program, or a person with a terminal. Uses: the hub's Unix socket for peerbus. This module only passes
bytes on, and does not decode the frames.
"""

import contextlib
import os
import socket
import sys
import threading
from pathlib import Path
from typing import Annotated

import typer

from tieline.cli.failure import Exit, Failure
from tieline.cli.session import ended_by
from tieline.protocols.peerbus.commands.retoken import retoken

peerbus_app = typer.Typer(help="Use peerbus through a pipe, and manage its names.", no_args_is_help=True)

_CHUNK_BYTES = 64 * 1024  # as much as a pipe holds


@peerbus_app.callback()
def peerbus() -> None:
    """Use peerbus through a pipe, and manage its names."""


peerbus_app.command("retoken")(retoken)


@peerbus_app.command("stdio")
def stdio(
    home: Annotated[
        Path | None,
        typer.Option(
            "--home", metavar="DIR", help="Home folder of the hub. Default: TIELINE_HOME.", show_default=False
        ),
    ] = None,
) -> None:
    """Pass peerbus frames, one JSON object per line, between stdin, stdout and the hub.

    The first line must be a register frame. Exit codes: 0 if stdin or the connection ended, 3 if the hub closed the
    connection without an answer, 4 if no hub runs.
    """
    ended_by(lambda: _stdio(home))


def _stdio(home: Path | None) -> None:
    with _connected(home) as connection:
        # The thread is not joined: a read from a terminal cannot be cancelled.
        threading.Thread(target=_send, args=(connection,), daemon=True).start()
        answered = False
        with contextlib.suppress(BrokenPipeError, ConnectionError):
            while chunk := connection.recv(_CHUNK_BYTES):
                answered = True
                sys.stdout.buffer.write(chunk)
                sys.stdout.buffer.flush()
    if not answered:
        hint = "the first line must be a register with a name, and a token of this hub that the name belongs to"
        raise Failure(Exit.REFUSED, "the hub closed the connection without an answer", hint)


def _connected(home: Path | None) -> socket.socket:
    from tieline.wire.home import find_home, read_running

    folder = find_home(home)
    running = read_running(folder)
    if running is None:
        hint = f"start one with 'tieline serve --home {folder}'"
        raise Failure(Exit.UNREACHABLE, f"no hub is running in {folder}", hint)
    path = running.places.get("peerbus_socket")
    if path is None:
        raise Failure(Exit.UNREACHABLE, f"the hub in {folder} does not speak peerbus", "the hub was started without it")
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.connect(path)
    except OSError as error:
        connection.close()
        message = f"the hub in {folder} cannot be reached: {error.strerror or error}"
        raise Failure(Exit.UNREACHABLE, message) from error
    return connection


def _send(connection: socket.socket) -> None:
    with contextlib.suppress(OSError):
        while chunk := os.read(sys.stdin.fileno(), _CHUNK_BYTES):
            connection.sendall(chunk)
        connection.shutdown(socket.SHUT_WR)

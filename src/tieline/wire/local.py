"""Local addresses: listens at the path of a Unix socket, or at the name of a Windows pipe.

Used by: protocols whose specification allows both. Uses: `unix`, or the event loop's own pipes. Only this module
chooses between a socket and a pipe. Its callers do not know which one was chosen.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tieline.wire import unix

PIPE_PREFIX = "\\\\.\\pipe\\"


class PipesNotOffered(OSError):
    """Raised if the address is a named pipe, and this system has no named pipes."""

    hint = "name the path of a Unix socket"


class Listener(Protocol):
    """Interface of a server that listens at a local address: a Unix socket or a Windows pipe."""

    def close(self) -> None:
        """Stop listening; accepted connections stay open."""


def pipe_name(address: Path) -> str | None:
    """Return the name of the pipe in an address, or `None` if the address is the path of a socket."""
    # On other systems than Windows, an absolute path has a folder before the prefix.
    _, prefix, name = os.fspath(address).rpartition(PIPE_PREFIX)
    return prefix + name if prefix and name else None


async def listen(address: Path, factory: Callable[[], asyncio.BaseProtocol], *, mode: int | None = None) -> Listener:
    """Listen at an address, and return the listener. `factory` makes the asyncio protocol of each connection.

    `mode` is the permission bits of the socket file. A pipe has the default rights of Windows.

    Raises `PipesNotOffered` for a pipe on a system without pipes, or another `OSError` if it cannot listen.
    """
    pipe = pipe_name(address)
    if pipe is None:
        return await unix.listen(address, factory, mode=mode)
    serve = getattr(asyncio.get_running_loop(), "start_serving_pipe", None)
    if serve is None:
        raise PipesNotOffered(f"{pipe} is a named pipe, which only Windows has: give the path of a Unix socket")
    (listener,) = await serve(factory, pipe)
    served: Listener = listener
    return served


def same_user(transport: asyncio.BaseTransport) -> bool:
    """Return true if the process at the other end of a connection belongs to the user who runs the hub.

    Also return true if the system does not report the user.
    """
    uid = unix.peer_uid(transport)
    return uid is None or uid == os.geteuid()

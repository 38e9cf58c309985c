"""Local addresses: the path of a Unix socket or, where there are none, the name of a Windows pipe.

Above: protocols whose specification names both. Below: `unix`, or the event loop's own pipes. It is the one place that
chooses between the two; whoever listens does not know which it got.
"""

import asyncio
import os
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from tieline.wire import unix

PIPE_PREFIX = "\\\\.\\pipe\\"


class PipesNotOffered(OSError):
    """The address is a named pipe, and this system has none."""

    hint = "name the path of a Unix socket"


class Listener(Protocol):
    """What listens at a local address."""

    def close(self) -> None:
        """Stop listening; accepted connections stay open."""


def pipe_name(address: Path) -> str | None:
    """The pipe that an address names, or `None` for a path."""
    # Elsewhere than on Windows a path that was made absolute has a folder before the prefix.
    _, prefix, name = os.fspath(address).rpartition(PIPE_PREFIX)
    return prefix + name if prefix and name else None


async def listen(address: Path, factory: Callable[[], asyncio.BaseProtocol], *, mode: int | None = None) -> Listener:
    """Listen at an address. `mode` is for socket files: a pipe has the rights that Windows gives a new one.

    Raises `PipesNotOffered`, or what `unix.listen` raises.
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
    """Whether the process at the other end is the hub's own user's, as far as the system can tell."""
    uid = unix.peer_uid(transport)
    return uid is None or uid == os.geteuid()

"""Unix sockets: listens at a path, even if a dead process left a socket there, and finds the user id of a client.

Used by: every protocol with a socket file. Uses: the operating system. This module does not know what is sent on a
socket.

**A socket appears in one step.** `listen` binds to a short temporary name in the same folder, sets the permissions,
starts listening, and only then renames the socket to its path. So a client that sees the path can connect to it, the
permissions are never wider than requested, and the rename replaces the socket of a dead process in one step. A change
of the umask during `bind` would also set the permissions. But the umask applies to the whole process, and other threads
of the hub create files at the same time.

**Both event loops behave the same.** uvloop and asyncio handle paths differently (uvloop removes a stale socket by
itself, and newer asyncio removes the file on close). Here the event loop gets a socket that is already bound, under a
temporary name that no longer exists. So the event loop does not touch the path. `UnixServer.close` removes the file,
unless another process has replaced it.
"""

import asyncio
import errno
import os
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Protocol

# sockaddr_un has room for 108 bytes on Linux and 104 on macOS, the last of them zero.
PATH_BYTES_MAX = 107 if sys.platform == "linux" else 103

# When a hub restarts, all its members reconnect at once. The kernel limits this value to net.core.somaxconn.
BACKLOG = 1024

# Timeout of the check whether a process listens at a socket file.
STALE_CHECK_SECONDS = 2.0

# Pause between two checks. The check repeats only while the listener's queue is full.
_STALE_CHECK_PAUSE_SECONDS = 0.02

# Most temporary names to try. A name is in use only while another process is binding, or after such a process crashed.
_TEMPORARY_NAMES = 1000

# Turns of the event loop from the kernel's queue to `connection_made`: notice, accept, make the transport, call. One
# more turn is spare.
_ACCEPT_TURNS = 5

# macOS and BSD: getsockopt(SOL_LOCAL, LOCAL_PEERCRED) fills a struct xucred, in which the uid follows the version.
_SOL_LOCAL = 0
_LOCAL_PEERCRED = 1
_XUCRED_BYTES = 76


class SocketInUse(OSError):
    """Raised if another process listens at the path."""


class SocketCheckTimeout(TimeoutError):
    """Raised if a process listens at the path, but neither accepts nor refuses connections."""


class SocketPathTooLong(OSError):
    """Raised if the path is too long for a Unix socket address."""


class Listening(Protocol):
    """Interface of a server that accepts connections from a listening socket. asyncio's servers have these methods."""

    def close(self) -> None:
        """Stop listening."""

    def is_serving(self) -> bool:
        """Return true if new connections are accepted."""

    async def wait_closed(self) -> None:
        """Wait until the server is closed."""


class UnixServer:
    """Server on a Unix socket. `close` removes the socket file, but leaves accepted connections open."""

    def __init__(self, server: Listening, path: Path, identity: tuple[int, int]) -> None:
        self.path = path
        self._server = server
        # Device and inode of the socket file: `close` must not remove a file that another process put in its place.
        self._identity = identity

    def close(self) -> None:
        """Stop listening and remove the socket file. A second call does nothing."""
        self._hide()
        self._server.close()

    async def retire(self) -> None:
        """Accept the connections that are already in the kernel's queue, and then stop listening.

        A client counts as connected as soon as the kernel has queued its connection. The event loop calls
        `connection_made` some turns later. If the server closed between these two moments, asyncio would forget the
        connection without closing it, and the client would wait for ever.
        """
        self._hide()
        for _ in range(_ACCEPT_TURNS):
            await asyncio.sleep(0)
        self._server.close()

    def _hide(self) -> None:
        # While the socket is open, its inode is not reused. So the same identity means the same socket.
        if self._server.is_serving() and _identity(self.path) == self._identity:
            self.path.unlink(missing_ok=True)

    async def wait_closed(self) -> None:
        """Wait until the listener is closed."""
        await self._server.wait_closed()

    def is_serving(self) -> bool:
        """Return true if new connections are accepted."""
        return self._server.is_serving()


async def listen(
    path: Path, factory: Callable[[], asyncio.BaseProtocol], *, mode: int | None = None, backlog: int = BACKLOG
) -> UnixServer:
    """Listen at `path`, and return the server. `factory` makes the asyncio protocol of each connection.

    Makes missing folders, and replaces a plain file or the socket of a dead process. `mode` is the permission bits of
    the socket file; with None, the umask decides. `backlog` is the length of the kernel's queue. Raises the same errors
    as `listen_with`, such as `SocketInUse`.
    """

    async def serve(sock: socket.socket) -> Listening:
        return await asyncio.get_running_loop().create_unix_server(factory, sock=sock, backlog=backlog)

    return await listen_with(path, serve, mode=mode, backlog=backlog)


async def listen_with(
    path: Path,
    serve: Callable[[socket.socket], Awaitable[Listening]],
    *,
    mode: int | None = None,
    backlog: int = BACKLOG,
) -> UnixServer:
    """Listen at `path`, and return the server. `serve` makes asyncio's server of the listening socket.

    Makes missing folders, and replaces a plain file or the socket of a dead process. `mode` is the permission bits of
    the socket file; with None, the umask decides. `backlog` is the length of the kernel's queue. Raises `SocketInUse`,
    `SocketCheckTimeout` or `SocketPathTooLong`, each with a sentence for a person, or the `OSError` of the system.
    """
    check_path(path)
    await _refuse_live(path)
    try:
        sock, identity = _bind(path, mode, backlog)
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        sock, identity = _bind(path, mode, backlog)
    try:
        server = await serve(sock)
    except BaseException:
        _discard(sock, path)
        raise
    return UnixServer(server, path, identity)


async def connect(path: Path, factory: Callable[[], asyncio.BaseProtocol]) -> None:
    """Connect to the process that listens at `path`. `factory` makes the asyncio protocol of the connection."""
    check_path(path)
    await asyncio.get_running_loop().create_unix_connection(factory, os.fspath(path))


def check_path(path: str | Path) -> None:
    """Raise `SocketPathTooLong` if `path` is too long for the address of a Unix socket.

    Call this also before you connect: an event loop may cut off the end of a longer path and connect to another socket.
    """
    size = len(os.fsencode(path))
    if size > PATH_BYTES_MAX:
        raise SocketPathTooLong(
            f"Socket path too long: {path} has {size} bytes, and a Unix address holds {PATH_BYTES_MAX}; "
            "use a shorter folder or name"
        )


def peer_uid(transport: asyncio.BaseTransport) -> int | None:
    """Return the user id of the process at the other end of a Unix socket, or None if the system does not report it."""
    sock = transport.get_extra_info("socket")
    return None if sock is None else socket_uid(sock)


def socket_uid(sock: socket.socket) -> int | None:
    """Return the user id of the process at the other end of a Unix socket.

    Return None if the socket is no Unix socket, or if the system does not report the id.
    """
    if sock.family != socket.AF_UNIX:
        return None
    try:
        if hasattr(socket, "SO_PEERCRED"):
            _pid, uid, _gid = struct.unpack("iII", sock.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        else:
            _version, uid = struct.unpack_from("II", sock.getsockopt(_SOL_LOCAL, _LOCAL_PEERCRED, _XUCRED_BYTES))
    except (OSError, struct.error):
        return None
    return int(uid)


async def _refuse_live(path: Path) -> None:
    """Raise an error if a process listens at `path`. A plain file, or the socket of a dead process, causes no error."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + STALE_CHECK_SECONDS
    while _identity(path) is not None:
        match _connect_error(path):
            case 0:
                raise SocketInUse(f"Socket already in use: {path}")
            case errno.ENOENT | errno.ECONNREFUSED | errno.ENOTSOCK:
                return
            case errno.EAGAIN | errno.EINPROGRESS:
                # The listener's queue is full: the process hangs, or is about to accept.
                if loop.time() >= deadline:
                    raise SocketCheckTimeout(f"Timeout checking stale socket: {path}")
                await asyncio.sleep(_STALE_CHECK_PAUSE_SECONDS)
            case code:
                raise OSError(code, os.strerror(code), str(path))


def _connect_error(path: Path) -> int:
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as sock:
        sock.setblocking(False)
        return sock.connect_ex(os.fspath(path))


def _bind(path: Path, mode: int | None, backlog: int) -> tuple[socket.socket, tuple[int, int]]:
    """Bind a socket to a temporary name, set its permissions, listen, and rename it to `path`.

    Return the socket, and the device and inode of its file. This function never awaits, so no other call of `listen`
    can run in between.
    """
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    temporary: str | None = None
    try:
        sock.setblocking(False)
        temporary = _bind_temporary(sock, os.fspath(path.parent))
        if mode is not None:
            # No client can connect yet: the kernel refuses every connection until `listen`.
            os.chmod(temporary, mode)  # noqa: PTH101 - see `_bind_temporary`
        sock.listen(backlog)
        identity = _identity(temporary)
        assert identity is not None, "the socket was bound to this name a moment ago"
        os.rename(temporary, path)  # noqa: PTH104 - see `_bind_temporary`
    except BaseException:
        _discard(sock, temporary)
        raise
    return sock, identity


def _bind_temporary(sock: socket.socket, folder: str) -> str:
    """Bind the socket to a free temporary name in the folder, and return the path of the socket file.

    Paths are text here: with thousands of sockets, `Path` would take a third of the time.
    """
    for number in range(_TEMPORARY_NAMES):
        # As short as possible, so that it fits wherever the real name fits, except for names of one letter.
        temporary = f"{folder}/.{number}"
        check_path(temporary)
        try:
            sock.bind(temporary)
        except OSError as error:
            if error.errno != errno.EADDRINUSE:
                raise
        else:
            return temporary
    raise FileExistsError(errno.EEXIST, f"{_TEMPORARY_NAMES} leftover socket names; remove them", f"{folder}/.0")


def _discard(sock: socket.socket, path: str | Path | None) -> None:
    sock.close()
    if path is not None:
        Path(path).unlink(missing_ok=True)


def _identity(path: str | Path) -> tuple[int, int] | None:
    try:
        status = os.lstat(path)
    except FileNotFoundError:
        return None
    return status.st_dev, status.st_ino

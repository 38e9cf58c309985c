"""The folder of a run: the files that one run of an agent's program needs on disk, removed after the run.

Used by: the runners. Uses: the file system. The folder is in the hub's home, and only its user can read it. The folder
holds the runner's socket and the configuration for the program. The runner removes the folder at the end of the run.
If the runner was killed, the guard removes the folder. If both were killed (a power failure), the next run removes the
folder. A process that uses a folder holds a lock on the folder. The system releases the lock when the last such process
ends.
"""

import contextlib
import errno
import fcntl
import os
import re
import secrets
import shutil
import stat
import tempfile
from collections.abc import Iterator
from pathlib import Path

from tieline.wire.unix import SocketPathTooLong, check_path

RUNS = "run"
"""Name of the folder, in the hub's home, that holds the folders of all runs (`tieline run`)."""

SOCKET = "s"
"""Name of the runner's socket in the folder of a run. It is short, because the path of a Unix socket must be short."""

_NAME = re.compile(r"[0-9a-f]{8}")
"""Form of the names of run folders. A folder with another name is never removed."""


class RunFolder:
    """The folder of one run (`tieline run`), with the runner's socket and the configuration for the agent's program."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock
        """Descriptor of the lock on the folder. A process that inherits the descriptor holds the lock too."""

    @property
    def socket(self) -> Path:
        """Path of the socket by which Tieline's MCP server reaches the runner."""
        return self.path / SOCKET

    def write(self, name: str, content: bytes) -> Path:
        """Write a file into the folder, which only its owner can read. Return the path of the file."""
        path = self.path / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return path

    def remove(self) -> None:
        """Remove the folder of the run with its content. A second call has no effect."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


@contextlib.contextmanager
def run_folder(home: Path) -> Iterator[RunFolder]:
    """Yield a new run folder in the hub's folder `home`, and remove it at the end of the `with` block.

    First remove the folders that killed runs have left.
    """
    runs = _runs_of(home)
    runs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs.mkdir(mode=0o700, exist_ok=True)
    found = runs.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        # In a folder for all users, another user may have made `runs` first, as a link to files of this user.
        raise PermissionError(errno.EPERM, "it is not a folder of this user", str(runs))
    # The lock keeps other runs from removing the new folder before it is locked itself.
    with _locked(runs):
        _sweep(runs)
        path = runs / _new_name()
        path.mkdir(mode=0o700)
        lock = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        fcntl.flock(lock, fcntl.LOCK_EX)
    folder = RunFolder(path, lock)
    try:
        yield folder
    finally:
        folder.remove()


def _new_name() -> str:
    return secrets.token_hex(4)


def _runs_of(home: Path) -> Path:
    """Return the folder that holds all run folders.

    It is in the hub's folder `home`, or in the temporary folder if a socket's path in `home` would be too long.
    """
    runs = home / RUNS
    try:
        check_path(runs / _new_name() / SOCKET)
    except SocketPathTooLong:
        return Path(tempfile.gettempdir()) / f"tieline-run-{os.getuid()}"
    return runs


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _sweep(runs: Path) -> None:
    """Remove the run folders that no process has locked."""
    for path in runs.iterdir():
        if not _NAME.fullmatch(path.name):
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # Not a folder, or removed in the meantime.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)

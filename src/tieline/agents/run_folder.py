"""The folder of a run: what one run needs on disk, and nothing of it afterwards.

Above: the runners. Below: the file system. It is made under the home, for its user alone, and holds the runner's socket
and the configuration that the program is given. It is removed at the end of the run; by the guard, if the runner was
killed; and by the next run, if both were (a machine that lost its power). Whether a folder is still used is told by a
lock on it, which the system takes away with the last process that has it.
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
"""The folder of all runs in a home."""

SOCKET = "s"
"""Short, because a Unix address is."""

_NAME = re.compile(r"[0-9a-f]{8}")
"""Of a run's folder: nothing else is ever removed."""


class RunFolder:
    """The folder of one run."""

    def __init__(self, path: Path, lock: int) -> None:
        self.path = path
        self.lock = lock
        """A descriptor that keeps the folder; whoever inherits it keeps it too."""

    @property
    def socket(self) -> Path:
        """Where the runner listens."""
        return self.path / SOCKET

    def write(self, name: str, content: bytes) -> Path:
        """Write a file that only its owner can read."""
        path = self.path / name
        with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            file.write(content)
        return path

    def remove(self) -> None:
        """Remove it with all that is in it. A second time does nothing."""
        shutil.rmtree(self.path, ignore_errors=True)
        if self.lock >= 0:
            os.close(self.lock)
            self.lock = -1


@contextlib.contextmanager
def run_folder(home: Path) -> Iterator[RunFolder]:
    """A new folder for as long as it is needed; those that killed runs left behind are removed first."""
    runs = _runs_of(home)
    runs.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    runs.mkdir(mode=0o700, exist_ok=True)
    found = runs.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        # In a folder for all users somebody else may have been there first, with a link to what is ours.
        raise PermissionError(errno.EPERM, "it is not a folder of this user", str(runs))
    # So that nobody takes a folder for left behind between its making and its locking.
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
    """Under the home, unless a socket there would have too long a path."""
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
    """Remove the folders that nobody keeps."""
    for path in runs.iterdir():
        if not _NAME.fullmatch(path.name):
            continue
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        except OSError:
            # No folder, or gone by now.
            continue
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            continue
        else:
            shutil.rmtree(path, ignore_errors=True)
        finally:
            os.close(descriptor)

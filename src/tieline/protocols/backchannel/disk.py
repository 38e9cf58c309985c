"""The disk: makes private folders and files, syncs them so that they survive a power failure, and locks files.

Used by: the spool. Uses: the operating system. A rename is durable once its folder is synced. After a power failure,
the renamed file is complete only if the file was synced before the rename.
"""

import contextlib
import fcntl
import os
import stat
import time
from collections.abc import Iterator
from pathlib import Path

FOLDER_MODE = 0o700
FILE_MODE = 0o600

_LOCK_SECONDS_MAX = 10.0
"""Timeout for a lock. A process holds a lock only while it writes a small file, which takes much less time."""
_LOCK_PAUSE_SECONDS = 0.005  # locks are held for about as long


class LockBusy(Exception):
    """Exception: another process holds a lock file and does not release it in time."""


def make_folder(path: Path) -> None:
    """Make a folder and its parents, private to the owner. The folder survives a power failure."""
    if path.is_dir():
        return
    make_folder(path.parent)
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=FOLDER_MODE)
    sync_folder(path.parent)


def sync_folder(path: Path) -> None:
    """Sync a folder to disk, so that new and changed file names in it survive a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def create(path: Path, content: bytes) -> int:
    """Write a file, and replace any old content. Return the file's open descriptor.

    The caller passes the descriptor to `sync`, or closes it.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, FILE_MODE)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(descriptor, left) :]
    except BaseException:
        os.close(descriptor)
        raise
    return descriptor


def sync(descriptor: int) -> None:
    """Sync the content of an open file to disk, and close the file."""
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def sync_data(descriptor: int) -> None:
    """Sync the content of an open file to disk, without its times, and close the file.

    Use this only if the file's length has not changed. macOS has no such sync, so there the whole file is synced.
    """
    try:
        getattr(os, "fdatasync", os.fsync)(descriptor)
    finally:
        os.close(descriptor)


def replace(path: Path, content: bytes, *, durably: bool = True) -> None:
    """Replace a file's content in one step: write a temporary file, and rename it.

    With `durably`, the change survives a power failure. The name of the temporary file ends with `.tmp`, so that
    readers ignore the file.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    descriptor = create(temporary, content)
    if durably:
        sync(descriptor)
    else:
        os.close(descriptor)
    temporary.replace(path)
    if durably:
        sync_folder(path.parent)


def read(path: str | Path, bytes_max: int) -> bytes | None:
    """Return the content of a file. Return `None` if the file has more than `bytes_max` bytes or is not a plain file.

    In a shared folder, a file may be a pipe, which would block the reader, or a link to another place. A link raises
    `OSError`.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        known = os.fstat(descriptor)
        if not stat.S_ISREG(known.st_mode) or known.st_size > bytes_max:
            return None
        parts = []
        while part := os.read(descriptor, known.st_size + 1):
            parts.append(part)
        return b"".join(parts)
    finally:
        os.close(descriptor)


@contextlib.contextmanager
def locked(path: Path) -> Iterator[None]:
    """Context manager: hold the lock on a lock file. If the process crashes, the system releases the lock."""
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, FILE_MODE)
    try:
        deadline = time.monotonic() + _LOCK_SECONDS_MAX
        while not try_lock(descriptor):
            if time.monotonic() > deadline:
                raise LockBusy(f"another process holds {path} and does not let go")
            time.sleep(_LOCK_PAUSE_SECONDS)
        yield
    finally:
        os.close(descriptor)


def try_lock(descriptor: int) -> bool:
    """Take the lock on an open file. Return false if another process holds the lock."""
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True

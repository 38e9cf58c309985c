"""The hub's home folder, as the running hub uses it. Only one process at a time can lock the folder.

The first start of a hub creates the folder.
"""

import fcntl
import os
import secrets
from pathlib import Path

import msgspec

from tieline.wire.folder import own_folder
from tieline.wire.home import (
    KEY_FILE,
    LOCK_FILE,
    RESTORE_FOLDER,
    RUN_FILE,
    SETTINGS_FILE,
    Running,
    read_key,
    write_private,
)


class HomeBusy(Exception):
    """Raised if another process has locked the home folder of the hub."""


class HalfRestored(OSError):
    """Raised if the home is incomplete, because a process that restored it was killed."""


def is_free(path: Path) -> bool:
    """Return true if no process has locked the home folder, so that a hub can start there."""
    try:
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_NOFOLLOW)
    except FileNotFoundError:
        return True
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    finally:
        os.close(lock)
    return True


class Home:
    """The home folder (all files) of a hub, locked by this process until `release`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        own_folder(path)
        lock = os.open(path / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            os.close(lock)
            raise HomeBusy(f"another hub holds {path}; stop it first, or name another home with --home") from error
        if (path / RESTORE_FOLDER).exists():
            os.close(lock)
            # A hub would begin an empty log there, beside the files of the old one.
            raise HalfRestored(f"{path} is half restored, because a restore did not end: delete it and restore again")
        # The open lock file, until `release`.
        self._lock: int | None = lock

    def key(self) -> str:
        """Return the secret key that lets the hub's own user act as any member. Create the key if there is none."""
        known = read_key(self.path)
        if known:
            return known
        made = secrets.token_urlsafe(32)
        write_private(self.path / KEY_FILE, made.encode())
        return made

    def announce(self, running: Running) -> None:
        """Write `run.json`, in which other programs find the addresses of the running hub.

        Call this when every listener is ready.
        """
        write_private(self.path / RUN_FILE, msgspec.json.format(running.encode()) + b"\n")

    def release(self) -> None:
        """Remove `run.json` and release the lock, so that another process can use the home folder."""
        lock, self._lock = self._lock, None
        # Do this only once: later, the number of the descriptor may belong to another file, and another process may
        # hold the lock.
        if lock is not None:
            for name in (RUN_FILE, SETTINGS_FILE):
                (self.path / name).unlink(missing_ok=True)
            os.close(lock)

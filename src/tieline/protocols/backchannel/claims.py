"""Claims: takes messages out of a spool so that exactly one reader handles each message.

Used by: the command line, the hub. Uses: `rename`, which succeeds for only one of several processes. A claimed message
is in `cur/` under a special name until its reader has finished with it. If a reader is killed, no message is lost,
because its claims stay in `cur/`. The reader's lock is released when the reader ends. So other processes see that the
claims are abandoned, and can make the messages unread again. A message that was kept on purpose is in `cur/` under its
usual name.
"""

import contextlib
import fcntl
import os
import secrets
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Self

from tieline.contract.limits import DEFAULT_LIMITS
from tieline.protocols.backchannel import disk
from tieline.protocols.backchannel.codec import BadMessage, SpoolMessage, decode, is_id

SUFFIX = ".json"
_CLAIM = ".claim"
_LOCK = ".lock"


def read_message(path: str | Path, message_id: str) -> SpoolMessage | str | None:
    """Return the message in a file. Return `None` if the file is gone, and a text with the reason if it is invalid."""
    try:
        data = disk.read(path, DEFAULT_LIMITS.message_bytes_max)
    except FileNotFoundError:
        return None
    except OSError as error:
        return f"it cannot be read: {error.strerror}"
    if data is None:
        return "it is no plain file, or too large"
    try:
        message = decode(data)
    except BadMessage as error:
        return f"it is no message: {error}"
    if message.id != message_id:
        return f"it says that its id is {message.id[:80]!r}"
    return message


class Claims:
    """The messages that one reader has claimed from an agent's folder and has not finished.

    Call `close`, or use this object in a `with`. Messages that are not finished then become unread again.
    """

    def __init__(self, folder: Path) -> None:
        self._new = folder / "new"
        self._cur = folder / "cur"
        # Part of the file names of this reader's claims and lock.
        self._reader = secrets.token_hex(8)
        self._lock: int | None = None
        self._open: set[str] = set()
        self._synced = True

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def claim(self, message_id: str) -> SpoolMessage | None:
        """Claim a message and return it; `None` if another reader was first, or the file cannot be read.

        Call `sync` before the message is shown to anybody. At the end, call `finish` or `release`.
        """
        if not is_id(message_id):
            return None
        waiting = self._new / f"{message_id}{SUFFIX}"
        # Read first: an unreadable file stays in `new/`, where a person sees it.
        message = read_message(waiting, message_id)
        if not isinstance(message, SpoolMessage):
            return None
        self._announce()
        try:
            # spec, Claims: a rename succeeds for one reader only.
            waiting.rename(self._claimed(message_id))
        except FileNotFoundError:
            return None
        self._open.add(message_id)
        self._synced = False
        return message

    def sync(self) -> None:
        """Make all claims so far durable, so that after a power failure nobody can take these messages again.

        A rename changes both folders in one step, so it is enough to sync one of them.
        """
        if not self._synced:
            disk.sync_folder(self._new)
            self._synced = True

    def finish(self, message_id: str, *, keep: bool = False) -> None:
        """End the claim of a message that the reader has handled.

        Delete the message's file. If `keep` is true, leave the file in `cur/` instead.
        """
        self._open.remove(message_id)
        # spec, Local spool layout: a handled message is deleted, or kept in cur/.
        if keep:
            self._claimed(message_id).rename(self._cur / f"{message_id}{SUFFIX}")
        else:
            self._claimed(message_id).unlink()

    def release(self, message_id: str) -> None:
        """End a claim without handling the message: move its file back to `new/`, so that it is unread again."""
        self._open.remove(message_id)
        self._claimed(message_id).rename(self._new / f"{message_id}{SUFFIX}")

    def close(self) -> None:
        """Make all claimed messages that are not finished unread again, and release the lock."""
        for message_id in list(self._open):
            self.release(message_id)
        if self._lock is not None:
            self._lock_path.unlink(missing_ok=True)
            os.close(self._lock)
            self._lock = None

    @property
    def _lock_path(self) -> Path:
        return self._cur / f".{self._reader}{_LOCK}"

    def _claimed(self, message_id: str) -> Path:
        return self._cur / f"{message_id}.{self._reader}{_CLAIM}"

    def _announce(self) -> None:
        """Lock a file before the first claim. The lock shows other processes that the reader is alive."""
        if self._lock is not None:
            return
        disk.make_folder(self._cur)
        self._lock = disk.create(self._lock_path, b"")
        # Only a process that tests the lock can hold it now, for an instant.
        fcntl.flock(self._lock, fcntl.LOCK_EX)


def abandoned(folder: Path) -> Iterator[tuple[Path, str]]:
    """Yield each file in an agent's folder that was claimed by a process that has ended, with its message id."""
    dead: dict[str, bool] = {}
    for path in sorted(_listed(folder / "cur", _CLAIM)):
        message_id, _, reader = path.name.removesuffix(_CLAIM).rpartition(".")
        if not is_id(message_id):
            continue
        if reader not in dead:
            dead[reader] = not _is_held(folder / "cur" / f".{reader}{_LOCK}")
        if dead[reader]:
            yield path, message_id


def loose_locks(folder: Path) -> Iterator[Path]:
    """Yield the lock files of readers in an agent's folder that no process holds any more."""
    for path in sorted(_listed(folder / "cur", _LOCK)):
        if not _is_held(path):
            yield path


def give_back(folder: Path, claim: Path, message_id: str) -> bool:
    """Make a claimed message unread again, because its reader has ended. Return false if another process did so before.

    `folder` is the agent's folder, and `claim` is the claimed file.
    """
    try:
        claim.rename(folder / "new" / f"{message_id}{SUFFIX}")
    except FileNotFoundError:
        return False
    return True


def _listed(folder: Path, suffix: str) -> list[Path]:
    try:
        return [folder / name for name in os.listdir(folder) if name.endswith(suffix)]  # noqa: PTH208 - half the time
    except (FileNotFoundError, NotADirectoryError):
        return []


def _is_held(lock: Path) -> bool:
    try:
        descriptor = os.open(lock, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    with contextlib.ExitStack() as stack:
        stack.callback(os.close, descriptor)
        return not disk.try_lock(descriptor)

"""Folders that only our own user can change, so that no other user can redirect the files that we write.

Used by: code that keeps files or sockets in a folder that the user chooses. Uses: the file system.

An attacker is a user who can write to a folder, or who owns a parent folder. Such a user can put a link in the place of
a file that we are about to write, and so read or destroy another file of ours. So the folder must belong to us and be
closed to others. The folders and links that lead to it must belong to us or to the system. A parent folder may be open
to others only if it is sticky, as `/tmp` is: in a sticky folder, other users cannot move our files.
"""

import contextlib
import grp
import os
import pwd
import stat
from collections.abc import Iterator
from pathlib import Path

_MODE = 0o700
_LINKS_MAX = 40
"""Most symbolic links on a path. The kernel has the same limit."""


class NotOurs(OSError):
    """Raised if another user can change the folder or redirect its path.

    The text names the owner and says what the user can do.
    """


def own_folder(path: Path) -> None:
    """Make a folder and its parents, if they are missing. Only the user of this process may write to the folder.

    Raises `NotOurs` if another user could change the folder.
    """
    real, status = _walk(path)
    if status.st_uid != os.geteuid():
        raise NotOurs(f"{real} belongs to {_name(status.st_uid)}: name a folder of your own, or run as its owner")
    if _is_open(status):
        raise NotOurs(f"others can write to {real}: close it with 'chmod go-w {real}', or name another folder")


def own_place(path: Path) -> None:
    """Make the folder `path`, in which this process writes one file, if the folder is missing.

    Raises `NotOurs` if another user could replace the file. Unlike in `own_folder`, the folder may belong to the
    system. Other users may also write to the folder if it is sticky, as `/tmp` is.
    """
    real, status = _walk(path)
    if not (_is_trusted(status) and (status.st_mode & stat.S_ISVTX or not _is_open(status))):
        whose = f"belongs to {_name(status.st_uid)} or is open to others"
        raise NotOurs(f"{real} {whose}: name a folder of your own, or one that is sticky, as /tmp is")


def sync_folder(path: Path) -> None:
    """Sync a folder to disk. Without this, a new file name in the folder may be lost in a power failure."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _walk(path: Path) -> tuple[Path, os.stat_result]:
    """Follow `path` from the root: make missing folders, follow links, and check the owner and the rights of each part.

    Return the real path, without links, and the status of the last folder.
    """
    current = Path(path.anchor)
    status = current.lstat()
    ahead = list(path.parts[1:])
    links = 0
    while ahead:
        _check_above(current, status)
        name = ahead.pop(0)
        if name == os.pardir:
            current = current.parent
            status = current.lstat()
            continue
        found = current / name
        status = _made(found)
        if stat.S_ISLNK(status.st_mode):
            if not _is_trusted(status):
                raise NotOurs(f"{found} is a link that {_name(status.st_uid)} has made: name a folder of your own")
            links += 1
            if links > _LINKS_MAX:
                raise NotOurs(f"{found} leads from link to link without end")
            target = found.readlink()
            ahead[:0] = target.parts[1:] if target.is_absolute() else target.parts
            current = Path(target.anchor) if target.is_absolute() else current
            status = current.lstat()
            continue
        if not stat.S_ISDIR(status.st_mode):
            raise NotADirectoryError(f"{found} is no folder")
        current = found
    return current, status


def _made(path: Path) -> os.stat_result:
    """Return the status of `path`. If nothing exists there, make a folder, and sync the parent folder to disk."""
    try:
        return path.lstat()
    except FileNotFoundError:
        # If another process makes the folder first, the status below shows its owner.
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_MODE)
    sync_folder(path.parent)
    return path.lstat()


def _check_above(path: Path, status: os.stat_result) -> None:
    advice = "who could replace what is below it: name a folder elsewhere"
    if not _is_trusted(status):
        raise NotOurs(f"{path} belongs to {_name(status.st_uid)}, {advice}")
    if _is_open(status) and not status.st_mode & stat.S_ISVTX:
        raise NotOurs(f"{path} can be written to by others, {advice}, or 'chmod go-w {path}'")


def _is_trusted(status: os.stat_result) -> bool:
    """Return true if a file or folder belongs to the user of this process or to the system.

    In a user namespace, files of the system may belong to `nobody`.
    """
    return status.st_uid in (os.geteuid(), 0, os.lstat("/").st_uid)


def _is_open(status: os.stat_result) -> bool:
    """Return true if other users can write to the folder.

    A folder to which its group may write is not open if only the owner is in the group.
    """
    mode = status.st_mode
    return bool(mode & stat.S_IWOTH or (mode & stat.S_IWGRP and status.st_gid not in _own_groups()))


def _own_groups() -> Iterator[int]:
    try:
        user = pwd.getpwuid(os.geteuid())
        group = grp.getgrgid(user.pw_gid)
    except KeyError:
        return
    if group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}:
        yield user.pw_gid


def _name(uid: int) -> str:
    try:
        return f"{pwd.getpwuid(uid).pw_name} (user {uid})"
    except KeyError:
        return f"user {uid}"

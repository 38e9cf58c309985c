"""Folders that only we can change, so that what we write is written there and nowhere else.

Above: whoever keeps files or sockets in a folder that somebody named. Below: the file system. Whoever can write to a
folder, or owns one above it, can put a link where a file of ours is about to be written, and read or destroy another
file of ours that way. So a folder must be ours and closed to others, and nobody but us and the system may own the
folders and links that lead to it. A folder above it may be open to others only if it is sticky, as `/tmp` is: there
nobody can move what is ours.
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
"""As many as the kernel follows."""


class NotOurs(OSError):
    """A folder that somebody else can change, or lead elsewhere. Its text says whose it is and what to do."""


def own_folder(path: Path) -> None:
    """Make a folder, with those above it, for its owner alone; raise `NotOurs` unless it is ours and closed."""
    real, status = _walk(path)
    if status.st_uid != os.geteuid():
        raise NotOurs(f"{real} belongs to {_name(status.st_uid)}: name a folder of your own, or run as its owner")
    if _is_open(status):
        raise NotOurs(f"others can write to {real}: close it with 'chmod go-w {real}', or name another folder")


def own_place(path: Path) -> None:
    """Make the folder of one file, as `own_folder`; one that is not ours will do where nobody can move our file."""
    real, status = _walk(path)
    if not (_is_trusted(status) and (status.st_mode & stat.S_ISVTX or not _is_open(status))):
        whose = f"belongs to {_name(status.st_uid)} or is open to others"
        raise NotOurs(f"{real} {whose}: name a folder of your own, or one that is sticky, as /tmp is")


def _walk(path: Path) -> tuple[Path, os.stat_result]:
    """Go down to a folder, making what is missing and checking what leads there; its real path and status."""
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
    """What is at a path; a folder of ours, there after a power failure too, if there was nothing."""
    try:
        return path.lstat()
    except FileNotFoundError:
        # If somebody is first, whoever that was is found out below.
        with contextlib.suppress(FileExistsError):
            path.mkdir(mode=_MODE)
    above = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(above)
    finally:
        os.close(above)
    return path.lstat()


def _check_above(path: Path, status: os.stat_result) -> None:
    advice = "who could replace what is below it: name a folder elsewhere"
    if not _is_trusted(status):
        raise NotOurs(f"{path} belongs to {_name(status.st_uid)}, {advice}")
    if _is_open(status) and not status.st_mode & stat.S_ISVTX:
        raise NotOurs(f"{path} can be written to by others, {advice}, or 'chmod go-w {path}'")


def _is_trusted(status: os.stat_result) -> bool:
    """Whether it is ours or the system's. Within a user namespace the system's files may belong to nobody."""
    return status.st_uid in (os.geteuid(), 0, os.lstat("/").st_uid)


def _is_open(status: os.stat_result) -> bool:
    """True if others can write to it. A group of its owner's own, as many systems make one, is nobody else."""
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

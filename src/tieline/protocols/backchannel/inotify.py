"""Inotify: what Linux tells of folders as it happens.

Above: the folder watch. Below: the kernel, through the C library. A folder is added in a few microseconds and nobody
else waits meanwhile; a library that walks a whole tree keeps the interpreter for a second where there are thousands of
mailboxes.
"""

import ctypes
import os
import struct
from collections.abc import Iterator

_CREATE_OR_GO = 0x00000100 | 0x00000200 | 0x00000040 | 0x00000080
"""IN_CREATE, IN_DELETE, IN_MOVED_FROM, IN_MOVED_TO."""
_WRITTEN = 0x00000008
"""IN_CLOSE_WRITE: a file that was not renamed into place is whole now."""
_ONLY_FOLDERS = 0x01000000 | 0x02000000
"""IN_ONLYDIR, IN_DONT_FOLLOW."""
_OVER = 0x00008000
"""IN_IGNORED: the folder is gone, or nobody watches it any more."""
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024  # thousands of events at once


class Inotify:
    """Watched folders, by number. Its file is readable when something has happened in one of them."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._library, "inotify_init1"):
            raise OSError("this system has no inotify")
        self.file = _checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, folder: str) -> int:
        """Watch a folder; returns its number. Raises `OSError` if it is none, or there are too many."""
        wanted = _CREATE_OR_GO | _WRITTEN | _ONLY_FOLDERS
        return _checked(self._library.inotify_add_watch(self.file, os.fsencode(folder), wanted))

    def remove(self, number: int) -> None:
        """Watch a folder no more; one that is gone is no error."""
        self._library.inotify_rm_watch(self.file, number)

    def read(self) -> Iterator[tuple[int, bool]]:
        """Folders in which something has happened, and whether that was the end of them."""
        try:
            data = os.read(self.file, _READ_BYTES)
        except BlockingIOError:
            return
        place = 0
        while place < len(data):
            number, mask, _, name_bytes = _EVENT.unpack_from(data, place)
            yield number, bool(mask & _OVER)
            place += _EVENT.size + name_bytes

    def close(self) -> None:
        """Let go of all of them."""
        os.close(self.file)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

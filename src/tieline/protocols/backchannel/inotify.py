"""Inotify: notifications of Linux about changes in folders.

Used by: the folder watch. Uses: the kernel, through the C library. Adding a folder takes only a few microseconds. A
library that watches a whole tree would block the interpreter for a second if there are thousands of mailboxes.
"""

import ctypes
import os
import struct
from collections.abc import Iterator

_CREATE_OR_GO = 0x00000100 | 0x00000200 | 0x00000040 | 0x00000080
"""Flags IN_CREATE, IN_DELETE, IN_MOVED_FROM and IN_MOVED_TO: a file was added to the folder, or is gone from it."""
_WRITTEN = 0x00000008
"""Flag IN_CLOSE_WRITE: a program has finished writing a file in the folder."""
_ONLY_FOLDERS = 0x01000000 | 0x02000000
"""Flags IN_ONLYDIR and IN_DONT_FOLLOW: watch only a real folder, and not a file or a link."""
_OVER = 0x00008000
"""Flag IN_IGNORED: the folder is gone, or is no longer watched."""
_EVENT = struct.Struct("iIII")
_READ_BYTES = 64 * 1024  # thousands of events at once


class Inotify:
    """Watches folders through Linux inotify. Each folder has a number. `file` is readable when a folder has changed."""

    def __init__(self) -> None:
        self._library = ctypes.CDLL(None, use_errno=True)
        if not hasattr(self._library, "inotify_init1"):
            raise OSError("this system has no inotify")
        self.file = _checked(self._library.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC))

    def add(self, folder: str) -> int:
        """Watch a folder and return its number.

        Raise `OSError` if it is not a folder, or too many folders are watched.
        """
        wanted = _CREATE_OR_GO | _WRITTEN | _ONLY_FOLDERS
        return _checked(self._library.inotify_add_watch(self.file, os.fsencode(folder), wanted))

    def remove(self, number: int) -> None:
        """Stop watching the folder with this number. Do nothing if the folder is gone."""
        self._library.inotify_rm_watch(self.file, number)

    def read(self) -> Iterator[tuple[int, bool]]:
        """Yield a pair for each change: the number of the folder, and true if the folder is no longer watched."""
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
        """Stop watching all folders."""
        os.close(self.file)


def _checked(result: int) -> int:
    if result < 0:
        code = ctypes.get_errno()
        raise OSError(code, os.strerror(code))
    return result

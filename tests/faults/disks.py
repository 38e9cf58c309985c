"""Test helpers for disks that fail: a small one that is really full, and one that refuses operations on demand."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import apsw
import pytest


@contextmanager
def small_disk(folder: Path, kibibytes: int) -> Iterator[Path]:
    """Mount a file system of this size in memory and yield its folder. Skip the test without the right to mount."""
    folder.mkdir()
    options = f"size={kibibytes}k,mode=0700"
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, check=False)
    if made.returncode:
        pytest.skip(f"a file system cannot be mounted here: {made.stderr.decode()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "--lazy", folder], check=True)


def fill(folder: Path, *, leave: int = 0) -> Path:
    """Fill the disk with one file, but leave `leave` bytes free. Return the path of the file."""
    ballast = folder / "ballast"
    with ballast.open("wb", buffering=0) as file:
        try:
            while True:
                file.write(b"\0" * 4096)
        except OSError:
            pass
        file.truncate(max(0, file.tell() - leave))
    return ballast


class _File(apsw.VFSFile):
    def __init__(self, vfs: "FaultyVfs", name: str | apsw.URIFilename | None, flags: list[int]) -> None:
        super().__init__("", name, flags)
        self._vfs = vfs

    def xWrite(self, data: bytes, offset: int) -> None:  # noqa: N802
        self._vfs.check("write")
        super().xWrite(data, offset)

    def xSync(self, flags: int) -> None:  # noqa: N802
        # The data is written by then, and may survive.
        super().xSync(flags)
        self._vfs.check("sync")


class FaultyVfs(apsw.VFS):
    """Test double: a file system for SQLite in which a chosen operation fails."""

    def __init__(self, name: str) -> None:
        self.name = name
        # The operation that fails, and how: as `EIO` does, as a disk that became read-only, or as a full one.
        self.failing = ""
        self.error: type[apsw.Error] = apsw.IOError
        self.code = apsw.SQLITE_IOERR_WRITE
        super().__init__(name, "")

    def fail(self, operation: str, error: type[apsw.Error], code: int) -> None:
        """Let all later calls of this operation fail with this error and SQLite code."""
        self.failing, self.error, self.code = operation, error, code

    def check(self, operation: str) -> None:
        """Raise the chosen error if the test let this operation fail."""
        if operation == self.failing:
            failure = self.error(f"the {operation} failed")
            failure.extendedresult = self.code  # type: ignore[attr-defined]  # apsw reads it, its stubs have no such field
            raise failure

    def xOpen(self, name: str | apsw.URIFilename | None, flags: list[int]) -> apsw.VFSFile:  # noqa: N802
        return _File(self, name, flags)

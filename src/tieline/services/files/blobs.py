"""Blobs: bytes on disk under their own digest, so that the same bytes are there once.

Above: `files.py`, which runs all of it on one thread. Below: a folder of the hub's home. Names of files here are made
from digests and chance only, never from what a member wrote, and links are not followed: no path can lead out.

An upload is written aside, and takes its place whole, durable and only once its bytes are on disk. What dies halfway
is a file that nobody refers to; `sweep` removes such files when the hub starts.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_INCOMING = "incoming"


class Blob(Struct, frozen=True):
    """Bytes that are here."""

    digest: str
    """SHA-256, which clients check for."""
    size: int


class MissingBlob(Exception):
    """Content that the catalogue refers to is missing or no plain file: somebody touched the folder."""


class Upload:
    """Bytes that are coming in. It ends by `Blobs.keep` or by `abandon`, and touches the disk at its first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._opened: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Take the next bytes."""
        file = self._file()
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> Blob:
        """Have everything on disk."""
        file = self._file()
        os.fsync(file.fileno())
        file.close()
        return Blob(self._hash.hexdigest(), self.size)

    def abandon(self) -> None:
        """Leave nothing behind; may be called at any time, and twice."""
        if self._opened is not None:
            self._opened.close()
            self.path.unlink(missing_ok=True)

    def _file(self) -> BinaryIO:
        if self._opened is None:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            self._opened = os.fdopen(descriptor, "wb", buffering=0)
        return self._opened


class Blobs:
    """The folder. Not thread-safe: one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)

    def begin(self) -> Upload:
        """Make room for bytes that are coming in."""
        return Upload(self._incoming / secrets.token_hex(16))

    def keep(self, upload: Upload) -> Blob:
        """Put finished bytes in their place. They stay there only if the catalogue then refers to them."""
        blob = upload.finish()
        place = self._place(blob.digest)
        if self._is_here(blob):
            upload.abandon()
            return blob
        if not place.parent.is_dir():
            place.parent.mkdir(mode=0o700)
            _sync_folder(self._folder)
        upload.path.replace(place)
        _sync_folder(place.parent)
        return blob

    def open(self, digest: str) -> BinaryIO:
        """Open for reading; what is open can be read to its end even when it is discarded meanwhile."""
        try:
            descriptor = os.open(self._place(digest), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise MissingBlob(f"the content {digest} cannot be read: {error.strerror}") from error
        return os.fdopen(descriptor, "rb", buffering=0)

    def discard(self, digest: str) -> None:
        """Free what nobody refers to any more."""
        self._place(digest).unlink(missing_ok=True)

    def sweep(self, refers: Callable[[str], bool]) -> int:
        """Remove what an earlier run left halfway; returns how many files that were."""
        removed = 0
        for path in self._incoming.iterdir():
            path.unlink()
            removed += 1
        for path in list(self._kept()):
            if not refers(path.name):
                path.unlink()
                removed += 1
        return removed

    def digests(self) -> set[str]:
        """Everything that is here."""
        return {path.name for path in self._kept()}

    def _kept(self) -> Iterator[Path]:
        for folder in self._folder.iterdir():
            if folder.name != _INCOMING and folder.is_dir() and not folder.is_symlink():
                yield from (path for path in folder.iterdir() if _DIGEST.match(path.name))

    def _is_here(self, blob: Blob) -> bool:
        with suppress(FileNotFoundError):
            # A damaged file of another size is replaced by the good one.
            place = self._place(blob.digest)
            return not place.is_symlink() and place.stat().st_size == blob.size
        return False

    def _place(self, digest: str) -> Path:
        assert _DIGEST.match(digest), "digests are made here and kept by the catalogue"
        return self._folder / digest[:2] / digest


def _sync_folder(folder: Path) -> None:
    """A new name is durable only when its folder is."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

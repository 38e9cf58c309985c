"""Blobs: bytes on disk, named by their digest, so that equal bytes are stored once.

Above: `files.py`, which runs all of it on one thread. Below: a folder of the hub's home. File names here are made only
from digests and random numbers, never from a member's text, and links are not followed: no path can lead out.

An upload is written to a temporary file. It is renamed to its place only when all its bytes are safely on disk. An
interrupted upload leaves a file that nothing refers to; `sweep` removes such files when the hub starts.
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
    """Stored bytes."""

    digest: str
    """SHA-256, which clients check."""
    size: int


class MissingBlob(Exception):
    """Content in the catalogue is missing on disk or is not a plain file: somebody changed the folder."""


class Upload:
    """A running upload. It ends with `Blobs.keep` or `abandon`. It creates its file at the first write."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._opened: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Write the next bytes."""
        file = self._file()
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> Blob:
        """Sync the file to disk and close it."""
        file = self._file()
        os.fsync(file.fileno())
        file.close()
        return Blob(self._hash.hexdigest(), self.size)

    def abandon(self) -> None:
        """Remove the file. It may be called at any time, and twice."""
        if self._opened is not None:
            self._opened.close()
            self.path.unlink(missing_ok=True)

    def _file(self) -> BinaryIO:
        if self._opened is None:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            self._opened = os.fdopen(descriptor, "wb", buffering=0)
        return self._opened


class Blobs:
    """The folder of blobs. Not thread-safe: one caller at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)

    def begin(self) -> Upload:
        """Begin an upload."""
        return Upload(self._incoming / secrets.token_hex(16))

    def keep(self, upload: Upload) -> Blob:
        """Move a finished upload to its place. The next sweep removes it unless the catalogue refers to it by then."""
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
        """Open a blob for reading. It can be read to its end even if it is discarded meanwhile."""
        try:
            descriptor = os.open(self._place(digest), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise MissingBlob(f"the content {digest} cannot be read: {error.strerror}") from error
        return os.fdopen(descriptor, "rb", buffering=0)

    def discard(self, digest: str) -> None:
        """Delete a blob that no entry refers to."""
        self._place(digest).unlink(missing_ok=True)

    def sweep(self, refers: Callable[[str], bool]) -> int:
        """Remove incomplete uploads and unused blobs of an earlier run. Return the number of removed files."""
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
        """Return the digests of all stored blobs."""
        return {path.name for path in self._kept()}

    def _kept(self) -> Iterator[Path]:
        for folder in self._folder.iterdir():
            if folder.name != _INCOMING and folder.is_dir() and not folder.is_symlink():
                yield from (path for path in folder.iterdir() if _DIGEST.match(path.name))

    def _is_here(self, blob: Blob) -> bool:
        with suppress(FileNotFoundError):
            # A file of another size is damaged. The upload replaces it.
            place = self._place(blob.digest)
            return not place.is_symlink() and place.stat().st_size == blob.size
        return False

    def _place(self, digest: str) -> Path:
        assert _DIGEST.match(digest), "digests are made here and kept by the catalogue"
        return self._folder / digest[:2] / digest


def _sync_folder(folder: Path) -> None:
    """Sync a folder to disk: a new name in it is durable only after that."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)

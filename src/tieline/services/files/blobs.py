"""Blobs: bytes on disk, in files that are named by the hash of the bytes, so that equal bytes are stored once.

Used by: `files.py`, which calls this module on one thread only. Uses: a folder of the hub's home. File names here are
made only from hashes and random numbers, never from a member's text, and links are not followed. So no path leads out
of the folder.

An upload is written to a temporary file. The file is renamed to its final name only when all its bytes are safely on
disk. An interrupted upload leaves a file that nothing refers to. `sweep` removes such files when the hub starts.
"""

import hashlib
import os
import re
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO, Protocol

from msgspec import Struct

from tieline.wire.folder import sync_folder

_DIGEST = re.compile(r"[0-9a-f]{64}\Z")
_INCOMING = "incoming"


class Blob(Struct, frozen=True):
    """Result of an upload: the hash (`digest`) and the size of the stored bytes."""

    digest: str
    """SHA-256 hash of the bytes, as hexadecimal digits. Clients compare this hash with their own hash of the bytes."""
    size: int


class MissingBlob(Exception):
    """Raised if the stored bytes of a file are missing, or if a link or a folder is in their place.

    This happens only if somebody outside the hub has changed the folder.
    """


class Upload:
    """An upload in progress, which writes its bytes to a temporary file.

    The upload ends with `Blobs.keep`, which stores the bytes, or with `abandon`, which deletes them. The temporary file
    is created at the first write.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self.size = 0
        self._hash = hashlib.sha256()
        self._opened: BinaryIO | None = None

    def write(self, data: bytes) -> None:
        """Add bytes to the temporary file."""
        file = self._file()
        rest = memoryview(data)
        while rest:
            rest = rest[file.write(rest) :]
        self._hash.update(data)
        self.size += len(data)

    def finish(self) -> Blob:
        """Sync the temporary file to disk and close it. Return the hash and size of its bytes."""
        file = self._file()
        os.fsync(file.fileno())
        file.close()
        return Blob(self._hash.hexdigest(), self.size)

    def abandon(self) -> None:
        """Delete the temporary file. The caller may call this at any time, and more than once."""
        if self._opened is not None:
            self._opened.close()
            self.path.unlink(missing_ok=True)

    def _file(self) -> BinaryIO:
        if self._opened is None:
            descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600)
            self._opened = os.fdopen(descriptor, "wb", buffering=0)
        return self._opened


class BlobStore(Protocol):
    """Interface of a store of bytes that are found by their hash. Only one thread may use it at a time."""

    def begin(self) -> Upload:
        """Return a new upload. The caller writes the bytes to it, and ends it with `keep` or `Upload.abandon`."""

    def keep(self, upload: Upload) -> Blob:
        """Finish an upload: make its bytes durable. Return the hash and the size.

        The next `sweep` deletes the bytes, unless an entry (a member's file or folder) refers to the hash by then.
        """

    def open(self, digest: str) -> BinaryIO:
        """Open the stored bytes whose hash is `digest`, for reading. Raise `MissingBlob` if they are not there.

        The reader can read all bytes, even if they are deleted meanwhile.
        """

    def discard(self, digest: str) -> None:
        """Delete the stored bytes whose hash is `digest`, because no member's file refers to them any more."""

    def sweep(self, refers: Callable[[str], bool]) -> int:
        """Delete the incomplete uploads and unused bytes of an earlier run. Return the number of deleted files.

        `refers` returns true for a hash that at least one member's file uses.
        """

    def digests(self) -> set[str]:
        """Return the hashes of the bytes of all stored files."""

    def close(self) -> None:
        """Close the store. No other method may be called after this."""


def new_upload(folder: Path) -> Upload:
    """Return a new upload whose temporary file will be in this folder."""
    return Upload(folder / secrets.token_hex(16))


class Blobs:
    """The folder that holds the bytes of all members' files. Not thread-safe: only one thread may use it at a time."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._incoming = folder / _INCOMING
        self._incoming.mkdir(parents=True, exist_ok=True, mode=0o700)
        folder.chmod(0o700)

    def begin(self) -> Upload:
        """Return a new upload. The caller writes the bytes to it, and ends it with `keep` or `Upload.abandon`."""
        return new_upload(self._incoming)

    def keep(self, upload: Upload) -> Blob:
        """Finish an upload: rename its temporary file to the hash of its bytes. Return the hash and the size.

        The next `sweep` deletes the file, unless an entry (a member's file or folder) refers to the hash by then.
        """
        blob = upload.finish()
        path = self._path_of(blob.digest)
        if self._is_here(blob):
            upload.abandon()
            return blob
        if not path.parent.is_dir():
            path.parent.mkdir(mode=0o700)
            sync_folder(self._folder)
        upload.path.replace(path)
        sync_folder(path.parent)
        return blob

    def open(self, digest: str) -> BinaryIO:
        """Open the stored bytes whose hash is `digest`, for reading.

        The reader can read all bytes, even if they are deleted meanwhile.
        """
        try:
            descriptor = os.open(self._path_of(digest), os.O_RDONLY | os.O_NOFOLLOW)
        except OSError as error:
            raise MissingBlob(f"the content {digest} cannot be read: {error.strerror}") from error
        return os.fdopen(descriptor, "rb", buffering=0)

    def discard(self, digest: str) -> None:
        """Delete the stored bytes whose hash is `digest`, because no member's file refers to them any more."""
        self._path_of(digest).unlink(missing_ok=True)

    def sweep(self, refers: Callable[[str], bool]) -> int:
        """Delete the incomplete uploads and unused bytes of an earlier run. Return the number of deleted files.

        `refers` returns true for a hash that at least one member's file uses.
        """
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
        """Return the hashes of the bytes of all stored files."""
        return {path.name for path in self._kept()}

    def close(self) -> None:
        """Do nothing: no file stays open."""

    def _kept(self) -> Iterator[Path]:
        for folder in self._folder.iterdir():
            if folder.name != _INCOMING and folder.is_dir() and not folder.is_symlink():
                yield from (path for path in folder.iterdir() if _DIGEST.match(path.name))

    def _is_here(self, blob: Blob) -> bool:
        with suppress(FileNotFoundError):
            # A file of another size is damaged. The upload replaces it.
            path = self._path_of(blob.digest)
            return not path.is_symlink() and path.stat().st_size == blob.size
        return False

    def _path_of(self, digest: str) -> Path:
        assert _DIGEST.match(digest), "digests are made here and kept by the catalogue"
        return self._folder / digest[:2] / digest

"""Files of members: a virtual file system with an asynchronous interface.

Used by: `transfer`, and the routes. Uses: `tree.py` with the rules. All functions of `tree.py` run on one separate
thread. So the event loop never waits for the disk, and no other operation can run between a check and the change that
depends on it. Bytes are read and written in parts of limited size. A whole file is never in memory.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import BinaryIO, ParamSpec, TypeVar

from tieline.contract.file import FileCatalogue, FileEntry
from tieline.contract.message import Attachment
from tieline.services.files.blobs import BlobStore, Upload
from tieline.services.files.tree import Collide, FileCode, FileLimits, FileRefusal, Tree, Viewer, Written

_PIECE_BYTES = 256 * 1024
"""Number of bytes that are written or read at once. It is large, so that the hub rarely switches between threads. It is
small enough that the parts of many uploads fit into memory."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Reading:
    """A file that is open for reading, in parts of limited size.

    The caller must iterate over all parts or call `close`.
    """

    def __init__(self, entry: FileEntry, file: BinaryIO, executor: ThreadPoolExecutor) -> None:
        self.entry = entry
        self._file = file
        self._executor = executor

    async def __aiter__(self) -> AsyncGenerator[bytes, None]:
        loop = asyncio.get_running_loop()
        try:
            while piece := await loop.run_in_executor(self._executor, self._file.read, _PIECE_BYTES):
                yield piece
        finally:
            self.close()

    def close(self) -> None:
        """Close the file as soon as no read of it is under way. The caller does not wait for this."""
        try:
            self._executor.submit(self._file.close)
        except RuntimeError:
            # The hub is stopping, so no read is running.
            self._file.close()


class Files:
    """The members' file system. In all methods, `viewer` is the member who makes the request, with its rights.

    Every method waits for the disk, but does not wait for the end of other members' uploads.
    """

    def __init__(
        self,
        catalogue: FileCatalogue,
        blobs: BlobStore,
        now_ms: Callable[[], int],
        limits: FileLimits | None = None,
    ) -> None:
        self.limits = limits or FileLimits()
        self._catalogue = catalogue
        self._blobs = blobs
        self._tree = Tree(catalogue, blobs, self.limits)
        self._now_ms = now_ms
        # One thread, so that all disk operations happen in one order.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tieline-files")
        self._closed = False

    async def start(self) -> int:
        """Delete the incomplete uploads and unused bytes of an earlier run. Return the number of deleted files."""
        return await self._run(self._tree.sweep)

    async def close(self) -> None:
        """Finish running operations and close the catalogue (the database of entries)."""
        if not self._closed:
            self._closed = True
            await self._run(self._blobs.close)
            await self._run(self._catalogue.close)
            self._executor.shutdown(wait=False)

    async def stat(self, path: str, viewer: Viewer) -> FileEntry | FileRefusal:
        """Return the entry (name, size, type) of the file or folder at a path."""
        return await self._run(self._tree.stat, path, viewer)

    async def listing(self, path: str, viewer: Viewer) -> Sequence[FileEntry] | FileRefusal:
        """Return the entries of the files and folders in a folder."""
        return await self._run(self._tree.listing, path, viewer)

    async def shared(self, viewer: Viewer) -> Sequence[FileEntry]:
        """Return the files of other members that the viewer has the right to read."""
        return await self._run(self._tree.shared, viewer)

    async def everything(self, viewer: Viewer) -> Sequence[FileEntry] | FileRefusal:
        """Return the files of all members, newest first. Only for members with `members.manage`."""
        return await self._run(self._tree.everything, viewer)

    async def read(self, path: str, viewer: Viewer) -> Reading | FileRefusal:
        """Open the file at a path for reading. The reader can read all bytes, even if the file is removed meanwhile."""
        opening = self._executor.submit(self._tree.read, path, viewer)
        try:
            found = await asyncio.shield(asyncio.wrap_future(opening))
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unread)
            raise
        return found if isinstance(found, FileRefusal) else Reading(*found, self._executor)

    async def write(
        self,
        path: str,
        viewer: Viewer,
        chunks: AsyncIterable[bytes],
        *,
        media_type: str = "",
        collide: Collide = Collide.ERROR,
        declared_bytes: int | None = None,
    ) -> Written | FileRefusal:
        """Store the bytes in `chunks` as a file at a path. Return the entry (name, size, type) of the new file.

        After a refusal, a broken connection or a crash, no part of the file stays. `collide` decides what happens if
        there is already a file at the path. `declared_bytes` is the size that the client announced.
        """
        refused = await self._run(self._tree.may_place, path, viewer, collide, media_type)
        if refused is not None:
            return refused
        too_large = FileRefusal(FileCode.TOO_LARGE, f"a file has at most {self.limits.file_bytes_max} bytes")
        if declared_bytes is not None and declared_bytes > self.limits.file_bytes_max:
            return too_large
        upload = self._blobs.begin()
        try:
            if not await self._fill(upload, chunks):
                return too_large
            return await self._run(self._tree.place, upload, path, viewer, collide, media_type, self._now_ms())
        finally:
            # Runs after all writes, even after a write whose task was cancelled.
            with suppress(RuntimeError):
                await asyncio.shield(asyncio.wrap_future(self._executor.submit(upload.abandon)))

    async def make_folder(self, path: str, viewer: Viewer, *, recursive: bool = False) -> FileEntry | FileRefusal:
        """Create a folder and return its entry. With `recursive`, also create missing parent folders."""
        return await self._run(self._tree.make_folder, path, viewer, recursive=recursive, at_ms=self._now_ms())

    async def remove(self, path: str, viewer: Viewer, *, recursive: bool = False) -> FileRefusal | None:
        """Remove a file or folder. Without `recursive`, a folder must be empty. Return a refusal, or `None`."""
        return await self._run(self._tree.remove, path, viewer, recursive=recursive, at_ms=self._now_ms())

    async def move(self, source: str, target: str, viewer: Viewer) -> FileEntry | FileRefusal:
        """Move the file or folder at the path `source` to the path `target`.

        Return its new entry (name, size, type).
        """
        return await self._run(self._tree.move, source, target, viewer, self._now_ms())

    async def attach(self, paths: Sequence[str], viewer: Viewer) -> tuple[Attachment, ...] | FileRefusal:
        """Return the files at `paths` as attachments for a message, with the stored name, size and type.

        Call this method before the message is sent.
        """
        return await self._run(self._tree.attach, paths, viewer)

    async def mirror(
        self, paths: Sequence[str], objective: str, viewer: Viewer
    ) -> tuple[Attachment, ...] | FileRefusal:
        """Copy files into the folder of an objective. Return the copies as attachments (path, name, size and type).

        `objective` is the id of the objective. The bytes are not copied: the copy and the original refer to the same
        stored bytes.
        """
        return await self._run(self._tree.mirror, paths, objective, viewer, self._now_ms())

    async def share(self, paths: Sequence[str], viewers: Sequence[str], via: str) -> None:
        """Give the `viewers` the right to read these paths.

        Viewers are members, `*` (everybody), or groups such as `chan:<id>`. `via` is an id for these rights.
        `make_permanent` and `unshare` find the rights by this id.
        """
        await self._run(self._tree.share, paths, viewers, via, self._now_ms())

    async def make_permanent(self, via: str, viewer: str) -> None:
        """Make the rights permanent that a call of `share` gave to `viewer`. `via` is the id in that call.

        The caller does this when the hub has accepted the message.
        """
        await self._run(self._tree.make_permanent, via, viewer)

    async def unshare(self, via: str, viewer: str) -> None:
        """Undo a call of `share`, because the hub refused the message. `viewer` loses the right to read the files.

        `via` is the id in that call.
        """
        await self._run(self._tree.unshare, via, viewer)

    async def groups(self, paths: Sequence[str]) -> list[str]:
        """Return the channels (`chan:<id>`) and objectives (`obj:<id>`) that may read one of these paths."""
        return await self._run(self._tree.groups, paths)

    async def reconcile(self, since_ms: Mapping[str, int]) -> None:
        """Delete the files of members that were removed while the hub was down, and their rights to read files.

        `since_ms` has the creation time of every current member, by name. A file that is older than its member belonged
        to an earlier member with the same name.
        """
        await self._run(self._tree.reconcile, since_ms, self._now_ms())

    async def unattached_copies(self) -> list[tuple[str, list[str]]]:
        """Return copies of files that belong to no objective yet: a list of folders, each with the paths of its files.

        A crash can leave such copies behind.
        """
        return await self._run(self._tree.unattached_copies)

    async def forget(self, member: str) -> None:
        """Delete the files of a removed member, and its rights to read other members' files."""
        await self._run(self._tree.forget, member, self._now_ms())

    async def _fill(self, upload: Upload, chunks: AsyncIterable[bytes]) -> bool:
        """Write the bytes in `chunks` to the upload.

        Return false as soon as there are more bytes than a file may have.
        """
        piece = bytearray()
        total = 0
        async for chunk in chunks:
            total += len(chunk)
            if total > self.limits.file_bytes_max:
                return False
            piece += chunk
            if len(piece) >= _PIECE_BYTES:
                await self._run(upload.write, bytes(piece))
                piece.clear()
        if piece:
            await self._run(upload.write, bytes(piece))
        return True

    async def _run(self, function: Callable[_P, _T], *args: _P.args, **kwargs: _P.kwargs) -> _T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, partial(function, *args, **kwargs))


def _close_unread(opening: "Future[tuple[FileEntry, BinaryIO] | FileRefusal]") -> None:
    """Close a file that was opened for a request, because the request was cancelled before it got the file."""
    if not opening.cancelled() and opening.exception() is None:
        found = opening.result()
        if not isinstance(found, FileRefusal):
            found[1].close()

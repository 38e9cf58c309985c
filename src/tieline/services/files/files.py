"""Files of members: a virtual file system for whoever serves files.

Above: `transfer`, and the routes. Below: `tree.py` with the rules, on one thread of its own, so that disks never make
the event loop wait and a check and the change that it allows are one step. Bytes pass through in pieces, in and out; a
file is never in memory as a whole.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterable, Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import BinaryIO, ParamSpec, TypeVar

from tieline.contract.file import FileCatalogue, FileEntry
from tieline.contract.message import Attachment
from tieline.services.files.blobs import Blobs, Upload
from tieline.services.files.tree import Collide, FileCode, FileLimits, FileRefusal, Tree, Viewer, Written

_PIECE_BYTES = 256 * 1024
"""Bytes that are written or read at once: changing threads costs little, and many pieces fit into memory."""

_P = ParamSpec("_P")
_T = TypeVar("_T")


class Reading:
    """A file that is being read: iterate over its pieces, or close it."""

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
        """Let go of the file, after what is being read of it."""
        try:
            self._executor.submit(self._file.close)
        except RuntimeError:
            # The hub is stopping: nobody reads any more.
            self._file.close()


class Files:
    """The file system. Every method waits for the disk, not for other members' uploads to end."""

    def __init__(
        self,
        catalogue: FileCatalogue,
        blobs: Blobs,
        now_ms: Callable[[], int],
        limits: FileLimits | None = None,
    ) -> None:
        self.limits = limits or FileLimits()
        self._catalogue = catalogue
        self._blobs = blobs
        self._tree = Tree(catalogue, blobs, self.limits)
        self._now_ms = now_ms
        # One thread: everything on disk happens in one order.
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="tieline-files")
        self._closed = False

    async def start(self) -> int:
        """Remove what an earlier run left halfway; returns how many pieces of content that were."""
        return await self._run(self._tree.sweep)

    async def close(self) -> None:
        """Finish what was begun and let go of the disk."""
        if not self._closed:
            self._closed = True
            await self._run(self._catalogue.close)
            self._executor.shutdown(wait=False)

    async def stat(self, path: str, viewer: Viewer) -> FileEntry | FileRefusal:
        """The entry at a path."""
        return await self._run(self._tree.stat, path, viewer)

    async def listing(self, path: str, viewer: Viewer) -> Sequence[FileEntry] | FileRefusal:
        """The entries in a folder."""
        return await self._run(self._tree.listing, path, viewer)

    async def shared(self, viewer: Viewer) -> Sequence[FileEntry]:
        """Files that others showed to the viewer."""
        return await self._run(self._tree.shared, viewer)

    async def everything(self, viewer: Viewer) -> Sequence[FileEntry] | FileRefusal:
        """The files of all homes, newest first, for who manages members."""
        return await self._run(self._tree.everything, viewer)

    async def read(self, path: str, viewer: Viewer) -> Reading | FileRefusal:
        """A file, open. What is begun is read to its end even when the file is removed meanwhile."""
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
        """Take a file in. A refusal, a broken connection and a crash all leave nothing behind."""
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
            # After the writes, even after one that nobody waits for any more.
            with suppress(RuntimeError):
                await asyncio.shield(asyncio.wrap_future(self._executor.submit(upload.abandon)))

    async def make_folder(self, path: str, viewer: Viewer, *, recursive: bool = False) -> FileEntry | FileRefusal:
        """Make a folder."""
        return await self._run(self._tree.make_folder, path, viewer, recursive=recursive, at_ms=self._now_ms())

    async def remove(self, path: str, viewer: Viewer, *, recursive: bool = False) -> FileRefusal | None:
        """Remove a file or folder."""
        return await self._run(self._tree.remove, path, viewer, recursive=recursive, at_ms=self._now_ms())

    async def move(self, source: str, target: str, viewer: Viewer) -> FileEntry | FileRefusal:
        """Give a file or folder another path."""
        return await self._run(self._tree.move, source, target, viewer, self._now_ms())

    async def attach(self, paths: Sequence[str], viewer: Viewer) -> tuple[Attachment, ...] | FileRefusal:
        """The attachments of a message as they are here; asked before it is sent."""
        return await self._run(self._tree.attach, paths, viewer)

    async def mirror(
        self, paths: Sequence[str], objective: str, viewer: Viewer
    ) -> tuple[Attachment, ...] | FileRefusal:
        """Copies of files in an objective's folder; they share the content."""
        return await self._run(self._tree.mirror, paths, objective, viewer, self._now_ms())

    async def share(self, paths: Sequence[str], viewers: Sequence[str], via: str) -> None:
        """Let the recipients of a message read its attachments."""
        await self._run(self._tree.share, paths, viewers, via, self._now_ms())

    async def settle(self, via: str, viewer: str) -> None:
        """Make a share because of `via` permanent, as one with what the viewer was shown before."""
        await self._run(self._tree.settle, via, viewer)

    async def unshare(self, via: str, viewer: str) -> None:
        """End what a viewer was shown because of `via`."""
        await self._run(self._tree.unshare, via, viewer)

    async def groups(self, paths: Sequence[str]) -> list[str]:
        """Channels and objectives whose members may do something with these paths."""
        return await self._run(self._tree.groups, paths)

    async def reconcile(self, since_ms: Mapping[str, int]) -> None:
        """Forget whoever was removed while nobody looked: these are the members, and since when each is one."""
        await self._run(self._tree.reconcile, since_ms, self._now_ms())

    async def unsettled(self) -> list[tuple[str, list[str]]]:
        """Copies that no objective was given yet: each folder, and the files in it."""
        return await self._run(self._tree.unsettled)

    async def forget(self, member: str) -> None:
        """A member was removed: its home and what was shown to it go too."""
        await self._run(self._tree.forget, member, self._now_ms())

    async def _fill(self, upload: Upload, chunks: AsyncIterable[bytes]) -> bool:
        """Take the bytes in; false as soon as they are too many."""
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
    """Whoever asked for it is gone."""
    if not opening.cancelled() and opening.exception() is None:
        found = opening.result()
        if not isinstance(found, FileRefusal):
            found[1].close()

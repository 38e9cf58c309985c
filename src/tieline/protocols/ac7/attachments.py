"""Attachments: files that a message or an objective refers to, and who may read them because of that.

Above: pushing, discussing and giving work. Below: `files`. What a sender says of a file counts for nothing: name, size
and type are the store's. A grant comes before the message that it is for, because a message that was accepted must be
readable; it is taken back when the message is refused. It is for a member, for everybody, or for whoever is in the
channel or thread, so that who comes later can read what it finds in the history.
"""

import secrets
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager

from tieline.contract.message import Attachment
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.file_routes import reached, viewer_of
from tieline.protocols.ac7.files import Files
from tieline.protocols.ac7.route import Call, Refused, no
from tieline.protocols.ac7.tree import OBJECTIVES, FileRefusal, Viewer

_KEEPER = Viewer("", manages=True)


class Attachments:
    """What may be attached, and to whom it is shown."""

    def __init__(self, files: Files | None) -> None:
        # None where no files are served.
        self._files = files

    async def check(self, call: Call, given: Iterable[s.Attachment] | None) -> tuple[Attachment, ...]:
        """Files that the member wants to attach, as they are known here."""
        paths = [one.path for one in given or ()]
        if not paths:
            return ()
        files = self._require()
        viewer = await viewer_of(call, files, paths)
        return _known(await reached(files.attach(paths, viewer)))

    @asynccontextmanager
    async def shown(self, attached: Sequence[Attachment], viewer: str) -> AsyncIterator[None]:
        """Show files to a viewer, for good unless what is done meanwhile is refused."""
        if not attached:
            yield
            return
        files = self._require()
        via = secrets.token_hex(16)
        await reached(files.share([one.path for one in attached], [viewer], via))
        try:
            yield
        except Refused:
            await files.unshare(via, viewer)
            raise
        await files.settle(via, viewer)

    @asynccontextmanager
    async def copied(self, call: Call, given: Iterable[s.Attachment] | None) -> AsyncIterator["Copies"]:
        """Copies of files for an objective, which stay when the first ones go; gone again if it is not made."""
        paths = [one.path for one in given or ()]
        if not paths:
            yield Copies(self._files, ())
            return
        files = self._require()
        viewer = await viewer_of(call, files, paths)
        folder = secrets.token_hex(16)
        copies = Copies(files, _known(await reached(files.mirror(paths, folder, viewer))))
        try:
            yield copies
        except Refused:
            await files.remove(f"/{OBJECTIVES}/{folder}", _KEEPER, recursive=True)
            raise

    def _require(self) -> Files:
        if self._files is None:
            raise Refused(no(400, "file attachments are not enabled on this hub"))
        return self._files


class Copies:
    """Files in the folder of an objective."""

    def __init__(self, files: Files | None, attached: tuple[Attachment, ...]) -> None:
        self._files = files
        self._via = secrets.token_hex(16)
        self.attached = attached

    async def show(self, names: Sequence[str]) -> None:
        """Let these members read them, until it is known for whom they are."""
        if self._files is not None and self.attached:
            await reached(self._files.share([one.path for one in self.attached], names, self._via))

    async def settle(self, group: str, names: Sequence[str]) -> None:
        """They are for a group, and for its members because of that alone."""
        if self._files is not None and self.attached:
            await reached(self._files.share([one.path for one in self.attached], [group], self._via))
            for name in names:
                await reached(self._files.unshare(self._via, name))


def _known(result: tuple[Attachment, ...] | FileRefusal) -> tuple[Attachment, ...]:
    if isinstance(result, FileRefusal):
        raise Refused(no(result.status, result.message, result.code.value))
    return result

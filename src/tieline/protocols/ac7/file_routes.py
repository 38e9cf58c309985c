"""Files over HTTP: members' home folders, files that others shared with them, and content, streamed in chunks.

Used by: the server. Uses: the hub's files.
"""

from collections.abc import Sequence
from typing import Literal

from tieline.contract import command as c
from tieline.contract import reply as r
from tieline.contract.file import FileEntry
from tieline.protocols.ac7 import shapes as s
from tieline.protocols.ac7.threads import objectives_of
from tieline.services.files.files import Files
from tieline.services.files.transfer import Transfers, given, reached, takes_part
from tieline.services.files.tree import Collide, FileRefusal, Viewer
from tieline.wire.route import NO_CONTENT, Call, Download, Query, Refused, Route, fail, no

_ANY = "application/octet-stream"
_PATH = Query("path", "Absolute path: `/<member>/…`.", required=True)


class EntryView(s.Shape, frozen=True):
    """A file or folder. It always has every key."""

    path: str
    name: str
    kind: Literal["file", "directory"]
    owner: str
    size: int | None
    mime_type: str | None
    hash: str | None
    created_at: int
    created_by: str
    updated_at: int


def view(entry: FileEntry) -> EntryView:
    """Return a file or folder of the file store as ac7's JSON shape."""
    return EntryView(
        entry.path,
        entry.name,
        entry.kind.value,
        entry.owner,
        entry.size,
        entry.media_type,
        entry.digest,
        entry.created_at_ms,
        entry.created_by,
        entry.updated_at_ms,
    )


class EntryList(s.Shape, frozen=True):
    """Files and folders."""

    entries: list[EntryView]


class EntryResponse(s.Shape, frozen=True):
    """A file or folder."""

    entry: EntryView


class WrittenResponse(s.Shape, frozen=True):
    """A file that was written. `renamed` is true if it got another name than requested."""

    entry: EntryView
    renamed: bool


class MakeFolder(s.Shape, frozen=True):
    """A folder to create. `recursive` also creates the folders above it."""

    path: s.FilePath
    recursive: bool = False


class MoveEntry(s.Shape, frozen=True):
    """Old path and new path of a file or folder."""

    from_: s.FilePath
    to: s.FilePath


class FileRoutes:
    """The HTTP operations on files."""

    def __init__(self, files: Files, transfers: Transfers) -> None:
        self._files = files
        self._transfers = transfers

    def routes(self) -> list[Route]:
        """Return the routes for files."""
        return [*self._reading(), *self._writing()]

    def _reading(self) -> list[Route]:
        return [
            Route(
                "GET",
                "/fs/ls",
                self.listing,
                query=(Query("path", "Absolute path. The root lists the homes that the member may see."),),
                errors=(409,),
            ),
            Route("GET", "/fs/stat", self.stat, query=(_PATH,), errors=(404,)),
            Route("GET", "/fs/read/{path}", self.read, gives=(_ANY,), errors=(404, 409)),
            Route("GET", "/fs/shared", self.shared),
            Route("GET", "/fs/all", self.everything),
        ]

    def _writing(self) -> list[Route]:
        flag = {"type": "boolean"}
        collisions = {"type": "string", "enum": [one.value for one in Collide]}
        return [
            Route(
                "POST",
                "/fs/write",
                self.write,
                takes=(_ANY,),
                in_pieces=True,
                query=(
                    _PATH,
                    Query("mime", "Media type of the file."),
                    Query("collide", "Action if the file exists already. The default is an error.", collisions),
                ),
                errors=(409, 429),
            ),
            Route("POST", "/fs/mkdir", self.make_folder, invalid="invalid mkdir payload", errors=(404, 409)),
            Route(
                "DELETE",
                "/fs/rm",
                self.remove,
                status=NO_CONTENT,
                query=(_PATH, Query("recursive", "True to remove a folder that is not empty.", flag)),
                errors=(404, 409),
            ),
            Route("POST", "/fs/mv", self.move, invalid="invalid move payload", errors=(404, 409, 413)),
        ]

    # Requests.

    async def listing(self, call: Call, _: None) -> EntryList:
        """List the entries of a folder."""
        path = call.query.get("path", "/")
        await self._make_home(call, path)
        return _entries(await reached(self._files.listing(path, await self._viewer(call, path))))

    async def stat(self, call: Call, _: None) -> EntryResponse:
        """Show the entry at a path."""
        path = _path(call)
        await self._make_home(call, path)
        return EntryResponse(view(given(await reached(self._files.stat(path, await self._viewer(call, path))))))

    async def read(self, call: Call, _: None) -> Download:
        """Download the content of a file."""
        return await self._transfers.download(call, "/" + call.params["path"])

    async def write(self, call: Call, _: None) -> WrittenResponse:
        """Store the body as a file. The folders above it are created."""
        written = await self._transfers.upload(call, call.query.get("path", ""))
        return WrittenResponse(view(written.entry), written.renamed)

    async def make_folder(self, call: Call, form: MakeFolder) -> EntryResponse:
        """Create a folder. It is not an error if it exists."""
        viewer = await self._viewer(call, form.path)
        return EntryResponse(
            view(given(await reached(self._files.make_folder(form.path, viewer, recursive=form.recursive))))
        )

    async def remove(self, call: Call, _: None) -> None:
        """Remove a file or a folder. With `recursive`, also what the folder contains."""
        path = _path(call)
        recursive = call.query.get("recursive") in ("true", "1")
        viewer = await self._viewer(call, path)
        given(await reached(self._files.remove(path, viewer, recursive=recursive)))

    async def move(self, call: Call, form: MoveEntry) -> EntryResponse:
        """Move a file or folder. Members that it is shared with keep their access."""
        viewer = await self._viewer(call, form.from_, form.to)
        return EntryResponse(view(given(await reached(self._files.move(form.from_, form.to, viewer)))))

    async def shared(self, call: Call, _: None) -> EntryList:
        """List the files that others shared with the member, newest first."""
        objectives = await objectives_of(call)
        match await call.ask(lambda session: (c.ListChannels(session),)):
            case (r.Channels(channels),):
                own = [f"chan:{channel.id}" for channel in channels if call.member in channel.subscribers]
                own += [f"obj:{objective.id}" for objective in objectives if takes_part(call.member, objective)]
                return _entries(await reached(self._files.shared(Viewer(call.member, groups=frozenset(own)))))
            case replies:
                raise fail(replies)

    async def everything(self, call: Call, _: None) -> EntryList:
        """List the files of all homes, newest first. Needs members.manage."""
        return _entries(await reached(self._files.everything(await self._viewer(call))))

    async def _make_home(self, call: Call, path: str) -> None:
        """Create the caller's home folder if `path` is the root folder or that home folder itself."""
        home = f"/{call.member}"
        if path in ("/", home):
            await reached(self._files.make_folder(home, Viewer(call.member)))

    async def _viewer(self, call: Call, *paths: str) -> Viewer:
        return await self._transfers.viewer(call, *paths)


def _entries(result: Sequence[FileEntry] | FileRefusal) -> EntryList:
    return EntryList([view(entry) for entry in given(result)])


def _path(call: Call) -> str:
    path = call.query.get("path")
    if not path:
        raise Refused(no(400, "path is required"))
    return path
